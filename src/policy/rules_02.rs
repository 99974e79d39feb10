//! The audit events that pass under the rule set of the `fastaudit` 0.2 contract, as data.
//!
//! An event with a rule of 0.1 that looks at its arguments is checked by it. Other events are
//! denied, except those that the table lets pass.

use super::events::{self, EVENTS};
use super::rules::{Index, Rule};

/// A contract whose rules a guard keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleSet {
    /// The contract of fastaudit 0.1: unnamed events pass.
    #[default]
    Classic,
    /// The contract of fastaudit 0.2: unnamed events are denied.
    Strict,
}

impl RuleSet {
    /// The rule for an event; `None` if it passes.
    #[inline]
    pub fn rule(self, event: &[u8]) -> Option<Rule> {
        match self {
            Self::Classic => events::lookup(event),
            Self::Strict => lookup(event),
        }
    }
}

/// Events that pass under names that no Python raises: fastaudit 0.2.10 names them so, and denies
/// the events that CPython raises.
const MISNAMED: &[&str] = &["sys.set_asyncgen_hooks_finalizer", "sys.set_asyncgen_hooks_firstiter"];

/// The beginnings of the names of further events that pass.
pub const PASSING_PREFIXES: &[&str] =
    &["fcntl.", "ftplib.", "gc.", "imaplib.", "marshal.", "poplib.", "smtplib."];

/// The events that pass or have a rule, and after them those that are misnamed.
static INDEX: Index = {
    let mut index = Index::new();
    let mut position = 0;
    while position < EVENTS.len() {
        let known = EVENTS[position];
        let is_ruled = match known.rule {
            Some(rule) => !rule.is_of_policies(),
            None => false,
        };
        if known.passes_02 || is_ruled {
            index = index.with(known.name, position);
        }
        position += 1;
    }
    let mut position = 0;
    while position < MISNAMED.len() {
        index = index.with(MISNAMED[position], EVENTS.len() + position);
        position += 1;
    }
    index
};

/// The rule for an event; `None` if it passes.
#[inline]
pub fn lookup(event: &[u8]) -> Option<Rule> {
    let found = INDEX.find(event, |position| match EVENTS.get(position) {
        Some(known) => Some(known.name),
        None => MISNAMED.get(position - EVENTS.len()).copied(),
    });
    let Some(position) = found else {
        return lookup_unnamed(event);
    };
    match EVENTS.get(position) {
        Some(known) if !known.passes_02 => match known.rule {
            Some(Rule::WriteBytes | Rule::Bind) => Some(Rule::Deny),
            rule => rule,
        },
        _ => None,
    }
}

#[inline(never)]
fn lookup_unnamed(event: &[u8]) -> Option<Rule> {
    let passes = |prefix: &&str| event.starts_with(prefix.as_bytes());
    (!PASSING_PREFIXES.iter().any(passes)).then_some(Rule::Deny)
}
