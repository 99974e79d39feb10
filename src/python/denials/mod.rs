//! The record of denials and operations, and its words.

pub mod asked;
pub mod denial;
mod denial_methods;
pub mod failure;
pub mod hint;
pub mod lacking;
pub mod report;
