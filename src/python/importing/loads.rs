//! Where the import system has the code from that it is about to run.
//!
//! The name that code bears says nothing: code without source, and code that Python made, bears any. So
//! the loader is asked, as data: an exact one of the import system, which is as it was when the first
//! guard was made.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyModule, PyString, PyType};

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::cpython::{ffi as raw, frames, objects};

const MODULES: [&str; 3] = ["_frozen_importlib", "_frozen_importlib_external", "zipimport"];

/// The native functions that it makes code with.
const NATIVES: [(&str, &str); 7] = [
    ("_imp", "_fix_co_filename"),
    ("_imp", "get_frozen_object"),
    ("_io", "open_code"),
    ("_io", "FileIO"),
    ("builtins", "compile"),
    ("builtins", "exec"),
    ("marshal", "loads"),
];

/// The import system, as it was when the first guard was made.
struct System {
    /// Loaders of a file, and the attribute that names it.
    of_files: Vec<(Py<PyType>, &'static str)>,
    /// The classes of methods that are no functions: `staticmethod` and `classmethod`.
    wrappers: [Py<PyType>; 2],
    /// The code of the method by which they run a module.
    runs: Py<PyAny>,
    /// The code of the method that runs a module of the interpreter.
    runs_frozen: Py<PyAny>,
    /// The code of the function that calls for the import system.
    calls: Py<PyAny>,
    /// The code of the function that reads compiled code.
    reads: Py<PyAny>,
    parts: Vec<Part>,
}

/// A dictionary of functions that loading depends on.
struct Part {
    of: Py<PyDict>,
    /// The beginning of names that may come, and the number of others; `None` if any may.
    others: Option<(&'static str, usize)>,
    entries: Vec<(Py<PyAny>, Py<PyAny>)>,
}

static SYSTEM: OnceLock<System> = OnceLock::new();

pub enum Source<'py> {
    Interpreter,
    File(Vec<u8>),
    Loader(Bound<'py, PyAny>),
    Changed,
    /// Something other than a method of the import system runs it.
    Elsewhere,
}

pub fn prepare(py: Python<'_>) -> PyResult<()> {
    if SYSTEM.get().is_some() {
        return Ok(());
    }
    // It sets attributes of the others.
    calling::import(py, "importlib")?;
    let system = calling::import(py, MODULES[0])?;
    let files = calling::import(py, MODULES[1])?;
    let archives = calling::import(py, MODULES[2])?;
    let mut parts = Vec::new();
    for module in MODULES {
        parts.push(Part::all(calling::import(py, module)?.dict(), "__"));
    }
    for (module, name) in NATIVES {
        let module = calling::import(py, module)?;
        let entry = (PyString::new(py, name).into(), module.attr(name)?.into());
        parts.push(Part { of: module.dict().unbind(), others: None, entries: vec![entry] });
    }
    let class = |module: &Bound<'_, PyModule>, name| -> PyResult<Py<PyType>> {
        Ok(module.attr(name)?.cast_into()?.unbind())
    };
    let code = |function: Bound<'_, PyAny>| frames::function_code(&function).unbind();
    let sources = class(&files, "SourceFileLoader")?;
    let builtins = calling::import(py, "builtins")?;
    let of_files = vec![
        (sources, "path"),
        (class(&files, "SourcelessFileLoader")?, "path"),
        (class(&archives, "zipimporter")?, "archive"),
    ];
    let frozen = class(&system, "FrozenImporter")?;
    // Those of finders are left out: what a finder chose is seen in the loader, and packages change
    // finders (importlib_metadata does).
    let mut seen: Vec<Bound<'_, PyAny>> = Vec::new();
    for loader in of_files.iter().map(|(class, _)| class).chain([&frozen]) {
        for base in loader.bind(py).mro() {
            if seen.iter().any(|known| known.is(&base)) {
                continue;
            }
            let of = base.cast::<PyType>().ok().and_then(objects::dictionary);
            parts.extend(of.map(|of| Part::all(of, "__annot")));
            seen.push(base);
        }
    }
    let _ = SYSTEM.set(System {
        wrappers: [class(&builtins, "staticmethod")?, class(&builtins, "classmethod")?],
        runs: code(of_files[0].0.bind(py).attr("exec_module")?),
        runs_frozen: code(frozen.bind(py).attr("exec_module")?),
        calls: code(system.attr("_call_with_frames_removed")?),
        reads: code(files.attr("_compile_bytecode")?),
        of_files,
        parts,
    });
    Ok(())
}

impl Part {
    /// All functions, classes and modules of a dictionary.
    fn all(of: Bound<'_, PyDict>, may_come: &'static str) -> Self {
        let is_plain = |value: &Bound<'_, PyAny>| {
            let is_number = value.is_instance_of::<PyInt>();
            is_number || value.is_instance_of::<PyString>() || calling::hash(value).is_err()
        };
        let entries = of.iter().filter(|(_, value)| !is_plain(value));
        Self {
            others: Some((may_come, count_others(&of, may_come))),
            entries: entries.map(|(name, value)| (name.unbind(), value.unbind())).collect(),
            of: of.unbind(),
        }
    }

    fn is_as_it_was(&self, py: Python<'_>) -> PyResult<bool> {
        let of = self.of.bind(py);
        if let Some((may_come, others)) = self.others
            && others != count_others(of, may_come)
        {
            return Ok(false);
        }
        for (name, value) in &self.entries {
            if !of.get_item(name)?.is_some_and(|now| now.is(value)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn count_others(of: &Bound<'_, PyDict>, beginning: &str) -> usize {
    let is_other = |name: &Bound<'_, PyAny>| {
        let name = name.cast_exact::<PyString>();
        name.map_or(true, |name| !name.to_string_lossy().starts_with(beginning))
    };
    of.iter().filter(|(name, _)| is_other(name)).count()
}

pub fn source(py: Python<'_>) -> PyResult<Source<'_>> {
    let (Some(system), Some(mut frame)) = (SYSTEM.get(), frames::current_frame(py)) else {
        return Ok(Source::Elsewhere);
    };
    let mut code = frames::code(&frame);
    if code.is(&system.calls)
        && let Some(outer) = frames::outer(&frame)
    {
        frame = outer;
        code = frames::code(&frame);
    }
    let is_frozen = code.is(&system.runs_frozen);
    if !is_frozen && !code.is(&system.runs) {
        return Ok(Source::Elsewhere);
    }
    for part in &system.parts {
        if !part.is_as_it_was(py)? {
            return Ok(Source::Changed);
        }
    }
    if is_frozen {
        return Ok(Source::Interpreter);
    }
    let locals = frame.attr(intern!(py, "f_locals"))?;
    let loader = locals.item(intern!(py, "self"))?;
    let class = loader.get_type();
    let mut own = system.of_files.iter();
    let (Some((_, names)), Some(attributes)) =
        (own.find(|(own, _)| class.is(own)), objects::own_attributes(&loader))
    else {
        return Ok(Source::Loader(loader));
    };
    let hides_method = attributes.keys().iter().any(|name| {
        let name = name.cast_exact::<PyString>();
        name.map_or(true, |name| class.has_attr(name).unwrap_or(true))
    });
    let file = attributes.get_item(names)?;
    match file.and_then(|file| file.cast_into_exact::<PyString>().ok()) {
        Some(file) if !hides_method => Ok(Source::File(encoded(&file)?)),
        _ => Ok(Source::Loader(loader)),
    }
}

/// The file of compiled code that is about to be read in the place of a source, and that source.
pub fn compiled(py: Python<'_>) -> PyResult<Option<[Vec<u8>; 2]>> {
    let (Some(system), Some(frame)) = (SYSTEM.get(), frames::current_frame(py)) else {
        return Ok(None);
    };
    if !frames::code(&frame).is(&system.reads) {
        return Ok(None);
    }
    let locals = frame.attr(intern!(py, "f_locals"))?;
    let path = |name| -> PyResult<Option<Vec<u8>>> {
        let path = locals.item(name)?;
        path.cast_exact::<PyString>().ok().map(encoded).transpose()
    };
    Ok(path("bytecode_path")?.zip(path("source_path")?).map(<[_; 2]>::from))
}

fn encoded(path: &Bound<'_, PyString>) -> PyResult<Vec<u8>> {
    Ok(raw::fs_encode(path.as_borrowed())?.as_bytes().to_vec())
}

pub fn has_method_of_guest(loader: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(system) = SYSTEM.get() else {
        return Ok(true);
    };
    let mut dictionaries: Vec<_> = objects::own_attributes(loader).into_iter().collect();
    for class in loader.get_type().mro() {
        dictionaries.extend(class.cast().ok().and_then(objects::dictionary));
    }
    for mut method in dictionaries.iter().flat_map(|all| all.values()) {
        let class = method.get_type();
        if system.wrappers.iter().any(|wrapper| class.is(wrapper)) {
            method = method.attr(intern!(loader.py(), "__func__"))?;
        }
        let code = frames::function_code(&method);
        if frames::is_code(&code) && frames::get(&code, frames::GUEST) != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
