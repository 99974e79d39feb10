//! An event under a guard, and the facts of the moment that only the interpreter knows.

use std::net::IpAddr;
use std::sync::Arc;

use super::arguments::Arguments;
use crate::policy::check::{ModuleOrigin, Policy};
use crate::policy::commands;
use crate::policy::distributions::InstalledPackages;
use crate::policy::files::fs::FileSystem;
use crate::policy::files::path::{Base, Resolved};
use crate::policy::learn::Need;
use crate::policy::operation::{Operation, Why};

/// The reason of a denial, as its message words it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The event is denied as such.
    Event,
    /// The event is denied as such by this field of the policy.
    Switch(Why),
    /// The path at this position of the event's arguments may not be used so.
    Path(usize, Why),
}

impl Reason {
    /// Returns the field that denies; `None` if no policy allows the event.
    pub fn why(self) -> Option<Why> {
        match self {
            Self::Event => None,
            Self::Switch(why) | Self::Path(_, why) => Some(why),
        }
    }
}

/// The treatment of a link that a call's path names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follows {
    /// It follows the link.
    #[default]
    Always,
    Never,
    /// An object decides, which is asked later.
    Unknown,
}

/// An event under a guard. The judge asks it for the facts that a policy's rules depend on, each
/// when it is needed: most answers cost a look at frames or threads. What has an answer here is
/// answered so where no interpreter is. An error is the denial, or what looking raised: the event is
/// denied then.
pub trait Surroundings {
    /// The denial, and the error that looking raised.
    type Error;
    type Arguments: Arguments<Error = Self::Error>;
    type Fs: FileSystem;

    fn event(&self) -> &[u8];
    fn arguments(&self) -> &Self::Arguments;
    fn fs(&self) -> &Self::Fs;
    fn policy(&self) -> &Policy;

    /// Denies the event, for an operation on a path if it has one. `Ok` if it goes on all the same,
    /// as the host says so or only observes: its other effects are judged then.
    fn deny(&self, reason: Reason, operation: Option<Operation<'_>>) -> Result<(), Self::Error>;
    /// Returns whether an event which is about to be denied does no harm here.
    fn excuses(&self, _reason: Reason) -> Result<bool, Self::Error> {
        Ok(false)
    }

    /// Returns whether what the event needs is recorded, whatever the policy says.
    fn records(&self) -> bool {
        false
    }
    /// Returns whether the event is only observed, and happens whatever the policy says.
    fn observes(&self) -> bool {
        false
    }
    /// Records the needs of an operation.
    fn note(&self, _operation: Operation<'_>) {}
    /// Records a need that is not an operation.
    fn need(&self, _need: Need) {}

    /// Returns whether an `open` that only reads was let pass before.
    fn reads_passed(&self) -> bool {
        false
    }
    /// Returns the directory that a relative name of `os.open` starts from.
    fn base(&self) -> Base {
        Base::CurrentDir
    }
    fn follows(&self) -> Follows {
        Follows::Always
    }
    /// Returns whether an address is only written out.
    fn is_numeric(&self) -> bool {
        false
    }
    /// Returns the directory that the guarded code was in before it first changed it.
    fn first_dir(&self) -> Option<&[u8]> {
        None
    }

    /// Returns whether it is this package that raised the event, for a callback of its own.
    fn is_own(&self) -> bool {
        false
    }
    /// Returns whether the event belongs to the start of a program that was allowed just before.
    fn is_start_covered(&self) -> bool {
        false
    }
    fn allow_start(&self) {}
    fn own_path(&self) -> Vec<u8> {
        commands::own_path()
    }
    /// Returns whether the process is a copy of the one that entered the guard.
    fn is_in_copy(&self) -> bool {
        false
    }
    /// Returns whether other threads run.
    fn has_other_threads(&self) -> Result<bool, Self::Error> {
        Ok(true)
    }
    /// Prepares for a copy of the process.
    fn before_fork(&self) -> Result<(), Self::Error> {
        Ok(())
    }
    /// Notes the environment before variables are removed from it.
    fn before_removal(&self) {}
    /// Returns whether the thread which is started carries this guard.
    fn carries_guard(&self) -> bool {
        false
    }
    /// Returns whether the thread which is started is one of an event loop's own.
    fn is_of_event_loop(&self) -> Result<bool, Self::Error> {
        Ok(false)
    }
    /// Returns whether the value assigned to `__code__` differs from that before in being awaitable
    /// alone.
    fn only_marks_awaitable(&self) -> bool {
        false
    }

    fn origin(&self, _file: &[u8], _landing: &Resolved) -> ModuleOrigin {
        ModuleOrigin::Unknown
    }
    /// Hands on the module whose code is about to run because it is imported, if that is so.
    fn with_module_being_loaded<R>(
        &self,
        judge: impl FnOnce(Option<&str>) -> R,
    ) -> Result<R, Self::Error> {
        Ok(judge(None))
    }
    /// Returns whether an installed module, or one of the standard library, imports in turn.
    fn is_in_turn(&self) -> Result<bool, Self::Error> {
        Ok(false)
    }
    /// Returns whether one of these packages, or one that they require, is being imported.
    fn is_importing(&self, _packages: &[String]) -> Result<bool, Self::Error> {
        Ok(false)
    }
    /// Returns whether one of these modules is being imported, by the rules of fastaudit 0.2.
    fn is_importing_named(&self, _modules: &[String]) -> Result<bool, Self::Error> {
        Ok(false)
    }
    /// Returns the packages that declare native code which is safe to load as they are imported.
    fn declared_loading_native(&self) -> &[String] {
        &[]
    }

    /// Returns the package of the native code that is about to be called, and remembers it for the
    /// hint.
    fn package_being_called(&self) -> String {
        String::new()
    }
    /// Returns the top-level module of the native code that is about to be called.
    fn module_being_called(&self) -> Option<String> {
        None
    }
    fn installed(&self) -> Arc<InstalledPackages> {
        Arc::new(InstalledPackages::new(Vec::new(), (0, 0)))
    }

    /// Returns whether the socket which is made is that of a descriptor that is open already.
    fn wraps_socket(&self) -> bool {
        false
    }
    /// Returns whether the kernel refuses this process all sockets but Unix sockets.
    fn has_only_unix_sockets(&self) -> bool {
        false
    }
    /// Looks up a name as CPython is going to, for sockets of a family; returns no addresses if
    /// that fails.
    fn look_up(&self, _name: &str, _family: i64) -> Vec<IpAddr> {
        Vec::new()
    }
    /// Returns the names that were looked up to an address.
    fn names_of(&self, _address: IpAddr) -> Vec<String> {
        Vec::new()
    }
    fn remember(&self, _name: &str, _addresses: &[IpAddr]) {}
    /// Returns whether a socket may be connected beside those that still are.
    fn may_connect(&self, _socket: i32, _most: u32) -> bool {
        false
    }
}
