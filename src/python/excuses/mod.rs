//! Acts of ordinary code that a rule denies though they harm nothing.

pub mod acts_of_packages;
pub mod channels;
pub mod handlers;
pub mod pool_files;
pub mod table;
pub mod unchanging;
pub mod variables;
