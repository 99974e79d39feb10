//! The record of denials and operations, and its words.

pub mod asked;
pub mod denial;
mod denial_methods;
pub mod hint;
pub mod report;
pub mod text;
