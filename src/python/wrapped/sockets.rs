//! Sockets, and the addresses that names are looked up to.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};
use rustix::net::sockopt::socket_acceptconn;

use crate::policy::judge::{Host, parse_address};
use crate::python::cpython::called::{Called, CalledByTuple, Returned};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::functions::is_method_descriptor;
use crate::python::cpython::once::lock;
use crate::python::cpython::slots::Slot;
use crate::python::cpython::{ffi as raw, process, replace};
use crate::python::guard::active::InForce;
use crate::python::guard::scope;
use crate::python::values::addresses::read_host;
use crate::python::values::{errors, simple};
use crate::python::wrapped::methods::known;

// Sockets whose audit events do not say enough: whether one is made anew or from a descriptor that
// is open already, and that one listens, for which CPython raises no event.
//
// A socket that listens without an address is given one by the system: a port at all addresses.

/// The position and the name of the descriptor among the arguments that a socket is made with.
const DESCRIPTOR: (usize, &str) = (3, "fileno");

/// The class of a copy of the module, and its own methods, whatever a subclass has.
struct Known {
    class: Py<PyType>,
    fileno: Py<PyAny>,
    address: Py<PyAny>,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

thread_local! {
    /// True if the socket that is being made is of a descriptor that is open already.
    static WRAPS: Cell<bool> = const { Cell::new(false) };
}

pub fn install(_module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    let told = |name| match class.attr(name)? {
        method if is_method_descriptor(&method) => Ok(method.unbind()),
        _ => Err(errors::unknown_method("socket", name)),
    };
    let own = Known {
        fileno: told("fileno")?,
        address: told("getsockname")?,
        class: class.clone().unbind(),
    };
    let mut all = lock(&KNOWN);
    if all.iter().all(|other| !other.class.is(class)) {
        all.push(own);
    }
    drop(all);
    known("socket", "listen", replace::wrap_method!(class, "listen", listen)?)?;
    // A class that has no `__init__` of its own took over this one when it was made.
    replace::wrap_slot!(class, Slot::Init, init)
}

fn init(called: CalledByTuple<'_>) -> Returned {
    // In place for this call alone: a hook may make sockets itself.
    let before = WRAPS.replace(has_descriptor(called));
    let result = called.make();
    WRAPS.set(before);
    result
}

fn has_descriptor(called: CalledByTuple<'_>) -> bool {
    let (index, name) = DESCRIPTOR;
    let given = match called.args().get_borrowed_item(index) {
        Ok(given) => Some(given.to_owned()),
        Err(_) => called.kwargs().and_then(|kwargs| kwargs.get_item(name).ok().flatten()),
    };
    given.is_some_and(|given| !given.is_none())
}

pub fn wraps() -> bool {
    WRAPS.get()
}

/// Raises the event of a socket that is going to listen and has no address: the system gives it a
/// port at all addresses. One that has an address was judged as it was bound, or is the host's.
fn listen(called: Called<'_>) -> Returned {
    called.make_if(scope::may_be_guarded(), |py| {
        let socket = called.receiver();
        let args = PyTuple::new(py, [&*socket])?;
        let told = |method| calling::call(&method, &args, None).ok();
        // Listening on a closed socket fails by itself.
        match methods(&socket).map(|methods| methods.map(told)) {
            Some([Some(descriptor), Some(address)])
                if !is_bound(&address) && !listens(&descriptor) =>
            {
                raw::audit(py, c"socket.listen", (&socket, &address))
            }
            _ => Ok(()),
        }
    })
}

fn methods<'py>(socket: &Bound<'py, PyAny>) -> Option<[Bound<'py, PyAny>; 2]> {
    let (py, class) = (socket.py(), socket.get_type());
    let all = lock(&KNOWN);
    let known = all.iter().find(|known| raw::is_subtype(&class, known.class.bind(py)))?;
    Some([&known.fileno, &known.address].map(|method| method.bind(py).clone()))
}

/// True if an address of the internet has a port; others are given by binding alone.
fn is_bound(address: &Bound<'_, PyAny>) -> bool {
    let Ok(address) = address.cast::<PyTuple>() else {
        return true;
    };
    address.get_item(1).is_ok_and(|port| raw::int_value(&port) != Some(0))
}

/// Returns whether the socket listens already: then only the length of its queue is new.
fn listens(descriptor: &Bound<'_, PyAny>) -> bool {
    let listens = |number| process::with_descriptor(number, |fd| socket_acceptconn(fd));
    matches!(raw::i32_value(descriptor).and_then(listens), Some(Ok(true)))
}

// The facts of the network that a guard remembers: the addresses that names were looked up to, and
// the connections that are open.

pub fn install_lookups(py: Python<'_>) -> PyResult<()> {
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
    for item in simple::items(object).unwrap_or_default() {
        collect_addresses(&item, addresses, depth - 1);
    }
}
