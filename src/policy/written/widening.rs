//! The least policy that keeps another's rules and allows what that one denied.

use std::collections::BTreeSet;

use crate::policy::environment::is_dangerous;
use crate::policy::files::os::Os;
use crate::policy::files::path::is_within;
use crate::policy::hosts::HostRule;
use crate::policy::learn::{self, Need};
use crate::policy::network::{
    Destination, HostRules, Network, NetworkRules, Part, Ports, Reach, plain_name,
};
use crate::policy::operation::Why;
use crate::policy::written::spec::{NetworkUse, Spec};
use crate::policy::written::suggested;
use crate::policy::written::values::{Choice, Where, add, is_within_module};

/// A need that a policy does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    pub need: Need,
    pub why: Why,
    /// The least root that approves it, for a root that does not approve its own entry.
    pub root: Option<Vec<u8>>,
    /// True if the need is for an existing file, not for an entry of a directory.
    pub is_file: bool,
    pub is_dir: bool,
}

impl Lack {
    /// A need that is not about a place.
    pub fn new(need: Need, why: Why) -> Self {
        Self { need, why, root: None, is_file: false, is_dir: false }
    }
}

/// Tells which files are at the places that a policy names.
pub trait Places {
    /// Returns where a path of the policy leads.
    fn resolve(&self, path: &str) -> Option<Vec<u8>>;

    /// Returns whether a directory may stand for the files that are named in it. One with all the
    /// files of a user may not.
    fn may_stand_for_its_files(&self, dir: &[u8]) -> bool;

    fn is_file(&self, path: &[u8]) -> bool;
}

/// Returns the policy changed to meet the needs as well; unchanged if no field can meet them.
pub fn widened<'a>(
    spec: &Spec,
    lacks: impl IntoIterator<Item = &'a Lack>,
    places: &impl Places,
) -> Spec {
    let mut wide = spec.clone();
    for lack in lacks {
        widen(&mut wide, lack, spec.max_bytes, places);
    }
    wide
}

/// `max_bytes` is that of the policy that is widened.
fn widen(spec: &mut Spec, lack: &Lack, max_bytes: Option<u64>, places: &impl Places) {
    match (&lack.need, lack.why) {
        (Need::ImportOf(package), _) => add(&mut spec.import_allow, package.clone()),
        (Need::Write(path) | Need::Read(path), Why::Blocked) => unblock(spec, path, places),
        (Need::Write(path), Why::Protected) => {
            spec.protect = suggested::protect(spec, &BTreeSet::from([path.clone()]));
        }
        (Need::Write(path), _) => add_place(&mut spec.write, path, places),
        (Need::Read(path), _) => add_place(&mut spec.read, path, places),
        (Need::Variable(name), _) => add_variable(&mut spec.env, name),
        // It cannot be told which.
        (Need::Program(path), _) if path.is_empty() => spec.commands = Choice::All(true),
        (Need::Program(path), _) => {
            if let Ok(path) = std::str::from_utf8(path) {
                spec.commands.add(path.to_owned());
            }
        }
        (Need::Module(module), _) => {
            let imports = &mut spec.imports;
            imports.block.retain(|name| !is_within_module(module, name));
            if !imports.allow.has_module(module) {
                imports.allow.add(module.clone());
            }
        }
        (Need::Native(package), _) => spec.native.add(package.clone()),
        (Need::Package(package), _) => add(&mut spec.packages, package.clone()),
        (Need::Switch(switch), _) => spec.switches.set(*switch, true),
        (Need::Bytes(bytes), _) => {
            // A file that is written piece by piece would otherwise need one more each time.
            let twice = max_bytes.map(|max| max.saturating_mul(2));
            spec.max_bytes = spec.max_bytes.max(twice).max(spec.max_bytes.map(|_| *bytes));
        }
        (need, Why::Network(part)) => widen_network(&mut spec.network, need, part),
        _ => {}
    }
}

/// If variables are named one by one already, and this is one more that does no harm, allows all
/// such variables.
fn add_variable(env: &mut Choice, name: &str) {
    let is_harmless = |name: &str| !is_dangerous(name.as_bytes());
    match env {
        Choice::All(true) => *env = Choice::Named(vec!["*".to_owned(), name.to_owned()]),
        Choice::Named(names)
            if is_harmless(name)
                && names.iter().any(|own| own != name)
                && !names.iter().any(|own| own == name) =>
        {
            names.retain(|own| !is_harmless(own));
            names.insert(0, "*".to_owned());
        }
        env => env.add(name.to_owned()),
    }
}

fn unblock(spec: &mut Spec, path: &[u8], places: &impl Places) {
    let before = spec.block.len();
    let block = |name: &String| places.resolve(name);
    spec.block.retain(|name| block(name).is_none_or(|blocked| !is_within(path, &blocked)));
    if spec.block.len() == before {
        // It is to be moved with everything below it.
        spec.block.retain(|name| block(name).is_none_or(|blocked| !is_within(&blocked, path)));
    }
}

fn add_place(place: &mut Where, path: &[u8], places: &impl Places) {
    let Where::Below(paths) = place else {
        return;
    };
    let is_it = |own: &String| {
        own.as_bytes() == path || (own != "." && places.resolve(own).is_some_and(|own| own == path))
    };
    if paths.iter().any(is_it) {
        return;
    }
    let Some(text) = learn::named(path) else {
        return;
    };
    if text.as_bytes() != path {
        if places.may_stand_for_its_files(text.as_bytes()) {
            add_place(place, text.as_bytes(), places);
        }
        return;
    }
    let beside = |own: &String| {
        own != "."
            && places.resolve(own).is_some_and(|own| {
                learn::parent_of(&own) == learn::parent_of(path) && places.is_file(&own)
            })
    };
    match learn::parent_of(path) {
        Some(dir) if paths.iter().any(beside) && places.may_stand_for_its_files(&dir) => {
            let Ok(dir_text) = std::str::from_utf8(&dir) else {
                return;
            };
            paths.retain(|own| {
                own == "." || places.resolve(own).is_none_or(|own| !is_within(&own, &dir))
            });
            paths.push(learn::lasting(dir_text.to_owned()));
        }
        _ => paths.push(learn::lasting(text)),
    }
}

fn widen_network(network: &mut NetworkUse, need: &Need, part: Part) {
    if *need == Need::OtherNetwork {
        *network = NetworkUse::All(true);
        return;
    }
    if *network == NetworkUse::All(true) {
        return;
    }
    let mut rules = network.rules();
    match need {
        Need::Connect(host, port) => reach(&mut rules, host, *port, part),
        Need::Listen(..) => need.entry().into_iter().for_each(|place| rules.listen.add(place)),
        Need::Unix(_) => need.entry().into_iter().for_each(|path| rules.unix.add(path)),
        Need::NameOfAddress => rules.lookup = true,
        _ => {}
    }
    *network = NetworkUse::Rules(Box::new(rules));
}

/// Changes rules so that a host may be reached at a port, `u16::MAX` for any.
fn reach(rules: &mut NetworkRules, host: &str, port: u16, part: Part) {
    let plain = plain_name(host.trim_matches(['[', ']']));
    let to = match plain.parse() {
        Ok(address) => Destination::Address(address),
        Err(_) => Destination::Name(&plain),
    };
    match part {
        Part::MaxConnections => {
            rules.max_connections = rules.max_connections.map(|max| max.saturating_add(1));
            return;
        }
        Part::Lookup => rules.lookup = true,
        Part::Block => rules.block.retain(|text| {
            let host = HostRule::parse(text);
            host.is_ok_and(|host| !host.matches(&to))
        }),
        _ => {}
    }
    let denied = |rules: &NetworkRules| {
        let reach = Reach::Connect { to, names: &[], port };
        Network::Rules(Box::new(HostRules::new(rules, None))).denies(&Os, reach)
    };
    let port_shown = if learn::passes(to, port) { u16::MAX } else { port };
    match (denied(rules), &mut rules.hosts, &mut rules.ports) {
        (Some(Part::Hosts | Part::Ports), Where::Below(hosts), _) => {
            if let Some(entry) = Need::Connect(host.to_owned(), port_shown).entry() {
                add(hosts, entry);
            }
        }
        (Some(Part::Ports), Where::Anywhere, ports) if port == u16::MAX => *ports = None,
        (Some(Part::Ports), Where::Anywhere, Some(ports)) => {
            ports.push(Ports::one(port));
        }
        _ => {}
    }
}
