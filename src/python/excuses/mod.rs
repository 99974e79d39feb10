//! Acts of ordinary code that a rule denies though they harm nothing.

pub mod acts_of_packages;
pub mod channels;
#[cfg(unix)]
pub mod children_signals;
pub mod handlers;
pub mod hooks;
#[cfg(unix)]
pub mod pool_files;
pub mod probes;
pub mod shared_values;
pub mod table;
#[cfg(unix)]
pub mod unchanging;
pub mod variables;
