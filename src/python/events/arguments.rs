//! The arguments of an audit event, read from Python objects for the judge.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString, PyTuple, PyType};

use crate::policy::files::fs::PathBuf;
use crate::policy::files::path::Name;
use crate::policy::judge::{Arguments, Endpoint, FAMILIES, Host, Named, PathLikes, UNIX_FAMILY};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::intern;
use crate::python::values::addresses::{bytes_of, read_host};
use crate::python::values::decode::{self, NameArg};
use crate::python::values::process_start;

impl Named for NameArg<'_, '_> {
    fn name(&self) -> Name<'_> {
        match self {
            Self::Path(bytes) => Name::Path(bytes.as_bytes()),
            Self::Made(bytes) => Name::Path(bytes),
            Self::Descriptor(fd) => Name::Descriptor(*fd),
            Self::Unreadable => Name::Unreadable,
        }
    }
}

impl<'py> Arguments for Bound<'py, PyTuple> {
    type Error = PyErr;
    type Name<'a>
        = NameArg<'a, 'py>
    where
        Self: 'a;

    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn is_none(&self, index: usize) -> bool {
        index < self.len() && raw::tuple_item(self, index).is_none()
    }

    fn is_texts(&self, index: usize) -> bool {
        let given = self.get_borrowed_item(index);
        given.is_ok_and(|given| {
            given.is_instance_of::<PyString>()
                || given.is_instance_of::<PyBytes>()
                || given.is_instance_of::<PyByteArray>()
        })
    }

    #[inline]
    fn integer(&self, index: usize) -> Option<i64> {
        match index < self.len() {
            true => raw::int_value(&raw::tuple_item(self, index)),
            false => None,
        }
    }

    fn text(&self, index: usize) -> Option<Cow<'_, str>> {
        let text = self.as_slice().get(index)?.cast::<PyString>();
        Some(text.ok()?.to_string_lossy())
    }

    #[inline]
    fn with_encoded<R>(&self, index: usize, read: impl FnOnce(Option<&[u8]>) -> R) -> Option<R> {
        if index >= self.len() {
            return None;
        }
        let given = raw::tuple_item(self, index);
        let text = given.cast::<PyString>().ok()?;
        Some(match raw::fs_encode(text) {
            Ok(bytes) => read(Some(bytes.as_bytes())),
            Err(_) => read(None),
        })
    }

    fn name(
        &self,
        index: usize,
        descriptor: bool,
        path_likes: PathLikes,
    ) -> PyResult<NameArg<'_, 'py>> {
        decode::name_at(self, index, descriptor, path_likes)
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        process_start::bytes(self.as_slice().get(index)?)
    }

    fn paths(&self, index: usize) -> Option<Vec<PathBuf>> {
        process_start::each(self.as_slice().get(index)?)
    }

    fn search_path(&self, index: usize, own: &dyn Fn() -> Vec<u8>) -> Option<Vec<u8>> {
        match self.get_borrowed_item(index) {
            Ok(environment) if !environment.is_none() => process_start::path_of(&environment, own),
            _ => Some(own()),
        }
    }

    fn socket(&self, index: usize) -> Option<(i64, i32)> {
        let socket = self.get_borrowed_item(index).ok()?;
        // A number is the socket of native code, whose address says the family.
        if raw::int_value(&socket).is_some() {
            let family = match self.endpoint(index + 1) {
                Some(end) => FAMILIES[usize::from(end.items > 2)],
                None if self.is_texts(index + 1) => UNIX_FAMILY,
                None => return None,
            };
            return Some((family, raw::i32_value(&socket)?));
        }
        let module = raw::imported_module(self.py(), intern!(self.py(), "_socket")).ok()??;
        let class = module.attr("socket").ok()?.cast_into::<PyType>().ok()?;
        if !calling::is_instance(&socket, &class).ok()? {
            return None;
        }
        let family = class.attr("family").ok()?;
        let family = family.invoke_method1("__get__", (socket,)).ok()?;
        let fd = class.attr("fileno").ok()?.invoke1((socket,)).ok()?;
        let fd = raw::i32_value(&fd)?;
        Some((raw::int_value(&family)?, fd))
    }

    fn host(&self, index: usize) -> Option<Host> {
        read_host(self.as_slice().get(index)?)
    }

    fn first_host(&self, index: usize) -> Option<Host> {
        let address = self.get_item(index).ok()?.cast_into::<PyTuple>().ok()?;
        read_host(&address.get_item(0).ok()?)
    }

    fn endpoint(&self, index: usize) -> Option<Endpoint> {
        let parts = self.get_item(index).ok()?.cast_into::<PyTuple>().ok()?;
        let (host, port) = (parts.get_item(0).ok()?, parts.get_item(1).ok()?);
        Some(Endpoint { items: parts.len(), host: read_host(&host)?, port: raw::int_value(&port)? })
    }

    fn socket_name(&self, index: usize) -> Option<Vec<u8>> {
        let address = self.get_borrowed_item(index).ok()?;
        match address.cast::<PyString>() {
            Ok(text) => Some(raw::fs_encode(text).ok()?.as_bytes().to_vec()),
            Err(_) => bytes_of(&address),
        }
    }
}
