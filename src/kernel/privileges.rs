//! The privileges of a thread (capabilities(7)), given up for good.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// The privileges for files, processes and ports, which a policy judges or which act on the thread's
/// own users alone. The C library changes users in all threads, and ends the process if one may not.
const OF_FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::IPC_LOCK);

/// Gives up all privileges of the current thread, and of the threads and programs that it starts.
pub fn drop_all() -> Result<(), Errno> {
    keep(CapabilitySet::empty())
}

/// The same, but for those by which root uses files: it cannot act on the machine or on the process
/// as a whole any more (chroot(2), sethostname(2), mount(2), settimeofday(2), ptrace(2) and so on).
pub fn drop_those_of_the_machine() -> Result<(), Errno> {
    keep(OF_FILES)
}

/// A thread without `CAP_SETPCAP` keeps its bounding set, the most that programs could get: with
/// `no_new_privs` none gets any.
fn keep(kept: CapabilitySet) -> Result<(), Errno> {
    set_no_new_privs(true)?;
    let each = (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number));
    for capability in each.filter(|capability| !kept.contains(*capability)) {
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel knows no more, or this thread may not.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(error) => return Err(error),
        }
    }
    clear_ambient_capability_set()?;
    let own = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: own.effective & kept,
            permitted: own.permitted & kept,
            inheritable: own.inheritable & kept,
        },
    )
}
