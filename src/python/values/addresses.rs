//! Hosts, addresses and ports as events give them.

use std::net::{IpAddr, ToSocketAddrs};

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

use crate::policy::judge::{Host, family_of};
use crate::python::cpython::calling;
use crate::python::cpython::ffi as raw;

/// Reads a host from an event's argument; `None` if it is not a host.
pub fn read_host(object: &Bound<'_, PyAny>) -> Option<Host> {
    if object.is_none() {
        return Some(Host::Own);
    }
    let text = match object.cast::<PyString>() {
        Ok(text) => match text.to_str() {
            Ok(text) if text.is_ascii() => text.to_owned(),
            _ => {
                let encoded = calling::encode(text, "idna").ok()?;
                String::from_utf8(encoded.cast::<PyBytes>().ok()?.as_bytes().to_vec()).ok()?
            }
        },
        Err(_) => String::from_utf8(bytes_of(object)?).ok()?,
    };
    Some(Host::of(&text))
}

pub fn bytes_of(object: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Some(bytes.as_bytes().to_vec());
    }
    let bytes = object.cast::<PyByteArray>().ok()?;
    Some(bytes.to_vec())
}

/// Looks up a name as CPython is going to, for sockets of a family; returns no addresses if that
/// fails.
pub fn look_up(py: Python<'_>, name: &str, family: i64) -> Vec<IpAddr> {
    py.detach(|| {
        let found = (name, 0).to_socket_addrs();
        // A thread that comes back when the interpreter has ended would be unwound by CPython,
        // through functions that cannot be.
        while raw::is_finalizing_anywhere() {
            std::thread::park();
        }
        let Ok(found) = found else {
            return Vec::new();
        };
        found
            .map(|address| address.ip())
            .filter(|address| family_of(*address) == family)
            .map(|address| address.to_canonical())
            .collect()
    })
}
