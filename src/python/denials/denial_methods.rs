//! The methods of a denial; the docstrings of `AuditDenied` say what each tells.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::policy::Why;
use crate::policy::events::EventEffect;
use crate::python::callees::caller::Library;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::objects::plain_str;
use crate::python::denials::denial::{
    Decision, Denial, Hint, LegacyContext, Message, exception, why_of,
};
use crate::python::denials::hint::Answer;
use crate::python::denials::text;
use crate::python::guard::entered_at::SourcePlace;
use crate::python::values::{errors, simple};

/// The number of frames that the text shows at either end of a long call chain.
const SHOWN_FRAMES: usize = 8;
/// The end of a denial's text: agents have been seen to try again and again.
const FINAL: &str = "This is a decision of policy: the same operation will be denied again.";

#[pymethods]
impl Denial {
    /// A denial that only has a message.
    #[new]
    fn of_message(message: Bound<'_, PyString>) -> PyResult<Self> {
        let py = message.py();
        Self::new(
            Cow::Borrowed(""),
            &PyTuple::empty(py),
            Message::Written(plain_str(message)?),
            Decision::default(),
        )
    }

    #[getter]
    pub fn message(&self, py: Python<'_>) -> PyResult<Py<PyString>> {
        self.first_line(py).map(|message| message.clone().unbind())
    }

    #[getter]
    fn effect(&self) -> Option<&'static str> {
        let writes = self.decision.why != Some(Why::Unreadable);
        self.effect_of().map(|effect| effect.told(writes))
    }

    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<Option<Py<PyString>>> {
        let text_at = |index| self.text_at(py, index);
        self.decision.path.map_or(Ok(None), text_at)
    }

    #[getter]
    fn resolved(&self, py: Python<'_>) -> Option<Py<PyString>> {
        Some(self.decision.resolved.as_ref()?.clone_ref(py))
    }

    #[getter]
    fn link(&self, py: Python<'_>) -> Option<Py<PyString>> {
        Some(self.decision.link.as_ref()?.clone_ref(py))
    }

    #[getter]
    fn rule(&self) -> Option<&'static str> {
        self.decision.why.map(Why::field)
    }

    #[getter]
    pub fn host<'py>(&self, py: Python<'py>) -> PyResult<Option<Py<PyString>>> {
        if self.effect_of() != Some(EventEffect::Network) {
            return Ok(None);
        }
        let args = self.args.bind(py);
        // What came from another process has lists for tuples.
        let first = |arg: Bound<'py, PyAny>| match arg.cast::<PyTuple>() {
            Ok(address) => Some(address.get_item(0)),
            Err(_) => arg.cast::<PyList>().ok().map(|address| address.get_item(0)),
        };
        let Some(host) = args.iter().find_map(first) else {
            return self.text_at(py, 0);
        };
        match host {
            Ok(host) => simple::text(&host).map(|host| host.map(Bound::unbind)),
            Err(_) => Ok(None),
        }
    }

    #[getter]
    fn command<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        match self.effect_of() {
            Some(EventEffect::Process) => text::command(self.args.bind(py)),
            _ => Ok(None),
        }
    }

    #[getter]
    pub fn callee(&self, py: Python<'_>) -> PyResult<Option<Py<PyString>>> {
        if self.event != "fastaudit.call" {
            return Ok(None);
        }
        self.text_at(py, 1)
    }

    #[getter]
    pub fn roots(&self, py: Python<'_>) -> Py<PyTuple> {
        match &self.decision.roots {
            Some(roots) => roots.clone_ref(py),
            None => PyTuple::empty(py).unbind(),
        }
    }

    #[getter]
    fn origin(&self) -> Option<&str> {
        self.decision.told.as_ref()?.origin.as_deref()
    }

    #[getter]
    fn tool(&self) -> Option<&str> {
        self.decision.tool.as_deref()
    }

    #[getter]
    fn library(&self) -> Option<&str> {
        Some(self.decision.library.as_ref()?.file.as_str())
    }

    #[getter]
    fn package(&self) -> Option<&str> {
        self.decision.library.as_ref()?.package.as_deref()
    }

    #[getter]
    fn place(&self, py: Python<'_>) -> Option<String> {
        Some(self.decision.place.as_ref()?.text(py))
    }

    /// The functions that led to the operation, the outermost first.
    fn call_chain<'py>(&self, traceback: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(traceback.py(), self.chain_of(traceback)?)
    }

    #[getter]
    fn hint(&self, py: Python<'_>) -> Option<&str> {
        self.whole_hint(py).text.as_deref()
    }

    #[getter]
    fn suggestion(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Some(suggestion) = &self.whole_hint(py).suggestion else {
            return Ok(None);
        };
        errors::copied(suggestion.bind(py).as_any()).map(|copy| Some(copy.unbind()))
    }

    #[getter]
    fn answers(&self, py: Python<'_>) -> Vec<&'static str> {
        let [alone, pattern] = self.offers(py).map(|offer| offer.is_some());
        let all = [
            ("once", true),
            ("guard", alone),
            ("pattern", pattern),
            ("deny", true),
            ("never", alone || pattern),
        ];
        let offered = all.into_iter().filter(|(_, is_offered)| *is_offered);
        offered.map(|(name, _)| name).collect()
    }

    /// The permissions that an answer gives.
    fn approval(&self, py: Python<'_>, answer: &str) -> PyResult<Option<Py<PyAny>>> {
        if Answer::read(answer).is_err() {
            return Err(PyValueError::new_err(format!(
                "answer must be 'once', 'guard', 'pattern', 'deny' or 'never', not {answer:?}"
            )));
        }
        let [alone, pattern] = self.offers(py);
        let offer = match answer {
            "guard" => alone,
            "pattern" => pattern,
            "never" => pattern.or(alone),
            _ => None,
        };
        let Some(offer) = offer else {
            return Ok(None);
        };
        let offer = offer.into_bound(py).into_any();
        errors::copied(&offer).map(|copy| (!copy.is_none()).then(|| copy.unbind()))
    }

    #[getter]
    fn answer(&self) -> Option<&str> {
        self.read().answer.get().map(String::as_str)
    }

    /// An exception that carries it.
    #[pyo3(name = "exception")]
    fn again(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        exception(slf).map(Bound::unbind)
    }

    /// All facts of the denial, as JSON can hold them.
    fn to_dict<'py>(&self, traceback: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let py = traceback.py();
        let dict = PyDict::new(py);
        dict.set_item("message", self.message(py)?)?;
        dict.set_item("event", &self.event)?;
        dict.set_item("args", simple::json(self.args.bind(py))?)?;
        dict.set_item("effect", self.effect())?;
        dict.set_item("path", self.path(py)?)?;
        dict.set_item("resolved", self.resolved(py))?;
        dict.set_item("link", self.link(py))?;
        dict.set_item("rule", self.rule())?;
        dict.set_item("host", self.host(py)?)?;
        dict.set_item("command", self.command(py)?)?;
        dict.set_item("callee", self.callee(py)?)?;
        dict.set_item("roots", self.roots(py).bind(py).to_list())?;
        dict.set_item("call_chain", self.chain_of(traceback)?)?;
        dict.set_item("place", self.place(py))?;
        dict.set_item("origin", self.origin())?;
        dict.set_item("tool", self.tool())?;
        dict.set_item("library", self.library())?;
        dict.set_item("package", self.package())?;
        dict.set_item("hint", self.hint(py))?;
        dict.set_item("suggestion", self.suggestion(py)?)?;
        dict.set_item("approvals", self.offers_dict(py)?)?;
        dict.set_item("answer", self.answer())?;
        Ok(dict)
    }

    /// The denial that ``to_dict()`` described.
    #[staticmethod]
    fn from_dict(fields: &Bound<'_, PyDict>) -> PyResult<Py<PyAny>> {
        let py = fields.py();
        let field = |name: &str| -> PyResult<Bound<'_, PyAny>> {
            fields.get_item(name)?.ok_or_else(|| {
                PyKeyError::new_err(format!("fields must have the key {name:?} of to_dict()"))
            })
        };
        let text = |name: &str| told_text(name, "a str", field(name)?);
        let place = |name: &str| -> PyResult<Option<Py<PyString>>> {
            let value = field(name)?;
            match value.is_none() {
                true => Ok(None),
                false => told_text(name, "a str or None", value).map(|text| Some(text.unbind())),
            }
        };
        let optional = |name: &str| -> PyResult<Option<String>> {
            Ok(place(name)?.map(|value| value.bind(py).to_string_lossy().into_owned()))
        };
        let args = simple::unjson(&field("args")?)?;
        let roots = field("roots")?.iterate()?;
        let roots =
            roots.map(|root| told_text("roots", "a str", root?)).collect::<PyResult<Vec<_>>>()?;
        let path = field("path")?;
        let rule = optional("rule")?;
        let why = rule.as_deref().and_then(why_of);
        let index =
            args.iter().position(|arg| !path.is_none() && arg.equals(&path).unwrap_or(false));
        let package = optional("package")?;
        let decision = Decision {
            path: index,
            resolved: place("resolved")?,
            link: place("link")?,
            why,
            roots: Some(PyTuple::new(py, roots)?.unbind()),
            asked: None,
            told: optional("origin")?
                .map(|origin| Box::new(LegacyContext { origin: Some(origin), sites: None })),
            place: optional("place")?.map(SourcePlace::Told),
            tool: optional("tool")?,
            library: optional("library")?.map(|file| Library { file, package }),
        };
        let event = Cow::Owned(text("event")?.to_string_lossy().into_owned());
        let denial = Self::new(event, &args, Message::Written(text("message")?), decision)?;
        denial.keep_chain(&field("call_chain")?.extract::<Vec<String>>()?);
        denial.read().is_chain_told.store(true, Ordering::Relaxed);
        let suggestion = field("suggestion")?;
        let hint = Hint {
            text: optional("hint")?,
            suggestion: match suggestion.is_none() {
                true => None,
                false => Some(errors::copied(&suggestion)?.cast_into::<PyDict>()?.unbind()),
            },
        };
        let _ = denial.read().hint.set(hint);
        let offers = field("approvals")?;
        let offers = offers
            .cast::<PyDict>()
            .map_err(|_| errors::wrong_type("fields[\"approvals\"]", "a dict", &offers))?;
        denial.keep_offers(offers)?;
        if let Some(answer) = optional("answer")? {
            denial.note_answer(answer);
        }
        exception(&Bound::new(py, denial)?).map(Bound::unbind)
    }

    /// The text of the exception.
    fn text(&self, traceback: &Bound<'_, PyAny>) -> PyResult<String> {
        let py = traceback.py();
        let mut text = self.first_line(py)?.to_string_lossy().into_owned();
        let chain = self.chain_of(traceback)?;
        if !chain.is_empty() {
            text.push_str("\nCall chain: ");
            text.push_str(&shown(&chain));
        }
        if let Some(library) = &self.decision.library {
            text.push_str("\nAsked for by native code: ");
            text.push_str(library.package.as_ref().unwrap_or(&library.file));
        }
        if let Some(origin) = self.origin() {
            text.push('\n');
            text.push_str(origin);
        }
        if let Some(answer) = self.answer() {
            text.push_str("\nAsked for approval: ");
            text.push_str(answer);
        }
        if let Some(hint) = self.hint(py) {
            text.push_str("\nTo allow it: ");
            text.push_str(hint);
        }
        text.push('\n');
        text.push_str(FINAL);
        Ok(text)
    }
}

fn told_text<'py>(
    name: &str,
    accepted: &str,
    value: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyString>> {
    let wrong = |error: pyo3::CastIntoError<'_>| {
        errors::wrong_type(&format!("fields[{name:?}]"), accepted, &error.into_inner())
    };
    plain_str(value.cast_into().map_err(wrong)?)
}

fn shown(chain: &[String]) -> String {
    if chain.len() <= 2 * SHOWN_FRAMES + 1 {
        return chain.join(" -> ");
    }
    let (first, last) = (&chain[..SHOWN_FRAMES], &chain[chain.len() - SHOWN_FRAMES..]);
    let left_out = chain.len() - 2 * SHOWN_FRAMES;
    format!("{} -> … {left_out} more … -> {}", first.join(" -> "), last.join(" -> "))
}
