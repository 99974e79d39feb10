//! From the Python objects in an event's arguments to the plain values the policy judges.
//!
//! Values are read from the objects' own buffers: what a subclass overrides decides nothing.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple, PyType};

use super::ffi::{self as raw, FsBytes};
use super::{host_code, methods};
use crate::policy::fs::PathBuf;
use crate::policy::path::{Base, Name, Target};

/// A name as an event gave it, with whatever keeps its bytes alive.
pub enum NameArg<'a, 'py> {
    /// The bytes of a path.
    Path(FsBytes<'a, 'py>),
    /// The bytes of a path that had to be made anew.
    Made(Vec<u8>),
    /// An open file descriptor.
    Descriptor(i32),
    /// Nothing that can be judged.
    Unreadable,
}

impl NameArg<'_, '_> {
    /// The name as the policy takes it.
    pub fn name(&self) -> Name<'_> {
        match self {
            Self::Path(bytes) => Name::Path(bytes.as_bytes()),
            Self::Made(bytes) => Name::Path(bytes),
            Self::Descriptor(fd) => Name::Descriptor(*fd),
            Self::Unreadable => Name::Unreadable,
        }
    }

    /// The name as an operation's target.
    pub fn target(&self, base: Base) -> Target<'_> {
        Target {
            name: self.name(),
            base,
        }
    }
}

/// How the operation behind an event treats an object that is not `str`, `bytes` or `int`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PathLikes {
    /// Everything it does with the object raises events of its own.
    CheckedAgain,
    /// It asks the object for its path after the event, and no event follows.
    AskedLater,
}

/// Reads the name at a position of the event's arguments.
///
/// # Errors
/// What an object's `__fspath__` raised, if that is no `Exception` (`KeyboardInterrupt`, say).
pub fn name_at<'a, 'py>(
    args: &'a Bound<'py, PyTuple>,
    index: usize,
    descriptor: bool,
    path_likes: PathLikes,
) -> PyResult<NameArg<'a, 'py>> {
    let Ok(object) = args.get_borrowed_item(index) else {
        return Ok(NameArg::Unreadable);
    };
    if let Some(name) = plain_name(object)? {
        return Ok(name);
    }
    if let Some(fd) = raw::int_value(&object) {
        let fd = i32::try_from(fd).ok().filter(|_| descriptor);
        return Ok(fd.map_or(NameArg::Unreadable, NameArg::Descriptor));
    }
    if raw::is_index(&object) {
        // It will be asked for its number again, so this says only that it is a descriptor.
        return Ok(if descriptor {
            NameArg::Descriptor(-1)
        } else {
            NameArg::Unreadable
        });
    }
    if path_likes == PathLikes::AskedLater && !answers_the_same(&object)? {
        return Ok(NameArg::Unreadable);
    }
    let path = match host_code::fs_path(&object) {
        Ok(path) => path,
        Err(error) => return unreadable(object.py(), error),
    };
    Ok(match plain_name(path.as_borrowed())? {
        Some(name) => NameArg::Made(match name.name() {
            Name::Path(bytes) => bytes.to_vec(),
            _ => return Ok(NameArg::Unreadable),
        }),
        None => NameArg::Unreadable,
    })
}

fn unreadable<'a, 'py>(py: Python<'py>, error: PyErr) -> PyResult<NameArg<'a, 'py>> {
    if error.is_instance_of::<PyException>(py) {
        Ok(NameArg::Unreadable)
    } else {
        Err(error)
    }
}

/// The name in a `str` or `bytes`.
fn plain_name<'a, 'py>(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Option<NameArg<'a, 'py>>> {
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Some(match raw::fs_encode(text) {
            Ok(bytes) => native_form(bytes),
            Err(_) => by_directory(text)?,
        }));
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(native_form(FsBytes::Owned(bytes.to_owned()))));
    }
    Ok(None)
}

#[cfg(not(windows))]
fn native_form<'a, 'py>(bytes: FsBytes<'a, 'py>) -> NameArg<'a, 'py> {
    NameArg::Path(bytes)
}

#[cfg(windows)]
fn native_form<'a, 'py>(bytes: FsBytes<'a, 'py>) -> NameArg<'a, 'py> {
    NameArg::Made(crate::policy::fs::from_windows(bytes.as_bytes()).to_vec())
}

/// A name that the file system cannot hold: no operation on it can succeed, but it is judged by
/// its directory first, as any other name there. The NUL stands for the part without bytes.
fn by_directory<'a, 'py>(text: Borrowed<'a, 'py, PyString>) -> PyResult<NameArg<'a, 'py>> {
    let directory = raw::up_to_last_slash(&text)?;
    Ok(match raw::fs_encode(directory.as_borrowed()) {
        Ok(bytes) => {
            let mut path = bytes.as_bytes().to_vec();
            path.push(0);
            NameArg::Made(path)
        }
        Err(_) => NameArg::Unreadable,
    })
}

/// Whether a path-like object is one that gives the same path each time it is asked: one of
/// `pathlib`, or one whose `__fspath__` is native (`os.DirEntry`).
pub fn answers_the_same(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    let ty = object.get_type();
    let method = |ty: &Bound<'_, PyType>, name| raw::type_lookup(ty, name).map(Bound::unbind);
    let (fspath, text) = (
        pyo3::intern!(py, "__fspath__"),
        pyo3::intern!(py, "__str__"),
    );
    let Some(own) = raw::type_lookup(&ty, fspath) else {
        return Ok(true);
    };
    if methods::descriptor_method(&own).is_some() {
        return Ok(true);
    }
    // Where pathlib was not imported the object is none of its.
    let Some(pathlib) = raw::imported_module(py, pyo3::intern!(py, "pathlib"))? else {
        return Ok(false);
    };
    let Ok(pure_path) = pathlib.getattr("PurePath")?.cast_into::<PyType>() else {
        return Ok(false);
    };
    Ok([fspath, text]
        .iter()
        .all(|name| match (method(&ty, name), method(&pure_path, name)) {
            (Some(own), Some(known)) => own.is(&known),
            _ => false,
        }))
}

/// Reads the `dir_fd` at a position of the event's arguments; absent, `None` and -1 are none.
pub fn base_at(args: &Bound<'_, PyTuple>, index: Option<usize>) -> Base {
    let Some(object) = index.and_then(|index| args.get_borrowed_item(index).ok()) else {
        return Base::CurrentDir;
    };
    if object.is_none() {
        return Base::CurrentDir;
    }
    match raw::int_value(&object) {
        Some(-1) => Base::CurrentDir,
        // A number that is no descriptor has no path, and so nothing can be approved under it.
        value => Base::Descriptor(value.and_then(|fd| i32::try_from(fd).ok()).unwrap_or(-1)),
    }
}

/// The bytes of a root: a `str` or `bytes` as `os.fspath` gives it.
pub fn root_name(path: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    if let Ok(text) = path.cast::<PyString>() {
        let bytes = raw::fs_encode(text.as_borrowed())?;
        return Ok(owned_native_form(bytes.as_bytes()));
    }
    Ok(owned_native_form(path.cast::<PyBytes>()?.as_bytes()))
}

#[cfg(not(windows))]
fn owned_native_form(bytes: &[u8]) -> PathBuf {
    PathBuf::from_slice(bytes)
}

#[cfg(windows)]
fn owned_native_form(bytes: &[u8]) -> PathBuf {
    crate::policy::fs::from_windows(bytes)
}
