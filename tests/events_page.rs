//! `docs/events.md` is made from the rule tables: `make events-page` writes it anew.

use std::fmt::Write;
use std::path::Path;

use fastaudit_rs::policy::events::{EVENTS, KnownEvent, lookup};
use fastaudit_rs::policy::rules::{Access, Rule};
use fastaudit_rs::policy::rules_02;

const HEAD: &str = "\
# Audit events

<!-- Made from the tables in src/policy by `make events-page`. -->

Every audit event that CPython 3.10 to 3.15 raises, what the operation behind it does, and what a
guard of `mk_audit` makes of it, which is what fastaudit 0.1 does, and one with the rules of fastaudit
0.2 (`fastaudit_rs.v02`); then the fields of a [policy](policy.md) that decide instead. An event that
is not here passes, unless a policy says `unknown_events = 'deny'`, and is denied by the rules of 0.2:
libraries raise events of their own. CPython raises no event for some functions of the standard
library that act: under a guard this package raises one first, which the column \"raised by us\" names
them for. Such operations that are left are in [limits.md](limits.md).

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
        Some(Rule::LowLevelStart) => "denied, unless it belongs to an approved start",
        Some(Rule::Entries(paths)) => {
            let positions = paths.iter().filter(|path| path.access != Access::Read);
            let mut positions: Vec<_> = positions.map(|path| path.path + 1).collect();
            positions.dedup();
            let which = match positions[..] {
                [first, second] => format!("arguments {first} and {second}"),
                _ => format!("argument {}", positions[0]),
            };
            let opened = match paths
                .iter()
                .any(|path| path.descriptor && path.access != Access::Read)
            {
                true => ", or a descriptor that was opened for writing",
                false => "",
            };
            return format!("{which} inside the roots{opened}");
        }
        Some(Rule::Node(_)) => "argument 1 inside the roots, and no device",
        Some(Rule::Control) => "what changes files as `os.chmod`; typing into a terminal is denied",
        Some(Rule::Open) => "reading passes; writing inside the roots",
        Some(Rule::ChangeDirectory) => "into the roots, and back",
        Some(Rule::Symlink) => "arguments 1 and 2 inside the roots, the first as it leads",
        Some(Rule::Database) => {
            "argument 1 inside the roots, in memory, or read without making files"
        }
        Some(Rule::Import) => "passes; native modules from where the host imports them",
        Some(Rule::Fork) => "denied where other threads run",
        Some(Rule::End) => "denied but in a copy of the process",
        Some(Rule::Signalling) => "denied where the kernel is to send signals",
        Some(Rule::Limits) => "denied where limits are set",
        Some(Rule::Bind) => "passes; a Unix socket inside the roots",
        Some(Rule::SetAttribute) => "what building classes and functions sets",
    };
    verdict.to_owned()
}

/// The verdict of the rule set of fastaudit 0.2 on an event.
fn verdict_02(event: &str) -> String {
    let verdict = match rules_02::lookup(event.as_bytes()) {
        Some(Rule::SetVariable) => "but for variables that programs are found by",
        Some(Rule::RemoveVariable) => "passes; variables that programs are found by come back",
        Some(Rule::RemoveVariables) => "passes",
        Some(Rule::Thread) => "denied, but for the executor of an event loop",
        rule => return verdict(rule),
    };
    verdict.to_owned()
}

/// The rule of a `Policy`, or its fields that decide.
fn decided_by(known: &KnownEvent) -> &'static str {
    match known.name {
        "sys.excepthook" | "sys.unraisablehook" => "passes, but for native code of others",
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
        Some(Rule::ChangeDirectory) => "`write`, `block`",
    }
}

/// The cases of an event that pass all the same, for doing no harm (`python::excuses`).
fn excused(event: &str) -> &'static str {
    match event {
        "os.wait" => ", but where all children were started under the guard",
        "os.kill" | "os.killpg" | "signal.pidfd_send_signal" => {
            ", but for signal 0 and processes that were started under the guard"
        }
        "signal.raise_signal" => ", but for signals that are ignored",
        "os.nice" => ", but for 0",
        "resource.setrlimit" | "resource.prlimit" => ", but for those that there are",
        _ => "",
    }
}

fn judged(event: &str, verdict: String) -> String {
    match &*verdict {
        "passes" => verdict,
        _ => format!("{verdict}{}", excused(event)),
    }
}

fn versions(known: &KnownEvent) -> String {
    match known.versions {
        _ if known.is_own() => "this package".to_owned(),
        (10, 15) => "all".to_owned(),
        (since, 15) => format!("3.{since} on"),
        (10, until) => format!("up to 3.{until}"),
        (since, until) => format!("3.{since} to 3.{until}"),
    }
}

/// The functions that raise it under a guard, by the modules that have them.
fn raised_by(known: &KnownEvent) -> String {
    let names = known.raised_by.iter().map(|name| format!("`{name}`"));
    names.collect::<Vec<_>>().join(", ")
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str(
        "| event | what it does | effect | raised by | raised by us | under `mk_audit` | with the \
         rules of 0.2 | decided by |\n",
    );
    page.push_str("|---|---|---|---|---|---|---|---|\n");
    let mut events: Vec<_> = EVENTS.iter().collect();
    events.sort_by_key(|known| known.name);
    for known in events {
        writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} |",
            known.name,
            known.does,
            known.effect.name(),
            versions(known),
            raised_by(known),
            judged(known.name, verdict(lookup(known.name.as_bytes()))),
            judged(known.name, verdict_02(known.name)),
            decided_by(known),
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
    assert!(
        written == page,
        "docs/events.md is not what the tables say: run `make events-page`"
    );
}
