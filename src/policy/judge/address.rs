//! Hosts and addresses as events give them.

use std::net::{IpAddr, Ipv4Addr};

use crate::policy::network::plain_name;

/// The family of Unix sockets, by its number here.
pub const UNIX_FAMILY: i64 = 1;

/// `AF_INET` and `AF_INET6`.
#[cfg(unix)]
pub const FAMILIES: [i64; 2] = [
    rustix::net::AddressFamily::INET.as_raw() as i64,
    rustix::net::AddressFamily::INET6.as_raw() as i64,
];

/// The same of Windows.
#[cfg(not(unix))]
pub const FAMILIES: [i64; 2] = [2, 23];

/// Returns whether the family is one of the internet.
#[must_use]
pub fn is_internet(family: i64) -> bool {
    FAMILIES.contains(&family)
}

/// Returns the family of an address.
#[must_use]
pub fn family_of(address: IpAddr) -> i64 {
    FAMILIES[usize::from(address.is_ipv6())]
}

/// A host as an event gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// This machine, or all of its addresses.
    Own,
    /// One by its address; that of an IPv4 host is an IPv4 address.
    Address(IpAddr),
    /// One by its name.
    Name(String),
}

/// An address with a port, as far as it is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The number of items in the tuple.
    pub items: usize,
    /// The host.
    pub host: Host,
    /// The port.
    pub port: i64,
}

impl Host {
    /// Reads the text of a host.
    #[must_use]
    pub fn of(text: &str) -> Self {
        match text {
            "" => Self::Own,
            "<broadcast>" => Self::Address(Ipv4Addr::BROADCAST.into()),
            text => match parse_address(text) {
                Some(address) => Self::Address(address),
                None => Self::Name(plain_name(text)),
            },
        }
    }
}

/// Reads an address; that of an IPv4 host is an IPv4 address.
#[must_use]
pub fn parse_address(text: &str) -> Option<IpAddr> {
    // A link-local address may have a scope: fe80::1%eth0.
    let text = text.split_once('%').map_or(text, |(address, _)| address);
    text.parse()
        .ok()
        .map(|address: IpAddr| address.to_canonical())
}

/// Returns whether a name is this machine's own.
#[cfg(unix)]
pub(super) fn is_own_name(name: &str) -> bool {
    let own = rustix::system::uname();
    own.nodename()
        .to_str()
        .is_ok_and(|own| plain_name(own) == name)
}

#[cfg(not(unix))]
pub(super) fn is_own_name(_name: &str) -> bool {
    false
}

/// Returns whether a name is an address in an older form: 127.1, 0x7f000001.
pub(super) fn is_number(name: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b'x');
    name.as_bytes().first().is_some_and(u8::is_ascii_digit) && name.bytes().all(hex)
}
