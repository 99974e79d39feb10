//! The permissions of a guard, as it is made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::policy::distributions::InstalledPackages;
use crate::policy::files::fs::PathBuf;
use crate::policy::files::os::Os;
use crate::policy::files::path::{self, Base};
use crate::policy::packages::Packages;
use crate::policy::written::spec::{OnViolation, Spec};
use crate::policy::written::values::Switch;
use crate::policy::written::values::{Choice, Where};
use crate::policy::written::wording::HintStyle;
use crate::policy::{Environment, Policy, Roots, RuleSet};
use crate::python::callees::distributions;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::{intern, lock};
use crate::python::logs::audit_log::DecisionLog;
use crate::python::logs::log::Records;
use crate::python::values::{decode, errors};

/// The permissions of a guard, and what its host wrote of them.
pub struct Allowed {
    pub policy: Policy,
    /// True if each of the roots was seen to be there.
    pub are_there: bool,
    pub stated: Stated,
    pub records: Option<Records>,
    pub log: Option<DecisionLog>,
}

/// The names that messages use, and the answer to a violation.
pub struct Stated {
    pub oks: Py<PyTuple>,
    /// The roots for reading, if a `Policy` has some.
    pub readable: Option<Py<PyTuple>>,
    /// The wording, if a `Policy` states this.
    pub told: Option<Arc<HintStyle>>,
    /// Its fields, their paths resolved.
    pub spec: Option<Arc<Spec>>,
    pub on_violation: OnViolation,
    /// The function that is called for a violation.
    pub violation_call: Option<Py<PyAny>>,
}

impl Stated {
    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            oks: self.oks.clone_ref(py),
            readable: self.readable.as_ref().map(|names| names.clone_ref(py)),
            told: self.told.clone(),
            spec: self.spec.clone(),
            on_violation: self.on_violation,
            violation_call: self.violation_call.as_ref().map(|call| call.clone_ref(py)),
        }
    }
}

impl Allowed {
    /// The permissions by the rules of fastaudit 0.1, with these roots.
    pub fn below(roots: ApprovedRoots) -> Self {
        Self::of(Policy::new(roots.roots), roots.are_there, roots.names)
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
        let policy = Policy::strict(roots.roots, import_allow);
        Self::of(policy, roots.are_there, roots.names)
    }

    /// Those of a policy alone; `oks` names its roots.
    pub fn of(policy: Policy, are_there: bool, oks: Py<PyTuple>) -> Self {
        Self {
            policy,
            are_there,
            stated: Stated {
                oks,
                readable: None,
                told: None,
                spec: None,
                on_violation: OnViolation::Raise,
                violation_call: None,
            },
            records: None,
            log: None,
        }
    }

    /// The same with packages that may do what they need, as the host named them.
    pub fn with_packages(mut self, py: Python<'_>, given: Option<Vec<String>>) -> PyResult<Self> {
        let Some(packages) = given else {
            return Ok(self);
        };
        let spec = Spec { packages, ..Spec::default() };
        spec.validate().map_err(|error| PyValueError::new_err(error.to_string()))?;
        let packages = self::packages(py, &spec.packages)?;
        let has_all = packages.have_all();
        self.policy = self.policy.with_packages(packages);
        // A `Policy` has a field for it.
        if has_all && self.policy.rules() == RuleSet::Classic {
            self.policy = self.policy.setting(Environment::harmless());
        }
        if self.policy.rules() == RuleSet::Classic && self.policy.has(Switch::Threads) {
            // As the preset "fastaudit-0.1" has it.
            let oks = self.stated.oks.extract(py).ok();
            self.stated.spec = oks.map(|oks| {
                let mut switches = spec.switches;
                switches.set(Switch::Threads, true);
                Arc::new(Spec {
                    write: Where::Below(oks),
                    protect: Choice::All(false),
                    env: Choice::All(has_all),
                    switches,
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
            are_there: self.are_there,
            stated: self.stated.clone_ref(py),
            records: self.records.clone(),
            log: self.log.clone(),
        }
    }
}

/// The packages of these names, with what they require.
pub fn packages(py: Python<'_>, names: &[String]) -> PyResult<Packages> {
    if names.is_empty() {
        return Ok(Packages::default());
    }
    type Named = (Vec<String>, Arc<InstalledPackages>, Packages);
    /// The packages that a host named last, as of what was installed then.
    static LAST: Mutex<Option<Named>> = Mutex::new(None);
    distributions::prepare(py)?;
    let installed = distributions::installed();
    let mut last = lock(&LAST);
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

// Sets of native code that may be called without asking, identified by numbers: cached callees
// hold for the guards of one set.

/// Sets beyond this number are not told apart: their calls are looked at each time.
const MAX_SETS: usize = 1024;

/// The key of a set: the rules, the packages and when they were named, the modules.
type Key = (bool, Vec<String>, u64, Vec<String>);

static NUMBERS: Mutex<BTreeMap<Key, u64>> = Mutex::new(BTreeMap::new());

/// The number of the allowed set; 0 for none, or if `is_asked` and no package is allowed.
pub fn number(allowed: &Allowed, is_asked: bool) -> u64 {
    let policy = &allowed.policy;
    let is_strict = policy.rules() == RuleSet::Strict;
    let packages = &policy.rest().packages;
    if allowed.records.is_some() {
        return 0;
    }
    let modules = match policy.native() {
        Some(Choice::Named(names)) if !is_asked => names.clone(),
        _ => Vec::new(),
    };
    if !is_strict && packages.is_empty() && modules.is_empty() {
        return 0;
    }
    let key = (is_strict, packages.names().to_vec(), packages.as_of(), modules);
    let mut numbers = lock(&NUMBERS);
    if let Some(number) = numbers.get(&key) {
        return *number;
    }
    if numbers.len() >= MAX_SETS {
        return 0;
    }
    let number = numbers.len() as u64 + 1;
    numbers.insert(key, number);
    number
}

// The roots that a host approves, read and resolved.

pub struct ApprovedRoots {
    pub roots: Roots,
    pub names: Py<PyTuple>,
    /// True if each was seen to be there.
    pub are_there: bool,
}

pub fn read_oks(oks: &Bound<'_, PyAny>) -> PyResult<ApprovedRoots> {
    let py = oks.py();
    if oks.is_instance_of::<PyString>()
        || oks.is_instance_of::<PyBytes>()
        || decode::is_path_like(oks)
    {
        return Err(errors::oks_is_one_path(oks));
    }
    if oks.is_instance_of::<PyDict>() {
        return Err(errors::oks_not_paths(oks));
    }
    let items = oks
        .iterate()
        .map_err(|error| errors::unless_wrong_type(py, error, || errors::oks_not_paths(oks)))?;
    let mut roots = Roots::new();
    let mut names = Vec::new();
    let mut are_there = true;
    for (index, item) in items.enumerate() {
        let item = item?;
        if let Ok(text) = item.cast::<PyString>()
            && raw::fs_encode(text.as_borrowed()).is_ok_and(|name| name.as_bytes() == b".")
        {
            roots.follow_current_dir();
            names.push(PyString::new(py, "."));
            continue;
        }
        let mut path = decode::path_at("oks", index, &item, "str, bytes or os.PathLike")?;
        let read = |path: &Bound<'_, PyAny>| {
            decode::root_name(path).map_err(|error| errors::root_unreadable(index, path, error))
        };
        let mut name = read(&path)?;
        if name.is_empty() {
            return Err(errors::root_empty(index));
        }
        if name.starts_with(b"~") {
            path = expand(&path)?;
            name = read(&path)?;
        }
        let root = path::find(&Os, &name, Base::CurrentDir)
            .ok_or_else(|| errors::root_unresolvable(index, &path, &name))?;
        are_there &= root.is_there;
        roots.add(&root.landing);
        names.push(raw::fs_decode(py, root.landing.as_bytes())?);
    }
    Ok(ApprovedRoots { roots, names: PyTuple::new(py, names)?.unbind(), are_there })
}

/// The path, a `str` or `bytes`, with `~` and `~user` at its beginning expanded.
pub fn expand<'py>(path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let ospath = calling::import(path.py(), intern!(path.py(), "os.path"))?;
    ospath.invoke_method1(intern!(path.py(), "expanduser"), (path,))
}

/// The name that a path of a policy has, with `~` expanded.
pub fn expanded(py: Python<'_>, path: &str) -> PyResult<PathBuf> {
    let path = PyString::new(py, path).into_any();
    decode::root_name(&match path.to_string().starts_with('~') {
        true => expand(&path)?,
        false => path,
    })
}
