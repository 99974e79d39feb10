//! The library of native code that acts, noted while its act is judged.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

#[cfg(judges_native)]
use crate::native::caller;
use crate::python::values::distributions;

/// The library of native code that acts.
#[derive(Default)]
pub enum Caller {
    /// No native code acts.
    #[default]
    Nobody,
    /// The innermost one on this thread's stack: it is looked for once somebody asks.
    #[cfg(judges_native)]
    OnStack,
    /// This file, as it acted on another thread, or before.
    Was(PathBuf),
}

thread_local! {
    static CALLER: RefCell<Caller> = const { RefCell::new(Caller::Nobody) };
}

/// Notes the library, and returns the note before.
pub fn replace(library: Caller) -> Caller {
    let before = CALLER.try_with(|caller| caller.replace(library));
    before.unwrap_or_default()
}

/// A library, and the package that installed it by the name that one imports.
pub struct Library {
    pub file: String,
    pub package: Option<String>,
}

/// The library whose act is judged; `None` for Python's own.
pub fn now() -> Option<Library> {
    let file = CALLER.with_borrow(|caller| match caller {
        Caller::Nobody => None,
        #[cfg(judges_native)]
        Caller::OnStack => caller::library(),
        Caller::Was(file) => Some(file.clone()),
    })?;
    Some(Library {
        package: package_of(&file),
        file: file.to_string_lossy().into_owned(),
    })
}

fn package_of(file: &Path) -> Option<String> {
    let module = distributions::module_of_file(file)?;
    Some(distributions::installed().package_of(&module).to_owned())
}
