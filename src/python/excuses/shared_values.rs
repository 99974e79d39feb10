//! `multiprocessing.Value` and `Array`: the memory that they share with other processes.
//!
//! It is a file of a name of its own in `/dev/shm`, which is removed as soon as it is open, and
//! mapped. `multiprocessing.sharedctypes` then has `ctypes` lay a value over the mapping, after a
//! check that it is large enough, and fills it with zeros. No file with a name changes, and no
//! memory but the mapping.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::policy::Why;
use crate::policy::judge::Reason;
use crate::python::cpython::ffi as raw;
use crate::python::guard::event::Event;
use crate::python::values::imports;

/// The beginning of the names of the files.
const FILES: &str = "/dev/shm/pym-";

/// The module that makes the files, and the function there.
const FILE_MAKER: (&str, &[&str]) = ("multiprocessing.heap", &["__init__"]);

/// The module that makes the values, and the functions there.
const VALUE_MAKER: (&str, &[&str]) = (
    "multiprocessing.sharedctypes",
    &["rebuild_ctype", "RawArray", "RawValue"],
);

/// Returns whether the event is part of making such a value.
pub fn is_made_by(event: &Event<'_, '_>, reason: Reason) -> PyResult<bool> {
    let py = event.args.py();
    match (event.name.to_bytes(), reason) {
        (b"tempfile.mkstemp" | b"open" | b"os.remove", Reason::Path(0, Why::Unapproved)) => {
            let (module, functions) = FILE_MAKER;
            Ok(is_its_file(event) && imports::is_in_function(py, module, functions)?)
        }
        (b"ctypes.cdata" | b"ctypes.cdata/buffer" | b"ctypes.addressof", Reason::Event)
        | (b"fastaudit.call", Reason::Switch(Why::Native)) => {
            let (module, functions) = VALUE_MAKER;
            imports::is_in_function(py, module, functions)
        }
        // `ctypes.memset` is called this way since 3.14.
        (b"ctypes.call_function", Reason::Event) if fills_with_zeros(event) => {
            imports::is_in_function(py, VALUE_MAKER.0, VALUE_MAKER.1)
        }
        _ => Ok(false),
    }
}

/// Returns whether the called function gets the arguments of `memset(address, 0, size)`.
fn fills_with_zeros(event: &Event<'_, '_>) -> bool {
    let given = event.args.get_item(1);
    let given = given.and_then(|given| Ok(given.cast_into_exact::<PyTuple>()?));
    given.is_ok_and(|given| {
        given.len() == 3
            && given.iter().all(|one| raw::int_value(&one).is_some())
            && raw::int_value(&raw::tuple_item(&given, 1)) == Some(0)
    })
}

fn is_its_file(event: &Event<'_, '_>) -> bool {
    let path = event.args.get_item(0);
    let path = path.and_then(|path| Ok(path.cast_into_exact::<PyString>()?));
    path.is_ok_and(|path| {
        let name = path.to_str().ok().and_then(|path| path.strip_prefix(FILES));
        name.is_some_and(|name| !name.contains('/'))
    })
}
