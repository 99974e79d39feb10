//! Events of the network.

use std::net::{IpAddr, Ipv4Addr};

use super::arguments::UNIX_FAMILY;
use super::arguments::{Arguments, Named};
use super::arguments::{Host, is_internet, is_number, is_own_name};
use super::event::Judge;
use super::surroundings::{Reason, Surroundings};
use crate::policy::files::path::{Base, Name, Target};
use crate::policy::hosts::is_local;
use crate::policy::learn::Need;
use crate::policy::network::{Destination, HostRules, Network, Part, Reach};
use crate::policy::operation::{Operation, Why};
use crate::policy::rules::NetworkEvent;

use crate::policy::files::path;

/// The family or the kind of a socket that CPython chooses: that of a stream of the internet.
const DEFAULT: i64 = -1;

/// The kinds of sockets that only carry what is sent: streams, datagrams, packets in sequence.
const PLAIN: [i64; 3] = [1, 2, 5];

/// The bits of a kind that are not flags.
const KIND: i64 = 0xf;

impl<S: Surroundings> Judge<'_, S> {
    /// Judges making a socket. One that was open before passes, and one of the internet or of this
    /// machine, where connecting, sending and listening are events of their own. Others
    /// (netlink(7), packet(7), vsock(7), raw(7)) send and receive without one. A socket that the
    /// kernel would refuse is denied here, where an error can say what to do.
    pub(super) fn socket(&self) -> Result<(), S::Error> {
        if let (Some(family), Some(kind)) = (self.args().integer(1), self.args().integer(2)) {
            let is_known = family == super::UNIX_FAMILY || is_internet(family);
            let is_plain = PLAIN.contains(&(kind & KIND));
            let is_refused = family != super::UNIX_FAMILY && self.0.has_only_unix_sockets();
            if self.0.wraps_socket()
                || ((is_known || family == DEFAULT) && (is_plain || kind == DEFAULT) && !is_refused)
            {
                return Ok(());
            }
        }
        self.switch(Operation::UseNetwork(Reach::Other))
    }

    /// A Unix socket makes a file, unless its name begins with a NUL: unix(7).
    pub(super) fn bind(&self) -> Result<(), S::Error> {
        self.network(NetworkEvent::Bind)?;
        if !self.0.policy().network().is_open() {
            return Ok(());
        }
        if self.args().count() < 2 {
            return self.deny(Reason::Event);
        }
        // The addresses of other families are tuples.
        if !self.args().is_texts(1) {
            return Ok(());
        }
        let name = self.name_at(1, false)?;
        match name.name() {
            Name::Path(path) if path.first().is_none_or(|first| *first == 0) => Ok(()),
            name => {
                let base = Base::CurrentDir;
                self.judge(Operation::ChangeEntry(Target { name, base }), 1)
            }
        }
    }

    pub(super) fn network(&self, kind: NetworkEvent) -> Result<(), S::Error> {
        // Without an address, it sends only to a place that the socket is connected to already.
        let is_connected = kind == NetworkEvent::Send && self.args().is_none(1);
        let looks_nothing_up = match kind {
            NetworkEvent::LookUpAddress => self.0.is_numeric(),
            NetworkEvent::LookUp => self.is_of_address(),
            _ => false,
        };
        let denied = match self.0.policy().network() {
            _ if is_connected || looks_nothing_up => None,
            Network::Open if !self.0.records() => None,
            Network::Closed if !self.0.records() => Some(Part::All),
            network => self.part_that_denies(kind, network.rules()),
        };
        match denied {
            Some(part) => self.deny(Reason::Switch(Why::Network(part))),
            None => Ok(()),
        }
    }

    /// Returns the part of the rules that denies an event, if any does.
    fn part_that_denies(&self, kind: NetworkEvent, rules: Option<&HostRules>) -> Option<Part> {
        let looks_up = rules.is_none_or(|rules| rules.lookup);
        self.0.need(match kind {
            NetworkEvent::LookUpAddress => Need::NameOfAddress,
            _ => Need::Network,
        });
        match kind {
            NetworkEvent::LookUp => match self.args().host(0) {
                // The name of an address is looked up too; `http.server` looks up its own.
                Some(Host::Address(address))
                    if self.0.event() == b"socket.gethostbyaddr"
                        && !address.is_loopback()
                        && !looks_up =>
                {
                    Some(Part::Lookup)
                }
                Some(Host::Own | Host::Address(_)) => None,
                Some(Host::Name(name)) => self.name_looked_up(&name),
                None => Some(Part::All),
            },
            NetworkEvent::LookUpAddress => match self.args().first_host(0) {
                Some(Host::Own) => None,
                Some(Host::Address(_)) if looks_up => None,
                Some(Host::Address(_)) => Some(Part::Lookup),
                Some(Host::Name(name)) => self.name_looked_up(&name),
                None => Some(Part::All),
            },
            NetworkEvent::Connect | NetworkEvent::Bind | NetworkEvent::Send => {
                self.address_used(kind, rules)
            }
        }
    }

    /// Returns whether only an address is asked for that is known, or all of this machine.
    fn is_of_address(&self) -> bool {
        let asks_for_name = self.0.event() == b"socket.gethostbyaddr";
        !asks_for_name && matches!(self.args().host(0), Some(Host::Own | Host::Address(_)))
    }

    fn ask(&self, reach: Reach<'_>) -> Option<Part> {
        self.0.note(Operation::UseNetwork(reach));
        self.0.policy().network().denies(self.0.fs(), reach)
    }

    fn name_looked_up(&self, name: &str) -> Option<Part> {
        // It is this machine, by the rules for names; servers look up its name.
        if is_local(name) || is_own_name(name) {
            let rules = self.0.policy().network().rules();
            let is_blocked = rules.is_some_and(|rules| rules.blocks_name(name));
            return is_blocked.then_some(Part::Block);
        }
        let port = self.args().integer(1).and_then(|port| u16::try_from(port).ok());
        self.ask(Reach::LookUp { name, port: port.unwrap_or(0) })
    }

    fn address_used(&self, kind: NetworkEvent, rules: Option<&HostRules>) -> Option<Part> {
        if self.args().count() < 2 {
            return Some(Part::All);
        }
        let Some((family, fd)) = self.args().socket(0) else {
            return Some(Part::All);
        };
        if family == UNIX_FAMILY {
            return self.unix_used(kind);
        }
        // For other families the first item is not a host.
        let Some(end) = self.args().endpoint(1) else {
            return Some(Part::All);
        };
        if end.items > 4 || !is_internet(family) {
            return Some(Part::All);
        }
        // CPython refuses such a port itself.
        let port = u16::try_from(end.port).ok()?;
        let denied = match kind {
            NetworkEvent::Bind => self.listened(end.host, family, port),
            _ => self.connected(end.host, family, port, rules),
        };
        if denied.is_none()
            && kind == NetworkEvent::Connect
            && let Some(most) = rules.and_then(|rules| rules.max_connections)
            && !self.0.may_connect(fd, most)
        {
            return Some(Part::MaxConnections);
        }
        denied
    }

    fn listened(&self, host: Host, family: i64, port: u16) -> Option<Part> {
        let ask = |at| self.ask(Reach::Listen { at, port });
        match host {
            Host::Own => ask(Destination::Address(Ipv4Addr::UNSPECIFIED.into())),
            Host::Address(address) => ask(Destination::Address(address)),
            Host::Name(name) => {
                ask(Destination::Name(&name))?;
                // If the name is not allowed, its addresses may be.
                let found = self.0.look_up(&name, family);
                if found.is_empty() {
                    return Some(Part::Listen);
                }
                let mut found = found.into_iter().map(Destination::Address);
                found.find_map(ask)
            }
        }
    }

    fn connected(
        &self,
        host: Host,
        family: i64,
        port: u16,
        rules: Option<&HostRules>,
    ) -> Option<Part> {
        let by_address = |address: IpAddr| {
            let names = self.0.names_of(address);
            let to = Destination::Address(address);
            self.ask(Reach::Connect { to, names: &names, port })
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
                let denied = self.ask(Reach::Connect { to, names: &[], port });
                let is_known = is_local(&name) || is_number(&name);
                if denied == Some(Part::Block) || (denied.is_some() && !is_known) {
                    return denied;
                }
                let found = self.0.look_up(&name, family);
                if found.is_empty() {
                    return denied;
                }
                if denied.is_some() {
                    return found.into_iter().find_map(by_address);
                }
                let is_blocked = |address: &IpAddr| {
                    rules.is_some_and(|rules| rules.block(&Destination::Address(*address), port))
                };
                if found.iter().any(is_blocked) {
                    return Some(Part::Block);
                }
                self.0.remember(&name, &found);
                None
            }
        }
    }

    fn unix_used(&self, kind: NetworkEvent) -> Option<Part> {
        let Some(path) = self.args().socket_name(1) else {
            return Some(Part::Unix);
        };
        match path.split_first() {
            // Linux gives the socket a name then.
            None => return self.ask(Reach::Abstract(b"")),
            Some((0, name)) => return self.ask(Reach::Abstract(name)),
            Some(_) => {}
        }
        // Listening makes a file.
        let operation = Operation::ChangeEntry(Target::path(&path));
        let denied = self.ask(Reach::Unix(&path));
        if denied.is_some() && self.is_of_guard(&path, operation) {
            return None;
        }
        if denied.is_some() || kind != NetworkEvent::Bind {
            return denied;
        }
        self.check(operation).err().map(|_| Part::Unix)
    }

    /// Returns whether a socket is in the guard's temporary directory, where nobody else's is.
    fn is_of_guard(&self, path: &[u8], operation: Operation<'_>) -> bool {
        let landing = path::resolve(self.0.fs(), path, Base::CurrentDir);
        landing.is_some_and(|landing| self.0.policy().is_temporary(&landing))
            && self.check(operation).is_ok()
    }
}
