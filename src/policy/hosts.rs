//! Hosts as rules for the network name them, and their ports.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// A range of ports: the first and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ports(u16, u16);

impl Ports {
    pub fn one(port: u16) -> Self {
        Self(port, port)
    }

    /// Reads `"443"` and `"8000-8999"`.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        match text.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self(first, last))
            }
            None => number(text).map(Self::one),
        }
    }

    pub fn single(self) -> Option<u16> {
        (self.0 == self.1).then_some(self.0)
    }

    /// Returns whether all of the other's ports are among these.
    pub fn hold(self, other: Self) -> bool {
        self.has(other.0) && self.has(other.1)
    }

    pub fn has(self, port: u16) -> bool {
        (self.0..=self.1).contains(&port)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(port) => write!(to, "{port}"),
            None => write!(to, "{}-{}", self.0, self.1),
        }
    }
}

/// A pattern of hosts, at some ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    pattern: Pattern,
    pub ports: Option<Ports>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    /// `*`.
    Any,
    Name(String),
    /// `*.name`: all names below it.
    Below(String),
    /// An address, or a network of addresses.
    Net(IpNet),
}

impl HostRule {
    /// Reads `"example.com"`, `"*.example.com:443"`, `"10.0.0.0/8"`, `"[::1]:8000-8999"`.
    ///
    /// # Errors
    /// The values that are accepted.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const HOST: &str = "must be a host name, \"*.example.com\", an IP address or network, each with or without a port (\"example.com:443\", \"[::1]:443\")";
        if let Some(net) = parse_net(text) {
            return Ok(Self { pattern: Pattern::Net(net), ports: None });
        }
        let (host, ports) = match text.rsplit_once(':') {
            Some((host, ports)) => (host, Some(Ports::parse(ports).ok_or(HOST)?)),
            None => (text, None),
        };
        let bracketed = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
        let pattern = if let Some(inner) = bracketed {
            Pattern::Net(parse_net(inner).ok_or(HOST)?)
        } else if let Some(net) = parse_net(host).filter(|_| !host.contains(':')) {
            Pattern::Net(net)
        } else if host == "*" {
            Pattern::Any
        } else if let Some(name) = host.strip_prefix("*.") {
            Pattern::Below(parse_name(name).ok_or(HOST)?)
        } else {
            Pattern::Name(parse_name(host).ok_or(HOST)?)
        };
        Ok(Self { pattern, ports })
    }

    /// Returns the host, and where it is by the standards: `localhost` is this machine (RFC 6761).
    pub fn with_addresses(self) -> Vec<Self> {
        let ports = self.ports;
        let is_local = matches!(&self.pattern, Pattern::Name(name) if is_local(name));
        let addresses = if is_local { LOOPBACK } else { &[] };
        let nets = addresses.iter().filter_map(|text| parse_net(text));
        let nets: Vec<_> = nets.map(|net| Self { pattern: Pattern::Net(net), ports }).collect();
        [vec![self], nets].concat()
    }

    /// Returns whether some host may be one of both.
    pub fn may_meet(&self, other: &Self) -> bool {
        let of_each = |one: &Pattern, other: &Pattern| match (one, other) {
            (Pattern::Any, _) => true,
            (Pattern::Net(net), Pattern::Net(inner)) => net.contains(inner),
            (Pattern::Name(own), Pattern::Name(name)) => own == name,
            (Pattern::Below(own), Pattern::Below(name)) if own == name => true,
            (Pattern::Below(own), Pattern::Name(name) | Pattern::Below(name)) => {
                name.strip_suffix(own.as_str()).is_some_and(|rest| rest.ends_with('.'))
            }
            _ => false,
        };
        let meet = |one: &Pattern, other: &Pattern| of_each(one, other) || of_each(other, one);
        let ports = match (self.ports, other.ports) {
            (Some(own), Some(ports)) => own.has(ports.0) || ports.has(own.0),
            _ => true,
        };
        ports && meet(&self.pattern, &other.pattern)
    }

    /// Returns whether the destination is one of these hosts, whatever the port.
    pub fn matches(&self, to: &Destination<'_>) -> bool {
        match (&self.pattern, to) {
            (Pattern::Any, _) => true,
            (Pattern::Net(net), Destination::Address(address)) => net.contains(address),
            (Pattern::Name(own), Destination::Name(name)) => own == name,
            (Pattern::Below(own), Destination::Name(name)) => name
                .strip_suffix(own.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            _ => false,
        }
    }
}

fn parse_net(text: &str) -> Option<IpNet> {
    let net = match text.parse::<IpNet>() {
        Ok(net) => net.trunc(),
        Err(_) => IpNet::from(text.parse::<IpAddr>().ok()?.to_canonical()),
    };
    Some(net)
}

fn parse_name(text: &str) -> Option<String> {
    let name = plain_name(text);
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.bytes().all(plain)
    };
    // Four numbers would be an address that was written wrong.
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    (name.split('.').all(is_label) && !is_number).then_some(name)
}

/// The addresses of this machine that nothing outside of it reaches.
const LOOPBACK: &[&str] = &["127.0.0.0/8", "::1/128"];

/// Returns whether a name is that of this machine itself, which is looked up nowhere (RFC 6761).
pub fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// A host name in the form in which names are compared: lower case, without the final dot.
pub fn plain_name(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<'a> {
    /// A name, in its plain form.
    Name(&'a str),
    /// An address; that of an IPv4 host is an IPv4 address.
    Address(IpAddr),
}

impl<'a> Destination<'a> {
    /// A host in its plain form, as an address if it is one.
    pub fn of(host: &'a str) -> Self {
        host.parse()
            .map_or(Self::Name(host), |address: IpAddr| Self::Address(address.to_canonical()))
    }
}
