//! The record of denials and operations, and its words.

pub mod asked;
pub mod chain;
pub mod denial;
mod denial_methods;
pub mod first_line;
pub mod hint;
pub mod report;
