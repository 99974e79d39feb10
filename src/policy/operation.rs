//! An operation, and the verdicts on it.

use super::network::{Part, Reach};
use super::written::values::Switch;
use crate::policy::files::path::{Name, Target};

/// An operation that code is about to perform, decoded from one argument of an audit event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Creates, changes or removes the directory entry of this name. An operation on an open
    /// descriptor was decided when that was opened.
    ChangeEntry(Target<'a>),
    /// Gives the entry another name or makes it another's: what is below it changes place too.
    MoveEntry(Target<'a>),
    /// Changes the file that this name leads to, links followed.
    ChangeFile(Target<'a>),
    /// Makes the entry, or is about to change it, or the entries in it if the path ends with a
    /// slash: each change will be an operation of its own.
    ChangePlace(Target<'a>),
    OpenForWriting(Target<'a>),
    /// Opens a file so that it may be written at its end alone.
    OpenForAppending(Target<'a>),
    Read(Target<'a>),
    /// Reads an entry itself, a link's text for example, or reads for the system: only blocked
    /// paths are kept from it.
    Look(Target<'a>),
    /// Makes this the current directory. `left` is the directory the guarded code was in before it
    /// first changed it: going back there does no harm.
    ChangeDirectory {
        to: Target<'a>,
        /// The directory first left, if any.
        left: Option<&'a [u8]>,
    },
    /// Makes a symbolic link with this text at `at`. The entry itself is a `MoveEntry`.
    LinkTo {
        text: Name<'a>,
        at: Target<'a>,
    },
    /// Opens an SQLite database of this name.
    OpenDatabase(Name<'a>),
    /// Sets or removes this environment variable.
    SetVariable(Name<'a>),
    UseNetwork(Reach<'a>),
    Import {
        module: &'a str,
        /// True if an installed module, or one of the standard library, imports it in turn.
        in_turn: bool,
    },
    /// Calls a function of this native module.
    CallNative(&'a str),
    /// Starts the program at this path; `None` if it cannot be told which.
    Start(Option<&'a [u8]>),
    /// Assigns one of the attributes that raise `object.__setattr__`.
    SetAttribute(&'a [u8]),
}

/// The part of a path that an operation changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    Entry,
    /// The entry with all that is below it.
    Moved,
    /// The file that it leads to.
    File,
    /// The entry, or the entries in it if the path ends with a slash.
    Place,
}

/// The answer of a policy to an operation: an error denies it.
pub type Verdict = Result<(), Why>;

/// The reason to deny an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No root approves it, or it cannot be known where it leads.
    Unapproved,
    Unreadable,
    /// The path is blocked, whatever the roots are.
    Blocked,
    /// The name is protected, whatever the roots are.
    Protected,
    Environment,
    Network(Part),
    Command,
    Import,
    Native,
    Switch(Switch),
    TooMuch,
}

impl Why {
    /// Returns whether the import of an installed package does not excuse it.
    pub fn outlasts_imports(self) -> bool {
        matches!(self, Self::Blocked | Self::Protected | Self::Import | Self::TooMuch)
    }

    /// Returns whether the kernel denies for this reason too, where it holds a policy.
    pub fn is_held_by_kernel(self) -> bool {
        match self {
            Self::Unapproved | Self::Unreadable | Self::Blocked | Self::Command => true,
            Self::Network(part) => part != Part::MaxConnections,
            _ => false,
        }
    }

    /// The field of a policy that denies for this reason.
    pub fn field(self) -> &'static str {
        match self {
            Self::Unapproved => "write",
            Self::Unreadable => "read",
            Self::Blocked => "block",
            Self::Protected => "protect",
            Self::Environment => "env",
            Self::Network(part) => part.name(),
            Self::Command => "commands",
            Self::Import => "imports",
            Self::Native => "native",
            Self::Switch(switch) => switch.name(),
            Self::TooMuch => "max_bytes",
        }
    }
}

/// Allows an operation if this is true, and else denies it for a reason.
pub(super) fn allow_if(allowed: bool, why: Why) -> Verdict {
    if allowed { Ok(()) } else { Err(why) }
}
