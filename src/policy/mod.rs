//! The policy core: audit events in, verdicts out.
//!
//! [`rules`] gives the meaning of each audit event, [`files::path`] the place a name leads to,
//! [`files::places`] the approved places, and [`check`] puts them together. Nothing here knows of
//! Python objects, callbacks or exceptions.
#![forbid(unsafe_code)]

pub mod check;
mod check_files;
pub mod commands;
pub mod distributions;
pub mod environment;
pub mod events;
pub mod files;
pub mod hosts;
pub mod judge;
pub mod learn;
pub mod network;
pub mod operation;
pub mod packages;
pub mod requests;
pub mod rules;
pub mod rules_02;
pub mod sql;
pub mod wording;
pub mod written;

pub use check::{Operation, Policy, Verdict, Why};
pub use commands::Commands;
pub use environment::Environment;
pub use files::fs::FileSystem;
pub use files::os::Os;
pub use files::path::{Base, Name, Target};
pub use files::places::Roots;
pub use files::places::{Blocked, Protected};
pub use network::Network;
pub use rules::{PathArg, Rule};
pub use rules_02::RuleSet;
