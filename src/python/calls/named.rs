//! Native callees that were named before: the names that hosts are given, without asking the
//! callees again.
//!
//! A direct-mapped table. It keeps what its module, or a class of that, has by the name that it
//! gives itself: such a callee lives as long as the module anyway, and what is kept here is kept
//! for good, so that its address never becomes another's. For a native method that is bound to an
//! object, which is made anew for each call, it keeps the method's descriptor. A class, and the
//! class of an object, is the same only while CPython has given it no new version.
//!
//! A callee that is kept is still native code that the host is asked about: this table decides its
//! name, and never whether it is quiet.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString, PyType};

use crate::python::callees::callee::{self as callees, CalleeName, Native};
use crate::python::calls::deferred;
use crate::python::cpython::functions::Builtin;
use crate::python::cpython::{ffi as raw, layout};

const PLACES: usize = 4096;

static NAMED: [OnceLock<Box<Named>>; PLACES] = [const { OnceLock::new() }; PLACES];

struct Named {
    key: Key,
    /// The object that keeps its address from becoming another's.
    _held: Py<PyAny>,
    module: Py<PyString>,
    own: Py<PyString>,
    full: Py<PyString>,
    is_fragile: bool,
}

pub struct NamedCallee<'py> {
    pub native: Native<'py>,
    pub full: Bound<'py, PyString>,
    pub is_fragile: bool,
}

/// The identity of one callee among all, and of its earlier states: its address, or that of the
/// table entry that a bound method is made from, and the versions of a class and its metaclass, or
/// those of an object's class.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    address: usize,
    versions: u64,
}

impl Key {
    /// The key of a callee now; `None` if CPython has no version for it.
    fn of(callee: Borrowed<'_, '_, PyAny>) -> Option<Self> {
        let own = callee.as_ptr() as usize;
        let (address, versions) = match layout::bound_method(callee) {
            Some((entry, receiver)) => (entry, layout::version_of_type(receiver)),
            None => match layout::as_class(callee) {
                Some(class) => (own, layout::class_versions(class)),
                None => (own, layout::version_of_type(callee)),
            },
        };
        (versions != 0).then_some(Self { address, versions })
    }

    fn places(self) -> [&'static OnceLock<Box<Named>>; 2] {
        // Objects and table entries are aligned to 16 bytes. The second mixes in all bits.
        let number = self.address >> 4;
        let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mixed = usize::try_from(mixed).unwrap_or(0);
        [&NAMED[number % PLACES], &NAMED[mixed % PLACES]]
    }
}

/// Names a callee, or finds its name if it was remembered; `None` for those that nobody is asked
/// about. `first` is the call's first argument.
pub fn of<'py>(
    callee: &Bound<'py, PyAny>,
    first: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<NamedCallee<'py>>> {
    let key = Key::of(callee.as_borrowed());
    if let Some(found) = key.and_then(|key| find(callee, key)) {
        return Ok(Some(found));
    }
    let Some(native) = callees::native(callee, first)? else {
        return Ok(None);
    };
    let full = native.name.full()?;
    let found = NamedCallee { is_fragile: deferred::is_fragile(&full), native, full };
    if let Some(key) = key {
        remember(callee, key, &found)?;
    }
    Ok(Some(found))
}

fn find<'py>(callee: &Bound<'py, PyAny>, key: Key) -> Option<NamedCallee<'py>> {
    let py = callee.py();
    let named = key.places().into_iter().find_map(|place| {
        let named = place.get();
        named.filter(|named| named.key == key)
    })?;
    let name =
        CalleeName { module: named.module.bind(py).clone(), own: named.own.bind(py).clone() };
    Some(NamedCallee {
        native: Native { name, function: callee.clone() },
        full: named.full.bind(py).clone(),
        is_fragile: named.is_fragile,
    })
}

/// Remembers the name of a callee. `key` is its key from before it was named.
fn remember(callee: &Bound<'_, PyAny>, key: Key, found: &NamedCallee<'_>) -> PyResult<()> {
    let mut places = key.places().into_iter();
    let Some(place) = places.find(|place| place.get().is_none()) else {
        return Ok(());
    };
    if !found.native.function.is(callee) {
        return Ok(());
    }
    let name = &found.native.name;
    let held = match layout::bound_method(callee.as_borrowed()) {
        Some(_) => descriptor_of(callee),
        None => {
            // A class has a name of its own, whatever its instances are made by.
            let class = callee.cast::<PyType>().ok();
            let own = class.map(|class| callees::qualified_name(class)).transpose()?.flatten();
            is_of_its_module(own.as_ref().unwrap_or(name), callee)?.then(|| callee.clone())
        }
    };
    let Some(held) = held.filter(|_| Key::of(callee.as_borrowed()) == Some(key)) else {
        return Ok(());
    };
    let named = Box::new(Named {
        key,
        _held: held.unbind(),
        module: name.module.clone().unbind(),
        own: name.own.clone().unbind(),
        full: found.full.clone().unbind(),
        is_fragile: found.is_fragile,
    });
    // If another thread was first, its name stays.
    drop(place.set(named));
    Ok(())
}

/// The descriptor that a bound native method was made from, if its object's class has it by that name.
fn descriptor_of<'py>(callee: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let function = Builtin::cast(callee)?;
    let class = function.receiver()?.get_type();
    let found = raw::type_lookup(&class, &function.name())?;
    function.is_made_from(&found).then_some(found)
}

/// Returns whether a callable is the object that its module has by its name, or a class there, so
/// that it never goes away. Runs none of their code.
pub fn is_of_its_module(name: &CalleeName<'_>, callee: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = callee.py();
    let module = raw::imported_module(py, &name.module)?;
    let module = module.and_then(|module| module.cast_into::<PyModule>().ok());
    let (Some(module), Ok(own)) = (module, name.own.to_str()) else {
        return Ok(false);
    };
    let mut parts = own.split('.');
    let mut found = module.dict().get_item(parts.next().unwrap_or_default())?;
    for part in parts {
        let class = found.and_then(|found| found.cast_into::<PyType>().ok());
        found = class.and_then(|class| raw::type_lookup(&class, &PyString::new(py, part)));
    }
    Ok(found.is_some_and(|found| found.is(callee)))
}
