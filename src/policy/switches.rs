//! The fields of a policy that are on or off.

/// A permission that a field gives when it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Switch {
    /// Starting threads, which run under the same guard.
    Threads,
    /// Events that the tables do not name.
    UnknownEvents,
}

struct Row {
    /// The field.
    name: &'static str,
    /// Its values: off, and on.
    values: [(&'static str, bool); 2],
    by_default: bool,
}

impl Switch {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Threads, Self::UnknownEvents];

    const fn row(self) -> Row {
        match self {
            Self::Threads => Row {
                name: "threads",
                values: [("deny", false), ("inherit", true)],
                by_default: false,
            },
            Self::UnknownEvents => Row {
                name: "unknown_events",
                values: [("allow", true), ("deny", false)],
                by_default: true,
            },
        }
    }

    /// The name of its field.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The names of its values.
    #[must_use]
    pub const fn values(self) -> [(&'static str, bool); 2] {
        self.row().values
    }

    /// True if it is on in a policy that does not name it.
    #[must_use]
    pub const fn by_default(self) -> bool {
        self.row().by_default
    }
}

/// Those that are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Switches(u8);

impl Switches {
    /// Returns whether one is on.
    #[must_use]
    #[inline]
    pub fn has(self, switch: Switch) -> bool {
        self.0 & (1 << switch as u8) != 0
    }

    /// Turns one on or off.
    pub fn set(&mut self, switch: Switch, on: bool) {
        let bit = 1 << switch as u8;
        self.0 = if on { self.0 | bit } else { self.0 & !bit };
    }

    /// Turns on what others turned on that is off by default.
    pub fn add(&mut self, more: Self) {
        self.0 |= more.0 & !Self::default().0;
    }
}

impl Default for Switches {
    fn default() -> Self {
        let mut switches = Self(0);
        for switch in Switch::ALL {
            switches.set(switch, switch.by_default());
        }
        switches
    }
}
