//! The environment as it was before guarded code first removed a variable.

use std::env;
use std::ffi::OsString;
use std::sync::atomic::AtomicBool;

use crate::policy::Environment;

/// The environment as it was.
pub struct Before {
    /// The environment of the process.
    pub own: Vec<(OsString, OsString)>,
    /// The names and values that `os.environ` showed.
    pub shown: Vec<(Vec<u8>, Vec<u8>)>,
    /// Tells whether a change was denied while something was missing that may not be changed: then what
    /// may be is missing on the way to that change, and not for itself.
    pub is_half_way: AtomicBool,
}

impl Before {
    /// Tells whether a variable had this value.
    pub fn has(&self, name: &[u8], value: &[u8]) -> bool {
        let mut own = self.own.iter();
        own.any(|(own, had)| own.as_encoded_bytes() == name && had.as_encoded_bytes() == value)
    }

    /// Tells whether something is missing that may not be changed.
    pub fn lacks(&self, environment: &Environment) -> bool {
        let mut kept = self.own.iter().map(|(name, _)| name);
        kept.any(|name| {
            !environment.may_set(name.as_encoded_bytes()) && env::var_os(name).is_none()
        })
    }
}
