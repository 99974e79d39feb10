//! The declarations of installed packages for `fastaudit` in their entry points.
//!
//! Read once, when the first guard with the rules of fastaudit 0.2 is made. An entry point whose
//! name alone is needed is not imported.

use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::policy::RuleSet;
use crate::policy::written::values::is_within_module;
use crate::python::configuration::callbacks::{self, Callback, Contract};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::Once;

/// Native modules that fastaudit 0.2.10 itself declares safe to call.
const SAFE_NATIVE: &[&str] = &[
    "PIL",
    "_regex",
    "bottleneck",
    "contourpy",
    "kiwisolver",
    "matplotlib",
    "numexpr",
    "numpy",
    "orjson",
    "pandas",
    "pydantic_core",
    "regex._regex",
    "rpds",
];

/// The functions of lxml that write files without an audit event.
const LXML_WRITERS: &[&str] = &[
    "lxml.etree._ElementTree.write",
    "lxml.etree._ElementTree.write_c14n",
    "lxml.etree._XSLTResultTree.write_output",
    "lxml.etree.xmlfile",
    "lxml.etree.xmlfile.__enter__",
];

pub struct Declared {
    /// Native modules that are safe to call, with those below them.
    pub safe_native: Vec<String>,
    /// Packages whose import may do what is denied otherwise.
    pub import_allow: Vec<String>,
    /// Asked as `on_call`.
    pub monitor_hooks: Vec<Callback>,
    /// Asked as `before_deny`.
    pub audit_hooks: Vec<Callback>,
    /// Packages whose import loads native code that is safe to call.
    pub loading_native: Vec<String>,
}

static DECLARED: Once<Declared> = Once::new();

impl Declared {
    pub fn get(py: Python<'_>) -> PyResult<&'static Self> {
        DECLARED.get_or_try_init(py, || Self::read(py))
    }

    pub fn known(py: Python<'_>) -> Option<&'static Self> {
        DECLARED.get(py)
    }

    fn read(py: Python<'_>) -> PyResult<Self> {
        let module = calling::import(py, "fastaudit_rs.v02._declared")?;
        let names = |group: &str| -> PyResult<Vec<String>> {
            module.invoke_method1("names", (group,))?.extract()
        };
        let hooks = |group: &str, contract: &Contract| -> PyResult<Vec<Callback>> {
            let loaded = module.invoke_method1("hooks", (group,))?;
            let mut read = Vec::new();
            for hook in loaded.iterate()? {
                let (name, hook): (String, Bound<'_, PyAny>) = hook?.extract()?;
                match callbacks::read(&hook, contract, RuleSet::Strict) {
                    Ok(hook) => read.push(hook),
                    Err(error) => {
                        module.invoke_method1("ignore", (group, name, error.value(py)))?;
                    }
                }
            }
            Ok(read)
        };
        let mut safe_native = names("fastaudit_safe_native")?;
        safe_native.extend(SAFE_NATIVE.iter().map(|name| (*name).to_owned()));
        safe_native.sort_unstable();
        safe_native.dedup();
        let tops = safe_native.iter();
        let tops = tops.filter_map(|name| name.split('.').next().map(str::to_owned));
        let mut loading_native: Vec<String> = tops.collect();
        loading_native.push("ctypes".to_owned());
        loading_native.sort_unstable();
        loading_native.dedup();
        Ok(Self {
            safe_native,
            import_allow: names("fastaudit_import_allow")?,
            monitor_hooks: hooks("fastaudit_monitor_hook", &callbacks::ON_CALL)?,
            audit_hooks: hooks("fastaudit_audit_hook", &callbacks::BEFORE_DENY)?,
            loading_native,
        })
    }

    pub fn is_safe(&self, module: &str, own: &str) -> bool {
        let mut safe = self.safe_native.iter();
        let is_lxml = module.split('.').next() == Some("lxml");
        (is_lxml && is_harmless_lxml(&format!("{module}.{own}")))
            || safe.any(|prefix| is_within_module(module, prefix))
    }
}

fn is_harmless_lxml(callee: &str) -> bool {
    callee.starts_with("lxml.") && !LXML_WRITERS.contains(&callee)
}

/// Lets calls into lxml pass that write no files, as `on_call` does.
///
/// Guards with the rules of fastaudit 0.2 know this rule without being told.
#[pyfunction(name = "_lxml_monitor")]
#[expect(unused_variables, clippy::too_many_arguments, reason = "what `on_call` gets")]
pub fn lxml_monitor<'py>(
    py: Python<'py>,
    caller: &Bound<'py, PyAny>,
    callee: &str,
    r#fn: &Bound<'py, PyAny>,
    code: &Bound<'py, PyAny>,
    off: &Bound<'py, PyAny>,
    data: &Bound<'py, PyAny>,
    calls: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if !is_harmless_lxml(callee) {
        return Ok(py.None().into_bound(py));
    }
    match calling::import(py, "sys")?.attr_opt("monitoring")? {
        Some(monitoring) => monitoring.attr("DISABLE"),
        None => Ok(PyBool::new(py, false).to_owned().into_any()),
    }
}
