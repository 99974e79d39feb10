//! Values that are made once, in a process that may be copied as they are made.
//!
//! A cell that has other threads wait for the one that makes its value would have them wait for ever
//! in a copy of the process (fork(2)), which that thread is not in. Here each thread that finds no
//! value makes one, and the first one is kept. It is kept with the interpreter's lock held, so that
//! no Python code copies the process meanwhile.

use std::convert::Infallible;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::python::cpython::attachment;

/// Locks a mutex, also where our own code panicked under it. Who has it calls nothing of Python's that may
/// wait.
///
/// Without the interpreter's lock, a thread that waits here is detached meanwhile, as Python stops all
/// attached threads now and then, and it is attached again before it has the mutex: a copy of the process,
/// for which all threads are stopped, would find that locked for ever.
/// <https://docs.python.org/3/howto/free-threading-extensions.html>
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    if cfg!(Py_GIL_DISABLED) {
        for tries in 0.. {
            match mutex.try_lock() {
                Ok(locked) => return locked,
                Err(TryLockError::Poisoned(locked)) => return locked.into_inner(),
                Err(TryLockError::WouldBlock) => wait(tries),
            }
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex where the interpreter's lock does not do: it is held, and nothing of Python's is called
/// under either.
pub fn lock_without_gil<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    cfg!(Py_GIL_DISABLED).then(|| lock(mutex))
}

/// Lets others go on for a moment, detached from the interpreter.
#[cold]
pub(super) fn wait(tries: usize) {
    let pause = || match tries {
        0..10 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(100)),
    };
    if attachment::if_attached(|py| py.detach(pause)).is_none() {
        pause();
    }
}

pub struct Once<T>(OnceLock<T>);

impl<T> Once<T> {
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    #[inline]
    pub fn get(&self, _py: Python<'_>) -> Option<&T> {
        self.0.get()
    }

    /// Keeps a value, if there is none.
    pub fn set(&self, _py: Python<'_>, value: T) -> Result<(), T> {
        self.0.set(value)
    }

    #[inline]
    pub fn get_or_init(&self, py: Python<'_>, make: impl FnOnce() -> T) -> &T {
        let Ok(value) = self.get_or_try_init(py, || Ok::<_, Infallible>(make()));
        value
    }

    /// The same, if making it may fail.
    #[inline]
    pub fn get_or_try_init<E>(
        &self,
        _py: Python<'_>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, E> {
        match self.0.get() {
            Some(value) => Ok(value),
            None => self.make(make),
        }
    }

    #[cold]
    #[inline(never)]
    fn make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let made = make()?;
        Ok(self.0.get_or_init(|| made))
    }
}

/// A text that is interned once.
pub struct Interned(Once<Py<PyString>>, &'static str);

impl Interned {
    pub const fn new(text: &'static str) -> Self {
        Self(Once::new(), text)
    }

    #[inline]
    pub fn get<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyString> {
        let kept = self.0.get_or_init(py, || PyString::intern(py, self.1).unbind());
        kept.bind(py)
    }
}

/// The text of a literal as a Python object, interned once: `intern!(py, "name")`.
macro_rules! intern {
    ($py:expr, $text:expr) => {{
        static INTERNED: $crate::python::cpython::once::Interned =
            $crate::python::cpython::once::Interned::new($text);
        INTERNED.get($py)
    }};
}
pub(crate) use intern;

// Values that any thread reads without a lock, and that live for ever.

/// A place for such a value. Another one may replace it later; the first is not freed, as somebody
/// may still read it.
pub struct Published<T: Sync + 'static>(AtomicPtr<T>);

impl<T: Sync + 'static> Published<T> {
    pub const fn nothing() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null, or `set` made it of a reference that is valid for ever.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    pub fn set(&self, value: Box<T>) {
        self.0.store(Box::leak(value), Ordering::Release);
    }
}
