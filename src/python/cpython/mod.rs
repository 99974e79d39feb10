//! The C API, in safe faces: the only folder that works with raw pointers.

pub mod arguments;
pub mod called;
pub mod calling;
pub mod ffi;
pub mod forks;
pub mod frames;
pub mod functions;
#[cfg(Py_3_12)]
pub mod layout;
pub mod replace;
pub mod slots;
pub mod text;
