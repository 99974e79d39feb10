//! The least policy under which recorded operations would have passed.

use std::collections::{BTreeMap, BTreeSet};

use crate::policy::files::path::is_within;
use crate::policy::files::places::Protected;
use crate::policy::learn::{Need, lasting, named, parent_of};
use crate::policy::network::{HostRules, NetworkRules};
use crate::policy::written::spec::{NetworkUse, OnViolation, Spec};
use crate::policy::written::values::Switch;
use crate::policy::written::values::{Choice, Where, add};

/// Returns the least policy that meets the needs; fields that needs do not concern are as in
/// `base`.
///
/// Paths are exact. A directory stands for its entries if at least `threshold` of them are needed
/// and it has no others: `list` returns the names in a directory.
pub fn suggest(
    base: &Spec,
    needs: &BTreeSet<Need>,
    threshold: usize,
    list: impl Fn(&[u8]) -> Option<Vec<Vec<u8>>>,
) -> Spec {
    let mut spec = Spec { import_allow: Vec::new(), ..base.clone() };
    let (mut written, mut read) = (BTreeSet::new(), BTreeSet::new());
    let mut temporary = BTreeSet::new();
    let [mut programs, mut variables, mut native] = [const { Vec::new() }; 3];
    for need in needs {
        match need {
            Need::Write(path) => written.extend(named(path).map(String::into_bytes)),
            Need::Read(path) => read.extend(named(path).map(String::into_bytes)),
            Need::Temporary { host, .. } => temporary.extend(String::from_utf8(host.clone())),
            Need::Program(path) => programs.extend(String::from_utf8(path.clone())),
            Need::Variable(name) => variables.push(name.clone()),
            Need::Native(module) => native.push(module.clone()),
            Need::ImportOf(package) => spec.import_allow.push(package.clone()),
            Need::Module(module) => {
                if let Choice::Named(names) = &mut spec.imports.allow {
                    add(names, module.clone());
                }
            }
            _ => {}
        }
    }
    let is_touched = |path: &String| {
        let mut touched = written.iter().chain(&read);
        touched.any(|needed| is_within(needed, path.as_bytes()))
    };
    spec.block.retain(|path| !is_touched(path));
    spec.write = Where::Below(match written.is_empty() {
        true => Vec::from_iter(temporary),
        false => generalised(&written, threshold, &list),
    });
    spec.read = Where::Below(generalised(&read, threshold, &list));
    spec.protect = protect(base, &written);
    spec.commands = Choice::of(programs);
    spec.env = Choice::of(variables);
    spec.set_native(Some(Choice::of(native)));
    for switch in Switch::ALL {
        let is_kept = switch.by_default() && base.switches.has(switch);
        let is_on = is_kept || needs.contains(&Need::Switch(switch));
        spec.switches.set(switch, is_on);
    }
    spec.network = network(needs);
    spec.max_bytes = None;
    spec.on_violation = OnViolation::Raise;
    spec
}

/// Returns the names that stay protected: those by which nothing was written.
pub(crate) fn protect(base: &Spec, written: &BTreeSet<Vec<u8>>) -> Choice {
    let is_written = |name: &str| {
        let mut protected = Protected::default();
        protected.add(name);
        written.iter().any(|path| protected.holds(path) || protected.may_be_below(path))
    };
    if !base.protected_names().any(is_written) {
        return base.protect.clone();
    }
    let kept = base.protected_names().filter(|name| !is_written(name));
    Choice::Named(kept.map(str::to_owned).collect())
}

/// Replaces entries by their directory if they are many, and all that it has.
fn generalised(
    paths: &BTreeSet<Vec<u8>>,
    threshold: usize,
    list: &impl Fn(&[u8]) -> Option<Vec<Vec<u8>>>,
) -> Vec<String> {
    let mut inside: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for path in paths {
        if let Some(dir) = parent_of(path) {
            inside.entry(dir).or_default().insert(path.clone());
        }
    }
    let mut kept = paths.clone();
    let depth = |dir: &[u8]| dir.iter().filter(|&&byte| byte == b'/').count();
    let mut depths: Vec<BTreeSet<Vec<u8>>> = Vec::new();
    for dir in inside.keys() {
        let depth = depth(dir);
        depths.resize(depths.len().max(depth + 1), BTreeSet::new());
        depths[depth].insert(dir.clone());
    }
    // From the deepest up, so that a directory may stand for directories that stand for theirs.
    while let Some(directories) = depths.pop() {
        for dir in directories {
            let entries = &inside[&dir];
            let holds_no_other = || {
                list(&dir).is_some_and(|names| {
                    names.iter().all(|name| entries.contains(&[&dir[..], b"/", name].concat()))
                })
            };
            if entries.len() < threshold.max(1) || !holds_no_other() {
                continue;
            }
            for path in entries {
                kept.remove(path);
            }
            if let Some(parent) = parent_of(&dir) {
                depths[depth(&parent)].insert(parent.clone());
                inside.entry(parent).or_default().insert(dir.clone());
            }
            kept.insert(dir);
        }
    }
    // A path inside another one of them needs no naming.
    let all = kept.clone();
    kept.retain(|path| {
        let ends = memchr::memchr_iter(b'/', path).filter(|&end| end > 0);
        !ends.into_iter().any(|end| all.contains(&path[..end]))
            && (path == b"/" || !all.contains(&b"/"[..]))
    });
    let texts = kept.into_iter().map(String::from_utf8);
    texts.filter_map(Result::ok).map(lasting).collect()
}

fn network(needs: &BTreeSet<Need>) -> NetworkUse {
    let mut rules = NetworkRules { lookup: false, ..NetworkRules::to_no_host() };
    let (mut hosts, mut listen, mut unix) = (Vec::new(), Vec::new(), Vec::new());
    for need in needs {
        match need {
            Need::OtherNetwork => return NetworkUse::All(true),
            Need::Connect(host, port) => {
                rules.lookup |= !HostRules::is_address(host);
                let is_at_a_port = |need: &Need| match need {
                    Need::Connect(other, port) => other == host && *port != 0,
                    _ => false,
                };
                // A name is looked up without a port, and reached at one.
                if *port != 0 || !needs.iter().any(is_at_a_port) {
                    hosts.extend(need.entry());
                }
            }
            Need::Listen(..) => listen.extend(need.entry()),
            Need::Unix(_) => unix.extend(need.entry()),
            Need::NameOfAddress => rules.lookup = true,
            _ => {}
        }
    }
    let is_used = needs.contains(&Need::Network) || rules.lookup;
    if !is_used && hosts.is_empty() && listen.is_empty() && unix.is_empty() {
        return NetworkUse::All(false);
    }
    rules.hosts = Where::Below(hosts);
    rules.listen = Choice::of(listen);
    rules.unix = Where::Below(unix);
    NetworkUse::Rules(Box::new(rules))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// Holds whatever the paths are, and whatever else exists.
        #[test]
        fn paths_are_covered_and_nothing_else(
            needed in proptest::collection::btree_set("(/[ab]){1,3}/[abc]", 0..12),
            others in proptest::collection::btree_set("(/[ab]){1,3}/[abcd]", 0..6),
            threshold in 1_usize..4,
        ) {
            let is_in = |path: &str, dir: &str| {
                crate::policy::files::path::is_within(path.as_bytes(), dir.as_bytes())
            };
            // A directory that holds a needed path may be needed itself.
            let others: Vec<_> = others
                .iter()
                .filter(|other| !needed.iter().any(|path| is_in(other, path) || is_in(path, other)))
                .collect();
            let list = |dir: &[u8]| {
                let dir = format!("{}/", std::str::from_utf8(dir).ok()?);
                let all = needed.iter().chain(others.iter().copied());
                let names = all.filter_map(|path| path.strip_prefix(&dir)?.split('/').next());
                Some(names.map(|name| name.as_bytes().to_vec()).collect())
            };
            let needs = needed.iter().map(|path| Need::Write(path.clone().into_bytes())).collect();
            let spec = suggest(&Spec::default(), &needs, threshold, list);
            let Where::Below(roots) = spec.write else {
                panic!("anywhere");
            };
            for path in &needed {
                assert!(roots.iter().any(|root| is_in(path, root)), "{path} {roots:?}");
            }
            for other in others {
                assert!(!roots.iter().any(|root| is_in(other, root)), "{other} {roots:?}");
            }
        }
    }
}
