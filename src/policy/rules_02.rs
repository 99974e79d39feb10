//! Which audit events pass under the rule set of the `fastaudit` 0.2 contract, as data.
//!
//! Where `rules` has an event checked by its arguments, it is checked. All others are denied but for
//! those that are named here.

use super::index::Index;
use super::rules::{self, RULES, Rule};

/// A contract whose rules a guard keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleSet {
    /// That of fastaudit 0.1: what is not named passes.
    #[default]
    Classic,
    /// That of fastaudit 0.2: what is not named is denied.
    Strict,
}

impl RuleSet {
    /// The rule for an event; `None` when it passes.
    #[must_use]
    #[inline]
    pub fn rule(self, event: &[u8]) -> Option<Rule> {
        match self {
            Self::Classic => rules::lookup(event),
            Self::Strict => lookup(event),
        }
    }
}

/// The events that pass.
#[rustfmt::skip]
pub const PASSING: &[&str] = &[
    // Files, reading.
    "glob.glob", "glob.glob/2", "os.fwalk", "os.getxattr", "os.listdir", "os.listdrives",
    "os.listmounts", "os.listvolumes", "os.listxattr", "os.lockf", "os.scandir", "os.utime",
    "os.walk", "pathlib.Path.glob", "pathlib.Path.rglob", "pathlib.Path.walk",
    "sqlite3.connect/handle", "sqlite3.enable_load_extension",
    // Processes.
    "os.fork", "os.forkpty", "resource.prlimit", "resource.setrlimit", "time.sleep",
    "webbrowser.open",
    // Network: names, and sockets that go nowhere yet.
    "socket.__new__", "socket.getaddrinfo", "socket.gethostbyaddr", "socket.gethostbyname",
    "socket.gethostname", "socket.getnameinfo", "socket.getservbyname", "socket.getservbyport",
    "syslog.closelog", "syslog.openlog", "syslog.setlogmask", "syslog.syslog", "urllib.Request",
    // Code.
    "builtins.breakpoint", "code.__new__", "compile", "cpython.run_interactivehook", "exec",
    "function.__new__", "import", "pdb.Pdb", "pickle.find_class", "setopencodehook",
    // Memory.
    "array.__new__", "mmap.__new__",
    // The interpreter.
    "builtins.id", "builtins.input", "builtins.input/result", "object.__delattr__",
    "object.__getattr__", "sys._current_exceptions", "sys._current_frames", "sys._getframe",
    "sys._getframemodulename", "sys.setprofile", "sys.settrace",
    // fastaudit 0.2.10 names these as no Python does, and denies what CPython raises.
    "sys.set_asyncgen_hook_finalizer", "sys.set_asyncgen_hook_firstiter",
    "sys.set_asyncgen_hooks_finalizer", "sys.set_asyncgen_hooks_firstiter",
    // It denies these, which do nothing that would matter.
    "ctypes.create_string_buffer", "ctypes.create_unicode_buffer", "ctypes.get_errno",
    "ctypes.set_errno",
    // Windows.
    "winreg.ConnectRegistry", "winreg.EnumKey", "winreg.EnumValue",
    "winreg.ExpandEnvironmentStrings", "winreg.OpenKey", "winreg.OpenKey/result",
    "winreg.PyHKEY.Detach", "winreg.QueryInfoKey", "winreg.QueryReflectionKey",
    "winreg.QueryValue",
];

/// How the names of further events begin that pass.
pub const PASSING_PREFIXES: &[&str] = &[
    "fcntl.", "ftplib.", "gc.", "imaplib.", "marshal.", "poplib.", "smtplib.",
];

/// The names of `PASSING`, and after them those of the rules of fastaudit 0.1.
static INDEX: Index = {
    let mut index = Index::new();
    let mut position = 0;
    while position < PASSING.len() {
        index = index.with(PASSING[position], position);
        position += 1;
    }
    let mut position = 0;
    while position < RULES.len() {
        let (name, rule) = RULES[position];
        if !rule.is_of_policies() {
            index = index.with(name, PASSING.len() + position);
        }
        position += 1;
    }
    index
};

/// The rule for an event; `None` when it passes.
#[must_use]
#[inline]
pub fn lookup(event: &[u8]) -> Option<Rule> {
    let ruled = |position: usize| RULES.get(position.checked_sub(PASSING.len())?);
    let found = INDEX.find(event, |position| match PASSING.get(position) {
        Some(name) => Some(name),
        None => ruled(position).map(|(name, _)| *name),
    });
    match found {
        Some(position) => match ruled(position)?.1 {
            Rule::WriteBytes | Rule::Bind => Some(Rule::Deny),
            rule => Some(rule),
        },
        None => lookup_unnamed(event),
    }
}

#[inline(never)]
fn lookup_unnamed(event: &[u8]) -> Option<Rule> {
    let passes = |prefix: &&str| event.starts_with(prefix.as_bytes());
    (!PASSING_PREFIXES.iter().any(passes)).then_some(Rule::Deny)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_denied() {
        for (event, rule) in [
            ("compile", None),
            ("fcntl.flock", None),
            ("gc.get_objects", None),
            ("sys.set_asyncgen_hook_finalizer", None),
            ("http.client.connect", Some(Rule::Deny)),
            ("socket.connect", Some(Rule::Deny)),
            ("somelib.event", Some(Rule::Deny)),
            ("fastaudit.write", Some(Rule::Deny)),
            ("os.system", Some(Rule::Start)),
            ("open", Some(Rule::Open)),
        ] {
            assert_eq!(lookup(event.as_bytes()), rule, "{event}");
        }
    }

    #[test]
    fn each_event_is_named_once() {
        let mut names = PASSING.to_vec();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
    }
}
