//! Frames of Python: the callers of an event, and calls in progress.

pub mod stack;
pub mod tracked_calls;
pub mod with_statement;
