//! The C API behind safe functions: the only folder that works with raw pointers.
#![expect(unsafe_code, reason = "the one door to C: other folders call its safe faces")]

pub mod arguments;
pub mod attachment;
#[cfg(Py_3_12)]
pub mod callbacks;
pub mod called;
pub mod calling;
pub mod collector;
pub mod ffi;
pub mod fork_safe_lock;
pub mod frames;
pub mod functions;
pub mod hook;
pub mod layout;
pub mod native_calls;
pub mod objects;
pub mod once;
pub mod process;
pub mod replace;
pub mod slots;
#[cfg(all(Py_3_12, not(Py_3_14)))]
pub mod unpacked;
