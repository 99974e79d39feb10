//! Classes that stay as they were made.
//!
//! No attribute of a native class can be set or deleted: the classes are immutable. The dictionary
//! behind a class can be had all the same (`gc.get_referents`, an operand that `mappingproxy` hands
//! it to), and an entry there is found when a method is looked up by its name, as by a `with`
//! statement. So each change of such a dictionary is noted, and undone as a guard is made, entered
//! or left.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::classes::{self, dictionary, watched};

/// A class and its attributes. They are kept out of reach of Python code.
struct Sealed {
    class: Py<PyType>,
    attributes: Vec<(Py<PyAny>, Py<PyAny>)>,
}

static SEALED: OnceLock<Vec<Sealed>> = OnceLock::new();

/// Seals these classes, once for the process.
pub fn install(py: Python<'_>, classes: Vec<Bound<'_, PyType>>) -> PyResult<()> {
    if SEALED.get().is_some() {
        return Ok(());
    }
    let mut all = Vec::with_capacity(classes.len());
    for class in classes {
        let Some(attributes) = dictionary(&class) else {
            continue;
        };
        let attributes = attributes.iter();
        let attributes = attributes.map(|(name, value)| (name.unbind(), value.unbind()));
        all.push(Sealed {
            attributes: attributes.collect(),
            class: class.unbind(),
        });
    }
    let all = SEALED.get_or_init(|| all);
    let dictionaries: Vec<_> = all
        .iter()
        .filter_map(|sealed| dictionary(sealed.class.bind(py)))
        .collect();
    watched::install(py, &dictionaries)
}

/// Undoes the changes of the classes.
#[inline]
pub fn restore(py: Python<'_>) {
    if watched::has_changed() {
        restore_all(py);
    }
}

#[cold]
fn restore_all(py: Python<'_>) {
    let Some(all) = SEALED.get() else {
        return;
    };
    let mut gone = Vec::new();
    for sealed in all {
        let class = sealed.class.bind(py);
        let Some(dictionary) = dictionary(class) else {
            continue;
        };
        // Objects that are taken out are freed last: that may run Python code.
        gone.extend(dictionary.iter());
        dictionary.clear();
        for (name, value) in &sealed.attributes {
            // Without memory for it a `with` statement finds no method, and does not go on.
            let _ = dictionary.set_item(name, value);
        }
        classes::make_concrete(class);
    }
    watched::note_restored();
    drop(gone);
}
