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
    /// True if a change was denied while a variable that may not be changed was missing: then the
    /// variables that may be changed are missing on the way to that change, and not for themselves.
    pub is_half_way: AtomicBool,
}

impl Before {
    /// Returns whether a variable had this value.
    pub fn has(&self, name: &[u8], value: &[u8]) -> bool {
        let mut own = self.own.iter();
        own.any(|(own, had)| own.as_encoded_bytes() == name && had.as_encoded_bytes() == value)
    }

    /// Returns whether a variable that may not be changed is missing.
    pub fn lacks(&self, environment: &Environment) -> bool {
        let mut kept = self.own.iter().map(|(name, _)| name);
        kept.any(|name| {
            !environment.may_set(name.as_encoded_bytes()) && env::var_os(name).is_none()
        })
    }
}
