//! Values that any thread reads without a lock, and that live for ever.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A place for such a value. Another one may replace it later; the first is not freed, as somebody
/// may still read it.
pub struct Published<T: Sync + 'static>(AtomicPtr<T>);

impl<T: Sync + 'static> Published<T> {
    /// An empty place.
    pub const fn nothing() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value; `None` before there is one.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null, or `set` made it of a reference that is valid for ever.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Puts a value there.
    pub fn set(&self, value: Box<T>) {
        self.0.store(Box::leak(value), Ordering::Release);
    }
}
