//! The rules of a guard in force, with the look-ups and connections that it remembers.

use std::net::IpAddr;
use std::sync::Arc;

use crate::policy::Policy;
use crate::policy::judge::Rules;
use crate::python::guard::active::Active;
use crate::python::guard::live::Live;
use crate::python::values::seen::Seen;

/// The rules of a guard in force.
pub struct InForce<'a> {
    pub live: &'a Arc<Live>,
    /// `None` on threads that nobody knows the guard of: all of the configuration.
    active: Option<&'a Active>,
}

impl<'a> InForce<'a> {
    /// A guard that was entered; `None` in a context that all guards have left.
    pub fn of(active: &'a Active) -> Option<Self> {
        Some(Self {
            live: active.config()?.get().live(),
            active: Some(active),
        })
    }

    /// All guards of a configuration, for threads that nobody knows the guard of.
    pub fn of_all(live: &'a Arc<Live>) -> Self {
        Self { live, active: None }
    }

    /// Returns whether native code is judged by them.
    pub fn judges(&self) -> bool {
        !self.live.policy().rest().native_unjudged
    }

    fn network(&self) -> &Seen {
        match self.active {
            Some(active) => &active.log().network,
            None => &self.live.network,
        }
    }

    /// Remembers the addresses of a name, if the rules depend on them.
    pub fn remember(&self, name: &str, addresses: &[IpAddr]) {
        if self.live.watches || !self.policy().network().is_open() {
            self.network().remember(name, addresses);
            self.live.network.remember(name, addresses);
        }
    }
}

impl Rules for InForce<'_> {
    #[inline]
    fn policy(&self) -> &Policy {
        self.live.policy_for_native_code()
    }

    fn is_in_copy(&self) -> bool {
        self.live.is_in_copy()
    }

    fn names_of(&self, address: IpAddr) -> Vec<String> {
        self.network().names_of(address)
    }

    fn may_connect(&self, socket: i32, most: u32) -> bool {
        // The guard's own number decides, and all of the configuration hear of it.
        self.network().may_connect(socket, most)
            && (self.active.is_none() || self.live.network.may_connect(socket, u32::MAX))
    }
}
