//! Imports: the code that imports, where modules are from, and the standard library.

pub mod imports;
pub mod loaded;
pub mod loads;
pub mod stdlib;
