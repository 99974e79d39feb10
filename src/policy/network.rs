//! Rules for the network: hosts by name, wildcard and IP network, ports, listening.
//!
//! A host that is allowed by name is allowed at the addresses that its name was looked up to, and
//! only there; whoever judges remembers these addresses. A blocked host stays blocked, by name and
//! by address.

use std::net::IpAddr;

use super::hosts::HostRule;
pub use super::hosts::{Destination, Ports, plain_name};
use super::requests::{self, RequestRule};
use crate::policy::files::fs::FileSystem;
use crate::policy::files::path::{self, Base};
use crate::policy::files::places::Roots;
use crate::policy::written::values::{Choice, Where};

/// The rules for the network, as they are written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NetworkRules {
    /// The hosts that may be reached.
    pub hosts: Where,
    /// Hosts that may not be reached, whatever the other fields say.
    pub block: Vec<String>,
    /// The ports that may be reached, at hosts that are given without one; `None` for all.
    pub ports: Option<Vec<Ports>>,
    /// The addresses that may be listened at.
    pub listen: Choice,
    /// Where Unix sockets may be, for connecting and listening.
    pub unix: Where,
    /// True if the names of hosts that may be reached may be looked up.
    pub lookup: bool,
    /// The number of sockets that may be connected at a time.
    pub max_connections: Option<u32>,
    /// The requests that may be made to the hosts that these name; others are held to none.
    pub http: Vec<String>,
}

impl Default for NetworkRules {
    /// Connecting anywhere, with look-up; listening nowhere; no Unix sockets.
    fn default() -> Self {
        Self {
            hosts: Where::Anywhere,
            block: Vec::new(),
            ports: None,
            listen: Choice::All(false),
            unix: Where::Below(Vec::new()),
            lookup: true,
            max_connections: None,
            http: Vec::new(),
        }
    }
}

impl NetworkRules {
    /// Connecting nowhere.
    pub fn to_no_host() -> Self {
        Self { hosts: Where::Below(Vec::new()), ..Self::default() }
    }
}

/// An operation on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach<'a> {
    /// Connects, or sends.
    Connect {
        to: Destination<'a>,
        /// The names that were looked up to it.
        names: &'a [String],
        port: u16,
    },
    /// Listens, or takes an address to send from.
    Listen {
        /// The address of the machine; its own name does not count as one.
        at: Destination<'a>,
        /// The port; 0 for any.
        port: u16,
    },
    LookUp {
        name: &'a str,
        /// The port that it is looked up for; 0 if that is not told.
        port: u16,
    },
    /// Connects to the Unix socket at this path, or makes one there.
    Unix(&'a [u8]),
    /// The same for a socket that is not a file.
    Abstract(&'a [u8]),
    Other,
}

/// The part of the rules that denies something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// All of it: nothing is allowed, or not this kind of operation.
    All,
    Hosts,
    Block,
    Ports,
    Listen,
    Unix,
    Lookup,
    MaxConnections,
    /// The requests are held to rules, and nobody reads them here.
    Http,
}

impl Part {
    pub const EACH: [Self; 9] = [
        Self::All,
        Self::Hosts,
        Self::Block,
        Self::Ports,
        Self::Listen,
        Self::Unix,
        Self::Lookup,
        Self::MaxConnections,
        Self::Http,
    ];

    /// Its name, as a field of a policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "network",
            Self::Hosts => "network.hosts",
            Self::Block => "network.block",
            Self::Ports => "network.ports",
            Self::Listen => "network.listen",
            Self::Unix => "network.unix",
            Self::Lookup => "network.lookup",
            Self::MaxConnections => "network.max_connections",
            Self::Http => "network.http",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub enum Network {
    #[default]
    Open,
    Closed,
    Rules(Box<HostRules>),
}

impl Network {
    /// Returns the field that denies an operation, if any.
    pub fn denies(&self, fs: &impl FileSystem, reach: Reach<'_>) -> Option<Part> {
        let rules = match self {
            Self::Open => return None,
            Self::Closed => return Some(Part::All),
            Self::Rules(rules) => rules,
        };
        let (allowed, part) = match reach {
            Reach::Connect { to, names, port } => return rules.denies_connecting(&to, names, port),
            Reach::LookUp { name, .. } => return rules.denies_looking_up(name),
            Reach::Listen { at, port } => (rules.may_listen(&at, port), Part::Listen),
            Reach::Unix(path) => {
                let allowed = rules.unix.as_ref().is_none_or(|roots| {
                    path::resolve(fs, path, Base::CurrentDir)
                        .is_some_and(|landing| roots.contain(fs, &landing))
                });
                (allowed, Part::Unix)
            }
            Reach::Abstract(name) => {
                let names = rules.abstract_names.as_ref();
                let allowed = names.is_none_or(|names| names.iter().any(|own| own == name));
                (allowed, Part::Unix)
            }
            Reach::Other => (false, Part::All),
        };
        (!allowed).then_some(part)
    }

    pub fn rules(&self) -> Option<&HostRules> {
        match self {
            Self::Rules(rules) => Some(rules),
            Self::Open | Self::Closed => None,
        }
    }

    /// Returns the network with what rules allow, too.
    pub(super) fn with(&self, more: &HostRules) -> Self {
        match self {
            Self::Open => Self::Open,
            Self::Closed => Self::Rules(Box::new(more.clone())),
            Self::Rules(own) => Self::Rules(Box::new(own.with(more))),
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}

/// The rules for the network, ready to judge.
#[derive(Clone, Debug)]
pub struct HostRules {
    /// `None`: all.
    hosts: Option<Vec<HostRule>>,
    block: Vec<HostRule>,
    ports: Option<Vec<Ports>>,
    /// Hosts with their ports that may be reached, whatever `ports` says.
    beside_ports: Vec<HostRule>,
    /// `None`: all.
    listen: Option<Vec<HostRule>>,
    pub lookup: bool,
    /// The number of sockets that may be connected at a time.
    pub max_connections: Option<u32>,
    /// Names of Unix sockets that are not files; `None` for all.
    abstract_names: Option<Vec<Vec<u8>>>,
    /// The places of Unix sockets; `None` for all.
    unix: Option<Roots>,
    http: Vec<RequestRule>,
}

impl HostRules {
    /// Makes rules of the written ones. `unix`: the places of Unix sockets, resolved.
    pub fn new(rules: &NetworkRules, unix: Option<Roots>) -> Self {
        // Texts that are not hosts were refused before.
        let hosts = |texts: &[String]| -> Vec<HostRule> {
            let parsed = texts.iter().map(|text| HostRule::parse(text));
            parsed.filter_map(Result::ok).collect()
        };
        Self {
            hosts: match &rules.hosts {
                Where::Anywhere => None,
                Where::Below(texts) => Some(hosts(texts)),
            },
            block: hosts(&rules.block).into_iter().flat_map(HostRule::with_addresses).collect(),
            ports: rules.ports.clone(),
            beside_ports: Vec::new(),
            listen: (rules.listen != Choice::All(true)).then(|| hosts(rules.listen.names())),
            lookup: rules.lookup,
            max_connections: rules.max_connections,
            abstract_names: match &rules.unix {
                Where::Anywhere => None,
                Where::Below(names) => Some(
                    names
                        .iter()
                        .filter_map(|name| name.strip_prefix('@'))
                        .map(|name| name.as_bytes().to_vec())
                        .collect(),
                ),
            },
            unix,
            http: rules.http.iter().filter_map(|text| RequestRule::parse(text).ok()).collect(),
        }
    }

    /// Returns the rules with what others allow. Hosts that are blocked stay so, and hosts of the
    /// others are reached at the ports that they are given with.
    pub fn with(&self, more: &Self) -> Self {
        let mut rules = self.clone();
        if let (None, Some(hosts)) = (&rules.hosts, &more.hosts) {
            rules.beside_ports.extend_from_slice(hosts);
        }
        extend(&mut rules.hosts, &more.hosts);
        extend(&mut rules.listen, &more.listen);
        extend(&mut rules.abstract_names, &more.abstract_names);
        match (&mut rules.unix, &more.unix) {
            (Some(own), Some(places)) => own.extend(places),
            (own, None) => *own = None,
            (None, _) => {}
        }
        rules.lookup |= more.lookup;
        rules
    }

    /// Returns whether a host is given by its address.
    pub fn is_address(host: &str) -> bool {
        host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
    }

    /// Returns whether a name is blocked, whatever the port.
    pub fn blocks_name(&self, name: &str) -> bool {
        let name = Destination::Name(name);
        let mut blocks = self.block.iter();
        blocks.any(|host| host.ports.is_none() && host.matches(&name))
    }

    /// Returns whether the destination is blocked at this port.
    pub fn block(&self, to: &Destination<'_>, port: u16) -> bool {
        hold(&self.block, to, port)
    }

    /// Returns the field that denies looking up a name, if any.
    fn denies_looking_up(&self, name: &str) -> Option<Part> {
        if self.blocks_name(name) {
            return Some(Part::Block);
        }
        if !self.lookup {
            return Some(Part::Lookup);
        }
        let name = Destination::Name(name);
        let hosts = self.hosts.as_ref();
        let may = hosts.is_none_or(|hosts| hosts.iter().any(|host| host.matches(&name)));
        (!may).then_some(Part::Hosts)
    }

    /// Returns the field that denies reaching the destination, if any. The destination is allowed
    /// as it is given, or by a name whose look-up returned it, and blocked by either.
    fn denies_connecting(&self, to: &Destination<'_>, names: &[String], port: u16) -> Option<Part> {
        let mut by_names = names.iter().map(|name| Destination::Name(name));
        if self.block(to, port) || by_names.any(|name| self.block(&name, port)) {
            return Some(Part::Block);
        }
        let is_usual = || {
            let ports = self.ports.as_ref();
            ports.is_none_or(|ports| ports.iter().any(|ports| ports.has(port)))
        };
        let is_it = |host: &&HostRule| {
            host.matches(to) || names.iter().any(|name| host.matches(&Destination::Name(name)))
        };
        let may = if let Some(hosts) = &self.hosts {
            let mut known = hosts.iter().filter(is_it).peekable();
            if known.peek().is_none() {
                return Some(Part::Hosts);
            }
            known.any(|host| host.ports.map_or_else(is_usual, |ports| ports.has(port)))
        } else {
            let mut beside = self.beside_ports.iter().filter(is_it);
            is_usual() || beside.any(|host| host.ports.is_some_and(|ports| ports.has(port)))
        };
        if !may {
            return Some(Part::Ports);
        }
        // Nobody who asks here reads the requests.
        let mut by_names = names.iter().map(|name| Destination::Name(name));
        let is_held =
            self.holds_requests(to, port) || by_names.any(|name| self.holds_requests(&name, port));
        is_held.then_some(Part::Http)
    }

    /// Returns whether the requests to a destination are held to rules.
    pub fn holds_requests(&self, to: &Destination<'_>, port: u16) -> bool {
        self.http.iter().any(|rule| rule.is_for(to, port))
    }

    /// Returns the normal path of a request that may be made to a destination with such rules.
    pub fn request(
        &self,
        to: &Destination<'_>,
        port: u16,
        method: &str,
        path: &str,
    ) -> Option<String> {
        let path = requests::normal(path)?;
        let mut rules = self.http.iter().filter(|rule| rule.is_for(to, port));
        rules.any(|rule| rule.allows(method, &path)).then_some(path)
    }

    /// Returns whether the code may listen at this address of the machine.
    fn may_listen(&self, at: &Destination<'_>, port: u16) -> bool {
        let hosts = self.listen.as_ref();
        hosts.is_none_or(|hosts| hold(hosts, at, port))
    }
}

/// Returns whether a destination is one of some hosts, at this port.
fn hold(hosts: &[HostRule], to: &Destination<'_>, port: u16) -> bool {
    hosts.iter().any(|host| host.matches(to) && host.ports.is_none_or(|ports| ports.has(port)))
}

/// Adds what is in another list; `None` stands for all.
fn extend<T: Clone>(own: &mut Option<Vec<T>>, more: &Option<Vec<T>>) {
    match (own.as_mut(), more) {
        (Some(own), Some(more)) => own.extend_from_slice(more),
        _ => *own = None,
    }
}
