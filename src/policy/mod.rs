//! The policy core: audit events in, verdicts out.
//!
//! [`rules`] says what each audit event means, [`path`] where a name leads, [`roots`] which
//! places are approved, and [`check`] puts them together. Nothing here knows of Python objects,
//! callbacks or exceptions.

pub mod check;
pub mod commands;
pub mod database;
pub mod distributions;
pub mod environment;
pub mod events;
pub mod fs;
pub mod hosts;
mod index;
pub mod learn;
pub mod lint;
pub mod network;
pub mod opening;
pub mod operation;
pub mod packages;
pub mod path;
pub mod places;
pub mod presets;
pub mod roots;
pub mod rules;
pub mod rules_02;
pub mod spec;
pub mod statements;
pub mod strictness;
pub mod toml_form;
pub mod widening;
pub mod workers;

pub use check::{Operation, Policy, Verdict, Why};
pub use commands::Commands;
pub use environment::Environment;
pub use fs::{FileSystem, Os};
pub use network::Network;
pub use path::{Base, Name, Target};
pub use places::{Blocked, Protected};
pub use roots::Roots;
pub use rules::{PathArg, Rule};
pub use rules_02::RuleSet;
