//! A denial: its first line, what it keeps of the moment, the exception.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::{PyException, PyPermissionError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::policy::files::os::Os;
use crate::policy::judge::Reason;
use crate::policy::learn::{self, Landing};
use crate::policy::written::spec::OnViolation;
use crate::policy::written::wording::Words;
use crate::policy::{Operation, Why, events};
use crate::python::callees::caller;
use crate::python::configuration::approvals::{ASKING_HOST, Marked, TOO_LATE, is_awaitable};
use crate::python::configuration::config::AuditCfg;
use crate::python::configuration::declared::Declared;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::cpython::{ffi as raw, process};
use crate::python::denials::denial::{self, Asked, Decision, Denial, LegacyContext, Message};
use crate::python::denials::text::FirstLine;
use crate::python::events::approval;
use crate::python::frames::stack;
use crate::python::guard::entered_at;
use crate::python::guard::event::Event;
use crate::python::guard::scope::{self, Active};
use crate::python::values::{errors, process_start, simple};

struct Refusal<'a, 'py> {
    event: &'a Event<'a, 'py>,
    name: Cow<'static, str>,
    /// The note of the moment under the rules of fastaudit 0.2.
    told: Option<Box<LegacyContext>>,
    reason: Reason,
    landing: &'a Landing,
    first_line: FirstLine,
    message: OnceCell<Bound<'py, PyString>>,
}

/// The exit status for a denial that nobody caught: `EX_NOPERM` of sysexits.h(3).
const DENIED: i32 = 77;

/// True once a denial at the end of the interpreter was told.
static TOLD: AtomicBool = AtomicBool::new(false);

impl<'a, 'py> Refusal<'a, 'py> {
    /// Notes the denial of an event, and words it if that cannot wait.
    #[inline]
    pub fn new(event: &'a Event<'a, 'py>, reason: Reason, landing: &'a Landing) -> PyResult<Self> {
        let (py, config) = (event.args.py(), event.config);
        let told = match config.is_strict() {
            true => Some(LegacyContext::new(event.active, py)?),
            false => None,
        };
        let name = match event.name.to_str() {
            Ok(name) => match events::known(name) {
                Some(known) => Cow::Borrowed(known.name),
                None => Cow::Owned(name.to_owned()),
            },
            Err(_) => Cow::Owned(event.name.to_string_lossy().into_owned()),
        };
        let count = match reason {
            // The arguments after the module's name are `sys.path` and its hooks.
            Reason::Switch(Why::Import) => 1,
            // A third argument is the call chain.
            Reason::Switch(Why::Native) if told.is_some() && event.name != c"import" => 2,
            _ => usize::MAX,
        };
        let refusal = Self {
            event,
            name,
            told,
            reason,
            landing,
            first_line: FirstLine::of(config, py, reason, count),
            message: OnceCell::new(),
        };
        let is_write = event.name == c"fastaudit.write";
        if raw::is_finalizing() {
            // The objects that a denial and a host's callback need may be gone.
            let message = refusal.message()?;
            if is_write && !TOLD.swap(true, Ordering::Relaxed) {
                // The interpreter, which closes the file, may drop its errors.
                let _ = writeln!(io::stderr(), "fastaudit_rs: {}", message.to_string_lossy());
                process::end_later(DENIED);
            }
            return Err(PyPermissionError::new_err(message.unbind()));
        }
        if is_write || !simple::is_plain(event.args) {
            // The file is named while it is open; other objects show themselves as they are now.
            refusal.message()?;
        }
        Ok(refusal)
    }

    pub fn message(&self) -> PyResult<Bound<'py, PyString>> {
        if let Some(message) = self.message.get() {
            return Ok(message.clone());
        }
        let message = self.first_line.write(&self.name, self.event.args)?;
        Ok(self.message.get_or_init(|| message).clone())
    }

    #[inline]
    pub fn denial(self) -> PyResult<Bound<'py, Denial>> {
        let Event { args, active, config, .. } = *self.event;
        let py = args.py();
        let why = self.reason.why();
        let asked = Asked::now(active, config, &self.name, args, why)?;
        let decision = Decision {
            path: self.first_line.path,
            why,
            resolved: text(py, self.landing.place.as_deref())?,
            link: text(py, self.landing.link.as_deref())?,
            roots: Some(config.oks(py).unbind()),
            asked: Some(asked),
            told: self.told,
            place: entered_at::here(py)?,
            tool: scope::tool_running(py)?,
            library: caller::now(),
        };
        let message = match self.message.into_inner() {
            Some(message) => Message::Written(message),
            None => Message::Later(self.first_line),
        };
        let denial = Denial::new(self.name, args, message, decision)?;
        Bound::new(py, denial)
    }
}

fn text(py: Python<'_>, place: Option<&[u8]>) -> PyResult<Option<Py<PyString>>> {
    let text = |place| raw::fs_decode(py, place).map(Bound::unbind);
    place.map(text).transpose()
}

// A violation of the policy: the host may allow it, and says whether it proceeds; otherwise it is
// denied.

/// The end of a question about an operation that led to another place by then.
const MOVED: &str = "yes, but the path led to another place when the answer came";

/// The end of a question about an act of native code that could not be put.
const UNASKED: &str = "nobody was asked, because native code did it where no Python code can run";

/// Meets a violation: `Ok` if the event goes on all the same. An answer holds for the place that an
/// operation led to when it was asked.
pub fn meet(
    event: &Event<'_, '_>,
    reason: Reason,
    operation: Option<Operation<'_>>,
) -> PyResult<()> {
    let (py, config, args) = (event.args.py(), event.config, event.args);
    let proceeds = config.stated.on_violation != OnViolation::Raise;
    if proceeds && ASKING_HOST.get() {
        return Ok(());
    }
    let pass = |callback| {
        event.note_asked(callback, true);
        process_start::approved(event.name, args);
        Ok(())
    };
    let approvals = match proceeds || ASKING_HOST.get() {
        true => None,
        false => config.approvals(),
    };
    let is_too_late = TOO_LATE.get();
    let is_unasked = is_too_late && approvals.is_some();
    let approvals = approvals.filter(|_| !is_too_late);
    let is_held = match approvals {
        None => false,
        Some(approvals) => approval::is_held(event, approvals)?,
    };
    let is_refused = match approvals {
        Some(approvals) if !is_held => approval::allows(event, &approvals.never)?,
        _ => false,
    };
    if let Some(approvals) = approvals
        && !is_held
        && !is_refused
        && approval::allows(event, &approvals.policy)?
    {
        return pass("approvals");
    }
    let landing = || {
        operation.map_or_else(Landing::default, |operation| {
            Os::forget_current_dir();
            learn::landing(&Os, operation)
        })
    };
    let asked_for = landing();
    let refusal = Refusal::new(event, reason, &asked_for)?;
    let mut is_elsewhere = false;
    if (refusal.told.is_some() || config.callbacks.before_deny.is_some())
        && !ASKING_HOST.get()
        && !is_too_late
    {
        let answer = is_approved(&refusal)?;
        is_elsewhere = answer && landing() != asked_for;
        if answer && !is_elsewhere {
            return pass("before_deny");
        }
        event.note_asked("before_deny", false);
    }
    let denial = refusal.denial()?;
    let exception = denial::exception(&denial)?;
    if is_elsewhere {
        denial.get().note_answer(MOVED.to_owned());
    } else if is_unasked {
        denial.get().note_answer(UNASKED.to_owned());
    } else if is_held {
        denial.get().note_answer(held(config));
    } else if is_refused {
        let answer = "it was answered before: never";
        denial.get().note_answer(answer.to_owned());
        event.note_asked("approvals", false);
    } else if let Some(approvals) = approvals {
        if approval::ask(config, approvals, &denial, &exception)? {
            if landing() == asked_for {
                return pass("on_ask");
            }
            denial.get().note_answer(MOVED.to_owned());
        }
        event.note_asked("on_ask", false);
    }
    event.active.log().add(denial.as_any());
    tell(config, &denial, &exception)?;
    if !proceeds {
        raw::raise(&exception);
        return Err(PyErr::fetch(py));
    }
    denial.get().note_chain(py)?;
    let _asking = Marked::begin(&ASKING_HOST);
    proceed(config, &denial, &exception)?;
    process_start::approved(event.name, args);
    Ok(())
}

fn held(config: &AuditCfg) -> String {
    let approvable = match config.told().map(|told| told.words) {
        Some(Words::SandboxOptions) => "--approvable",
        _ => "approvable= of the sandbox",
    };
    format!(
        "nobody was asked, because the kernel holds this whatever the answer is; {approvable} \
         names what answers may open"
    )
}

// The host's say in a denial: callbacks that may allow the event before it is denied, and one that is
// told of the denial.

/// Asks the host, and before it the hooks that packages declare for the rules of fastaudit 0.2.
#[inline(never)]
fn is_approved(refusal: &Refusal<'_, '_>) -> PyResult<bool> {
    let (config, args) = (refusal.event.config, refusal.event.args);
    let py = args.py();
    let hooks = match refusal.told {
        Some(_) => Declared::known(py).map_or(&[][..], |declared| &declared.audit_hooks),
        None => &[],
    };
    let mut callbacks = hooks.iter().chain(&config.callbacks.before_deny).peekable();
    if callbacks.peek().is_none() {
        return Ok(false);
    }
    let frame = stack::first_foreign(py)?;
    let (event, message) = (PyString::new(py, &refusal.name), refusal.message()?);
    let (args, message) = match &refusal.told {
        Some(told) => told.given(&event, args, &message, refusal.reason)?,
        None => (args.clone(), message),
    };
    let given = (event, args, frame, message, config.data.bind(py)).into_pyobject(py)?;
    let _asking = Marked::begin(&ASKING_HOST);
    for callback in callbacks {
        let answer = callback.call(&given)?;
        if is_awaitable(&answer) {
            return Err(errors::returned_awaitable("before_deny", &answer));
        }
        if calling::is_true(&answer)? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl LegacyContext {
    fn new(active: &Active, py: Python<'_>) -> PyResult<Box<Self>> {
        let origin = active.origin.as_ref().map(|origin| origin.note(py)).transpose()?;
        Ok(Box::new(Self { origin: origin.flatten(), sites: Some(stack::sites(py)?) }))
    }

    /// Returns the arguments and the message that callbacks get.
    fn given<'py>(
        &self,
        event: &Bound<'py, PyString>,
        args: &Bound<'py, PyTuple>,
        message: &Bound<'py, PyString>,
        reason: Reason,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyString>)> {
        let py = event.py();
        let mut chain = stack::names(py, self.sites.as_deref().unwrap_or_default())?.join(" -> ");
        let mut args = args.clone();
        if event == "fastaudit.call" && args.len() == 2 {
            chain.push_str(" -> ");
            chain.push_str(&args.get_item(1)?.text()?.to_string_lossy());
            let more = PyTuple::new(py, [PyString::new(py, &chain)])?;
            args = args.as_sequence().concat(more.as_sequence())?.to_tuple()?;
        }
        let mut text = message.to_string_lossy().into_owned();
        if !matches!(reason, Reason::Path(..)) {
            text.push_str("\nCall chain: ");
            text.push_str(&chain);
        }
        if let Some(origin) = &self.origin {
            text.push('\n');
            text.push_str(origin);
        }
        Ok((args, PyString::new(py, &text)))
    }
}

/// Tells the host of a denial. An `Exception` that its callback raises becomes the cause of the
/// denial; any other error is raised.
fn tell(
    config: &AuditCfg,
    denial: &Bound<'_, Denial>,
    exception: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = denial.py();
    let Some(on_denied) = config.on_denied(py) else {
        return Ok(());
    };
    if ASKING_HOST.get() {
        return Ok(());
    }
    denial.get().note_chain(py)?;
    let _asking = Marked::begin(&ASKING_HOST);
    match calling::call(&on_denied, &(exception,).into_pyobject(py)?, None) {
        Ok(_) => Ok(()),
        Err(error) if error.is_instance_of::<PyException>(py) => {
            exception.set_attr(intern!(py, "__cause__"), error.into_value(py))
        }
        Err(error) => Err(error),
    }
}

// A violation that does not stop the code: a warning, a log record, or a call of the host's
// function.

const LOGGER: &str = "fastaudit_rs";

/// Reports a violation that proceeds, unless the report itself raises an error.
fn proceed(
    config: &AuditCfg,
    denial: &Bound<'_, Denial>,
    exception: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = denial.py();
    match config.stated.on_violation {
        OnViolation::Raise => Ok(()),
        OnViolation::Warn => {
            let class = calling::import(py, "fastaudit_rs.denied")?.attr("AuditWarning")?;
            // The innermost Python frame is that of the code to blame.
            let args = (would_be(denial)?, class, 1);
            let warnings = calling::import(py, "warnings")?;
            warnings.invoke_method1("warn", args).map(|_| ())
        }
        OnViolation::Log => {
            let logger = calling::import(py, "logging")?.invoke_method1("getLogger", (LOGGER,))?;
            let fields = PyDict::new(py);
            fields.set_item("fastaudit", exception.invoke_method0("to_dict")?)?;
            let options = PyDict::new(py);
            options.set_item("extra", fields)?;
            let args = ("%s", would_be(denial)?);
            let logged = logger.invoke_method("warning", args, Some(&options));
            logged.map(|_| ())
        }
        OnViolation::Call => match &config.stated.violation_call {
            Some(call) => call.bind(py).invoke1((exception,)).map(|_| ()),
            None => Ok(()),
        },
    }
}

/// The first line of a violation that proceeds.
fn would_be(denial: &Bound<'_, Denial>) -> PyResult<String> {
    let message = denial.get().message(denial.py())?.to_string();
    Ok(match message.strip_prefix("Denied: ") {
        Some(operation) => format!("Would be denied: {operation}"),
        None => message,
    })
}

/// Imports the modules that a report needs, as a guard might deny it later.
pub fn prepare(py: Python<'_>, on_violation: OnViolation) -> PyResult<()> {
    match on_violation {
        OnViolation::Log => calling::import(py, "logging").map(|_| ()),
        OnViolation::Warn => calling::import(py, "warnings").map(|_| ()),
        OnViolation::Raise | OnViolation::Call => Ok(()),
    }
}
