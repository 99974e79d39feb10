//! How a thread stands to the interpreter, as native code finds it.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::ffi::{self, PyThreadState};
use pyo3::prelude::*;
use smallvec::SmallVec;

#[derive(Clone, Copy)]
pub enum Attachment<'py> {
    /// It runs Python, or native code that Python called, and holds the lock.
    Attached(Python<'py>),
    /// It let the lock go for a while.
    Released,
    /// Python does not know it.
    Foreign,
}

/// Calls a function with how this thread stands to the interpreter.
#[inline]
pub fn with<R>(look: impl FnOnce(Attachment<'_>) -> R) -> R {
    // SAFETY: both may be asked at any time, by any thread.
    let (own, current) = unsafe {
        (ffi::PyGILState_GetThisThreadState(), ffi::compat::PyThreadState_GetUnchecked())
    };
    // Before 3.12 the second one is that of the process, and another thread may hold the lock.
    let is_attached = match cfg!(Py_3_12) {
        true => !current.is_null(),
        false => !current.is_null() && current == own,
    };
    look(match (is_attached, own.is_null()) {
        // SAFETY: the thread is attached, and stays so while it runs `look`.
        (true, _) => Attachment::Attached(unsafe { Python::assume_attached() }),
        (false, false) => Attachment::Released,
        (false, true) => Attachment::Foreign,
    })
}

/// Runs `work` where no token is at hand, if this thread is attached.
pub fn if_attached<R>(work: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    with(|now| match now {
        Attachment::Attached(py) => Some(work(py)),
        Attachment::Released | Attachment::Foreign => None,
    })
}

/// Returns whether this thread, which is attached, is one that native code made: it runs no Python
/// code, and is not the one that the process began with.
pub fn is_of_native_thread(_py: Python<'_>) -> bool {
    // SAFETY: the thread is attached.
    let runs_python = unsafe { !ffi::PyEval_GetFrame().is_null() };
    !runs_python && rustix::thread::gettid() != rustix::process::getpid()
}

/// What is noted as a thread lets the lock go, for as long as it does.
pub trait Release: 'static {
    type Note: 'static;

    /// Returns whether anything is to be noted. Asked each time: it is to cost nothing.
    fn may_note() -> bool;
    /// Makes the note, while the lock is still held.
    fn note(py: Python<'_>) -> Self::Note;
    /// Looks at the note when the lock is held again.
    fn ends(py: Python<'_>, note: Self::Note);
    /// The notes of this thread.
    fn with_notes<R>(look: impl FnOnce(&Notes<Self::Note>) -> R) -> Option<R>;
}

/// The notes of a thread, each with the thread state that let the lock go.
pub struct Notes<N>(RefCell<SmallVec<[(usize, N); 2]>>);

impl<N> Notes<N> {
    pub const fn none() -> Self {
        Self(RefCell::new(SmallVec::new_const()))
    }

    /// Looks at the note of the thread state that let the lock go last.
    pub fn with_last<R>(&self, look: impl FnOnce(Option<&N>) -> R) -> R {
        match self.0.try_borrow() {
            Ok(notes) => look(notes.last().map(|(_, note)| note)),
            Err(_) => look(None),
        }
    }

    fn take(&self, state: usize) -> Option<N> {
        let mut notes = self.0.try_borrow_mut().ok()?;
        let at = notes.iter().rposition(|(own, _)| *own == state)?;
        Some(notes.remove(at).1)
    }

    fn put(&self, state: usize, note: N) -> Option<N> {
        let before = self.take(state);
        if let Ok(mut notes) = self.0.try_borrow_mut() {
            notes.push((state, note));
        }
        before
    }
}

unsafe extern "C-unwind" {
    fn PyEval_SaveThread() -> *mut PyThreadState;
    fn PyEval_RestoreThread(state: *mut PyThreadState);
}

/// `PyEval_SaveThread`, which notes.
///
/// # Safety
/// Called as that function.
unsafe extern "C-unwind" fn save<R: Release>() -> *mut PyThreadState {
    if R::may_note() {
        let _ = catch_unwind(|| {
            // SAFETY: a thread that lets the lock go is attached.
            let (py, state) = unsafe {
                let state = ffi::compat::PyThreadState_GetUnchecked();
                (Python::assume_attached(), state)
            };
            let note = R::note(py);
            drop(R::with_notes(|notes| notes.put(state as usize, note)));
        });
    }
    // SAFETY: by the caller.
    unsafe { PyEval_SaveThread() }
}

/// `PyEval_RestoreThread`, which ends the note.
///
/// # Safety
/// Called as that function. A thread may end in it, with the process.
unsafe extern "C-unwind" fn restore<R: Release>(state: *mut PyThreadState) {
    // SAFETY: by the caller.
    unsafe { PyEval_RestoreThread(state) };
    if R::with_notes(|notes| notes.with_last(|last| last.is_some())) == Some(true) {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if let Some(note) = R::with_notes(|notes| notes.take(state as usize)).flatten() {
                // SAFETY: the thread got the lock.
                R::ends(unsafe { Python::assume_attached() }, note);
            }
        }));
    }
}

/// The two functions, by their names, for whoever replaces them.
pub fn functions<R: Release>() -> [(&'static std::ffi::CStr, *const ()); 2] {
    [
        (c"PyEval_SaveThread", save::<R> as *const ()),
        (c"PyEval_RestoreThread", restore::<R> as *const ()),
    ]
}
