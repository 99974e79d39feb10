//! A thread that the kernel confines for good: Landlock (landlock(7)) enforces a policy's rules for
//! files and the network, whatever runs in the thread.
//!
//! Landlock knows rights below directories, and ports of TCP. The other rules of a policy (hosts by
//! name, names inside a root, modules) are the guard's alone.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use crate::policy::written::spec::{NetworkUse, Spec};
use crate::policy::written::values::{Choice, Where};

/// The Landlock ABI that we ask for; an older kernel enforces the part that it supports.
const WANTED: ABI = ABI::V7;
/// The devices that are writable whenever anything is.
const DEVICES: [&str; 2] = ["/dev/null", "/dev/full"];

fn failed(error: RulesetError) -> io::Error {
    io::Error::other(format!("Landlock: {error}"))
}

fn not_available() -> io::Error {
    io::Error::other("this kernel has no Landlock, or it is switched off")
}

/// The kernel's rules for a policy: given to it once, and again if a root is another file by then.
pub struct LandlockRules {
    spec: Spec,
    needed: Vec<PathBuf>,
    ports: Vec<u16>,
    known: Mutex<Option<Known>>,
}

struct Known {
    rules: RulesetCreated,
    roots: Vec<Option<(u64, u64)>>,
}

impl LandlockRules {
    /// `needed`, the files that the interpreter itself loads, can be read whatever the policy says,
    /// and these ports of TCP are free.
    pub fn new(spec: Spec, needed: Vec<PathBuf>, ports: Vec<u16>) -> Self {
        Self { spec, needed, ports, known: Mutex::default() }
    }

    /// Confines the current thread, and the threads and programs that it starts, for good. A root
    /// that does not exist opens nothing.
    pub fn confine_thread(&self) -> io::Result<()> {
        let status = self.rules()?.restrict_self().map_err(failed)?;
        match status.ruleset {
            RulesetStatus::NotEnforced => Err(not_available()),
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        }
    }

    fn rules(&self) -> io::Result<RulesetCreated> {
        let roots = self.roots();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*known
            && known.roots == roots
        {
            return known.rules.try_clone();
        }
        let rules = self.make().map_err(failed)?;
        let copy = rules.try_clone()?;
        *known = Some(Known { rules, roots });
        Ok(copy)
    }

    fn roots(&self) -> Vec<Option<(u64, u64)>> {
        let listed = [self.spec.read.names(), self.spec.write.names()];
        let identity = |path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.dev(), found.ino()))
        };
        listed.into_iter().flatten().map(identity).collect()
    }

    fn make(&self) -> Result<RulesetCreated, RulesetError> {
        let mut handled = Ruleset::default().handle_access(AccessFs::from_all(WANTED))?;
        let mut network = BitFlags::<AccessNet>::EMPTY;
        match &self.spec.network {
            NetworkUse::All(false) => {
                network = AccessNet::BindTcp | AccessNet::ConnectTcp;
                handled = handled.scope(Scope::AbstractUnixSocket)?;
            }
            NetworkUse::Rules(rules) if rules.listen == Choice::All(false) => {
                network = AccessNet::BindTcp.into();
            }
            NetworkUse::All(true) | NetworkUse::Rules(_) => {}
        }
        if !network.is_empty() {
            handled = handled.handle_access(network)?;
        }
        let reading = reading(&self.spec.commands);
        let writing = AccessFs::from_write(WANTED);
        let mut rules = handled.create()?;
        // A rule for what is not handled would be an error.
        for &port in self.ports.iter().filter(|_| !network.is_empty()) {
            rules = rules.add_rule(NetPort::new(port, network))?;
        }
        rules = match &self.spec.read {
            Where::Anywhere => rules.add_rules(path_beneath_rules(["/"], reading))?,
            Where::Below(roots) => {
                // What may be written may be read too, as under a guard.
                let written = self.spec.write.names().iter().filter(|root| *root != "/");
                rules
                    .add_rules(path_beneath_rules(roots, reading))?
                    .add_rules(path_beneath_rules(written, reading))?
                    .add_rules(path_beneath_rules(&self.needed, reading))?
            }
        };
        match &self.spec.write {
            Where::Anywhere => rules.add_rules(path_beneath_rules(["/"], writing)),
            Where::Below(roots) => rules
                .add_rules(path_beneath_rules(roots, writing))?
                .add_rules(path_beneath_rules(DEVICES, writing)),
        }
    }
}

/// The ruleset of [`keep_signals_inside`], given to the kernel once.
pub struct Signals(RulesetCreated);

/// Prepares the ruleset of [`keep_signals_inside`]; a copy of the process (fork(2)) has it too.
/// With `sockets` it holds for connections to abstract Unix sockets too (unix(7)).
pub fn signals(sockets: bool) -> io::Result<Signals> {
    // Linking and renaming between directories is denied by each ruleset that does not allow it,
    // even by one that handles no other access to files.
    let rename = AccessFs::Refer;
    let rules = Ruleset::default()
        .handle_access(rename)
        .and_then(|rules| rules.scope(Scope::Signal))
        .and_then(|rules| if sockets { rules.scope(Scope::AbstractUnixSocket) } else { Ok(rules) })
        .and_then(|rules| rules.create())
        .and_then(|rules| rules.add_rules(path_beneath_rules(["/"], rename)));
    rules.map(Signals).map_err(failed)
}

/// Confines the signals of the current thread, and of the threads and programs that it starts, to
/// each other, for good. An older kernel does not support this: nothing changes there.
pub fn keep_signals_inside(signals: &Signals) -> io::Result<()> {
    let confined = signals.0.try_clone()?.restrict_self();
    confined.map(|_| ()).map_err(failed)
}

/// Confines the files of Unix sockets that the current thread makes, and that the threads and
/// programs that it starts make, to these directories, for good. Nothing else is denied.
pub fn keep_sockets_below(roots: &[PathBuf]) -> io::Result<()> {
    // As in `signals`: linking and renaming between directories stays allowed.
    let (made, rename) = (AccessFs::MakeSock, AccessFs::Refer);
    // A rule for a file could not say that something is made in it.
    let directories = roots.iter().filter(|root| root.is_dir());
    let status = Ruleset::default()
        .handle_access(made | rename)
        .and_then(|rules| rules.create())
        .and_then(|rules| rules.add_rules(path_beneath_rules(["/"], rename)))
        .and_then(|rules| rules.add_rules(path_beneath_rules(directories, made)))
        .and_then(|rules| rules.restrict_self())
        .map_err(failed)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => Err(not_available()),
    }
}

fn reading(commands: &Choice) -> BitFlags<AccessFs> {
    let reading = AccessFs::from_read(WANTED);
    match commands {
        Choice::All(false) => reading & !BitFlags::from_flag(AccessFs::Execute),
        Choice::All(true) | Choice::Named(_) => reading,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn sockets_stay_below() {
        use std::os::unix::net::UnixListener;

        let base = tempfile::tempdir().unwrap();
        let (inside, outside) = (base.path().join("in"), base.path().join("out"));
        for place in [&inside, &outside] {
            fs::create_dir(place).unwrap();
        }
        let file = outside.join("file");
        fs::write(&file, "x").unwrap();
        let roots = [inside.clone(), file.clone(), base.path().join("none")];
        let (there, here) = (outside.clone(), inside.clone());
        let confined = std::thread::spawn(move || {
            keep_sockets_below(&roots).unwrap();
            let child = there.join("child");
            [
                UnixListener::bind(here.join("a")).is_ok(),
                UnixListener::bind(there.join("a")).is_ok(),
                std::thread::spawn(move || UnixListener::bind(child).is_ok()).join().unwrap(),
                fs::write(there.join("other"), "x").is_ok(),
                fs::rename(there.join("other"), here.join("other")).is_ok(),
            ]
        });
        assert_eq!(confined.join().unwrap(), [true, false, false, true, true]);
        assert!(UnixListener::bind(outside.join("b")).is_ok(), "other threads");
    }

    #[test]
    fn signals_stay_inside() {
        let outside = std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let kill = move || {
            let mut kill = std::process::Command::new("/bin/sh");
            kill.args(["-c", &format!("kill -9 {}", outside.id())]);
            let reached = kill.stderr(std::process::Stdio::null()).status();
            (reached.unwrap().success(), outside)
        };
        let confined = std::thread::spawn(|| {
            keep_signals_inside(&signals(false).unwrap()).unwrap();
            let base = tempfile::tempdir().unwrap();
            let (from, to) = (base.path().join("out"), base.path().join("in"));
            for place in [&from, &to] {
                fs::create_dir(place).unwrap();
            }
            fs::write(from.join("there"), "x").unwrap();
            fs::rename(from.join("there"), to.join("there")).unwrap();
            kill()
        });
        let (reached, mut outside) = confined.join().unwrap();
        assert!(!reached);
        outside.kill().unwrap();
        outside.wait().unwrap();
    }
}
