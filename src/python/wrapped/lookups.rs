//! The facts of the network that a guard remembers: the addresses that names were looked up to, and
//! the connections that are open.
#![allow(unsafe_code)]

use std::net::IpAddr;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::policy::judge::{Host, parse_address};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::replace::Original;
use crate::python::guard::scope;
use crate::python::values::addresses::read_host;

static GETADDRINFO: Original = Original::unknown();
static GETHOSTBYNAME: Original = Original::unknown();
static GETHOSTBYNAME_EX: Original = Original::unknown();

/// Wraps the look-up functions so that the addresses they find are recorded.
pub fn install(py: Python<'_>) -> PyResult<()> {
    // SAFETY: each function calls the original that it stands for.
    unsafe {
        GETADDRINFO.replace(py, "_socket", "getaddrinfo", getaddrinfo)?;
        GETHOSTBYNAME.replace(py, "_socket", "gethostbyname", gethostbyname)?;
        GETHOSTBYNAME_EX.replace(py, "_socket", "gethostbyname_ex", gethostbyname_ex)
    }
}

macro_rules! telling {
    ($name:ident, $original:ident) => {
        /// # Safety
        /// Called by CPython by the vectorcall convention.
        unsafe extern "C-unwind" fn $name(
            _callable: *mut PyObject,
            args: *const *mut PyObject,
            nargsf: usize,
            kwnames: *mut PyObject,
        ) -> *mut PyObject {
            // SAFETY: as this function's.
            unsafe { look_up(&$original, args, nargsf, kwnames) }
        }
    };
}
telling!(getaddrinfo, GETADDRINFO);
telling!(gethostbyname, GETHOSTBYNAME);
telling!(gethostbyname_ex, GETHOSTBYNAME_EX);

/// Looks up a host, and remembers its addresses.
///
/// # Safety
/// The thread is attached, and the arguments are those of a vectorcall.
unsafe fn look_up(
    original: &Original,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as this function's; the first argument is read, which lives for the call.
    unsafe {
        let found = original.call(args, nargsf, kwnames);
        let positional = ffi::PyVectorcall_NARGS(nargsf) > 0;
        let named = !kwnames.is_null() && ffi::PyTuple_GET_SIZE(kwnames) > 0;
        if found.is_null() || !(positional || named) || !scope::may_be_guarded() {
            return found;
        }
        let py = Python::assume_attached();
        // The host is the first of them however it is given: without it there is no look-up.
        let host = if positional {
            Borrowed::from_ptr(py, *args)
        } else {
            let mut host = Borrowed::from_ptr(py, *args);
            for index in 0..ffi::PyTuple_GET_SIZE(kwnames) {
                let name = ffi::PyTuple_GET_ITEM(kwnames, index);
                if ffi::PyUnicode_CompareWithASCIIString(name, c"host".as_ptr()) == 0 {
                    host = Borrowed::from_ptr(py, *args.offset(index));
                }
            }
            host
        };
        let result = Borrowed::from_ptr(py, found);
        let noted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            raw::with_attachment_counted(|| remember(&host, &result))
        }));
        // Without the addresses less is allowed, so that nothing is lost.
        drop(noted);
        found
    }
}

fn remember(host: &Bound<'_, PyAny>, result: &Bound<'_, PyAny>) -> PyResult<()> {
    let mut by_rules = scope::in_force(host.py())?;
    by_rules.retain(|active| {
        let config = active.get().config();
        config.is_some_and(|config| {
            let config = config.get();
            config.policy().network().rules().is_some() || config.records().is_some()
        })
    });
    if by_rules.is_empty() {
        return Ok(());
    }
    let Some(Host::Name(name)) = read_host(host) else {
        return Ok(());
    };
    let mut addresses = Vec::new();
    collect_addresses(result, &mut addresses, 3);
    for active in by_rules {
        active.get().log().network.remember(&name, &addresses);
    }
    Ok(())
}

/// Collects the addresses in the result of a look-up: a text, or lists and tuples with such.
fn collect_addresses(object: &Bound<'_, PyAny>, addresses: &mut Vec<IpAddr>, depth: usize) {
    if let Ok(text) = object.cast::<PyString>() {
        if let Ok(text) = text.to_str()
            && let Some(address) = parse_address(text)
        {
            addresses.push(address);
        }
        return;
    }
    if depth == 0 {
        return;
    }
    let items: Vec<_> = if let Ok(items) = object.cast::<PyList>() {
        items.iter().collect()
    } else if let Ok(items) = object.cast::<PyTuple>() {
        items.iter().collect()
    } else {
        return;
    };
    for item in items {
        collect_addresses(&item, addresses, depth - 1);
    }
}
