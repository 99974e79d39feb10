//! The first line of a denial, from facts. Its words are a contract: those of fastaudit.

use std::fmt::{self, Display, Write};

use super::judge::Reason;
use super::operation::Why;

/// The roots that a line names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedRoots {
    /// The roots of `write`.
    Write,
    /// The roots of `read`.
    Read,
}

/// The first line of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The event is denied as such, and shown with all its arguments.
    Event,
    /// Nothing may be written.
    NothingWritten,
    /// Nothing may be read.
    NothingRead,
    /// The path is in none of the roots.
    NotIn,
    /// The path is in none of the roots for reading.
    NotReadable,
    /// The path is blocked.
    Blocked,
    /// The name is protected.
    Protected,
}

impl Line {
    /// Returns the line for a reason. `has_write` and `has_read` tell whether there are such roots;
    /// fastaudit shows its roots though there are none, so that for its contract `has_write` is true.
    #[must_use]
    pub fn of(
        reason: Reason,
        has_write: impl FnOnce() -> bool,
        has_read: impl FnOnce() -> bool,
    ) -> Self {
        match reason {
            Reason::Event | Reason::Switch(_) => Self::Event,
            Reason::Path(_, Why::Blocked) => Self::Blocked,
            Reason::Path(_, Why::Protected) => Self::Protected,
            Reason::Path(_, Why::Unreadable) if has_read() => Self::NotReadable,
            Reason::Path(_, Why::Unreadable) => Self::NothingRead,
            Reason::Path(_, Why::Unapproved) if !has_write() => Self::NothingWritten,
            Reason::Path(..) => Self::NotIn,
        }
    }

    /// Returns the roots that it names.
    #[must_use]
    pub fn roots(self) -> Option<NamedRoots> {
        match self {
            Self::NotIn => Some(NamedRoots::Write),
            Self::NotReadable => Some(NamedRoots::Read),
            _ => None,
        }
    }

    /// Writes it. `given` is the path, or all arguments of an event that is denied as such; `roots`
    /// are those that it names.
    ///
    /// # Errors
    /// The error that `text` gives.
    pub fn write(
        self,
        text: &mut impl Write,
        event: &impl Display,
        given: &impl Display,
        roots: &impl Display,
    ) -> fmt::Result {
        match self {
            Self::Event => write!(text, "Audit: {event} blocked in sandbox with args: {given}"),
            Self::NothingWritten => write!(text, "{event} {given}: nothing may be written"),
            Self::NothingRead => write!(text, "{event} {given}: nothing may be read"),
            Self::NotIn => write!(text, "{event} {given} not in {roots}"),
            Self::NotReadable => write!(text, "{event} {given} not readable: not in {roots}"),
            Self::Blocked => write!(text, "{event} {given} is blocked"),
            Self::Protected => write!(text, "{event} {given} is protected"),
        }
    }
}
