//! Callees that were found to be no foreign native code: nearly all calls go to these.
//!
//! Tables with two places for each, read on every call without a lock or a reference; with one,
//! what calls go to most would push each other out. The entries are never objects, whose addresses
//! others may have later, but keys that cannot come to mean another callee: a function of C code,
//! or the version that CPython gives a class until it is changed.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::layout::{self, Callee, NativeEntry};

const PLACES: usize = 2048;

/// A bound method may bind another one.
const MAX_BOUND: usize = 4;

/// Method table entries and slot functions of the standard library.
static FUNCTIONS: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
/// Versions of a class and its metaclass: calling the class runs nothing foreign by itself.
static CLASSES: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
/// Versions of classes whose native `__new__` is quiet.
static NEWS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
/// Versions of classes: calling an instance runs Python code.
static INSTANCES: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// Versions of classes of such modules.
static SAFE_CLASSES: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
/// Method table entries of modules that are declared safe to call, for guards that let them be, and
/// other callables of theirs.
static SAFE: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];

fn function_place(table: &'static [AtomicUsize; PLACES], function: usize) -> &'static AtomicUsize {
    // Table entries are 32 bytes long, functions are aligned to 16.
    &table[(function >> 4) % PLACES]
}

fn version_place(table: &'static [AtomicU64; PLACES], versions: u64) -> &'static AtomicU64 {
    let mixed = versions ^ (versions >> 32);
    &table[usize::try_from(mixed % PLACES as u64).unwrap_or(0)]
}

/// The other place for this number, by all its bits.
fn second_place<T>(table: &'static [T; PLACES], number: u64) -> &'static T {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    &table[usize::try_from(mixed % PLACES as u64).unwrap_or(0)]
}

fn has(table: &'static [AtomicU64; PLACES], versions: u64) -> bool {
    versions != 0 && version_place(table, versions).load(Ordering::Relaxed) == versions
}

fn has_second(table: &'static [AtomicU64; PLACES], versions: u64) -> bool {
    versions != 0 && second_place(table, versions).load(Ordering::Relaxed) == versions
}

fn add(table: &'static [AtomicU64; PLACES], versions: u64) {
    if versions != 0 && !has(table, versions) {
        let first = version_place(table, versions);
        let is_free = first.load(Ordering::Relaxed) == 0;
        let place = if is_free {
            first
        } else {
            second_place(table, versions)
        };
        place.store(versions, Ordering::Relaxed);
    }
}

/// Returns whether the callee is Python code, or was found to be quiet before. Takes no reference
/// and runs nothing.
#[inline]
pub fn is_plainly_quiet(callee: Callee<'_, '_>) -> bool {
    if layout::is_python_function(callee) {
        return true;
    }
    // A native `__new__`, whose entry is shared by all, is never among them.
    let entry = layout::method_entry(callee);
    if entry != 0 && is_remembered(entry) {
        return true;
    }
    is_quiet_otherwise(callee)
}

#[inline(never)]
fn is_quiet_otherwise(callee: Callee<'_, '_>) -> bool {
    is_quiet_by(callee, is_remembered, has)
}

/// The same for a callee whose first place was taken when it was found to be quiet.
#[inline(never)]
pub fn is_quiet_in_second_place(callee: Callee<'_, '_>) -> bool {
    is_quiet_by(callee, is_remembered_second, has_second)
}

fn is_remembered(function: usize) -> bool {
    let place = function_place(&FUNCTIONS, function);
    place.load(Ordering::Relaxed) == function
}

fn is_remembered_second(function: usize) -> bool {
    let place = second_place(&FUNCTIONS, function as u64);
    place.load(Ordering::Relaxed) == function
}

#[inline]
pub fn is_plainly_safe(callee: Callee<'_, '_>) -> bool {
    let entry = layout::method_entry(callee);
    let known = if entry != 0 {
        entry
    } else if let Some(class) = layout::as_class(callee) {
        return has(&SAFE_CLASSES, layout::class_versions(class));
    } else {
        callee.as_ptr() as usize
    };
    function_place(&SAFE, known).load(Ordering::Relaxed) == known
}

/// `versions` are those that a class had before it was looked at.
pub fn remember_safe(callee: Callee<'_, '_>, versions: u64) {
    let entry = layout::method_entry(callee);
    if entry != 0 {
        function_place(&SAFE, entry).store(entry, Ordering::Relaxed);
    } else if layout::class_versions_of(callee) == versions {
        add(&SAFE_CLASSES, versions);
    }
}

pub fn forget_safe() {
    for place in &SAFE {
        place.store(0, Ordering::Relaxed);
    }
    for place in &SAFE_CLASSES {
        place.store(0, Ordering::Relaxed);
    }
}

/// Remembers another callable, which a module has for good and so never goes away.
pub fn remember_safe_object(callee: Py<PyAny>) {
    let callee = callee.into_ptr() as usize;
    function_place(&SAFE, callee).store(callee, Ordering::Relaxed);
}

#[inline(always)]
fn is_quiet_by(
    callee: Callee<'_, '_>,
    is_remembered: impl Fn(usize) -> bool,
    has: impl Fn(&'static [AtomicU64; PLACES], u64) -> bool,
) -> bool {
    let mut callee = callee;
    for _ in 0..MAX_BOUND {
        if layout::is_python_function(callee) {
            return true;
        }
        if let Some(entry) = layout::native_entry(callee) {
            return match entry {
                NativeEntry::Function(function) => is_remembered(function),
                NativeEntry::New(class) => has(&NEWS, class.map_or(0, layout::class_versions_of)),
            };
        }
        if let Some(class) = layout::as_class(callee) {
            return has(&CLASSES, layout::class_versions(class));
        }
        callee = match layout::bound_function(callee) {
            Some(function) => function,
            None => return has(&INSTANCES, layout::version_of_type(callee)),
        };
    }
    false
}

pub fn remember_function(callee: Callee<'_, '_>) {
    match layout::native_entry(callee) {
        Some(NativeEntry::Function(function)) if !is_remembered(function) => {
            let first = function_place(&FUNCTIONS, function);
            let is_free = first.load(Ordering::Relaxed) == 0;
            let second = second_place(&FUNCTIONS, function as u64);
            let place = if is_free { first } else { second };
            place.store(function, Ordering::Relaxed);
        }
        Some(NativeEntry::Function(_)) => {}
        Some(NativeEntry::New(class)) => add(&NEWS, class.map_or(0, layout::class_versions_of)),
        None => {}
    }
}

/// Remembers that calling a class runs nothing foreign by itself. `versions` are those it had
/// before it was looked at.
pub fn remember_class(class: Borrowed<'_, '_, PyType>, versions: u64) {
    if layout::class_versions(class) == versions {
        add(&CLASSES, versions);
    }
}

/// Remembers that calling an instance of this object's class runs Python code. `version` is the
/// one that the class had before it was looked at.
pub fn remember_instances(instance: Callee<'_, '_>, version: u64) {
    if layout::version_of_type(instance) == version {
        add(&INSTANCES, version);
    }
}
