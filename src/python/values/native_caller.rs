//! The library of native code that acts, noted while its act is judged.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use crate::python::values::distributions;

thread_local! {
    static CALLER: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Notes the library, and returns the note before.
pub fn replace(library: Option<PathBuf>) -> Option<PathBuf> {
    CALLER
        .try_with(|caller| caller.replace(library))
        .ok()
        .flatten()
}

/// A library, and the package that installed it by the name that one imports.
pub struct Library {
    pub file: String,
    pub package: Option<String>,
}

/// The library whose act is judged; `None` for Python's own.
pub fn now() -> Option<Library> {
    let file = CALLER.with_borrow(Clone::clone)?;
    Some(Library {
        package: package_of(&file),
        file: file.to_string_lossy().into_owned(),
    })
}

fn package_of(file: &Path) -> Option<String> {
    let module = distributions::module_of_file(file)?;
    Some(distributions::installed().package_of(&module).to_owned())
}
