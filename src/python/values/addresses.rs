//! Hosts, addresses and ports as events give them.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

use crate::policy::judge::{Host, family_of};
use crate::python::cpython::calling::Calling;
use crate::python::cpython::once::lock;
use crate::python::cpython::{ffi as raw, process};

pub fn read_host(object: &Bound<'_, PyAny>) -> Option<Host> {
    if object.is_none() {
        return Some(Host::Own);
    }
    let text = match object.cast::<PyString>() {
        Ok(text) => match text.to_str() {
            Ok(text) if text.is_ascii() => text.to_owned(),
            _ => {
                let encoded = text.invoke_method1("encode", ("idna",)).ok()?;
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

/// Looks up a name as CPython is going to; returns no addresses if that fails.
pub fn look_up(py: Python<'_>, name: &str, family: i64) -> Vec<IpAddr> {
    py.detach(|| {
        let found = (name, 0).to_socket_addrs();
        // A thread that comes back when the interpreter has ended would be unwound by CPython,
        // through functions that cannot be.
        while raw::is_finalizing() {
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

// The network as one guard has seen it: names that were looked up, with their addresses, and
// sockets that were connected.

const MAX_ADDRESSES: usize = 10_000;
const MAX_NAMES: usize = 100;

#[derive(Default)]
pub struct SeenNetwork(Mutex<SeenInner>);

#[derive(Default)]
struct SeenInner {
    names: HashMap<IpAddr, Vec<String>>,
    /// The sockets that were connected: each descriptor, and the socket's number then.
    connected: Vec<(i32, u64)>,
}

impl SeenNetwork {
    pub fn names_of(&self, address: IpAddr) -> Vec<String> {
        lock(&self.0).names.get(&address).cloned().unwrap_or_default()
    }

    pub fn remember(&self, name: &str, addresses: &[IpAddr]) {
        let mut seen = lock(&self.0);
        for address in addresses {
            if seen.names.len() >= MAX_ADDRESSES && !seen.names.contains_key(address) {
                continue;
            }
            let names = seen.names.entry(*address).or_default();
            if names.len() < MAX_NAMES && !names.iter().any(|own| own == name) {
                names.push(name.to_owned());
            }
        }
    }

    pub fn may_connect(&self, fd: i32, max: u32) -> bool {
        let Some(socket) = identity(fd) else {
            return false;
        };
        let mut seen = lock(&self.0);
        seen.connected.retain(|known| identity(known.0) == Some(*known));
        if seen.connected.contains(&socket) {
            return true;
        }
        if seen.connected.len() >= max as usize {
            return false;
        }
        seen.connected.push(socket);
        true
    }
}

/// The descriptor of a socket, and the number by which the system knows the socket itself.
fn identity(fd: i32) -> Option<(i32, u64)> {
    let stat = process::with_descriptor(fd, |fd| rustix::fs::fstat(fd))?.ok()?;
    Some((fd, stat.st_ino))
}
