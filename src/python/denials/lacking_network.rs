//! The lack of a denied event that uses the network.

use std::net::Ipv4Addr;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::policy::files::fs::Os;
use crate::policy::judge::Host;
use crate::policy::learn::{self, Need};
use crate::policy::network::{Destination, Part, Reach};
use crate::policy::rules::NetworkEvent;
use crate::policy::written::widening::Lack;
use crate::policy::{Operation, Why};
use crate::python::cpython::ffi as raw;
use crate::python::denials::denied_event::{Lacking, network_event};
use crate::python::values::addresses::{bytes_of, port_in, read_host};
use crate::python::values::seen::Seen;

/// Returns the permissions that a denied event needs of the network and the policy does not give.
/// Nothing is looked up.
pub fn lacks(event: &Lacking<'_, '_>, part: Part, seen: &Seen) -> PyResult<Vec<Lack>> {
    let args = event.args;
    let why = Why::Network(part);
    let one = |need: Need| vec![Lack::new(need, why)];
    let of = |reach: Reach<'_>| -> Vec<Lack> {
        let needs = learn::needs(&Os, Operation::UseNetwork(reach)).into_iter();
        needs.map(|need| Lack::new(need, why)).collect()
    };
    let host_in = |object: &Bound<'_, PyAny>| read_host(object);
    let Some(kind) = network_event(event.event) else {
        return Ok(one(Need::OtherNetwork));
    };
    let (first, second) = (args.get_item(0), args.get_item(1));
    if let NetworkEvent::LookUp | NetworkEvent::LookUpAddress = kind {
        let host = first.ok().and_then(|first| match first.cast::<PyTuple>() {
            Ok(address) => host_in(&address.get_item(0).ok()?),
            Err(_) => host_in(&first),
        });
        let port = match (event.event, second) {
            ("socket.getaddrinfo", Ok(port)) => port_in(&port),
            _ => None,
        };
        let port = port.unwrap_or(u16::MAX);
        return Ok(match host {
            Some(Host::Name(name)) => one(Need::Connect(name, port)),
            Some(Host::Address(_)) if kind == NetworkEvent::LookUpAddress => {
                one(Need::NameOfAddress)
            }
            Some(Host::Address(address)) => one(Need::Connect(learn::shown(address), port)),
            Some(Host::Own) => one(Need::Network),
            None => one(Need::OtherNetwork),
        });
    }
    let Ok(address) = second else {
        return Ok(one(Need::OtherNetwork));
    };
    if let Ok(parts) = address.cast::<PyTuple>() {
        let host = parts.get_item(0).ok().and_then(|host| host_in(&host));
        let port = parts.get_item(1).ok().and_then(|port| port_in(&port));
        let (Some(host), Some(port)) = (host, port) else {
            return Ok(one(Need::OtherNetwork));
        };
        let name;
        let to = match host {
            Host::Own if kind == NetworkEvent::Bind => {
                Destination::Address(Ipv4Addr::UNSPECIFIED.into())
            }
            Host::Own => Destination::Address(Ipv4Addr::LOCALHOST.into()),
            Host::Address(address) if address.is_unspecified() && kind != NetworkEvent::Bind => {
                Destination::Address(Ipv4Addr::LOCALHOST.into())
            }
            Host::Address(address) => Destination::Address(address),
            Host::Name(text) => {
                name = text;
                Destination::Name(&name)
            }
        };
        return Ok(match (kind, to) {
            (NetworkEvent::Bind, at) => of(Reach::Listen { at, port }),
            (_, Destination::Address(address)) => {
                let names = seen.names_of(address).into_iter();
                let host = names.chain([learn::shown(address)]).next();
                one(Need::Connect(host.unwrap_or_default(), port))
            }
            (_, Destination::Name(name)) => one(Need::Connect(name.to_owned(), port)),
        });
    }
    let path = match address.cast::<PyString>() {
        Ok(text) => raw::fs_encode(text.as_borrowed()).map(|path| path.as_bytes().to_vec()),
        Err(_) => bytes_of(&address).ok_or_else(|| PyTypeError::new_err("no address")),
    };
    let Ok(path) = path else {
        return Ok(one(Need::OtherNetwork));
    };
    let reach = match path.split_first() {
        None => Reach::Abstract(b""),
        Some((0, name)) => Reach::Abstract(name),
        Some(_) => Reach::Unix(&path),
    };
    let mut lacks = match event.policy.network().denies(&Os, reach) {
        Some(_) => of(reach),
        None => Vec::new(),
    };
    if let (NetworkEvent::Bind, Reach::Unix(_)) = (kind, reach) {
        event.change_entry(1, &mut lacks)?;
    }
    Ok(lacks)
}
