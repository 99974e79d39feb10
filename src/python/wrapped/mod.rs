//! Functions of the standard library that do more under a guard.

pub mod builtin_modules;
pub mod callbacks_later;
pub mod certificates;
pub mod contextvars;
pub mod ctypes;
pub mod executors;
pub mod greenlets;
pub mod kinds;
pub mod lazy_imports;
pub mod lookups;
pub mod pool_starts;
pub mod quota;
#[cfg(unix)]
pub mod servers;
pub mod sockets;
pub mod sql;
#[cfg(unix)]
pub mod starts;
pub mod table;
pub mod tasks;
pub mod threads;
pub mod without_event;
