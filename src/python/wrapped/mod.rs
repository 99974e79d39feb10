//! Functions of the standard library that do more under a guard.

pub mod callbacks_later;
pub mod contextvars;
pub mod executors;
pub mod methods;
pub mod quota;
pub mod sockets;
pub mod starts;
pub mod table;
pub mod threads;
pub mod without_event;
pub mod workers;
