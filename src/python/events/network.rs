//! Judges the use that an event makes of the network.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::sync::LazyLock;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::policy::check::Why;
use crate::policy::files::fs::Os;
use crate::policy::files::path::{self, Base, Target};
use crate::policy::learn::Need;
use crate::policy::network::{Destination, Part, Reach, Rules, plain_name};
use crate::policy::rules::NetworkEvent;
use crate::policy::{Operation, Verdict};
use crate::python::cpython::ffi as raw;
use crate::python::guard::event::Event;
use crate::python::values::addresses::{AF_UNIX, FAMILIES, Host, bytes_of, is_internet, read_host};

/// Looks up a name as CPython is going to, for sockets of a family; returns no addresses if that
/// fails.
fn resolve(py: Python<'_>, name: &str, family: i64) -> Vec<IpAddr> {
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

/// The rules for a policy that has none.
static ALL: LazyLock<Rules> = LazyLock::new(Rules::all);

/// Judges an event by the policy for the network. Returns the field that denies it, if any.
///
/// # Errors
/// Errors raised while reading an argument that are not an `Exception`.
pub fn denies(
    event: &Event<'_, '_>,
    kind: NetworkEvent,
    rules: Option<&Rules>,
) -> PyResult<Option<Part>> {
    let rules = rules.unwrap_or(&ALL);
    let judge = Judge { event, rules };
    let args = event.args;
    let address = args.get_borrowed_item(1);
    let is_connected = kind == NetworkEvent::Send && address.is_ok_and(|address| address.is_none());
    if is_connected {
        return Ok(None);
    }
    event.need(match kind {
        NetworkEvent::LookUpAddress => Need::NameOfAddress,
        _ => Need::Network,
    });
    match kind {
        NetworkEvent::LookUp => {
            let host = args.get_item(0).ok().and_then(|host| read_host(&host));
            Ok(match host {
                // The name of an address is looked up too; `http.server` looks up its own.
                Some(Host::Address(address))
                    if event.name == c"socket.gethostbyaddr"
                        && !address.is_loopback()
                        && !rules.looks_up() =>
                {
                    Some(Part::Lookup)
                }
                Some(Host::Own | Host::Address(_)) => None,
                Some(Host::Name(name)) => judge.look_up(&name),
                None => Some(Part::All),
            })
        }
        NetworkEvent::LookUpAddress => {
            let host = args
                .get_item(0)
                .ok()
                .and_then(|address| address.cast_into::<PyTuple>().ok())
                .and_then(|address| address.get_item(0).ok())
                .and_then(|host| read_host(&host));
            Ok(match host {
                Some(Host::Own) => None,
                Some(Host::Address(_)) if rules.looks_up() => None,
                Some(Host::Address(_)) => Some(Part::Lookup),
                Some(Host::Name(name)) => judge.look_up(&name),
                None => Some(Part::All),
            })
        }
        NetworkEvent::Connect | NetworkEvent::Bind | NetworkEvent::Send => judge.use_address(kind),
    }
}

struct Judge<'a, 'py> {
    event: &'a Event<'a, 'py>,
    rules: &'a Rules,
}

impl Judge<'_, '_> {
    fn ask(&self, reach: Reach<'_>) -> Option<Part> {
        self.event.note(Operation::UseNetwork(reach));
        self.event.config.policy().network().denies(&Os, reach)
    }

    fn look_up(&self, name: &str) -> Option<Part> {
        // It is this machine, by the rules for names; servers look up its name.
        if is_local(name) || is_own_name(name) {
            return None;
        }
        self.ask(Reach::LookUp(name))
    }

    fn use_address(&self, kind: NetworkEvent) -> PyResult<Option<Part>> {
        let args = self.event.args;
        let (Ok(socket), Ok(address)) = (args.get_item(0), args.get_item(1)) else {
            return Ok(Some(Part::All));
        };
        let Some((family, fd)) = read_socket(&socket) else {
            return Ok(Some(Part::All));
        };
        #[cfg(unix)]
        if family == AF_UNIX {
            return self.use_unix(kind, &address);
        }
        let _ = family;
        let Ok(parts) = address.cast_into::<PyTuple>() else {
            return Ok(Some(Part::All));
        };
        let (Ok(host), Ok(port)) = (parts.get_item(0), parts.get_item(1)) else {
            return Ok(Some(Part::All));
        };
        // For other families the first item is not a host.
        let (Some(host), Some(port)) = (read_host(&host), raw::int_value(&port)) else {
            return Ok(Some(Part::All));
        };
        if parts.len() > 4 || !is_internet(family) {
            return Ok(Some(Part::All));
        }
        let Ok(port) = u16::try_from(port) else {
            // CPython says so itself.
            return Ok(None);
        };
        let denied = match kind {
            NetworkEvent::Bind => self.listen(host, family, port),
            _ => self.connect(host, family, port),
        };
        if denied.is_none()
            && kind == NetworkEvent::Connect
            && let Some(max) = self.rules.max_connections
            && !self.event.active.log().network.may_connect(fd, max)
        {
            return Ok(Some(Part::MaxConnections));
        }
        Ok(denied)
    }

    fn listen(&self, host: Host, family: i64, port: u16) -> Option<Part> {
        let py = self.event.args.py();
        match host {
            Host::Own => {
                let at = Destination::Address(Ipv4Addr::UNSPECIFIED.into());
                self.ask(Reach::Listen { at, port })
            }
            Host::Address(address) => {
                let at = Destination::Address(address);
                self.ask(Reach::Listen { at, port })
            }
            Host::Name(name) => {
                let at = Destination::Name(&name);
                self.ask(Reach::Listen { at, port })?;
                // If the name is not allowed, its addresses may be.
                let found = resolve(py, &name, family);
                if found.is_empty() {
                    return Some(Part::Listen);
                }
                found.iter().find_map(|address| {
                    let at = Destination::Address(*address);
                    self.ask(Reach::Listen { at, port })
                })
            }
        }
    }

    fn connect(&self, host: Host, family: i64, port: u16) -> Option<Part> {
        let py = self.event.args.py();
        let seen = &self.event.active.log().network;
        let by_address = |address: IpAddr| {
            let names = seen.names_of(address);
            let to = Destination::Address(address);
            self.ask(Reach::Connect {
                to,
                names: &names,
                port,
            })
        };
        match host {
            // The destination is this machine.
            Host::Own => by_address(Ipv4Addr::LOCALHOST.into()),
            Host::Address(address) if address.is_unspecified() => {
                by_address(Ipv4Addr::LOCALHOST.into())
            }
            Host::Address(address) => by_address(address),
            Host::Name(name) => {
                let to = Destination::Name(&name);
                let denied = self.ask(Reach::Connect {
                    to,
                    names: &[],
                    port,
                });
                if denied.is_some() && !is_local(&name) && !is_number(&name) {
                    return denied;
                }
                let found = resolve(py, &name, family);
                if found.is_empty() {
                    return denied;
                }
                if denied.is_some() {
                    return found.into_iter().find_map(by_address);
                }
                let is_blocked =
                    |address: &IpAddr| self.rules.block(&Destination::Address(*address), port);
                if found.iter().any(is_blocked) {
                    return Some(Part::Block);
                }
                seen.remember(&name, &found);
                None
            }
        }
    }

    #[cfg(unix)]
    fn use_unix(&self, kind: NetworkEvent, address: &Bound<'_, PyAny>) -> PyResult<Option<Part>> {
        let path = match address.cast::<PyString>() {
            Ok(text) => match raw::fs_encode(text.as_borrowed()) {
                Ok(path) => path.as_bytes().to_vec(),
                Err(_) => return Ok(Some(Part::Unix)),
            },
            Err(_) => match bytes_of(address) {
                Some(path) => path,
                None => return Ok(Some(Part::Unix)),
            },
        };
        match path.split_first() {
            // Linux gives the socket a name then.
            None => return Ok(self.ask(Reach::Abstract(b""))),
            Some((0, name)) => return Ok(self.ask(Reach::Abstract(name))),
            Some(_) => {}
        }
        // Listening makes a file.
        let operation = Operation::ChangeEntry(Target::path(&path));
        let denied = self.ask(Reach::Unix(&path));
        if denied.is_some() && self.is_of_guard(&path, operation) {
            return Ok(None);
        }
        if denied.is_some() || kind != NetworkEvent::Bind {
            return Ok(denied);
        }
        Ok(match self.event.config.policy().check(&Os, operation) {
            Verdict::Allow => None,
            Verdict::Deny(_) if self.is_of_guard(&path, operation) => None,
            Verdict::Deny(Why::Network(part)) => Some(part),
            Verdict::Deny(_) => Some(Part::Unix),
        })
    }

    /// Returns whether a socket is in the guard's temporary directory, where nobody else's is.
    #[cfg(unix)]
    fn is_of_guard(&self, path: &[u8], operation: Operation<'_>) -> bool {
        let landing = path::resolve(&Os, path, Base::CurrentDir);
        let temporary = self.event.config.temporary();
        landing.is_some_and(|landing| temporary.hold(landing.as_bytes()))
            && self.event.is_temporary(operation)
    }
}

/// Returns whether a name is that of this machine itself, which is looked up nowhere (RFC 6761).
fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Returns whether a name is this machine's own.
#[cfg(unix)]
fn is_own_name(name: &str) -> bool {
    let own = rustix::system::uname();
    own.nodename()
        .to_str()
        .is_ok_and(|own| plain_name(own) == name)
}

#[cfg(not(unix))]
fn is_own_name(_name: &str) -> bool {
    false
}

/// Returns whether a name is an address in an older form: 127.1, 0x7f000001.
fn is_number(name: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b'x');
    name.as_bytes().first().is_some_and(u8::is_ascii_digit) && name.bytes().all(hex)
}

fn family_of(address: IpAddr) -> i64 {
    FAMILIES[usize::from(address.is_ipv6())]
}

/// The family and the descriptor of a socket, whatever a subclass says they are.
fn read_socket(socket: &Bound<'_, PyAny>) -> Option<(i64, i32)> {
    let py = socket.py();
    let module = raw::imported_module(py, pyo3::intern!(py, "_socket")).ok()??;
    let class = module.getattr("socket").ok()?.cast_into::<PyType>().ok()?;
    if !socket.is_instance(&class).ok()? {
        return None;
    }
    let family = class.getattr("family").ok()?;
    let family = family.call_method1("__get__", (socket,)).ok()?;
    let fd = class.getattr("fileno").ok()?.call1((socket,)).ok()?;
    let fd = i32::try_from(raw::int_value(&fd)?).ok()?;
    Some((raw::int_value(&family)?, fd))
}
