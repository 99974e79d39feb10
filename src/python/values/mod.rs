//! Python objects read as plain values; no state of guards.

pub mod addresses;
pub mod arguments;
pub mod by_value;
pub mod call_notes;
#[cfg(Py_3_12)]
pub mod callee;
#[cfg(Py_3_12)]
pub mod callee_cache;
pub mod caller;
pub mod chain;
pub mod code;
pub mod command;
pub mod decode;
pub mod distributions;
pub mod entered_at;
pub mod errors;
#[cfg(unix)]
pub mod extensions;
pub mod imports;
pub mod json_line;
pub mod library_files;
#[cfg(Py_3_12)]
pub mod loaded;
pub mod loads;
#[cfg(Py_3_12)]
pub mod method_callers;
pub mod native_caller;
pub mod place;
pub mod pools;
pub mod process_start;
pub mod search_path;
pub mod seen;
pub mod signature;
pub mod simple;
pub mod stack;
pub mod stdlib;
#[cfg(Py_3_12)]
pub mod stdlib_objects;
pub mod suggestions;
pub mod temporary_directory;
pub mod with_statement;
pub mod wording;
