//! `docs/events.md` is made from the rule tables: `make events-page` writes it anew.

use std::fmt::Write;
use std::path::Path;

use fastaudit_rs::policy::events::{EVENTS, KnownEvent, lookup};
use fastaudit_rs::policy::rules::{Access, Rule};
use fastaudit_rs::policy::rules_02;

const HEAD: &str = "\
# Audit events

<!-- Made from the tables in src/policy by `make events-page`. -->

Each audit event of CPython 3.10 to 3.15 and of this package, with the verdict of a guard. Search the page for the
`event` of a denial.

- **effect**: the `effect` of [denials](hosts.md) and [records](recording.md).
- **raised by**: CPython, in the versions named or in all of them. This package raises an event itself before a function
  for which CPython raises none.
- **`mk_audit`**: the verdict under `fastaudit_rs.mk_audit`, with the rules of fastaudit 0.1. A *root* is a directory that
  you pass to it. The arguments of an event count from 1.
- **0.2**: the verdict under `fastaudit_rs.v02.mk_audit`, if it differs.
- **policy fields**: the fields of a [policy](policy.md) that decide instead. If there are none, a policy decides as
  `mk_audit`.

Events of Windows are left out. Other events that are not listed pass. A policy with `unknown_events = 'deny'` and the
rules of 0.2 deny them. Operations that raise no event are in [limits](limits.md).

";

/// The verdict of the rule set of fastaudit 0.1 on an event.
fn verdict(rule: Option<Rule>) -> String {
    let verdict = match rule {
        None | Some(Rule::Read(_) | Rule::Network(_) | Rule::Socket | Rule::Exec) => "passes",
        Some(
            Rule::Deny
            | Rule::SetVariable
            | Rule::RemoveVariable
            | Rule::RemoveVariables
            | Rule::Start
            | Rule::Thread
            | Rule::Native
            | Rule::WriteBytes,
        ) => "denied",
        Some(Rule::LowLevelStart) => "denied, except for an approved start",
        Some(Rule::Entries(paths)) => {
            let positions = paths.iter().filter(|path| path.access != Access::Read);
            let mut positions: Vec<_> = positions.map(|path| path.path + 1).collect();
            positions.dedup();
            let which = match positions[..] {
                [first, second] => format!("arguments {first} and {second}"),
                _ => format!("argument {}", positions[0]),
            };
            let opened =
                match paths.iter().any(|path| path.descriptor && path.access != Access::Read) {
                    true => ", or a descriptor open for writing",
                    false => "",
                };
            return format!("{which} in a root{opened}");
        }
        Some(Rule::Node(_)) => "argument 1 in a root; no devices",
        Some(Rule::Control) => "changes to files as `os.chmod`; typing into a terminal is denied",
        Some(Rule::Open) => "reading passes; writing in a root",
        Some(Rule::ChangeDirectory) => "into a root, and back",
        Some(Rule::Symlink) => "arguments 1 and 2 in a root, the first as the link resolves it",
        Some(Rule::Database) => "argument 1 in a root, in memory, or read-only without new files",
        Some(Rule::Import) => "passes; native modules from the host's import directories",
        Some(Rule::Fork) => "denied while other threads run",
        Some(Rule::End) => "denied outside a forked child",
        Some(Rule::Signalling) => "denied if it asks the kernel for signals",
        Some(Rule::Limits) => "denied if it sets limits",
        Some(Rule::Bind) => "passes; Unix sockets in a root",
        Some(Rule::SetAttribute) => "passes for names that class and function definitions set",
    };
    verdict.to_owned()
}

/// The verdict of the rule set of fastaudit 0.2 on an event.
fn verdict_02(event: &str) -> String {
    let verdict = match rules_02::lookup(event.as_bytes()) {
        Some(Rule::SetVariable) => "denied for `PATH`, `HOME` and similar",
        Some(Rule::RemoveVariable) => {
            "passes; the guard restores `PATH`, `HOME` and similar as it ends"
        }
        Some(Rule::RemoveVariables) => "passes",
        Some(Rule::Thread) => "denied, except for an event loop's executor",
        rule => return verdict(rule),
    };
    verdict.to_owned()
}

/// The rule of a `Policy`, or its fields that decide.
fn decided_by(known: &KnownEvent) -> &'static str {
    match known.name {
        "sys.excepthook" | "sys.unraisablehook" => "passes, except for third-party native hooks",
        _ => fields(lookup(known.name.as_bytes())),
    }
}

/// The fields of a `Policy` that decide.
fn fields(rule: Option<Rule>) -> &'static str {
    match rule {
        None
        | Some(
            Rule::Deny
            | Rule::SetAttribute
            | Rule::Fork
            | Rule::End
            | Rule::Limits
            | Rule::Signalling,
        ) => "",
        Some(Rule::Bind) => "`network`, `write`, `block`, `protect`",
        Some(Rule::Read([path])) if path.access == Access::Look => "`block`",
        Some(Rule::Read(_)) => "`read`, `block`",
        Some(Rule::Network(_) | Rule::Socket) => "`network`",
        Some(Rule::Import) => "`imports`, `native`",
        Some(Rule::Exec) => "`imports`",
        Some(Rule::SetVariable | Rule::RemoveVariable | Rule::RemoveVariables) => "`env`",
        Some(Rule::Start | Rule::LowLevelStart) => "`commands`",
        Some(Rule::Thread) => "`threads`",
        Some(Rule::Native) => "`native`",
        Some(Rule::WriteBytes) => "`max_bytes`",
        Some(Rule::Open | Rule::Database) => "`write`, `read`, `block`, `protect`",
        Some(Rule::Entries(_) | Rule::Node(_) | Rule::Symlink | Rule::Control) => {
            "`write`, `block`, `protect`"
        }
        Some(Rule::ChangeDirectory) => "`block`",
    }
}

/// The cases of an event that pass all the same, for doing no harm (`python::excuses`).
fn excused(event: &str) -> &'static str {
    match event {
        "os.wait" => ", unless all children were started under the guard",
        "os.kill" | "os.killpg" | "signal.pidfd_send_signal" => {
            ", except signal 0 and processes started under the guard"
        }
        "signal.raise_signal" => ", except ignored signals",
        "os.nice" => ", except 0",
        "resource.setrlimit" | "resource.prlimit" => ", except the current values",
        _ => "",
    }
}

fn judged(event: &str, verdict: String) -> String {
    match &*verdict {
        "passes" => verdict,
        _ => format!("{verdict}{}", excused(event)),
    }
}

/// The versions of CPython that raise it, or this package.
fn raised_by(known: &KnownEvent) -> String {
    match known.versions {
        _ if known.is_own() => "this package".to_owned(),
        (10, 15) if known.raised_by.is_empty() => String::new(),
        (10, 15) => "CPython; this package".to_owned(),
        (since, 15) if known.raised_by.is_empty() => format!("3.{since} on"),
        (since, 15) => format!("3.{since} on; this package"),
        (10, until) => format!("up to 3.{until}"),
        (since, until) => format!("3.{since} to 3.{until}"),
    }
}

/// A row of the page: events that differ only in their names and functions.
struct Row {
    names: Vec<String>,
    functions: Vec<String>,
    does: &'static str,
    effect: &'static str,
    raised_by: String,
    classic: String,
    strict: String,
    fields: &'static str,
}

impl Row {
    fn of(known: &KnownEvent) -> Self {
        let classic = judged(known.name, verdict(lookup(known.name.as_bytes())));
        let strict = judged(known.name, verdict_02(known.name));
        let quoted = |name: &&str| format!("`{name}`");
        Self {
            names: vec![quoted(&known.name)],
            functions: known.raised_by.iter().map(quoted).collect(),
            does: known.does,
            effect: known.effect.name(),
            raised_by: raised_by(known),
            strict: if strict == classic { String::new() } else { strict },
            classic,
            fields: decided_by(known),
        }
    }

    fn cells(&self) -> [&str; 6] {
        [self.does, self.effect, &self.raised_by, &self.classic, &self.strict, self.fields]
    }
}

fn rows() -> Vec<Row> {
    let is_shown = |known: &&KnownEvent| !known.does.ends_with("(Windows)");
    let mut events: Vec<_> = EVENTS.iter().filter(is_shown).collect();
    events.sort_by_key(|known| known.name);
    let mut rows: Vec<Row> = Vec::new();
    for known in events {
        let row = Row::of(known);
        match rows.iter_mut().find(|other| other.cells() == row.cells()) {
            Some(other) => {
                other.names.extend(row.names);
                other.functions.extend(row.functions);
            }
            None => rows.push(row),
        }
    }
    rows
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str(
        "| event | operation | effect | raised by | `mk_audit` | 0.2 | policy fields |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for row in rows() {
        let functions = match &row.functions[..] {
            [] => String::new(),
            names => format!(": {}", names.join(", ")),
        };
        writeln!(
            page,
            "| {} | {} | {} | {}{functions} | {} | {} | {} |",
            row.names.join(", "),
            row.does,
            row.effect,
            row.raised_by,
            row.classic,
            row.strict,
            row.fields,
        )
        .unwrap();
    }
    page
}

#[test]
fn the_page_is_made_from_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/events.md");
    let page = page();
    if std::env::var_os("FASTAUDIT_RS_WRITE_PAGE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/events.md is not what the tables say: run `make events-page`");
}
