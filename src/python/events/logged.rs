//! Judging an event under a guard with a log: the decision becomes a line of it.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::policy::events;
use crate::policy::files::os::Os;
use crate::policy::files::path::{self, Base};
use crate::policy::rules::Rule;
use crate::policy::written::values::Switch;
use crate::policy::{Why, judge};
use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::{ffi as raw, process};
use crate::python::guard::entered_at;
use crate::python::guard::event::{Event, Logged, Probe, Purpose};
use crate::python::guard::scope::{self, Active};
use crate::python::logs::audit_log::{self, DecisionLog, VERSION};
use crate::python::logs::log::{self, Decided};
use crate::python::values::json_line;

const USUAL: usize = 512;

/// Judges an event, and logs the decision if the policy was asked.
#[inline(never)]
pub fn event(
    event: &CStr,
    args: &Bound<'_, PyTuple>,
    active: &Active,
    config: &AuditCfg,
    log: &DecisionLog,
) -> PyResult<()> {
    let policy = config.policy();
    let rule = policy.rules().rule(event.to_bytes());
    if rule.is_none() && policy.has(Switch::UnknownEvents) {
        return Ok(());
    }
    let logged = Logged {
        decided: RefCell::default(),
        asked: Cell::new(None),
        is_approved: Cell::new(false),
    };
    let probe = Probe::new(Purpose::Logs(&logged));
    let judged = Event { probe: Some(&probe), ..Event::new(event, args, active, config) };
    Os::forget_current_dir();
    let result = judge::judge_any(&judged, rule);
    if matches!(rule, Some(Rule::End)) {
        // The process may end without more ado.
        log.sink.flush();
    }
    // The interpreter ends whatever the answer is.
    let is_vain = event.to_bytes().starts_with(b"cpython.") && raw::is_finalizing();
    if !is_decision(rule, &probe, &logged, result.is_err()) || is_vain || audit_log::hands_over() {
        return result;
    }
    write(&judged, rule, &probe, &logged, &result, log);
    result
}

/// Returns whether the policy had a say: other events pass under each policy, or under this one.
fn is_decision(rule: Option<Rule>, probe: &Probe<'_>, logged: &Logged, is_err: bool) -> bool {
    let always = matches!(
        rule,
        Some(Rule::Network(_) | Rule::Bind | Rule::Fork | Rule::Thread | Rule::Native)
    );
    always || is_err || probe.denied.get().is_some() || logged.decided.borrow().asked > 0
}

fn write(
    event: &Event<'_, '_>,
    rule: Option<Rule>,
    probe: &Probe<'_>,
    logged: &Logged,
    result: &PyResult<()>,
    log: &DecisionLog,
) {
    let py = event.args.py();
    let mut line = Vec::with_capacity(USUAL);
    let out = &mut line;
    let (seconds, micros) = audit_log::now();
    head(out, seconds, micros);
    let denied = probe.denied.get();
    let verdict = match (result, denied) {
        (Err(_), _) => "denied",
        // The host let it pass, by its answer or by the policy's `on_violation`.
        (Ok(()), Some(_)) if !logged.is_approved.get() => "reported",
        (Ok(()), _) => "allowed",
    };
    pair(out, "verdict", verdict.as_bytes());
    word_or_null(out, "rule", denied.flatten().map(Why::field));
    if let Some(asked) = logged.asked.get() {
        pair(out, "asked", asked.as_bytes());
    }
    pair(out, "event", event.name.to_bytes());
    let decided = logged.decided.take();
    let effect = event.name.to_str().ok().and_then(events::known);
    let effect = effect.map(|known| known.effect.told(decided.writes));
    word_or_null(out, "effect", effect);
    key(out, "args");
    json_line::arguments(out, event.args, most_arguments(rule));
    targets(out, event, rule, decided, result.is_err());
    if let Ok(Some(tool)) = scope::tool_running(py) {
        pair(out, "tool", tool.as_bytes());
    }
    if let Some(name) = &log.name {
        pair(out, "guard", name.as_bytes());
    }
    if denied.is_some()
        && let Ok(Some(place)) = entered_at::here(py)
    {
        pair(out, "place", place.text(py).as_bytes());
    }
    if let (Err(error), None) = (result, denied) {
        let class = error.get_type(py);
        if let Ok(name) = class.name() {
            pair(out, "error", name.to_string_lossy().as_bytes());
        }
    }
    out.extend_from_slice(b"}\n");
    log.sink.add(out, seconds, verdict != "allowed");
}

fn head(out: &mut Vec<u8>, seconds: u64, micros: u32) {
    thread_local! {
        static SELF: Cell<(usize, i64, i64)> = const { Cell::new((usize::MAX, 0, 0)) };
    }
    let generation = process::generation();
    let (mut of, mut process, mut thread) = SELF.get();
    if of != generation {
        (of, process, thread) = (generation, std::process::id().into(), own_thread());
        SELF.set((of, process, thread));
    }
    out.extend_from_slice(b"{\"version\":");
    json_line::number(out, VERSION);
    key(out, "time");
    json_line::number(out, seconds.try_into().unwrap_or(0));
    // Six digits: the first is cut off.
    let start = out.len();
    json_line::number(out, i64::from(micros) + 1_000_000);
    out[start] = b'.';
    key(out, "pid");
    json_line::number(out, process);
    key(out, "thread");
    json_line::number(out, thread);
}

/// The native id of the running thread, as `threading.get_native_id` has it.
fn own_thread() -> i64 {
    rustix::thread::gettid().as_raw_nonzero().get().into()
}

/// The number of arguments that are told: values of variables may be secrets, and the arguments of an
/// import after the first are the same for all.
fn most_arguments(rule: Option<Rule>) -> usize {
    match rule {
        Some(Rule::Import | Rule::SetVariable) => 1,
        // The environment of a program may hold secrets too.
        Some(Rule::Start | Rule::LowLevelStart) => 3,
        _ => usize::MAX,
    }
}

fn targets(
    out: &mut Vec<u8>,
    event: &Event<'_, '_>,
    rule: Option<Rule>,
    decided: Decided,
    is_denied: bool,
) {
    let paths = decided.paths.map(|path| {
        path.map(|path| match path.starts_with(b"/") {
            true => path,
            false => log::absolute(&path, Base::CurrentDir),
        })
    });
    let [path, to] = &paths;
    for (key, path) in [("path", path), ("to", to)] {
        if let Some(path) = path {
            pair(out, key, path);
        }
    }
    if is_denied
        && let Some(path) = path
        && let Some(landing) = path::resolve(&Os, path, Base::CurrentDir)
        && landing.as_bytes() != &path[..]
    {
        pair(out, "resolved", landing.as_bytes());
    }
    if !decided.more.is_empty() {
        out.extend_from_slice(&decided.more);
        return;
    }
    match rule {
        Some(Rule::Network(_) | Rule::Bind) if path.is_none() => host(out, event.args),
        Some(Rule::Start | Rule::LowLevelStart) => command(out, event.args),
        _ => {}
    }
}

/// Adds the host and port of an event that the policy did not look into, or the path of a socket.
fn host(out: &mut Vec<u8>, args: &Bound<'_, PyTuple>) {
    let address = match args.get_item(0) {
        Ok(first) if first.is_instance_of::<PyString>() => args.clone(),
        _ => match args.get_item(1).map(Bound::cast_into::<PyTuple>) {
            Ok(Ok(address)) => address,
            _ => return,
        },
    };
    if let Ok(Ok(host)) = address.get_item(0).map(Bound::cast_into::<PyString>) {
        key(out, "host");
        json_line::python_text(out, &host);
        if let Some(port) = address.get_item(1).ok().and_then(|port| raw::int_value(&port)) {
            key(out, "port");
            json_line::number(out, port);
        }
    }
}

/// Adds the command of an event that starts a program: its second argument, or its only one.
fn command(out: &mut Vec<u8>, args: &Bound<'_, PyTuple>) {
    let index = usize::from(args.len() > 1);
    if index < args.len() {
        key(out, "command");
        json_line::whole(out, &raw::tuple_item(args, index));
    }
}

fn key(out: &mut Vec<u8>, key: &str) {
    for part in [",\"", key, "\":"] {
        out.extend_from_slice(part.as_bytes());
    }
}

fn word_or_null(out: &mut Vec<u8>, name: &str, value: Option<&str>) {
    key(out, name);
    match value {
        Some(value) => json_line::text(out, value.as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
}

fn pair(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    key(out, name);
    json_line::text(out, value);
}
