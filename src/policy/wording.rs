//! The first line of a denial, from facts. Under a policy it says what was denied; the words of
//! `mk_audit` are a contract, those of fastaudit.

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

    /// Writes it as fastaudit does. `given` is the path, or all arguments of an event that is denied
    /// as such; `roots` are those that it names.
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
            Self::Blocked => write!(text, "{event} {given} is blocked"),
            Self::Protected => write!(text, "{event} {given} is protected"),
            _ => write!(text, "{event} {given} not in {roots}"),
        }
    }

    /// Writes it for a policy: the operation, and the reason where it is about a path. `path` is that
    /// path where the operation has several.
    ///
    /// # Errors
    /// The error that `text` gives.
    pub fn write_plain(
        self,
        text: &mut impl Write,
        operation: &str,
        path: Option<&str>,
        roots: &impl Display,
    ) -> fmt::Result {
        write!(text, "Denied: {operation}")?;
        match (self, path) {
            (Self::Event, _) => Ok(()),
            (Self::NothingWritten, _) => text.write_str(": nothing may be written"),
            (Self::NothingRead, _) => text.write_str(": nothing may be read"),
            (Self::NotIn | Self::NotReadable, None) => write!(text, ": not in {roots}"),
            (Self::NotIn | Self::NotReadable, Some(path)) => {
                write!(text, ": {path} is not in {roots}")
            }
            (Self::Blocked, path) => write!(text, ": {} is blocked", path.unwrap_or("it")),
            (Self::Protected, path) => write!(text, ": {} is protected", path.unwrap_or("it")),
        }
    }
}

/// Returns what an event does, with its objects: "remove the file '/a'" for "remove a file".
#[must_use]
pub fn operation(does: &str, objects: &str) -> String {
    match noun(does) {
        Some((before, noun)) if !objects.is_empty() => format!("{before} the {noun} {objects}"),
        _ => does.split(" (").next().unwrap_or(does).to_owned(),
    }
}

/// Splits what an event does at the article of its last noun: "remove", "file".
#[must_use]
pub fn noun(does: &str) -> Option<(&str, &str)> {
    let does = does.split(" (").next().unwrap_or(does);
    let parts = [does.rsplit_once(" a "), does.rsplit_once(" an ")];
    parts.into_iter().flatten().max_by_key(|(before, _)| before.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_of_an_operation_stand_by_its_last_noun() {
        for (does, objects, text) in [
            ("remove a file", "'/a'", "remove the file '/a'"),
            ("remove a file", "", "remove a file"),
            ("send a signal to a process", "7", "send a signal to the process 7"),
            ("connect to an address", "a:80", "connect to the address a:80"),
            (
                "change the flags of a file (macOS, BSD)",
                "'/a'",
                "change the flags of the file '/a'",
            ),
            ("abort the process", "7", "abort the process"),
        ] {
            assert_eq!(operation(does, objects), text);
        }
    }
}
