//! The forms of a recording: objects, JSON, text, HTML.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PyString, PyTuple};
use serde_json::{Map, Value, json};

use crate::policy::learn::Need;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::denials::text::cut;
use crate::python::logs::log::{Entry, VERSION};
use crate::python::values::simple;

#[doc = doc!("Effect")]
#[pyclass(frozen, get_all, immutable_type, module = "fastaudit_rs")]
pub struct Effect {
    #[doc = doc!("Effect.event")]
    event: String,
    #[doc = doc!("Effect.event_args")]
    event_args: Py<PyTuple>,
    #[doc = doc!("Effect.effect")]
    effect: Option<&'static str>,
    #[doc = doc!("Effect.path")]
    path: Option<String>,
    #[doc = doc!("Effect.host")]
    host: Option<String>,
    #[doc = doc!("Effect.verdict")]
    verdict: &'static str,
    #[doc = doc!("Effect.count")]
    count: u64,
    #[doc = doc!("Effect.tool")]
    tool: Option<String>,
    #[doc = doc!("Effect.call_chain")]
    call_chain: Py<PyTuple>,
}

#[pymethods]
impl Effect {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "<Effect: {} {} {} {} x>",
            self.event,
            self.event_args.bind(py).shown()?,
            self.verdict,
            self.count
        ))
    }
}

impl Effect {
    pub fn of(py: Python<'_>, entry: &Entry) -> PyResult<Self> {
        Ok(Self {
            event: entry.event.clone(),
            event_args: entry.args.clone_ref(py),
            effect: kind(entry),
            path: path(entry),
            host: host(entry),
            verdict: entry.verdict(),
            count: entry.count(),
            tool: entry.tool.clone(),
            call_chain: PyTuple::new(py, &entry.call_chain)?.unbind(),
        })
    }
}

fn kind(entry: &Entry) -> Option<&'static str> {
    let writes =
        |need: &Need| matches!(need, Need::Write(_) | Need::Temporary { writes: true, .. });
    entry.effect.map(|effect| effect.told(entry.needs.iter().any(writes)))
}

fn path(entry: &Entry) -> Option<String> {
    entry.needs.iter().find_map(|need| match need {
        Need::Write(path)
        | Need::Read(path)
        | Need::Program(path)
        | Need::Temporary { path, .. } => Some(String::from_utf8_lossy(path).into_owned()),
        _ => None,
    })
}

fn host(entry: &Entry) -> Option<String> {
    entry.needs.iter().find_map(|need| match need {
        Need::Connect(host, _) | Need::Listen(host, _) => Some(host.clone()),
        _ => None,
    })
}

/// Returns the fields of an entry that the log has, except those of the line itself.
fn fields(py: Python<'_>, entry: &Entry) -> PyResult<Map<String, Value>> {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("event", json!(entry.event));
    put("effect", json!(kind(entry)));
    put("args", value(&simple::json(entry.args.bind(py))?));
    put("path", json!(path(entry)));
    put("host", json!(host(entry)));
    put("verdict", json!(entry.verdict()));
    if let Some(tool) = &entry.tool {
        put("tool", json!(tool));
    }
    Ok(fields)
}

/// Without the braces around them.
pub fn line(py: Python<'_>, entry: &Entry) -> PyResult<String> {
    let text = Value::Object(fields(py, entry)?).to_string();
    Ok(text[1..text.len() - 1].to_owned())
}

pub fn json(py: Python<'_>, entries: &[Arc<Entry>], dropped: u64) -> PyResult<String> {
    let effects = entries.iter().map(|entry| {
        let mut fields = fields(py, entry)?;
        fields.insert("count".to_owned(), json!(entry.count()));
        fields.insert("call_chain".to_owned(), json!(entry.call_chain));
        Ok(Value::Object(fields))
    });
    let effects = effects.collect::<PyResult<Vec<_>>>()?;
    Ok(json!({"version": VERSION, "effects": effects, "dropped": dropped}).to_string())
}

fn value(object: &Bound<'_, PyAny>) -> Value {
    if object.is_none() {
        Value::Null
    } else if let Ok(bool) = object.cast::<PyBool>() {
        Value::Bool(bool.is_true())
    } else if let Some(number) = raw::int_value(object) {
        json!(number)
    } else if let Ok(number) = object.cast::<PyFloat>() {
        json!(number.value())
    } else if let Ok(items) = object.cast::<PyList>() {
        Value::Array(items.iter().map(|item| value(&item)).collect())
    } else if let Ok(text) = object.cast::<PyString>() {
        json!(text.to_string_lossy())
    } else {
        // A number that is too long.
        json!(object.to_string())
    }
}

/// Returns the target of an operation, in one word or two: the path, the host, or the arguments.
fn target(py: Python<'_>, entry: &Entry) -> PyResult<String> {
    if let Some(path) = path(entry) {
        return Ok(path);
    }
    for need in &entry.needs {
        match need {
            Need::Connect(host, 0 | u16::MAX) | Need::Listen(host, 0) => return Ok(host.clone()),
            Need::Connect(host, port) | Need::Listen(host, port) => {
                return Ok(format!("{host}:{port}"));
            }
            Need::Module(name) | Need::Variable(name) | Need::Unix(name) => {
                return Ok(name.clone());
            }
            _ => {}
        }
    }
    let text = entry.args.bind(py).shown()?.to_string();
    Ok(cut(&text, 80))
}

pub fn rows(py: Python<'_>, entries: &[Arc<Entry>]) -> PyResult<Vec<[String; 5]>> {
    let rows = entries.iter().map(|entry| {
        Ok([
            entry.verdict().to_owned(),
            kind(entry).unwrap_or("unknown").to_owned(),
            entry.event.clone(),
            target(py, entry)?,
            entry.count().to_string(),
        ])
    });
    rows.collect()
}

pub const HEADS: [&str; 5] = ["verdict", "effect", "event", "target", "count"];

pub fn text(rows: &[[String; 5]]) -> String {
    let heads = HEADS.map(str::to_owned);
    let widths: [usize; 5] = std::array::from_fn(|column| {
        let all = rows.iter().chain([&heads]);
        all.map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(widths);
        let cells = cells.map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let lines = std::iter::once(&heads).chain(rows).map(line);
    lines.collect::<Vec<_>>().join("\n")
}

pub fn html(py: Python<'_>, rows: &[[String; 5]]) -> PyResult<String> {
    let escape = calling::import(py, "html")?.attr("escape")?;
    let cell = |tag: &str, text: &str| -> PyResult<String> {
        let text = escape.invoke1((text,))?;
        Ok(format!("<{tag}>{text}</{tag}>"))
    };
    let row = |tag: &str, cells: &[&str]| -> PyResult<String> {
        let cells = cells.iter().map(|text| cell(tag, text));
        let cells = cells.collect::<PyResult<String>>()?;
        Ok(format!("<tr>{cells}</tr>"))
    };
    let body = rows.iter().map(|cells| cells.each_ref().map(String::as_str));
    let body = body.map(|cells| row("td", &cells));
    let body = body.collect::<PyResult<String>>()?;
    let head = row("th", &HEADS)?;
    Ok(format!("<table><thead>{head}</thead><tbody>{body}</tbody></table>"))
}

/// The number of operations with each target, by effect.
pub fn counts<'py>(py: Python<'py>, entries: &[Arc<Entry>]) -> PyResult<Bound<'py, PyDict>> {
    let counts = PyDict::new(py);
    for entry in entries {
        let kind = kind(entry).unwrap_or("unknown");
        let before: u64 = match counts.get_item(kind)? {
            Some(before) => before.extract()?,
            None => 0,
        };
        counts.set_item(kind, before + entry.count())?;
    }
    Ok(counts)
}
