//! The fields of a policy that are on or off.

/// A permission that a field gives when it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Switch {
    /// Starting threads, which run under the same guard.
    Threads,
    /// Events that the tables do not name.
    UnknownEvents,
}

impl Switch {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Threads, Self::UnknownEvents];

    /// The name of its field.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::UnknownEvents => "unknown_events",
        }
    }

    /// The names of its values, first that of the default.
    #[must_use]
    pub const fn values(self) -> [(&'static str, bool); 2] {
        match self {
            Self::Threads => [("deny", false), ("inherit", true)],
            Self::UnknownEvents => [("allow", true), ("deny", false)],
        }
    }

    /// True if it is on in a policy that does not name it.
    #[must_use]
    pub const fn by_default(self) -> bool {
        self.values()[0].1
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
