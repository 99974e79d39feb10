//! A denied event, and the permissions that it lacks.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::policy::Policy;
use crate::policy::events;
use crate::policy::files::path::Base;
use crate::policy::judge::Follows;
use crate::policy::rules::{NetworkEvent, Rule};

/// The state that an event does not tell of, and that differs later.
#[derive(Clone, Copy, Default)]
pub struct Noted {
    /// The directory that a relative name starts from.
    pub base: Base,
    /// Tells whether links are followed.
    pub follows: Follows,
    /// The first arguments whose texts cannot be trusted, as bits.
    pub opaque: u8,
}

/// A denied event.
pub struct Lacking<'a, 'py> {
    /// Its name.
    pub event: &'a str,
    /// Its arguments.
    pub args: &'a Bound<'py, PyTuple>,
    /// The state that it does not tell of.
    pub noted: Noted,
    /// The policy that denied it.
    pub policy: &'a Policy,
}

/// Returns the kind of an event of the network; `None` for another.
pub fn network_event(event: &str) -> Option<NetworkEvent> {
    match events::lookup(event.as_bytes())? {
        Rule::Network(kind) => Some(kind),
        Rule::Bind => Some(NetworkEvent::Bind),
        _ => None,
    }
}
