//! The privileges of a thread (capabilities(7)), given up for good.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Gives up all privileges of the current thread, and of the threads and programs that it starts.
///
/// A thread without `CAP_SETPCAP` keeps its bounding set, the most that programs could get: with
/// `no_new_privs` none gets any.
///
/// # Errors
/// The kernel refuses.
pub fn drop_all() -> Result<(), Errno> {
    set_no_new_privs(true)?;
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The kernel knows no more, or this thread may not.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(error) => return Err(error),
        }
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_privileges_are_left() {
        let left = std::thread::spawn(|| {
            drop_all().unwrap();
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        let left = left.join().unwrap();
        for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(
                left.contains(&format!("{name}:\t0000000000000000\n")),
                "{left}"
            );
        }
        assert!(left.contains("NoNewPrivs:\t1\n"), "{left}");
    }
}
