//! The permissions that a denied event lacks.

use std::net::{IpAddr, Ipv4Addr};

use super::arguments::Host;
use super::arguments::{Arguments, SHELL, program};
use super::surroundings::Follows;
use crate::policy::check::Policy;
use crate::policy::files::fs::FileSystem;
use crate::policy::files::path::{self, Base};
use crate::policy::learn::{self, Need};
use crate::policy::network::{Destination, Part, Reach};
use crate::policy::operation::{Operation, Why};
use crate::policy::rules::{NetworkEvent, Rule};
use crate::policy::written::widening::Lack;
use crate::policy::{commands, events};

/// The number of arguments that paths are among.
pub const MOST_PATHS: usize = 2;

/// The state that an event does not tell of, and that differs later.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// The directory that a relative name starts from.
    pub base: Base,
    pub follows: Follows,
    /// The first arguments whose texts cannot be trusted, as bits.
    pub opaque: u8,
}

/// Knowledge beside an event and its policy.
pub trait Knowledge {
    /// Returns the names that were looked up to an address.
    fn names_of(&self, address: IpAddr) -> Vec<String>;
    /// Returns the package that native code is of, by the name that a denial gives it.
    fn package_of(&self, callee: &str) -> String;
    fn own_path(&self) -> Vec<u8> {
        commands::own_path()
    }
}

#[derive(Debug)]
pub struct Denied<'a, A, F> {
    pub fs: &'a F,
    pub event: &'a str,
    pub args: &'a A,
    pub moment: Moment,
    pub policy: &'a Policy,
}

/// Returns whether the permissions that an event lacks would be others later: a relative path starts
/// from a directory that may be left or closed, and names of hosts are forgotten with the guard.
pub fn is_of_the_moment(event: &str, args: &impl Arguments, why: Why) -> bool {
    match why {
        Why::Network(_) => true,
        Why::Unapproved | Why::Unreadable | Why::Blocked | Why::Protected => {
            let is_relative = |path: &[u8]| !path.starts_with(b"/");
            let by_text = |path: Option<&[u8]>| path.is_some_and(is_relative);
            let by_path = |index| args.path(index).is_some_and(|path| is_relative(&path));
            // A descriptor, which may be closed then.
            args.integer(0).is_some()
                || (0..MOST_PATHS).any(|index| match args.with_encoded(index, by_text) {
                    Some(is_relative) => is_relative,
                    None => by_path(index),
                })
        }
        // It may have a `PATH` of its own.
        Why::Command => event != "os.system",
        _ => false,
    }
}

impl<A: Arguments, F: FileSystem> Denied<'_, A, F> {
    /// Returns the permissions that the event needs and the policy does not give; empty if they
    /// cannot be told.
    pub fn lacks(&self, why: Why, known: &impl Knowledge) -> Result<Vec<Lack>, A::Error> {
        let one = |need: Option<Need>| -> Vec<Lack> {
            need.map(|need| Lack::new(need, why)).into_iter().collect()
        };
        Ok(match why {
            Why::Unapproved | Why::Unreadable | Why::Blocked | Why::Protected => {
                self.places(why)?
            }
            Why::Network(part) => self.network(part, known)?,
            Why::Environment => one(self.text(0).map(Need::Variable)),
            Why::Command => {
                let program = self.program(&|| known.own_path());
                let program = program.map(|program| commands::name_of(self.fs, program.into()));
                one(program.map(Need::Program))
            }
            Why::Import => one(self.text(0).map(Need::Module)),
            Why::Native if self.event == "import" => {
                one(self.text(0).map(|module| Need::of_native(&module)))
            }
            Why::Native => {
                let callee = self.text(1);
                one(callee.map(|callee| Need::Native(known.package_of(&callee))))
            }
            Why::Switch(switch) => one(Some(Need::Switch(switch))),
            Why::TooMuch => one(self.bytes().map(Need::Bytes)),
        })
    }

    fn text(&self, index: usize) -> Option<String> {
        String::from_utf8(self.args.path(index)?.to_vec()).ok()
    }

    /// Returns the number of bytes there would be in all: `(fd, more, before)`.
    fn bytes(&self) -> Option<u64> {
        let number = |index| u64::try_from(self.args.integer(index)?).ok();
        number(1)?.checked_add(number(2)?)
    }

    /// Returns the program as a policy names it: by its name if this process finds it by that.
    /// `None` if there is no program, an empty name if it cannot be told which it is.
    fn program(&self, own_path: &dyn Fn() -> Vec<u8>) -> Option<String> {
        let Some(found) = program(self.fs, self.event.as_bytes(), self.args, own_path) else {
            return self.program_shown(None).is_none().then(String::new);
        };
        if !self.fs.is_executable(&found) {
            return None;
        }
        if let Some(name) = self.program_shown(Some(&found)) {
            let is_found = || {
                commands::find(self.fs, name.as_bytes(), &own_path())
                    .is_some_and(|own| own == found)
            };
            if name.starts_with('/') || (!name.contains('/') && is_found()) {
                return Some(name);
            }
        }
        let program = path::entry(self.fs, &found, Base::CurrentDir)?;
        String::from_utf8(program.to_vec()).ok()
    }

    /// Returns the program of the event as its arguments name it.
    fn program_shown(&self, found: Option<&[u8]>) -> Option<String> {
        match self.event {
            "subprocess.Popen" | "os.exec" | "os.posix_spawn" => self.text(0),
            "os.system" => Some(SHELL.to_owned()),
            "pty.spawn" => {
                let words = self.args.paths(0)?;
                String::from_utf8(words.first()?.to_vec()).ok()
            }
            "_posixsubprocess.fork_exec" => String::from_utf8(found?.to_vec()).ok(),
            _ => None,
        }
    }

    /// Returns the needs of an event of the network. Nothing is looked up.
    fn network(&self, part: Part, known: &impl Knowledge) -> Result<Vec<Lack>, A::Error> {
        let args = self.args;
        let why = Why::Network(part);
        let one = |need: Need| Ok(vec![Lack::new(need, why)]);
        let of = |reach: Reach<'_>| -> Vec<Lack> {
            let needs = learn::needs(self.fs, Operation::UseNetwork(reach)).into_iter();
            needs.map(|need| Lack::new(need, why)).collect()
        };
        let kind = match events::lookup(self.event.as_bytes()) {
            Some(Rule::Network(kind)) => kind,
            Some(Rule::Bind) => NetworkEvent::Bind,
            _ => return one(Need::OtherNetwork),
        };
        if let NetworkEvent::LookUp | NetworkEvent::LookUpAddress = kind {
            let host = args.first_host(0).or_else(|| args.host(0));
            let port = match self.event {
                "socket.getaddrinfo" => self.port(1),
                _ => None,
            };
            let port = port.unwrap_or(u16::MAX);
            return one(match host {
                Some(Host::Name(name)) => Need::Connect(name, port),
                Some(Host::Address(_)) if kind == NetworkEvent::LookUpAddress => {
                    Need::NameOfAddress
                }
                Some(Host::Address(address)) => Need::Connect(learn::shown(address), port),
                Some(Host::Own) => Need::Network,
                None => Need::OtherNetwork,
            });
        }
        if let Some(end) = args.endpoint(1) {
            let Ok(port) = u16::try_from(end.port) else {
                return one(Need::OtherNetwork);
            };
            let own = |address: Ipv4Addr| Destination::Address(address.into());
            let to = match &end.host {
                Host::Own if kind == NetworkEvent::Bind => own(Ipv4Addr::UNSPECIFIED),
                Host::Own => own(Ipv4Addr::LOCALHOST),
                Host::Address(address)
                    if address.is_unspecified() && kind != NetworkEvent::Bind =>
                {
                    own(Ipv4Addr::LOCALHOST)
                }
                Host::Address(address) => Destination::Address(*address),
                Host::Name(name) => Destination::Name(name),
            };
            return match (kind, to) {
                (NetworkEvent::Bind, at) => Ok(of(Reach::Listen { at, port })),
                (_, Destination::Address(address)) => {
                    let names = known.names_of(address).into_iter();
                    let host = names.chain([learn::shown(address)]).next();
                    one(Need::Connect(host.unwrap_or_default(), port))
                }
                (_, Destination::Name(name)) => one(Need::Connect(name.to_owned(), port)),
            };
        }
        let Some(path) = args.socket_name(1) else {
            return one(Need::OtherNetwork);
        };
        let reach = match path.split_first() {
            None => Reach::Abstract(b""),
            Some((0, name)) => Reach::Abstract(name),
            Some(_) => Reach::Unix(&path),
        };
        let mut lacks = match self.policy.network().denies(self.fs, reach) {
            Some(_) => of(reach),
            None => Vec::new(),
        };
        if let (NetworkEvent::Bind, Reach::Unix(_)) = (kind, reach) {
            self.change_entry(1, &mut lacks)?;
        }
        Ok(lacks)
    }

    /// Returns the port in an argument: a number, or the digits of one.
    fn port(&self, index: usize) -> Option<u16> {
        let port = match self.args.integer(index) {
            Some(number) => u16::try_from(number).ok()?,
            None => self.args.text(index)?.parse().ok()?,
        };
        (port != 0).then_some(port)
    }
}
