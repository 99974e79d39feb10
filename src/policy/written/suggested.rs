//! The least policy under which recorded operations would have passed.

use std::collections::{BTreeMap, BTreeSet};

use crate::policy::files::places::Protected;
use crate::policy::files::roots::is_within;
use crate::policy::learn::{Need, parent_of};
use crate::policy::network::{HostRules, NetworkRules};
use crate::policy::switches::Switch;
use crate::policy::written::spec::{NetworkUse, OnViolation, Spec};
use crate::policy::written::values::{Choice, Where};

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
    let mut spec = Spec {
        import_allow: Vec::new(),
        ..base.clone()
    };
    let (mut written, mut read) = (BTreeSet::new(), BTreeSet::new());
    let mut temporary = BTreeSet::new();
    let [mut programs, mut variables, mut native] = [const { Vec::new() }; 3];
    for need in needs {
        match need {
            Need::Write(path) => written.extend([path.clone()]),
            Need::Read(path) => read.extend([path.clone()]),
            Need::Temporary { host, .. } => temporary.extend(String::from_utf8(host.clone())),
            Need::Program(path) => programs.extend(String::from_utf8(path.clone())),
            Need::Variable(name) => variables.push(name.clone()),
            Need::Native(module) => native.push(module.clone()),
            Need::ImportOf(package) => spec.import_allow.push(package.clone()),
            Need::Module(module) => {
                if let Choice::Named(names) = &mut spec.imports.allow
                    && !names.contains(module)
                {
                    names.push(module.clone());
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
    spec.commands = some(programs);
    spec.env = some(variables);
    spec.set_native(Some(some(native)));
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

fn some(names: Vec<String>) -> Choice {
    if names.is_empty() {
        Choice::All(false)
    } else {
        Choice::Named(names)
    }
}

/// Returns the names that stay protected: those by which nothing was written.
pub(crate) fn protect(base: &Spec, written: &BTreeSet<Vec<u8>>) -> Choice {
    let is_written = |name: &str| {
        let mut protected = Protected::default();
        protected.add(name);
        written
            .iter()
            .any(|path| protected.holds(path) || protected.may_be_below(path))
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
                    names
                        .iter()
                        .all(|name| entries.contains(&[&dir[..], b"/", name].concat()))
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
    texts.filter_map(Result::ok).collect()
}

fn network(needs: &BTreeSet<Need>) -> NetworkUse {
    let mut rules = NetworkRules {
        hosts: Where::Below(Vec::new()),
        lookup: false,
        ..NetworkRules::default()
    };
    let (mut hosts, mut listen, mut unix) = (Vec::new(), Vec::new(), Vec::new());
    for need in needs {
        match need {
            Need::OtherNetwork => return NetworkUse::All(true),
            Need::Connect(host, port) => {
                rules.lookup |= !HostRules::is_address(host);
                hosts.push(match *port {
                    u16::MAX => host.trim_matches(['[', ']']).to_owned(),
                    port => format!("{host}:{port}"),
                });
            }
            Need::Listen(host, port) => listen.push(format!("{host}:{port}")),
            Need::Unix(path) => unix.push(path.clone()),
            Need::NameOfAddress => rules.lookup = true,
            _ => {}
        }
    }
    let is_used = needs.contains(&Need::Network) || rules.lookup;
    if !is_used && hosts.is_empty() && listen.is_empty() && unix.is_empty() {
        return NetworkUse::All(false);
    }
    rules.hosts = Where::Below(hosts);
    rules.listen = some(listen);
    rules.unix = Where::Below(unix);
    NetworkUse::Rules(Box::new(rules))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(needs: &[Need], listed: &[&str]) -> Spec {
        let needs = needs.iter().cloned().collect();
        suggest(&Spec::default(), &needs, 3, |_| {
            Some(listed.iter().map(|name| name.as_bytes().to_vec()).collect())
        })
    }

    fn write(path: &str) -> Need {
        Need::Write(path.as_bytes().to_vec())
    }

    fn below(paths: &[&str]) -> Where {
        Where::Below(paths.iter().map(|&path| path.to_owned()).collect())
    }

    #[test]
    fn nothing_needs_nothing() {
        let spec = of(&[], &[]);
        assert_eq!(spec.write, below(&[]));
        assert_eq!(spec.read, below(&[]));
        assert_eq!(spec.network, NetworkUse::All(false));
        assert_eq!(spec.commands, Choice::All(false));
    }

    #[test]
    fn a_directory_stands_for_all_that_is_in_it_and_no_less() {
        let three = [write("/d/a"), write("/d/b"), write("/d/c")];
        assert_eq!(of(&three, &["a", "b", "c"]).write, below(&["/d"]));
        assert_eq!(of(&three, &["a"]).write, below(&["/d"]));
        let exact = below(&["/d/a", "/d/b", "/d/c"]);
        assert_eq!(of(&three, &["a", "other"]).write, exact);
        assert_eq!(of(&three[..2], &["a"]).write, below(&["/d/a", "/d/b"]));
        // Never the top directory.
        let top = [write("/a"), write("/b"), write("/c")];
        assert_eq!(of(&top, &[]).write, below(&["/a", "/b", "/c"]));
    }

    #[test]
    fn what_lies_inside_is_left_out() {
        let spec = of(&[write("/d"), write("/d/a"), write("/dx")], &["other"]);
        assert_eq!(spec.write, below(&["/d", "/dx"]));
    }

    #[test]
    fn temporary_files_need_a_root_and_any_will_do() {
        let temporary = Need::Temporary {
            path: b"/tmp/fastaudit-a/b".to_vec(),
            writes: true,
            host: b"/tmp".to_vec(),
        };
        assert_eq!(
            of(std::slice::from_ref(&temporary), &[]).write,
            below(&["/tmp"])
        );
        let spec = of(&[temporary, write("/d")], &[]);
        assert_eq!(spec.write, below(&["/d"]));
        assert_eq!(spec.read, below(&[]));
    }

    #[test]
    fn hosts_have_their_ports() {
        let spec = of(
            &[
                Need::Connect("a.org".to_owned(), 443),
                Need::Connect("b.org".to_owned(), 0),
                Need::Connect("127.0.0.1".to_owned(), u16::MAX),
                Need::Listen("[::1]".to_owned(), 80),
            ],
            &[],
        );
        let NetworkUse::Rules(rules) = spec.network else {
            panic!("no rules");
        };
        assert_eq!(rules.hosts, below(&["127.0.0.1", "a.org:443", "b.org:0"]));
        assert_eq!(rules.listen, Choice::Named(vec!["[::1]:80".to_owned()]));
        assert!(rules.lookup);
    }

    #[test]
    fn names_that_were_written_are_no_longer_protected() {
        let spec = of(&[write("/a/.git/hooks/x")], &["other"]);
        let Choice::Named(names) = &spec.protect else {
            panic!("all are protected");
        };
        assert!(!names.contains(&".git/hooks".to_owned()));
        assert!(names.contains(&".ssh".to_owned()));
        assert_eq!(of(&[write("/a/x")], &["other"]).protect, Choice::All(true));
    }

    proptest::proptest! {
        /// Holds whatever the paths are, and whatever else exists.
        #[test]
        fn paths_are_covered_and_nothing_else(
            needed in proptest::collection::btree_set("(/[ab]){1,3}/[abc]", 0..12),
            others in proptest::collection::btree_set("(/[ab]){1,3}/[abcd]", 0..6),
            threshold in 1_usize..4,
        ) {
            let is_in = |path: &str, dir: &str| {
                crate::policy::files::roots::is_within(path.as_bytes(), dir.as_bytes())
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
            let needs = needed.iter().map(|path| write(path)).collect();
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
