//! Callees that were found to be no foreign native code: nearly all calls go to these.
//!
//! Tables with two places for each, read on every call without a lock or a reference; with one,
//! what calls go to most would push each other out. The entries are never objects, whose addresses
//! others may have later, but keys that cannot come to mean another callee: a function of C code,
//! or the version that CPython gives a class until it is changed.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::ffi::is_python_function;
use crate::python::cpython::layout::{self, Callee, NativeEntry};

const PLACES: usize = 2048;
/// A bound method may bind another one.
const MAX_BOUND: usize = 4;

/// Addresses, whose four lowest bits are zero.
type Addresses = Table<true>;

/// Versions of a class in one half, and perhaps of its metaclass in the other.
type Versions = Table<false>;

/// Method table entries and slot functions of the standard library.
static FUNCTIONS: Addresses = Table::new();
/// Versions of a class and its metaclass: calling the class runs nothing foreign by itself.
static CLASSES: Versions = Table::new();
/// Versions of classes whose native `__new__` is quiet.
static NEWS: Versions = Table::new();
/// Versions of classes: calling an instance runs Python code.
static INSTANCES: Versions = Table::new();

/// Versions of classes of modules that are declared safe to call, for guards that let them be.
static SAFE_CLASSES: Versions = Table::new();
/// Method table entries of such modules, and other callables of theirs.
static SAFE: Addresses = Table::new();

/// Keys, of which none is 0.
struct Table<const ADDRESSES: bool>([AtomicU64; PLACES]);

impl<const ADDRESSES: bool> Table<ADDRESSES> {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; PLACES])
    }

    #[inline]
    fn first(&self, key: u64) -> &AtomicU64 {
        self.at(match ADDRESSES {
            true => key >> 4,
            false => key ^ (key >> 32),
        })
    }

    /// The other place, by all bits.
    #[inline]
    fn second(&self, key: u64) -> &AtomicU64 {
        self.at(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32)
    }

    #[inline]
    fn at(&self, mixed: u64) -> &AtomicU64 {
        &self.0[usize::try_from(mixed % PLACES as u64).unwrap_or(0)]
    }

    /// Returns whether a key is in its first place, or in its second one.
    #[inline]
    fn has<const SECOND: bool>(&self, key: u64) -> bool {
        let place = match SECOND {
            true => self.second(key),
            false => self.first(key),
        };
        key != 0 && place.load(Ordering::Relaxed) == key
    }

    fn add(&self, key: u64) {
        if key == 0 || self.has::<FIRST>(key) {
            return;
        }
        let first = self.first(key);
        let place = match first.load(Ordering::Relaxed) {
            0 => first,
            _ => self.second(key),
        };
        place.store(key, Ordering::Relaxed);
    }

    /// Adds a key that is looked for in its first place alone.
    fn add_first(&self, key: u64) {
        self.first(key).store(key, Ordering::Relaxed);
    }

    fn clear(&self) {
        for place in &self.0 {
            place.store(0, Ordering::Relaxed);
        }
    }
}

const FIRST: bool = false;
pub const SECOND: bool = true;

/// Returns whether the callee is Python code, or was found to be quiet before. Takes no reference
/// and runs nothing.
#[inline]
pub fn is_plainly_quiet(callee: Callee<'_, '_>) -> bool {
    // A native `__new__`, whose entry is shared by all, is never among them.
    is_python_function(&callee)
        || FUNCTIONS.has::<FIRST>(layout::method_entry(callee) as u64)
        || is_quiet::<FIRST>(callee)
}

/// The same by the first place of its key, or by the second, where it is if the first was taken.
#[inline(never)]
pub fn is_quiet<const AT: bool>(mut callee: Callee<'_, '_>) -> bool {
    for _ in 0..MAX_BOUND {
        if is_python_function(&callee) {
            return true;
        }
        if let Some(entry) = layout::native_entry(callee) {
            return match entry {
                NativeEntry::Function(function) => FUNCTIONS.has::<AT>(function as u64),
                NativeEntry::New(class) => NEWS.has::<AT>(versions_of(class)),
            };
        }
        if let Some(class) = layout::as_class(callee) {
            return CLASSES.has::<AT>(layout::class_versions(class));
        }
        callee = match layout::bound_function(callee) {
            Some(function) => function,
            None => return INSTANCES.has::<AT>(layout::version_of_type(callee)),
        };
    }
    false
}

fn versions_of(class: Option<Callee<'_, '_>>) -> u64 {
    class.map_or(0, layout::class_versions_of)
}

/// Returns whether the callee was found to be of a module that is declared safe. Takes no reference
/// and runs nothing.
#[inline]
pub fn is_plainly_safe(callee: Callee<'_, '_>) -> bool {
    let entry = layout::method_entry(callee);
    if entry != 0 {
        return SAFE.has::<FIRST>(entry as u64);
    }
    match layout::as_class(callee) {
        Some(class) => SAFE_CLASSES.has::<FIRST>(layout::class_versions(class)),
        None => SAFE.has::<FIRST>(callee.as_ptr() as u64),
    }
}

/// `versions` are those that a class had before it was looked at.
pub fn remember_safe(callee: Callee<'_, '_>, versions: u64) {
    let entry = layout::method_entry(callee);
    if entry != 0 {
        SAFE.add_first(entry as u64);
    } else if layout::class_versions_of(callee) == versions {
        SAFE_CLASSES.add(versions);
    }
}

/// Remembers another callable, which a module has for good and so never goes away.
pub fn remember_safe_object(callee: Py<PyAny>) {
    SAFE.add_first(callee.into_ptr() as u64);
}

pub fn forget_safe() {
    SAFE.clear();
    SAFE_CLASSES.clear();
}

pub fn remember_function(callee: Callee<'_, '_>) {
    match layout::native_entry(callee) {
        Some(NativeEntry::Function(function)) => FUNCTIONS.add(function as u64),
        Some(NativeEntry::New(class)) => NEWS.add(versions_of(class)),
        None => {}
    }
}

/// Remembers that calling a class runs nothing foreign by itself. `versions` are those it had
/// before it was looked at.
pub fn remember_class(class: Borrowed<'_, '_, PyType>, versions: u64) {
    if layout::class_versions(class) == versions {
        CLASSES.add(versions);
    }
}

/// Remembers that calling an instance of this object's class runs Python code. `version` is the
/// one that the class had before it was looked at.
pub fn remember_instances(instance: Callee<'_, '_>, version: u64) {
    if layout::version_of_type(instance) == version {
        INSTANCES.add(version);
    }
}
