//! Hosts, addresses and ports as events give them.

use std::net::{IpAddr, Ipv4Addr};

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyInt, PyString};

use crate::policy::network::plain_name;
use crate::python::cpython::calling;
use crate::python::cpython::ffi as raw;

/// Reads an address; that of an IPv4 host is an IPv4 address.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    // A link-local address may have a scope: fe80::1%eth0.
    let text = text.split_once('%').map_or(text, |(address, _)| address);
    text.parse()
        .ok()
        .map(|address: IpAddr| address.to_canonical())
}

/// A host as an event gives it.
pub enum Host {
    /// This machine, or all of its addresses.
    Own,
    Address(IpAddr),
    Name(String),
}

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
    Some(match text.as_str() {
        "" => Host::Own,
        "<broadcast>" => Host::Address(Ipv4Addr::BROADCAST.into()),
        text => match parse_address(text) {
            Some(address) => Host::Address(address),
            None => Host::Name(plain_name(text)),
        },
    })
}

pub fn bytes_of(object: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Some(bytes.as_bytes().to_vec());
    }
    let bytes = object.cast::<PyByteArray>().ok()?;
    Some(bytes.to_vec())
}

/// The port in an argument: a number, or the digits of one.
pub fn port_in(object: &Bound<'_, PyAny>) -> Option<u16> {
    let number = match object.cast::<PyString>() {
        Ok(text) => text.to_str().ok()?.parse().ok()?,
        Err(_) => raw::int_value(object)?,
    };
    u16::try_from(number)
        .ok()
        .filter(|port| *port != 0 || object.is_instance_of::<PyInt>())
}

/// The family of Unix sockets, by its number here.
pub const AF_UNIX: i64 = 1;

/// Returns whether the family is one of the internet.
pub fn is_internet(family: i64) -> bool {
    FAMILIES.contains(&family)
}

/// `AF_INET` and `AF_INET6`.
#[cfg(unix)]
pub const FAMILIES: [i64; 2] = [
    rustix::net::AddressFamily::INET.as_raw() as i64,
    rustix::net::AddressFamily::INET6.as_raw() as i64,
];

/// The same of Windows.
#[cfg(not(unix))]
pub const FAMILIES: [i64; 2] = [2, 23];
