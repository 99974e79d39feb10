//! The record of denials and operations, and its words.

pub mod asked;
pub mod denial;
mod denial_methods;
pub mod failure;
pub mod first_line;
pub mod hint;
pub mod lacking;
pub mod offers;
pub mod report;
