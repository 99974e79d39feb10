//! Shared objects of the process that use Python's C API, or hold a function.

pub use objects::{any_foreign, holding};

#[cfg(not(judges_native))]
mod objects {
    use std::path::{Path, PathBuf};

    /// It cannot be told on this system, so there may be.
    pub fn any_foreign(_is_standard: impl Fn(&Path) -> bool) -> bool {
        true
    }

    /// It cannot be told here.
    pub fn holding(_function: usize) -> Option<PathBuf> {
        None
    }
}

#[cfg(judges_native)]
mod objects {
    use std::ffi::OsStr;
    use std::ops::ControlFlow;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;

    use pyo3::ffi;

    use crate::native::asking::object_of;
    use crate::native::objects;

    /// The functions that an interpreter's own main program imports; an extension imports others.
    const ENTRY_POINTS: [&[u8]; 3] = [b"Py_Main", b"Py_BytesMain", b"Py_RunMain"];

    /// The addresses at which the interpreter and this package are loaded.
    static KNOWN: OnceLock<[usize; 2]> = OnceLock::new();

    /// Returns whether some shared object uses Python's C API and is neither ours nor standard.
    pub fn any_foreign(is_standard: impl Fn(&Path) -> bool) -> bool {
        let is_of_python = |name: &[u8]| {
            (name.starts_with(b"Py") || name.starts_with(b"_Py")) && !ENTRY_POINTS.contains(&name)
        };
        let mut any = false;
        let found = objects::each(|object| {
            any = true;
            // One that cannot be read may.
            let uses_python = object
                .dynamic()
                .is_some_and(|dynamic| dynamic.imports_any(is_of_python).unwrap_or(true));
            let path = Path::new(OsStr::from_bytes(object.path()));
            match uses_python && !object.holds(holding as *const () as usize) && !is_standard(path)
            {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        found.is_some() || !any
    }

    /// The shared object that a function's code is in; `None` for the interpreter, for ours, and if
    /// there is none.
    pub fn holding(function: usize) -> Option<PathBuf> {
        let known = KNOWN.get_or_init(|| {
            [ffi::PyLong_FromLong as *const (), holding as *const ()]
                .map(|own| object_of(own as usize).map_or(0, |(base, _)| base))
        });
        let (base, path) = object_of(function)?;
        (!known.contains(&base) && !path.as_os_str().is_empty()).then_some(path)
    }
}
