//! The facts of the network that a guard remembers: the addresses that names were looked up to, and
//! the connections that are open.

use std::net::IpAddr;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::policy::judge::{Host, parse_address};
use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::replace;
use crate::python::guard::active::InForce;
use crate::python::guard::scope;
use crate::python::values::addresses::read_host;

pub fn install(py: Python<'_>) -> PyResult<()> {
    replace::wrap_function!(py, "_socket", "getaddrinfo", look_up)?;
    replace::wrap_function!(py, "_socket", "gethostbyname", look_up)?;
    replace::wrap_function!(py, "_socket", "gethostbyname_ex", look_up)
}

fn look_up(called: Called<'_>) -> Returned {
    let result = called.make();
    let arguments = called.arguments;
    let is_given = arguments.positional() + arguments.named() > 0;
    if !is_given || !scope::may_be_guarded() {
        return result;
    }
    let Some(found) = result.object(called.py) else {
        return result;
    };
    let noted = called.ours(|py| {
        // The host is the first of them however it is given: without it there is no look-up.
        let at = arguments.position(0, Some(c"host")).unwrap_or(0);
        // Without the addresses less is allowed, so that an error loses nothing.
        drop(remember(&arguments.at(py, at), &found));
        Ok(())
    });
    result.if_done(called.py, noted)
}

fn remember(host: &Bound<'_, PyAny>, result: &Bound<'_, PyAny>) -> PyResult<()> {
    let Some(Host::Name(name)) = read_host(host) else {
        return Ok(());
    };
    let mut addresses = Vec::new();
    collect_addresses(result, &mut addresses, 3);
    for active in scope::in_force(host.py())? {
        if let Some(rules) = InForce::of(active.get()) {
            rules.remember(&name, &addresses);
        }
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
