//! The objects of the garbage collector, and work for which it stops all other threads.

use pyo3::prelude::*;

#[cfg(Py_3_12)]
unsafe extern "C" {
    /// Calls back with each object until that returns 0. Without the interpreter's lock, all other
    /// threads are stopped meanwhile.
    /// <https://docs.python.org/3/c-api/gcsupport.html#c.PyUnstable_GC_VisitObjects>
    fn PyUnstable_GC_VisitObjects(
        callback: unsafe extern "C" fn(*mut pyo3::ffi::PyObject, *mut std::ffi::c_void) -> i32,
        arg: *mut std::ffi::c_void,
    );
}

/// Does some work while no other thread runs Python. It makes and frees no object, waits for nothing and
/// does not panic.
#[cfg(not(Py_GIL_DISABLED))]
#[inline]
pub fn alone<R>(_py: Python<'_>, work: impl FnOnce() -> R) -> R {
    work()
}

/// The same without the interpreter's lock.
#[cfg(Py_GIL_DISABLED)]
pub fn alone<R>(_py: Python<'_>, work: impl FnOnce() -> R) -> R {
    struct Job<W, R> {
        work: Option<W>,
        result: Option<R>,
    }

    /// # Safety
    /// `job` points to a job of these types, which lives for the call.
    unsafe extern "C" fn once<W: FnOnce() -> R, R>(
        _object: *mut pyo3::ffi::PyObject,
        job: *mut std::ffi::c_void,
    ) -> i32 {
        // SAFETY: by the caller.
        let job = unsafe { &mut *job.cast::<Job<W, R>>() };
        job.result = job.work.take().map(|work| work());
        0
    }

    fn run<W: FnOnce() -> R, R>(work: W) -> R {
        let mut job = Job { work: Some(work), result: None };
        // SAFETY: the thread is attached, and the function of that type, which is called at once.
        unsafe { PyUnstable_GC_VisitObjects(once::<W, R>, (&raw mut job).cast()) };
        match job {
            Job { result: Some(result), .. } => result,
            Job { work: Some(work), .. } => work(),
            Job { .. } => unreachable!("the work was done, and has a result"),
        }
    }

    run(work)
}

/// Looks at each object, as in `alone`.
#[cfg(Py_3_12)]
pub fn each(_py: Python<'_>, look: fn(Borrowed<'_, '_, PyAny>)) {
    /// # Safety
    /// Called by CPython with objects that are alive, and a place with the function.
    unsafe extern "C" fn visit(
        object: *mut pyo3::ffi::PyObject,
        look: *mut std::ffi::c_void,
    ) -> i32 {
        // SAFETY: by the caller; the collector runs on an attached thread.
        unsafe {
            let look = *look.cast::<fn(Borrowed<'_, '_, PyAny>)>();
            look(Borrowed::from_ptr(Python::assume_attached(), object));
        }
        1
    }

    // SAFETY: the function is of the type, and `look` lives for the call.
    unsafe { PyUnstable_GC_VisitObjects(visit, (&raw const look).cast_mut().cast()) };
}
