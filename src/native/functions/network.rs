//! Functions that make sockets, connect, bind and send: socket(2), connect(2), sendto(2); and that
//! look up names: getaddrinfo(3), gethostbyname(3), getnameinfo(3).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{
    addrinfo, hostent, mmsghdr, msghdr, size_t, sockaddr, sockaddr_in, sockaddr_in6,
    sockaddr_storage, sockaddr_un, socklen_t, ssize_t,
};

use super::{number, text, value, with_text};
use crate::native::asking::ActJudge;
use crate::policy::judge::{Act, Value};

/// The error of gethostbyname(3) for a server that does not answer.
const NO_RECOVERY: c_int = 3;

type HostResult = *mut *mut hostent;

unsafe extern "C" {
    fn gethostbyname(name: *const c_char) -> *mut hostent;
    fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent;
    fn gethostbyaddr(address: *const c_void, length: socklen_t, family: c_int) -> *mut hostent;
    fn gethostbyname_r(
        name: *const c_char,
        made: *mut hostent,
        buffer: *mut c_char,
        size: size_t,
        result: HostResult,
        error: *mut c_int,
    ) -> c_int;
    fn gethostbyname2_r(
        name: *const c_char,
        family: c_int,
        made: *mut hostent,
        buffer: *mut c_char,
        size: size_t,
        result: HostResult,
        error: *mut c_int,
    ) -> c_int;
    fn gethostbyaddr_r(
        address: *const c_void,
        length: socklen_t,
        family: c_int,
        made: *mut hostent,
        buffer: *mut c_char,
        size: size_t,
        result: HostResult,
        error: *mut c_int,
    ) -> c_int;
    fn __h_errno_location() -> *mut c_int;
}

/// The address in a structure of its family; `None` if there is none.
///
/// # Safety
/// `length` bytes can be read.
pub(super) unsafe fn address<'a>(address: *const sockaddr, length: socklen_t) -> Option<Value<'a>> {
    let length = length as usize;
    if address.is_null() || length < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: by the caller; each structure is read if it is there whole.
    unsafe {
        Some(match c_int::from((&raw const (*address).sa_family).read_unaligned()) {
            // Linux takes no family for this one where it takes any: ip(7).
            libc::AF_INET | libc::AF_UNSPEC if length >= size_of::<sockaddr_in>() => {
                let own = address.cast::<sockaddr_in>().read_unaligned();
                let host = Ipv4Addr::from_bits(u32::from_be(own.sin_addr.s_addr));
                Value::Address(SocketAddrV4::new(host, u16::from_be(own.sin_port)).into())
            }
            libc::AF_INET6 if length >= size_of::<sockaddr_in6>() => {
                let own = address.cast::<sockaddr_in6>().read_unaligned();
                let host = Ipv6Addr::from(own.sin6_addr.s6_addr);
                let (flow, scope) = (u32::from_be(own.sin6_flowinfo), own.sin6_scope_id);
                let port = u16::from_be(own.sin6_port);
                Value::Address(SocketAddrV6::new(host, port, flow, scope).into())
            }
            libc::AF_UNIX => {
                let start = std::mem::offset_of!(sockaddr_un, sun_path);
                let name = address.cast::<u8>().add(start);
                let name = std::slice::from_raw_parts(name, length.saturating_sub(start));
                Value::Text(match name.first() {
                    // An abstract one has all its bytes: unix(7).
                    Some(0) => name,
                    _ => name.split(|byte| *byte == 0).next().unwrap_or_default(),
                })
            }
            _ => Value::OtherAddress,
        })
    }
}

pub(super) fn reaches<'a>(
    event: &'static CStr,
    socket: c_int,
    to: Option<Value<'a>>,
) -> Option<Act<'a>> {
    Some(Act::new(event, &[number(socket), to?]))
}

/// # Safety
/// `length` bytes can be read.
pub(super) unsafe fn connects<'a>(
    socket: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> Option<Act<'a>> {
    // SAFETY: by the caller.
    unsafe {
        // No family ends a connection.
        let is_end = length >= 2
            && !to.is_null()
            && (&raw const (*to).sa_family).read_unaligned()
                == libc::AF_UNSPEC as libc::sa_family_t;
        match is_end {
            true => None,
            false => reaches(c"socket.connect", socket, address(to, length)),
        }
    }
}

/// # Safety
/// The message can be read, or is null.
pub(super) unsafe fn sends<'a>(socket: c_int, message: *const msghdr) -> Option<Act<'a>> {
    // SAFETY: by the caller.
    unsafe {
        let message = message.as_ref()?;
        let (to, length) = (message.msg_name.cast_const().cast(), message.msg_namelen);
        reaches(c"socket.sendmsg", socket, address(to, length))
    }
}

pub(super) fn makes<'a>(family: c_int, kind: c_int, protocol: c_int) -> Act<'a> {
    let [family, kind, protocol] = [family, kind, protocol].map(number);
    Act::new(c"socket.__new__", &[Value::None, family, kind, protocol])
}

/// Libraries bind a stream to some port of this machine to learn whether it has an address of that
/// family. It takes nothing from anybody, and is judged once it listens.
pub(super) fn binds(socket: c_int, at: Option<Value<'_>>) -> Option<Act<'_>> {
    match at {
        Some(Value::Address(at))
            if at.port() == 0 && at.ip().is_loopback() && is_stream(socket) =>
        {
            None
        }
        at => reaches(c"socket.bind", socket, at),
    }
}

fn is_stream(socket: c_int) -> bool {
    let mut kind: c_int = 0;
    let mut size = size_of::<c_int>() as socklen_t;
    // SAFETY: there is as much room as is said.
    let failed = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_TYPE,
            (&raw mut kind).cast(),
            &raw mut size,
        )
    };
    failed == 0 && kind == libc::SOCK_STREAM
}

/// A socket of the internet that listens without an address gets one from the system: a port at all
/// addresses. Others but those that [`binds`] lets pass were judged as they got theirs.
pub(super) fn listens<'a>(socket: c_int) -> Option<Act<'a>> {
    let mut own = std::mem::MaybeUninit::<sockaddr_storage>::zeroed();
    let mut length = size_of::<sockaddr_storage>() as socklen_t;
    // SAFETY: there is as much room as is said, and what is there is read.
    let own = unsafe {
        match libc::getsockname(socket, own.as_mut_ptr().cast(), &raw mut length) {
            0 => address(own.as_ptr().cast(), length)?,
            _ => return None,
        }
    };
    match own {
        Value::Address(address) if address.port() == 0 || address.ip().is_loopback() => {
            Some(Act::new(c"socket.listen", &[number(socket), Value::Address(address)]))
        }
        _ => None,
    }
}

/// # Safety
/// The texts are NUL-terminated, or null; so for the others.
unsafe fn looks_up<'a>(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
) -> Option<Act<'a>> {
    // SAFETY: by the caller.
    let (node, service, hints) = unsafe { (text(node)?, text(service), hints.as_ref()) };
    let [family, kind, protocol] = match hints {
        Some(hints) => [hints.ai_family, hints.ai_socktype, hints.ai_protocol].map(number),
        None => [number(0); 3],
    };
    let service = service.map_or(Value::None, value);
    let arguments = [value(node), service, family, kind, protocol];
    Some(Act::new(c"socket.getaddrinfo", &arguments))
}

/// # Safety
/// The bytes can be read.
unsafe fn of_family(address: *const u8, length: usize, family: c_int) -> Option<IpAddr> {
    // SAFETY: by the caller.
    unsafe {
        match (family, length) {
            _ if address.is_null() => None,
            (libc::AF_INET, 4..) => Some(address.cast::<[u8; 4]>().read_unaligned().into()),
            (libc::AF_INET6, 16..) => Some(address.cast::<[u8; 16]>().read_unaligned().into()),
            _ => None,
        }
    }
}

/// The name of an address is looked up.
fn names<'a>(address: Option<IpAddr>) -> Option<Act<'a>> {
    names_socket(Value::Address(SocketAddr::new(address?, 0)))
}

fn names_socket(address: Value<'_>) -> Option<Act<'_>> {
    let is_of_internet = matches!(address, Value::Address(_));
    is_of_internet.then(|| Act::new(c"socket.getnameinfo", &[address]))
}

/// Tells the addresses that getaddrinfo(3) found.
///
/// # Safety
/// The name is NUL-terminated, or null, and the list is one of its answers.
unsafe fn tell_all<J: ActJudge>(name: *const c_char, mut entry: *const addrinfo) {
    if name.is_null() || !J::may_judge() {
        return;
    }
    let mut found = Vec::new();
    // SAFETY: by the caller.
    unsafe {
        while let Some(own) = entry.as_ref() {
            if let Some(Value::Address(own)) = address(own.ai_addr, own.ai_addrlen) {
                found.push(own.ip().to_canonical());
            }
            entry = own.ai_next;
        }
        tell::<J>(name, &found);
    }
}

/// Tells the addresses that gethostbyname(3) found, and hands its answer on.
///
/// # Safety
/// The name is NUL-terminated, or null, and the host is one of its answers, or null.
unsafe fn tell_host<J: ActJudge>(name: *const c_char, host: *mut hostent) -> *mut hostent {
    // SAFETY: by the caller.
    unsafe {
        if let Some(own) = host.as_ref()
            && !name.is_null()
            && J::may_judge()
        {
            let mut found = Vec::new();
            let mut entry = own.h_addr_list;
            while !entry.is_null() && !(*entry).is_null() {
                let address = (*entry).cast_const().cast();
                found.extend(of_family(address, own.h_length as usize, own.h_addrtype));
                entry = entry.add(1);
            }
            tell::<J>(name, &found);
        }
    }
    host
}

/// # Safety
/// The name is NUL-terminated.
unsafe fn tell<J: ActJudge>(name: *const c_char, found: &[IpAddr]) {
    // SAFETY: by the caller.
    let name = unsafe { CStr::from_ptr(name) };
    // Without the addresses less is allowed, so that a panic loses nothing.
    let _ = std::panic::catch_unwind(|| J::found(name, found));
}

/// Fails as gethostbyname(3) does.
fn not_found() -> *mut hostent {
    // SAFETY: the thread's own.
    unsafe { *__h_errno_location() = NO_RECOVERY };
    std::ptr::null_mut()
}

/// Fails as gethostbyname_r(3) does.
///
/// # Safety
/// The places can be written to.
unsafe fn not_found_in(result: HostResult, error: *mut c_int) -> c_int {
    // SAFETY: by the caller.
    unsafe {
        *result = std::ptr::null_mut();
        *error = NO_RECOVERY;
    }
    libc::EACCES
}

super::replaced! {
    table;

    [c"socket"]
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int
    = Some(makes(family, kind, protocol)), else -1;

    [c"connect", c"__connect"]
    fn connect(socket: c_int, to: *const sockaddr, length: socklen_t) -> c_int
    = connects(socket, to, length), else -1;

    [c"bind"]
    fn bind(socket: c_int, at: *const sockaddr, length: socklen_t) -> c_int
    = binds(socket, address(at, length)), else -1;

    [c"listen"]
    fn listen(socket: c_int, backlog: c_int) -> c_int = listens(socket), else -1;

    [c"sendto"]
    fn sendto(
        socket: c_int,
        bytes: *const c_void,
        size: size_t,
        flags: c_int,
        to: *const sockaddr,
        length: socklen_t
    ) -> ssize_t
    = reaches(c"socket.sendto", socket, address(to, length)), else -1;

    [c"sendmsg"]
    fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t
    = sends(socket, message), else -1;

    [c"sendmmsg", c"__sendmmsg"]
    fn sendmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int
    = None, do each_sent::<J>(socket, messages, count, flags), else -1;

    [c"getaddrinfo"]
    fn getaddrinfo(
        node: *const c_char,
        service: *const c_char,
        hints: *const addrinfo,
        result: *mut *mut addrinfo
    ) -> c_int
    = looks_up(node, service, hints), do {
        let error = libc::getaddrinfo(node, service, hints, result);
        if error == 0 {
            tell_all::<J>(node, *result);
        }
        error
    }, else libc::EAI_SYSTEM;

    [c"gethostbyname"]
    fn host_by_name(name: *const c_char) -> *mut hostent
    = with_text(c"socket.gethostbyname", text(name)), do tell_host::<J>(name, gethostbyname(name)), else not_found();

    [c"gethostbyname2"]
    fn host_by_name2(name: *const c_char, family: c_int) -> *mut hostent
    = with_text(c"socket.gethostbyname", text(name)), do tell_host::<J>(name, gethostbyname2(name, family)), else not_found();

    [c"gethostbyname_r"]
    fn host_by_name_r(
        name: *const c_char,
        made: *mut hostent,
        buffer: *mut c_char,
        size: size_t,
        result: HostResult,
        error: *mut c_int
    ) -> c_int
    = with_text(c"socket.gethostbyname", text(name)), do {
        let failed = gethostbyname_r(name, made, buffer, size, result, error);
        tell_host::<J>(name, if failed == 0 { *result } else { std::ptr::null_mut() });
        failed
    }, else not_found_in(result, error);

    [c"gethostbyname2_r"]
    fn host_by_name2_r(
        name: *const c_char,
        family: c_int,
        made: *mut hostent,
        buffer: *mut c_char,
        size: size_t,
        result: HostResult,
        error: *mut c_int
    ) -> c_int
    = with_text(c"socket.gethostbyname", text(name)), do {
        let failed = gethostbyname2_r(name, family, made, buffer, size, result, error);
        tell_host::<J>(name, if failed == 0 { *result } else { std::ptr::null_mut() });
        failed
    }, else not_found_in(result, error);

    [c"gethostbyaddr"]
    fn host_by_address(of: *const c_void, length: socklen_t, family: c_int) -> *mut hostent
    = names(of_family(of.cast(), length as usize, family)),
    do gethostbyaddr(of, length, family), else not_found();

    [c"gethostbyaddr_r"]
    fn host_by_address_r(
        of: *const c_void,
        length: socklen_t,
        family: c_int,
        made: *mut hostent,
        buffer: *mut c_char,
        size: size_t,
        result: HostResult,
        error: *mut c_int
    ) -> c_int
    = names(of_family(of.cast(), length as usize, family)),
    do gethostbyaddr_r(of, length, family, made, buffer, size, result, error),
    else not_found_in(result, error);

    [c"getnameinfo"]
    fn getnameinfo(
        of: *const sockaddr,
        length: socklen_t,
        host: *mut c_char,
        host_size: socklen_t,
        service: *mut c_char,
        service_size: socklen_t,
        flags: c_int
    ) -> c_int
    = match host.is_null() || flags & libc::NI_NUMERICHOST != 0 {
        true => None,
        false => address(of, length).and_then(names_socket),
    }, else libc::EAI_SYSTEM;
}

/// Sends the messages up to the first one that is denied, as sendmmsg(2) does up to one that fails.
///
/// # Safety
/// Called as that function.
pub(super) unsafe fn each_sent<J: ActJudge>(
    socket: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: by the caller.
    unsafe {
        let may_send = |index: &c_uint| {
            crate::native::asking::allows::<J>(|| {
                sends(socket, &raw const (*messages.add(*index as usize)).msg_hdr)
            })
        };
        match messages.is_null() {
            true => libc::sendmmsg(socket, messages, count, flags as _),
            false => match (0..count).take_while(may_send).count() {
                0 if count > 0 => -1,
                sent => libc::sendmmsg(socket, messages, sent as c_uint, flags as _),
            },
        }
    }
}
