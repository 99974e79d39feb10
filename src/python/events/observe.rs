//! Observing: an event is recorded, and judged if the guard enforces its policy.

use std::ffi::CStr;
use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use ahash::{AHashMap, RandomState};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::policy::events::{self, EVENTS, EventEffect, KnownEvent};
use crate::policy::judge;
use crate::policy::learn::Need;
use crate::policy::rules::Rule;
use crate::python::configuration::config::AuditCfg;
use crate::python::configuration::temporary;
use crate::python::cpython::ffi as raw;
use crate::python::denials::{report, text};
use crate::python::guard::event::{Event, Probe, Purpose};
use crate::python::guard::scope::Active;
use crate::python::importing::imports;
use crate::python::logs::log::{Entry, Recorder, Records};
use crate::python::values::simple;
use crate::python::wrapped::threads;

/// What the tables say of an event.
#[derive(Clone, Copy)]
struct Class {
    effect: Option<EventEffect>,
    rule: Option<Rule>,
    is_recorded: bool,
}

static CLASSES: LazyLock<AHashMap<&'static [u8], Class>> = LazyLock::new(|| {
    let class = |known: &'static KnownEvent| {
        let rule = events::lookup(known.name.as_bytes());
        let is_effect = !matches!(
            known.effect,
            EventEffect::Nothing
                | EventEffect::Code
                | EventEffect::Inspect
                | EventEffect::Interpreter
                | EventEffect::Descriptor
                | EventEffect::Guard
        );
        let is_recorded = match rule {
            Some(Rule::Exec | Rule::SetAttribute) => false,
            Some(_) => true,
            None => is_effect,
        };
        (known.name.as_bytes(), Class { effect: Some(known.effect), rule, is_recorded })
    };
    EVENTS.iter().map(class).collect()
});

impl Class {
    fn of(event: &CStr) -> Self {
        let unknown = Self { effect: None, rule: None, is_recorded: true };
        CLASSES.get(event.to_bytes()).copied().unwrap_or(unknown)
    }
}

static HASHING: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Records an event, and judges it if the guard does.
pub fn event(
    event: &CStr,
    args: &Bound<'_, PyTuple>,
    active: &Active,
    config: &AuditCfg,
    records: &Records,
) -> PyResult<()> {
    let class = Class::of(event);
    let is_exec = matches!(class.rule, Some(Rule::Exec)) && !config.policy().restricts_imports();
    if !class.is_recorded && (class.rule.is_none() || is_exec) {
        return Ok(());
    }
    let recorder = active.log().recorder();
    let mut key = key(event, args, class.rule, recorder)?;
    if !matches!(class.rule, Some(Rule::Import | Rule::Exec))
        && let Some(package) = imports::package_being_imported(args.py())?
    {
        // What one package's import needs is not what another's does.
        key = HASHING.hash_one((key, package));
    }
    let counts_first = class.is_recorded && !records.enforces;
    if counts_first && recorder.count(key, records) {
        return Ok(());
    }
    let probe = Probe::new(match records.enforces {
        true => Purpose::Enforces,
        false => Purpose::Observes,
    });
    let judged = Event { probe: Some(&probe), ..Event::new(event, args, active, config) };
    let result = judge::judge_any(&judged, class.rule);
    if event == c"os.chdir" {
        recorder.directories.fetch_add(1, Ordering::Relaxed);
    }
    let is_denied = probe.denied.get().is_some();
    if !is_denied && !class.is_recorded || !counts_first && recorder.count(key, records) {
        return result;
    }
    if is_denied || result.is_ok() {
        recorder.add(key, entry(&judged, class, &probe)?, records);
    }
    result
}

/// Records an event in the course of a tool, which has rights of its own, for the guest's guard.
#[cold]
pub fn event_of_tool(
    event: &CStr,
    args: &Bound<'_, PyTuple>,
    guest: &Active,
    tool: &str,
) -> PyResult<()> {
    let Some(config) = guest.config() else {
        return Ok(());
    };
    let config = config.get();
    let Some(records) = config.records() else {
        return Ok(());
    };
    let class = Class::of(event);
    if !class.is_recorded {
        return Ok(());
    }
    let recorder = guest.log().recorder();
    let key = HASHING.hash_one((key(event, args, class.rule, recorder)?, tool));
    if recorder.count(key, records) {
        return Ok(());
    }
    let probe = Probe::new(Purpose::Observes);
    let judged = Event { probe: Some(&probe), ..Event::new(event, args, guest, config) };
    judge::judge_any(&judged, class.rule)?;
    let mut entry = entry(&judged, class, &probe)?;
    entry.denied = None;
    entry.tool = Some(tool.to_owned());
    entry.line = report::line(args.py(), &entry)?;
    recorder.add(key, entry, records);
    Ok(())
}

fn entry(event: &Event<'_, '_>, class: Class, probe: &Probe<'_>) -> PyResult<Entry> {
    let py = event.args.py();
    let name = event.name.to_string_lossy().into_owned();
    let denied = probe.denied.get();
    let mut needs = probe.needs.take();
    needs.retain(|need| match need {
        Need::Read(path) => !imports::is_library_path(path),
        _ => true,
    });
    for need in &mut needs {
        let (path, writes) = match need {
            Need::Write(path) => (path, true),
            Need::Read(path) => (path, false),
            _ => continue,
        };
        if event.config.directories().hold(path) {
            let (path, host) = (std::mem::take(path), temporary::usual().to_vec());
            *need = Need::Temporary { path, writes, host };
        }
    }
    if denied.is_some_and(|why| why.is_none()) {
        needs.push(Need::Never(name.clone()));
    }
    // `import_allow` allows no import.
    if needs.iter().any(|need| !matches!(need, Need::Module(_)))
        && let Some(package) = imports::package_being_imported(py)?
    {
        needs = vec![Need::ImportOf(package)];
    }
    let mut entry = Entry {
        event: name,
        effect: class.effect,
        args: simple::tuple(&told(event.args, class.rule)?)?.unbind(),
        needs,
        call_chain: text::call_chain(py, None)?,
        denied,
        count: 1.into(),
        tool: None,
        line: String::new(),
    };
    entry.line = report::line(py, &entry)?;
    Ok(entry)
}

/// The arguments that are recorded.
fn told<'py>(args: &Bound<'py, PyTuple>, rule: Option<Rule>) -> PyResult<Bound<'py, PyTuple>> {
    match rule {
        // Those after the module's name are `sys.path` and its hooks.
        Some(Rule::Import) => Ok(args.get_slice(0, 1)),
        Some(Rule::Thread) => threads::named(args),
        _ => Ok(args.clone()),
    }
}

fn key(
    event: &CStr,
    args: &Bound<'_, PyTuple>,
    rule: Option<Rule>,
    recorder: &Recorder,
) -> PyResult<u64> {
    let args = told(args, rule)?;
    let mut hasher = HASHING.build_hasher();
    hasher.write(event.to_bytes());
    hasher.write_u64(recorder.directories.load(Ordering::Relaxed));
    // Anyone may raise the event with fewer.
    for index in 0..args.len().min(4) {
        add_to_key(&mut hasher, &raw::tuple_item(&args, index), 2);
    }
    Ok(hasher.finish())
}

fn add_to_key(hasher: &mut impl Hasher, object: &Bound<'_, PyAny>, depth: usize) {
    if let Ok(text) = object.cast::<PyString>() {
        if let Ok(text) = raw::fs_encode(text.as_borrowed()) {
            hasher.write(text.as_bytes());
        }
        hasher.write_u8(1);
    } else if let Some(number) = raw::int_value(object) {
        hasher.write_i64(number);
    } else if let Ok(bytes) = object.cast::<PyBytes>() {
        hasher.write(bytes.as_bytes());
        hasher.write_u8(2);
    } else if object.is_none() {
        hasher.write_u8(3);
    } else if depth > 0
        && let Some(items) = simple::items(object)
    {
        for item in &items {
            add_to_key(hasher, item, depth - 1);
        }
        hasher.write_u8(4);
    } else if let Ok(Some(path)) = simple::text(object) {
        add_to_key(hasher, path.as_any(), 0);
    } else {
        hasher.write_usize(object.get_type().as_ptr() as usize);
    }
}
