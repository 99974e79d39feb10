//! Acts of ordinary code that a rule denies though they harm nothing.

pub mod acts_of_packages;
pub mod channels;
pub mod handlers;
#[cfg(unix)]
pub mod pool_files;
pub mod table;
#[cfg(unix)]
pub mod unchanging;
pub mod variables;
