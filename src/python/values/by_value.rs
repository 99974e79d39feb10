//! Values that are handed over: data are copied, by what they hold and without code of their classes, so
//! that the receiver gets no object of the giver's.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyTupleMethods};

use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::objects::{plain_int, plain_str};
use crate::python::values::simple;

/// The bytes of all texts and numbers in one value.
const MOST_BYTES: usize = 16 << 20;
/// The values in one value, at all levels.
const MOST_VALUES: usize = 1 << 20;
/// The levels of lists, tuples and dicts.
const DEEPEST: usize = 100;

#[derive(Default)]
pub struct Copier {
    bytes: usize,
    values: usize,
}

/// The reason that a value is not handed over, and the way to it from the value that was given.
pub struct NotCopied {
    path: Vec<String>,
    reason: Reason,
}

enum Reason {
    /// It is no plain data: the name of its class.
    Class(String),
    /// It is too large, or nested too deep.
    Limit(String),
    Cycle,
    Error(PyErr),
}

impl From<PyErr> for NotCopied {
    fn from(error: PyErr) -> Self {
        Self::because(Reason::Error(error))
    }
}

impl NotCopied {
    fn because(reason: Reason) -> Self {
        Self { path: Vec::new(), reason }
    }

    fn at(mut self, step: String) -> Self {
        self.path.push(step);
        self
    }

    /// Returns whether it is no plain data.
    pub fn is_of_class(&self) -> bool {
        matches!(self.reason, Reason::Class(_))
    }

    /// `of` begins the text, `name` names the value.
    pub fn error(self, of: &str, name: &str) -> PyErr {
        let mut name = name.to_owned();
        for step in self.path.iter().rev().take(8) {
            name.push_str(step);
        }
        if self.path.len() > 8 {
            name.push('…');
        }
        match self.reason {
            Reason::Class(class) => {
                PyTypeError::new_err(format!("{of}: {name} is no plain data: a {class}"))
            }
            Reason::Limit(text) => PyValueError::new_err(format!("{of}: {name} {text}")),
            Reason::Cycle => PyValueError::new_err(format!("{of}: {name} holds itself")),
            Reason::Error(error) => error,
        }
    }
}

/// Returns whether an object is data that never change, and so need no copy.
#[inline]
fn is_constant(object: &Bound<'_, PyAny>) -> bool {
    simple::is_atom(object) && !object.is_exact_instance_of::<PyInt>()
}

impl Copier {
    pub fn copy<'py>(
        &mut self,
        object: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>, NotCopied> {
        self.copy_below(object, &mut Vec::new())
    }

    fn take(&mut self, bytes: usize) -> Result<(), NotCopied> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.values += 1;
        let what = match (self.bytes > MOST_BYTES, self.values > MOST_VALUES) {
            (true, _) => "has more than 16 MB of data",
            (_, true) => "has more than 1,048,576 values",
            _ => return Ok(()),
        };
        Err(NotCopied::because(Reason::Limit(what.to_owned())))
    }

    #[inline]
    fn copy_below<'py>(
        &mut self,
        object: &Bound<'py, PyAny>,
        above: &mut Vec<usize>,
    ) -> Result<Bound<'py, PyAny>, NotCopied> {
        if is_constant(object) {
            self.take(length(object)?)?;
            return Ok(object.clone());
        }
        self.copy_other(object, above)
    }

    #[inline(never)]
    fn copy_other<'py>(
        &mut self,
        object: &Bound<'py, PyAny>,
        above: &mut Vec<usize>,
    ) -> Result<Bound<'py, PyAny>, NotCopied> {
        let py = object.py();
        if let Ok(number) = object.cast::<PyInt>() {
            let number = plain_int(number)?;
            let bytes = match raw::int_value(&number) {
                Some(_) => 8,
                None => number.invoke_method0("bit_length")?.extract::<usize>()? / 8,
            };
            self.take(bytes)?;
            return Ok(number.into_any());
        }
        if let Ok(text) = object.cast::<PyString>() {
            let text = plain_str(text.clone())?.into_any();
            self.take(length(&text)?)?;
            return Ok(text);
        }
        if let Ok(number) = object.cast::<PyFloat>() {
            self.take(8)?;
            return Ok(PyFloat::new(py, number.value()).into_any());
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            self.take(bytes.as_bytes().len())?;
            return Ok(PyBytes::new(py, bytes.as_bytes()).into_any());
        }
        let is_container = object.is_instance_of::<PyList>()
            || object.is_instance_of::<PyTuple>()
            || object.is_instance_of::<PyDict>();
        if !is_container {
            let class = raw::class_name(object);
            return Err(NotCopied::because(Reason::Class(class)));
        }
        self.take(8)?;
        let address = object.as_ptr() as usize;
        if above.contains(&address) {
            return Err(NotCopied::because(Reason::Cycle));
        }
        if above.len() == DEEPEST {
            let text = format!("is nested more than {DEEPEST} deep");
            return Err(NotCopied::because(Reason::Limit(text)));
        }
        above.push(address);
        let copied = self.copy_container(object, above);
        above.pop();
        copied
    }

    fn copy_container<'py>(
        &mut self,
        object: &Bound<'py, PyAny>,
        above: &mut Vec<usize>,
    ) -> Result<Bound<'py, PyAny>, NotCopied> {
        let py = object.py();
        if let Ok(dict) = object.cast::<PyDict>() {
            let copy = PyDict::new(py);
            // Taken out first: making objects may run finalizers, which may change it.
            for pair in dict.items().iter() {
                let pair = pair.cast_into::<PyTuple>().map_err(PyErr::from)?;
                let (key, value) = (pair.get_item(0)?, pair.get_item(1)?);
                let at_keys = |refused: NotCopied| refused.at(".keys()".to_owned());
                let key = self.copy_below(&key, above).map_err(at_keys)?;
                if !is_hashable(&key) {
                    // It was a key by a hash of its own.
                    let class = raw::class_name(&key);
                    return Err(at_keys(NotCopied::because(Reason::Class(class))));
                }
                let value = self.copy_below(&value, above);
                let value = value.map_err(|refused| refused.at(format!("[{}]", shown(&key))))?;
                copy.set_item(key, value)?;
            }
            return Ok(copy.into_any());
        }
        let (items, is_list) = match object.cast::<PyList>() {
            Ok(list) => (list.to_tuple(), true),
            Err(_) => (object.cast::<PyTuple>().map_err(PyErr::from)?.clone(), false),
        };
        // It has at least that many.
        if items.len() > MOST_VALUES.saturating_sub(self.values) {
            self.values = MOST_VALUES;
            self.take(0)?;
        }
        let mut copies = Vec::with_capacity(items.len());
        for (index, item) in PyTupleMethods::as_slice(&items).iter().enumerate() {
            let copy = self.copy_below(item, above);
            copies.push(copy.map_err(|refused| refused.at(format!("[{index}]")))?);
        }
        Ok(match is_list {
            true => PyList::new(py, copies)?.into_any(),
            false => PyTuple::new(py, copies)?.into_any(),
        })
    }
}

pub fn are_constant(values: &Bound<'_, PyTuple>) -> bool {
    let mut left = MOST_BYTES;
    values.is_exact_instance_of::<PyTuple>()
        && values.as_slice().iter().all(|value| {
            is_constant(value)
                && length(value).is_ok_and(|length| {
                    let fits = length <= left;
                    left = left.saturating_sub(length);
                    fits
                })
        })
}

/// The bytes of a constant: of a text its characters.
#[inline]
fn length(constant: &Bound<'_, PyAny>) -> PyResult<usize> {
    if let Ok(text) = constant.cast_exact::<PyString>() {
        return text.size();
    }
    Ok(match constant.cast_exact::<PyBytes>() {
        Ok(bytes) => bytes.as_bytes().len(),
        Err(_) => 8,
    })
}

fn is_hashable(copy: &Bound<'_, PyAny>) -> bool {
    if let Ok(items) = copy.cast_exact::<PyTuple>() {
        return items.iter().all(|item| is_hashable(&item));
    }
    !copy.is_exact_instance_of::<PyList>() && !copy.is_exact_instance_of::<PyDict>()
}

fn shown(key: &Bound<'_, PyAny>) -> String {
    match key.cast::<PyString>() {
        Ok(text) => format!("{:?}", text.to_string_lossy().chars().take(40).collect::<String>()),
        Err(_) if key.is_exact_instance_of::<PyInt>() && raw::int_value(key).is_some() => {
            key.to_string()
        }
        Err(_) => "…".to_owned(),
    }
}
