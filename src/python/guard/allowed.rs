//! The permissions of a guard, as it is made.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::policy::distributions::Installed;
use crate::policy::packages::Packages;
use crate::policy::written::spec::{OnViolation, Spec};
use crate::policy::written::values::{Choice, Where};
use crate::policy::written::wording::Told;
use crate::policy::{Environment, Policy, Roots, RuleSet};
use crate::python::guard::audit_log::AuditLog;
use crate::python::guard::recorder::Records;
use crate::python::guard::roots::ApprovedRoots;
use crate::python::values::distributions;

/// The permissions of a guard, and the names that messages use for them.
pub struct Allowed {
    pub policy: Policy,
    pub oks: Py<PyTuple>,
    /// True if each of them was seen to be there.
    pub are_there: bool,
    pub readable: Option<Py<PyTuple>>,
    /// The wording, if these are the permissions of a `Policy`.
    pub told: Option<Arc<Told>>,
    pub spec: Option<Arc<Spec>>,
    pub on_violation: OnViolation,
    pub violation_call: Option<Py<PyAny>>,
    pub records: Option<Records>,
    pub log: Option<AuditLog>,
}

impl Allowed {
    /// The permissions by the rules of fastaudit 0.1, with these roots.
    pub fn below(roots: ApprovedRoots) -> Self {
        Self {
            policy: Policy::new(roots.roots),
            are_there: roots.are_there,
            ..Self::named(roots.names)
        }
    }

    /// The permissions by the rules of fastaudit 0.2, with these roots; `None` for all paths.
    pub fn strictly_below(
        py: Python<'_>,
        roots: Option<ApprovedRoots>,
        import_allow: Vec<String>,
    ) -> Self {
        let roots = roots.unwrap_or_else(|| ApprovedRoots {
            roots: Roots::everywhere(),
            names: PyTuple::empty(py).unbind(),
            are_there: true,
        });
        Self {
            policy: Policy::strict(roots.roots, import_allow),
            are_there: roots.are_there,
            ..Self::named(roots.names)
        }
    }

    /// The same with packages that may do what they need, as the host named them.
    ///
    /// # Errors
    /// `TypeError` and `ValueError` for values that name no packages.
    pub fn with_packages(mut self, py: Python<'_>, given: Option<Vec<String>>) -> PyResult<Self> {
        let Some(packages) = given else {
            return Ok(self);
        };
        let spec = Spec {
            packages,
            ..Spec::default()
        };
        spec.validate()
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let packages = self::packages(py, &spec.packages)?;
        let has_all = packages.have_all();
        self.policy = self.policy.with_packages(packages);
        // A `Policy` has a field for it.
        if has_all && self.policy.rules() == RuleSet::Classic {
            self.policy = self.policy.setting(Environment::Harmless);
        }
        if self.policy.rules() == RuleSet::Classic && self.policy.rest().threads {
            // As the preset "fastaudit-0.1" has it.
            let oks = self.oks.extract(py).ok();
            self.spec = oks.map(|oks| {
                Arc::new(Spec {
                    write: Where::Below(oks),
                    protect: Choice::All(false),
                    env: Choice::All(has_all),
                    threads: true,
                    ..spec
                })
            });
        }
        Ok(self)
    }

    /// Copies the permissions, which hold for the files that they were found for.
    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            policy: self.policy.clone(),
            oks: self.oks.clone_ref(py),
            are_there: self.are_there,
            readable: self.readable.as_ref().map(|names| names.clone_ref(py)),
            told: self.told.clone(),
            spec: self.spec.clone(),
            on_violation: self.on_violation,
            violation_call: self.violation_call.as_ref().map(|call| call.clone_ref(py)),
            records: self.records.clone(),
            log: self.log.clone(),
        }
    }

    fn named(oks: Py<PyTuple>) -> Self {
        Self {
            policy: Policy::default(),
            oks,
            are_there: false,
            readable: None,
            told: None,
            spec: None,
            on_violation: OnViolation::Raise,
            violation_call: None,
            records: None,
            log: None,
        }
    }
}

/// The packages of these names, with what they require.
///
/// # Errors
/// `ValueError` for a name that no package has.
pub fn packages(py: Python<'_>, names: &[String]) -> PyResult<Packages> {
    if names.is_empty() {
        return Ok(Packages::default());
    }
    type Named = (Vec<String>, Arc<Installed>, Packages);
    /// The packages that a host named last, as of what was installed then.
    static LAST: Mutex<Option<Named>> = Mutex::new(None);
    distributions::prepare(py)?;
    let installed = distributions::installed();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((named, of, packages)) = &*last
        && named == names
        && Arc::ptr_eq(of, &installed)
    {
        return Ok(packages.clone());
    }
    let packages = Packages::named(names, &installed)
        .map_err(|error| PyValueError::new_err(format!("packages: {error}")))?;
    *last = Some((names.to_vec(), installed, packages.clone()));
    Ok(packages)
}
