//! `Policy`: the rules for code, as a Python object.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::policy::RuleSet;
use crate::policy::written::fields::{FIELDS, Field, FieldKind};
use crate::policy::written::spec::{NetworkUse, OnViolation, Spec};
use crate::policy::written::values::Where;
use crate::policy::written::wording::{HintStyle, Words};
use crate::python::api::{fields, readers, wrong_calls};
use crate::python::configuration::allowed::Allowed;
use crate::python::configuration::{callbacks, resolve};
use crate::python::cpython::calling::{self, Calling};
use crate::python::guard::governing;
use crate::python::values::{decode, errors};

#[doc = doc!("Policy")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs", name = "Policy")]
#[derive(Default)]
pub struct PyPolicy {
    pub(super) spec: Spec,
    /// The function to call for a violation, if `on_violation` is a function.
    pub(super) on_violation: Option<Py<PyAny>>,
    /// The wording of hints; `None`: as for a policy that was written in Python.
    pub(super) told: Option<Arc<HintStyle>>,
    /// The permissions of its guards, if its paths are not to be looked up again.
    pub(super) resolved: Option<Arc<Allowed>>,
}

impl PyPolicy {
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// A policy that says this.
    ///
    /// # Errors
    /// `ValueError` for values that are not accepted.
    pub fn of(spec: Spec) -> PyResult<Self> {
        let policy = Self { spec, ..Self::default() };
        policy.checked()
    }

    /// The same policy, of which hints tell so.
    pub fn told(&self, py: Python<'_>, told: Option<Arc<HintStyle>>) -> Self {
        Self {
            spec: self.spec.clone(),
            on_violation: self.on_violation.as_ref().map(|call| call.clone_ref(py)),
            told,
            resolved: None,
        }
    }

    /// The same policy where `'.'` is this directory, and hints as for this one.
    pub fn begun_in(&self, py: Python<'_>, directory: &str) -> Self {
        let written = || Arc::new(HintStyle::new(Words::Policy, self.spec.clone()));
        let mut spec = self.spec.clone();
        let unix = match &mut spec.network {
            NetworkUse::Rules(rules) => Some(&mut rules.unix),
            NetworkUse::All(_) => None,
        };
        for places in [Some(&mut spec.write), Some(&mut spec.read), unix].into_iter().flatten() {
            if let Where::Below(paths) = places {
                let here = paths.iter_mut().filter(|path| *path == ".");
                here.for_each(|path| directory.clone_into(path));
            }
        }
        let told = self.told.clone().unwrap_or_else(written);
        Self { spec, ..self.told(py, Some(told)) }
    }

    /// The same policy, whose guards take its paths to lead where they lead now.
    pub fn resolved(&self, py: Python<'_>) -> PyResult<Self> {
        let resolved = Arc::new(self.allowed(py)?);
        Ok(Self { resolved: Some(resolved), ..self.told(py, self.told.clone()) })
    }

    pub fn allowed(&self, py: Python<'_>) -> PyResult<Allowed> {
        if let Some(resolved) = &self.resolved {
            return Ok(resolved.clone_ref(py));
        }
        let told = match &self.told {
            Some(told) => Arc::clone(told),
            None => Arc::new(HintStyle::new(Words::Policy, self.spec.clone())),
        };
        let mut allowed = resolve::allowed(py, &self.spec, told)?;
        allowed.stated.violation_call = self.on_violation.as_ref().map(|call| call.clone_ref(py));
        Ok(allowed)
    }

    /// Sets a field.
    ///
    /// # Errors
    /// `TypeError` and `ValueError`, which name the field and the values that it accepts.
    pub fn set(&mut self, field: &Field<Spec>, given: &Bound<'_, PyAny>) -> PyResult<()> {
        let is_on_violation = matches!(field.kind, FieldKind::OnViolation(_));
        if is_on_violation {
            self.on_violation = None;
        }
        if !is_on_violation || !given.is_callable() {
            return fields::set(&mut self.spec, field, field.name, given);
        }
        callbacks::read(given, &callbacks::ON_VIOLATION, RuleSet::Classic)?;
        self.spec.on_violation = OnViolation::Call;
        self.on_violation = Some(given.clone().unbind());
        Ok(())
    }

    /// Returns the policy if its fields are accepted together.
    ///
    /// # Errors
    /// `ValueError`, which names the field.
    pub fn checked(self) -> PyResult<Self> {
        self.spec.validate().map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(self)
    }

    /// Reads a policy from TOML. Messages call the text `source`.
    ///
    /// # Errors
    /// `ValueError`, which names the key and the values that it accepts.
    pub fn parse(py: Python<'_>, text: &str, in_pyproject: bool, source: &str) -> PyResult<Self> {
        let spec = Spec::from_toml(text, in_pyproject).map_err(|error| {
            let told = wrong_calls::of_text(py, &error);
            PyValueError::new_err(format!("{source}: {told}"))
        })?;
        Ok(Self {
            told: Some(Arc::new(HintStyle::new(Words::Toml, spec.clone()))),
            spec,
            on_violation: None,
            resolved: None,
        })
    }

    /// Reads a policy from a file.
    ///
    /// # Errors
    /// The error of opening the file; `ValueError` for its text.
    pub fn of_file(path: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = path.py();
        // A number would be a descriptor, which is closed at the end: that of standard output, say.
        let path = &calling::fs_path(path).map_err(|error| {
            let wrong = || errors::wrong_type("path", "a str, bytes or os.PathLike", path);
            errors::unless_wrong_type(py, error, wrong)
        })?;
        let file = readers::open_text(py, path).map_err(|error| {
            let is_text = path.cast::<PyString>().is_ok_and(|text| text.to_string().contains('='));
            match is_text {
                true => PyValueError::new_err(
                    "path must be that of a file, not the text of a policy: write \
                     Policy.parse_toml(text)",
                ),
                false => error,
            }
        })?;
        let text = readers::read_text(&file)?;
        let name = path.text()?.to_string();
        let in_pyproject = name.rsplit(['/', '\\']).next() == Some("pyproject.toml");
        governing::note(py, &decode::root_name(path)?)?;
        Self::parse(py, &text, in_pyproject, &name)
    }

    pub fn field<'py>(&self, py: Python<'py>, field: &str) -> PyResult<Bound<'py, PyAny>> {
        match &self.on_violation {
            Some(call) if field == "on_violation" => Ok(call.bind(py).clone()),
            _ => fields::get(py, &self.spec, fields::named(&FIELDS, field)?),
        }
    }
}

#[doc = doc!("_govern")]
#[pyfunction]
#[pyo3(name = "_govern")]
pub fn govern(path: &Bound<'_, PyAny>) -> PyResult<()> {
    let name = decode::root_name(&calling::fs_path(path)?)?;
    governing::note(path.py(), &name)
}

#[doc = doc!("_governing")]
#[pyfunction]
#[pyo3(name = "_governing")]
pub fn governing_files(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let files = governing::files();
    PyList::new(py, files.paths().map(|path| PyBytes::new(py, path)))
}
