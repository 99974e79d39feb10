//! The channel by which a host shows output in a notebook: the native calls of the channel are not
//! the guarded code's choice.
//!
//! A call of native code passes if a function of the channel makes it, with code of installed
//! modules alone in between. None of the guarded code runs then: its own calls of the same native
//! code are denied, and so are those of its `_repr_html_`.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::policy::Why;
use crate::policy::judge::Reason;
use crate::policy::written::values::is_within_module;
use crate::python::cpython::{ffi as raw, frames};
use crate::python::frames::stack;
use crate::python::guard::event::Event;
use crate::python::importing::imports;

#[derive(Clone, Copy)]
enum Natives {
    /// The native code of these packages, called for the channel's own needs.
    Of(&'static [&'static str]),
    /// The functions of this name in a package.
    Named(&'static str, &'static str),
    /// All native code that the library of an object calls to show it.
    OfWhatIsShown,
}

/// An empty message.
const WAKING: Natives = Natives::Named("zmq", "send");

/// Messages are sent to the host's own front end, to which its sockets are connected.
const SENDING: Natives = Natives::Of(&["zmq"]);

/// The packages that messages can be made with, by the host's choice.
const PACKING: Natives = Natives::Of(&["orjson", "msgpack"]);

/// The functions of hosts' output channels: the module, the qualified name, the native code. Another
/// host's is one more row.
const CHANNELS: &[(&str, &str, Natives)] = &[
    // Output is put into a queue. A thread without a guard sends it, which this wakes by an empty
    // message; the first time in each thread it takes a socket within the process.
    ("ipykernel.iostream", "IOPubThread.schedule", WAKING),
    ("ipykernel.iostream", "IOPubThread._event_pipe", SENDING),
    ("ipykernel.iostream", "IOPubThread._really_send", SENDING),
    // `input()` and `getpass.getpass()`.
    ("ipykernel.kernelbase", "Kernel._input_request", SENDING),
    ("jupyter_client.session", "Session.serialize", PACKING),
    ("jupyter_client.session", "Session.send", PACKING),
    // A table that shows itself, a figure that is drawn.
    (FORMATTERS, "DisplayFormatter.format", Natives::OfWhatIsShown),
];

/// The module that finds out how an object is shown.
const FORMATTERS: &str = "IPython.core.formatters";

/// The modules that call the methods by which an object shows itself. IPython 8 calls functions of its
/// own by way of `decorator`.
const SHOWING: &[&str] = &[FORMATTERS, "IPython.lib.pretty", DECORATOR];

const DECORATOR: &str = "decorator";

/// The beginnings of the names of those methods.
const SHOWN_BY: &[&str] = &["_repr_", "_ipython_display_", "__repr__"];

pub const CALL: &CStr = c"fastaudit.call";

/// Returns whether a call of native code is one that the host's output channel makes.
pub fn makes_call(event: &Event<'_, '_>) -> PyResult<bool> {
    let py = event.args.py();
    let native = event.text(1).filter(|_| event.name == CALL);
    let Some(Ok(native)) = native.as_ref().map(|native| native.to_str()) else {
        return Ok(false);
    };
    let mut shown_by_method = true;
    let mut called = (native.to_owned(), own_name(native).to_owned());
    for frame in stack::frames(py) {
        let code = frames::code(&frame);
        if !imports::is_installed(&code)? {
            return Ok(false);
        }
        let module = imports::module_of(&frame)?;
        let module = module.as_ref().and_then(|module| module.to_str().ok());
        let module = module.unwrap_or_default();
        if SHOWING.contains(&module) {
            shown_by_method &= shows(&called.0, &called.1);
        }
        if let Some(acts) = channel_of(&frame, &code, module)?
            && (match acts {
                Natives::OfWhatIsShown => shown_by_method,
                acts => acts.include(native),
            })
        {
            return Ok(true);
        }
        called = (module.to_owned(), stack::code_name(&code)?.to_string_lossy().into_owned());
    }
    Ok(false)
}

/// True if a method of the object shows it, and no other function that the guarded code put there.
fn shows(module: &str, name: &str) -> bool {
    is_within_module(module, "IPython")
        || module == DECORATOR
        || SHOWN_BY.iter().any(|own| name.starts_with(own))
}

/// The function of a channel that a frame runs: one whose code and globals are its module's.
fn channel_of(
    frame: &Bound<'_, PyAny>,
    code: &Bound<'_, PyAny>,
    module: &str,
) -> PyResult<Option<Natives>> {
    let mut of_module = CHANNELS.iter().filter(|(own, ..)| module == *own);
    if of_module.clone().next().is_none() {
        return Ok(None);
    }
    let name = stack::own_name(code)?;
    let Ok(name) = name.cast::<PyString>() else {
        return Ok(None);
    };
    // Before 3.11 code has no qualified name. No other function there has the last part of one.
    let is_it = |function: &str| match cfg!(Py_3_11) {
        true => name == function,
        false => name == own_name(function),
    };
    let Some((.., acts)) = of_module.find(|(_, function, _)| is_it(function)) else {
        return Ok(None);
    };
    Ok(imports::is_of_imported_module(frame)?.then_some(*acts))
}

impl Natives {
    fn include(self, native: &str) -> bool {
        match self {
            Self::Of(packages) => packages.iter().any(|own| is_within_module(native, own)),
            Self::Named(package, name) => {
                is_within_module(native, package) && own_name(native) == name
            }
            Self::OfWhatIsShown => true,
        }
    }
}

fn own_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

// `multiprocessing.Value` and `Array`: the memory that they share with other processes.
//
// It is a file of a name of its own in `/dev/shm`, which is removed as soon as it is open, and
// mapped. `multiprocessing.sharedctypes` then has `ctypes` lay a value over the mapping, after a
// check that it is large enough, and fills it with zeros. No file with a name changes, and no
// memory but the mapping.

/// The beginning of the names of the files.
const FILES: &str = "/dev/shm/pym-";

/// The module that makes the files, and the function there.
const FILE_MAKER: (&str, &[&str]) = ("multiprocessing.heap", &["__init__"]);

/// The module that makes the values, and the functions there.
const VALUE_MAKER: (&str, &[&str]) =
    ("multiprocessing.sharedctypes", &["rebuild_ctype", "RawArray", "RawValue"]);

pub fn is_made_by(event: &Event<'_, '_>, reason: Reason) -> PyResult<bool> {
    let (module, functions) = match (event.name.to_bytes(), reason) {
        (b"tempfile.mkstemp" | b"open" | b"os.remove", Reason::Path(0, Why::Unapproved))
            if is_its_file(event) =>
        {
            FILE_MAKER
        }
        (b"ctypes.cdata" | b"ctypes.cdata/buffer" | b"ctypes.addressof", Reason::Event)
        | (b"fastaudit.call", Reason::Switch(Why::Native)) => VALUE_MAKER,
        // `ctypes.memset` is called this way since 3.14.
        (b"ctypes.call_function", Reason::Event) if fills_with_zeros(event) => VALUE_MAKER,
        _ => return Ok(false),
    };
    imports::is_in_function(event.args.py(), module, functions)
}

/// Returns whether the called function gets the arguments of `memset(address, 0, size)`.
fn fills_with_zeros(event: &Event<'_, '_>) -> bool {
    let given = event.argument(1);
    let given = given.and_then(|given| given.cast_into_exact::<PyTuple>().ok());
    given.is_some_and(|given| {
        given.len() == 3
            && given.iter().all(|one| raw::int_value(&one).is_some())
            && raw::int_value(&raw::tuple_item(&given, 1)) == Some(0)
    })
}

fn is_its_file(event: &Event<'_, '_>) -> bool {
    let path = event.argument(0);
    let path = path.and_then(|path| path.cast_into_exact::<PyString>().ok());
    path.is_some_and(|path| {
        let name = path.to_str().ok().and_then(|path| path.strip_prefix(FILES));
        name.is_some_and(|name| !name.contains('/'))
    })
}
