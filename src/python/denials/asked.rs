//! The state of its guard and of the moment that a denial keeps, to tell later how it would be
//! allowed.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::policy::Why;
use crate::policy::files::os::Os;
use crate::policy::judge::{Denied, Knowledge, MOST_PATHS, Moment, is_of_the_moment};
use crate::policy::learn::Need;
use crate::policy::packages::Packages;
use crate::policy::written::widening::Lack;
use crate::python::callees::distributions;
use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::ffi as raw;
use crate::python::denials::denial::{Asked, Denial};
use crate::python::guard::event;
use crate::python::guard::scope::Active;
use crate::python::importing::imports;
use crate::python::values::addresses::SeenNetwork;
use crate::python::values::simple;

impl Asked {
    pub fn now(
        active: &Active,
        config: &AuditCfg,
        event: &str,
        args: &Bound<'_, PyTuple>,
        why: Option<Why>,
    ) -> PyResult<Self> {
        let told = config.told().cloned();
        let asked = Self {
            policy: Arc::clone(&config.live().policy),
            moment: match why {
                Some(_) => moment(args)?,
                None => Moment::default(),
            },
            importing: imports::going_on(args.py())?,
            lacks: OnceLock::new(),
            told,
        };
        if let Some(why) = why
            && (asked.told.is_some() || matches!(why, Why::Unapproved))
            && is_of_the_moment(event, args, why)
        {
            let seen = Some(&active.log().network);
            let lacks = asked.find(event, args, why, seen)?;
            let _ = asked.lacks.set(lacks);
        }
        Ok(asked)
    }

    pub fn is_strict(&self) -> bool {
        self.policy.rules() == crate::policy::RuleSet::Strict
    }

    pub fn packages(&self) -> &Packages {
        &self.policy.rest().packages
    }

    fn find(
        &self,
        event: &str,
        args: &Bound<'_, PyTuple>,
        why: Why,
        seen: Option<&SeenNetwork>,
    ) -> PyResult<Vec<Lack>> {
        let denied = Denied { fs: &Os, event, args, moment: self.moment, policy: &self.policy };
        denied.lacks(why, &KnownNames(seen))
    }

    pub fn package(&self, py: Python<'_>) -> Option<&str> {
        self.importing.as_ref()?.package(py)
    }

    /// Returns the permissions that this denial needs.
    pub fn lacks(&self, py: Python<'_>, denial: &Denial) -> &[Lack] {
        if let Some(known) = self.lacks.get() {
            return known;
        }
        let find = || -> PyResult<Vec<Lack>> {
            let Some(why) = denial.decision.why else {
                return Ok(Vec::new());
            };
            self.find(&denial.event, denial.args.bind(py), why, None)
        };
        // An error leaves the needs empty: no hint is better than a wrong one. Python code runs, so
        // that nobody may wait for it meanwhile.
        let found = find().unwrap_or_default();
        self.lacks.get_or_init(|| found)
    }

    /// The same as a need of an import.
    pub fn import_lack(&self, py: Python<'_>, why: Option<Why>) -> Option<Lack> {
        if why.is_some_and(Why::outlasts_imports) {
            return None;
        }
        let package = self.package(py)?.to_owned();
        Some(Lack::new(Need::ImportOf(package), Why::Import))
    }
}

// The state of the moment that a denied event is in, and what is known beside it.

/// Notes the state of the moment while the event is going on.
pub fn moment(args: &Bound<'_, PyTuple>) -> PyResult<Moment> {
    let mut opaque = 0;
    for index in 0..args.len().min(MOST_PATHS) {
        let arg = raw::tuple_item(args, index);
        if raw::int_value(&arg).is_none() && !arg.is_none() && simple::text(&arg)?.is_none() {
            opaque |= 1 << index;
        }
    }
    let noted = event::call_note();
    Ok(Moment { base: noted.base, follows: noted.follows, opaque })
}

pub struct KnownNames<'a>(pub Option<&'a SeenNetwork>);

impl Knowledge for KnownNames<'_> {
    fn names_of(&self, address: IpAddr) -> Vec<String> {
        self.0.map_or_else(Vec::new, |seen| seen.names_of(address))
    }

    fn package_of(&self, callee: &str) -> String {
        distributions::package_of(callee)
    }
}
