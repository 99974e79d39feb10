//! The words that tell a host how to allow a denied operation.

use std::cell::RefCell;
use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::policy::Why;
use crate::policy::events::is_excused_by_import;
use crate::policy::files::fs::FileSystem;
use crate::policy::files::os::Os;
use crate::policy::files::path::is_within;
use crate::policy::files::path::{self, Base};
use crate::policy::learn::Need;
use crate::policy::packages::ALL;
use crate::policy::written::approved::{Extent, additions};
use crate::policy::written::spec::Spec;
use crate::policy::written::widening::{Lack, Places};
use crate::policy::written::wording::{
    self as hint, HintStyle, READ_COPY, changed, import_before, reads_logged_database,
};
use crate::python::callees::distributions;
use crate::python::configuration::allowed::expanded;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::denials::denial::{Asked, Denial, Hint, Offers};
use crate::python::values::errors;
use crate::python::values::simple::{self, shown};

impl Hint {
    pub fn saying(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), suggestion: None }
    }
}

/// Empty if the guard failed to check.
pub fn of(py: Python<'_>, denial: &Denial) -> Hint {
    let Some(asked) = &denial.decision.asked else {
        return Hint::default();
    };
    let event = &denial.event[..];
    let first = denial.args.bind(py).get_item(0).ok();
    let text = |object| simple::text(object).ok().flatten();
    if first.as_ref().and_then(text).is_some_and(|name| {
        let name = name.to_string_lossy();
        reads_logged_database(event, denial.decision.why, name.as_bytes())
    }) {
        return Hint::saying(READ_COPY);
    }
    if event == "import"
        && let (None | Some(Why::Native), Some(module)) = (denial.decision.why, &first)
        && (denial.decision.why.is_none() || asked.told.is_none())
    {
        let module = module.text().map(|name| name.to_string_lossy().into_owned());
        let module = module.unwrap_or_default();
        return Hint::saying(import_before(&module, denial.decision.why));
    }
    match &asked.told {
        Some(told) => of_policy(py, denial, asked, told, event),
        None => of_arguments(py, denial, asked, event),
    }
}

/// The places that a policy names, by the files that are there. Each name is resolved once.
pub struct Here<'py> {
    py: Python<'py>,
    resolved: RefCell<HashMap<String, Option<Vec<u8>>>>,
}

impl<'py> Here<'py> {
    /// The places of a hint about needs, whose paths were looked up as the denials were made.
    pub fn new(py: Python<'py>, lacks: &[Lack]) -> Self {
        let paths = lacks.iter().flat_map(|lack| {
            let own = match &lack.need {
                Need::Write(path) | Need::Read(path) => Some(path),
                _ => None,
            };
            own.into_iter().chain(&lack.root)
        });
        let known =
            |path: &Vec<u8>| Some((String::from_utf8(path.clone()).ok()?, Some(path.clone())));
        Self { py, resolved: RefCell::new(paths.filter_map(known).collect()) }
    }

    fn look_up(&self, path: &str) -> Option<Vec<u8>> {
        let name = expanded(self.py, path).ok()?;
        let found = path::resolve(&Os, &name, Base::CurrentDir)?;
        Some(found.as_bytes().to_vec())
    }
}

impl Places for Here<'_> {
    fn resolve(&self, path: &str) -> Option<Vec<u8>> {
        if let Some(known) = self.resolved.borrow().get(path) {
            return known.clone();
        }
        let found = self.look_up(path);
        let mut resolved = self.resolved.borrow_mut();
        resolved.insert(path.to_owned(), found.clone());
        found
    }

    fn may_stand_for_its_files(&self, dir: &[u8]) -> bool {
        let is_home = self.resolve("~").is_some_and(|home| is_within(&home, dir));
        dir != b"/" && !is_home
    }

    fn is_file(&self, path: &[u8]) -> bool {
        Os.exists(path) && !Os.is_dir(path)
    }
}

fn of_policy(
    py: Python<'_>,
    denial: &Denial,
    asked: &Asked,
    told: &HintStyle,
    event: &str,
) -> Hint {
    let mut lacks = asked.lacks(py, denial).to_vec();
    if let Some(Why::Native | Why::Environment) = denial.decision.why
        && let Some(package) = asked.package(py)
        && !asked.packages().have(package)
        && distributions::installed().found().has(package)
    {
        // The import is to be allowed, not the calls or settings that it makes in turn.
        lacks = vec![Lack::new(Need::Package(package.to_owned()), Why::Import)];
    } else if (lacks.is_empty() || denial.decision.why.is_none())
        && is_excused_by_import(event)
        && let Some(lack) = asked.import_lack(py, denial.decision.why)
    {
        lacks = vec![lack];
    }
    let literal = |value: &_| errors::literal(py, value);
    let places = Here::new(py, &lacks);
    let (text, wide) = hint::of_policy(told, event, denial.decision.why, lacks, &places, &literal);
    Hint { text: Some(text), suggestion: wide.and_then(|wide| fields(py, &told.spec, &wide)) }
}

pub(super) fn fields(py: Python<'_>, spec: &Spec, wide: &Spec) -> Option<Py<PyDict>> {
    let dict = PyDict::new(py);
    for (field, value) in changed(spec, wide) {
        dict.set_item(field, errors::object(py, &value).ok()?).ok()?;
    }
    Some(dict.unbind())
}

fn of_arguments(py: Python<'_>, denial: &Denial, asked: &Asked, event: &str) -> Hint {
    if denial.decision.why == Some(Why::Unapproved)
        && let Some(hint) = roots(py, denial, asked.lacks(py, denial))
    {
        return hint;
    }
    if let Some(hint) = packages(py, denial, asked, event) {
        return hint;
    }
    if asked.is_strict()
        && is_excused_by_import(event)
        && let Some(package) = asked.package(py)
    {
        let package = PyString::new(py, package);
        if let Ok(package) = raw::str_repr(&package) {
            return Hint::saying(format!("audit_perms.add_imports({package})"));
        }
    }
    if event == "fastaudit.call" {
        let callee = denial.args.bind(py).get_item(1);
        if let Ok(callee) = callee.and_then(|callee| shown(&callee)) {
            return Hint::saying(format!("an on_call that returns False for {callee}"));
        }
    }
    if matches!(event, "os.fork" | "os.forkpty") {
        return Hint::saying(format!(
            "a fork while no other thread runs, or a before_deny that returns True for {event:?}"
        ));
    }
    Hint::saying(format!("a before_deny that returns True for {event:?}"))
}

/// The roots of the guard, if it has no others than texts.
fn own_roots<'py>(py: Python<'py>, denial: &Denial) -> Option<Vec<Bound<'py, PyString>>> {
    let own = denial.roots(py);
    let own = own.bind(py).iter();
    own.map(|root| root.cast_into().ok()).collect()
}

fn changing(
    py: Python<'_>,
    text: String,
    field: &str,
    values: &[Bound<'_, PyString>],
) -> Option<Hint> {
    let suggestion = PyDict::new(py);
    suggestion.set_item(field, values).ok()?;
    Some(Hint { text: Some(text), suggestion: Some(suggestion.unbind()) })
}

/// Returns the packages to name, for native code of one, and for the acts of importing one.
fn packages(py: Python<'_>, denial: &Denial, asked: &Asked, event: &str) -> Option<Hint> {
    let package = match denial.decision.why {
        Some(Why::Native) => {
            let callee = denial.args.bind(py).get_item(1).ok()?;
            let callee = callee.cast::<PyString>().ok()?.to_string_lossy();
            distributions::package_of(&callee)
        }
        _ if is_excused_by_import(event) => asked.package(py)?.to_owned(),
        _ => return None,
    };
    let installed = distributions::installed();
    let names = asked.packages().names_with(&package, &installed)?;
    let roots = own_roots(py, denial)?;
    let names: Vec<_> = names.iter().map(|name| PyString::new(py, name)).collect();
    let shown = match &names[..] {
        [one] if one == ALL => raw::str_repr(one).ok()?.to_string_lossy().into_owned(),
        names => errors::list(names)?,
    };
    let text = format!("mk_audit({}, packages={shown})", errors::list(&roots)?);
    changing(py, text, "packages", &names)
}

fn roots(py: Python<'_>, denial: &Denial, lacks: &[Lack]) -> Option<Hint> {
    let mut roots = own_roots(py, denial)?;
    let before = roots.len();
    let is_strict = denial.decision.asked.as_ref()?.is_strict();
    let mut needs_top = false;
    for lack in lacks {
        let root = match (&lack.need, is_strict) {
            // There a root approves itself.
            (Need::Write(path), true) => path,
            _ => lack.root.as_ref()?,
        };
        needs_top |= root == b"/" && !matches!(&lack.need, Need::Write(path) if path == b"/");
        let root = raw::fs_decode(py, root).ok()?;
        let is_it = |own: &Bound<'_, PyString>| own.as_any().equals(&root).unwrap_or(false);
        if !roots.iter().any(is_it) {
            roots.push(root);
        }
    }
    if roots.len() == before {
        return None;
    }
    if needs_top {
        return exact(py, denial, lacks);
    }
    let shown = errors::list(&roots)?;
    changing(py, format!("mk_audit({shown})"), "oks", &roots)
}

/// The same if only `/` would do as a root: a `Policy` with these rules approves a root itself.
fn exact(py: Python<'_>, denial: &Denial, lacks: &[Lack]) -> Option<Hint> {
    let mut write = own_roots(py, denial)?;
    for lack in lacks {
        if let Need::Write(path) = &lack.need {
            write.push(raw::fs_decode(py, path).ok()?);
        }
    }
    let shown = errors::list(&write)?;
    let text = format!("Policy.preset('fastaudit-0.1').replace(write={shown}).guard()");
    changing(py, text, "write", &write)
}

impl Denial {
    pub(super) fn whole_hint(&self, py: Python<'_>) -> &Hint {
        let hint = &self.read().hint;
        if let Some(known) = hint.get() {
            return known;
        }
        // Python code runs, so that nobody may wait for it meanwhile.
        let found = of(py, self);
        hint.get_or_init(|| found)
    }
}

// The answers to a denial that a host may give, and the permissions that each gives.

/// An answer of the host that allows the operation, or is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Once,
    Kept(Extent),
    /// None of this, for as long as the guard lives: nobody is asked any more.
    Never,
}

impl Answer {
    const KEPT: [(&'static str, Extent); 2] =
        [("guard", Extent::Alone), ("pattern", Extent::Pattern)];

    /// Reads an answer; `None` is a denial that is not kept.
    pub fn read(answer: &str) -> Result<Option<Self>, ()> {
        Ok(match answer {
            "deny" => None,
            "once" => Some(Self::Once),
            "never" => Some(Self::Never),
            _ => {
                let mut kept = Self::KEPT.iter();
                let (_, extent) = kept.find(|(name, _)| *name == answer).ok_or(())?;
                Some(Self::Kept(*extent))
            }
        })
    }
}

impl Denial {
    /// Returns the permissions that an answer would give; `None` if it cannot be kept.
    pub fn offer(&self, py: Python<'_>, extent: Extent) -> Option<Spec> {
        let asked = self.decision.asked.as_ref()?;
        let lacks = asked.lacks(py, self);
        let is_blocked = |lack: &Lack| match &lack.need {
            Need::Module(module) => asked.policy.blocks_import(module),
            _ => false,
        };
        if lacks.iter().any(is_blocked) {
            return None;
        }
        let roots = asked.policy.approves_root_entries();
        let found = additions(lacks, extent, &Here::new(py, lacks), roots)?;
        // Another field may deny it all the same.
        self.decision.why.is_some().then_some(found)
    }

    /// The same as values, for each answer that is kept.
    pub(super) fn offers(&self, py: Python<'_>) -> Offers {
        if let Some(known) = self.read().offers.get() {
            return known.each_ref().map(|offer| {
                let offer = offer.as_ref();
                offer.map(|offer| offer.clone_ref(py))
            });
        }
        [Extent::Alone, Extent::Pattern].map(|extent| {
            let spec = self.offer(py, extent)?;
            fields(py, &Spec::default(), &spec)
        })
    }

    pub(super) fn offers_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for ((name, _), offer) in Answer::KEPT.iter().zip(self.offers(py)) {
            dict.set_item(name, offer)?;
        }
        Ok(dict)
    }

    pub(super) fn keep_offers(&self, told: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut offers = Offers::default();
        for ((name, _), offer) in Answer::KEPT.iter().zip(&mut offers) {
            if let Some(given) = told.get_item(name)?.filter(|given| !given.is_none()) {
                *offer = Some(errors::copied(&given)?.cast_into::<PyDict>()?.unbind());
            }
        }
        let _ = self.read().offers.set(offers);
        Ok(())
    }

    pub fn note_answer(&self, answer: String) {
        let _ = self.read().answer.set(answer);
    }
}
