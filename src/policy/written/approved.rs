//! The permissions that a host's answers give: a policy of which a field at its default adds
//! nothing.

use std::net::IpAddr;

use toml::{Table, Value};

use crate::policy::files::path;
use crate::policy::learn::{self, Need};
use crate::policy::network::{NetworkRules, Part};
use crate::policy::operation::Why;
use crate::policy::written::fields::FIELDS;
use crate::policy::written::spec::{NetworkUse, Spec};
use crate::policy::written::values::{Choice, SpecError, Where};
use crate::policy::written::widening::{Lack, Places};
use crate::policy::written::wording::changed;

/// The reach of an answer that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Alone,
    /// Its pattern: the directory of a file, the package of a module, the program of a command.
    Pattern,
}

/// Programs that start whatever they are told to, so that naming one names all.
#[rustfmt::skip]
const SHELLS: &[&[u8]] = &[
    b"ash", b"bash", b"cmd.exe", b"csh", b"dash", b"env", b"fish", b"ksh", b"powershell.exe",
    b"sh", b"sudo", b"tcsh", b"xargs", b"zsh",
];

/// Returns the fields that allow what is lacking; `None` if nothing is, or they would allow more
/// than the answer says. `roots_hold_themselves`: the policy's roots approve their own entries.
pub fn additions(
    lacks: &[Lack],
    extent: Extent,
    places: &impl Places,
    roots_hold_themselves: bool,
) -> Option<Spec> {
    let mut added = Spec::default();
    for lack in lacks {
        let mut one = Spec::default();
        match (&lack.need, lack.why) {
            (Need::Write(path), Why::Unapproved) => {
                if extent == Extent::Alone && !roots_hold_themselves {
                    return None;
                }
                one.write.add(place(path, lack.is_dir, extent, places)?);
            }
            (Need::Read(path), Why::Unreadable) => {
                one.read = Where::Below(vec![place(path, lack.is_dir, extent, places)?]);
            }
            // In a policy a star stands for other names.
            (Need::Variable(name), _) if !name.contains('*') => one.env.add(name.clone()),
            (Need::Program(program), Why::Command) if extent == Extent::Pattern => {
                if program.is_empty() || SHELLS.contains(&path::split(program).1) {
                    return None;
                }
                one.commands.add(String::from_utf8(program.clone()).ok()?);
            }
            (Need::Module(module), Why::Import) => {
                let module = match extent {
                    Extent::Alone => module,
                    Extent::Pattern => module.split('.').next().unwrap_or(module),
                };
                one.imports.allow = Choice::Named(vec![module.to_owned()]);
            }
            (Need::Native(package), Why::Native) if extent == Extent::Pattern => {
                one.native.add(package.clone());
            }
            (Need::Switch(switch), _) => one.switches.set(*switch, true),
            (need, Why::Network(part)) => {
                one.network = NetworkUse::Rules(Box::new(network(need, part)?));
            }
            _ => return None,
        }
        merge(&mut added, &one);
    }
    (added != Spec::default() && added.validate().is_ok()).then_some(added)
}

/// Returns the text of a path, or of the directory that it is in.
fn place(path: &[u8], is_dir: bool, extent: Extent, places: &impl Places) -> Option<String> {
    let place = match extent {
        // A policy that names a directory names all that is in it.
        Extent::Alone if is_dir => return None,
        Extent::Alone => path.to_vec(),
        Extent::Pattern => {
            let dir = match is_dir {
                true => path.to_vec(),
                false => learn::parent_of(path)?,
            };
            if !places.may_stand_for_its_files(&dir) {
                return None;
            }
            dir
        }
    };
    String::from_utf8(place).ok()
}

fn network(need: &Need, part: Part) -> Option<NetworkRules> {
    let mut rules = rules_of(&NetworkUse::All(false));
    // These stand for more than one host.
    let is_one = |host: &str| !host.is_empty() && !host.contains(['*', '/']);
    match (need, part) {
        (Need::Connect(host, port), Part::All | Part::Hosts | Part::Ports | Part::Lookup)
            if is_one(host) && *port != u16::MAX =>
        {
            let bare = host.trim_matches(['[', ']']);
            let address = bare.parse::<IpAddr>();
            rules.lookup = address.is_err();
            let host = address.map_or_else(|_| bare.to_owned(), learn::shown);
            rules.hosts.add(format!("{host}:{port}"));
        }
        (Need::Listen(host, port), Part::All | Part::Listen) if is_one(host) && *port != 0 => {
            rules.listen.add(format!("{host}:{port}"));
        }
        (Need::Unix(path), Part::All | Part::Unix) => rules.unix.add(path.clone()),
        _ => return None,
    }
    Some(rules)
}

fn rules_of(network: &NetworkUse) -> NetworkRules {
    let mut rules = network.rules();
    rules.lookup &= matches!(network, NetworkUse::Rules(_));
    rules
}

/// Adds the permissions of answers to others.
pub fn merge(into: &mut Spec, more: &Spec) {
    let none = Spec::default();
    into.write.extend(&more.write);
    // Before the first answer all places and modules count as none.
    if more.read != none.read {
        if into.read == none.read {
            into.read = Where::Below(Vec::new());
        }
        into.read.extend(&more.read);
    }
    into.env.extend(&more.env);
    into.commands.extend(&more.commands);
    into.native.extend(&more.native);
    if more.imports.allow != none.imports.allow {
        if into.imports.allow == none.imports.allow {
            into.imports.allow = Choice::Named(Vec::new());
        }
        into.imports.allow.extend(&more.imports.allow);
    }
    into.switches.add(more.switches);
    let NetworkUse::Rules(more) = &more.network else {
        return;
    };
    let mut own = rules_of(&into.network);
    own.hosts.extend(&more.hosts);
    own.listen.extend(&more.listen);
    own.unix.extend(&more.unix);
    own.lookup |= more.lookup;
    into.network = NetworkUse::Rules(Box::new(own));
}

/// Checks that a policy only has fields that answers give.
///
/// # Errors
/// `SpecError::Value`, which names the first other field.
pub fn check(spec: &Spec) -> Result<(), SpecError> {
    let mut kept = Spec::default();
    merge(&mut kept, spec);
    let other = FIELDS.iter().find(|field| field.toml(spec) != field.toml(&kept));
    match other {
        None => Ok(()),
        Some(field) => Err(SpecError::Value {
            key: field.name.to_owned(),
            problem: "cannot be in a file of approvals, which only add permissions: write it into \
                      the policy"
                .to_owned(),
        }),
    }
}

// The answers of a host that are kept, and the file that they are in.

/// The table of a file of answers with those that deny.
const NEVER: &str = "never";

/// The first lines of a file of answers.
const HEADER: &str = "# Answers that were kept: what they allow beside the policy.\n";

/// The line before the denials among them.
const NEVER_HEADER: &str = "# Nobody is asked for what these would allow: it is denied.\n";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// The permissions that they give, beside a policy.
    pub allowed: Spec,
    /// The permissions that they deny: nobody is asked.
    pub never: Spec,
}

impl Kept {
    /// Reads the text of a file of answers.
    ///
    /// # Errors
    /// The text is no TOML, or has something else than answers.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        let mut table: Table = text.parse()?;
        let never = match table.remove(NEVER) {
            None => Spec::default(),
            Some(Value::Table(never)) => Spec::from_table(&never)?,
            Some(_) => {
                return Err(SpecError::Value {
                    key: NEVER.to_owned(),
                    problem: "must be a table of the fields that are denied: [never]".to_owned(),
                });
            }
        };
        let allowed = Spec::from_table(&table)?;
        check(&allowed)?;
        check(&never)?;
        Ok(Self { allowed, never })
    }

    pub fn merge(&mut self, more: &Self) {
        merge(&mut self.allowed, &more.allowed);
        merge(&mut self.never, &more.never);
    }

    /// Returns them as TOML, without the fields that add nothing.
    pub fn to_toml(&self) -> String {
        let mut text = format!("{HEADER}{}", fields(&self.allowed));
        if self.never != Spec::default() {
            let mut table = Table::new();
            table.insert(NEVER.to_owned(), Value::Table(fields(&self.never)));
            text.push_str(&format!("\n{NEVER_HEADER}{table}"));
        }
        text
    }
}

fn fields(spec: &Spec) -> Table {
    let fields = changed(&Spec::default(), spec).into_iter();
    fields.map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::written::approved::Kept;
    use crate::policy::written::values::Switch;

    struct Flat;

    impl Places for Flat {
        fn resolve(&self, path: &str) -> Option<Vec<u8>> {
            Some(path.as_bytes().to_vec())
        }

        fn may_stand_for_its_files(&self, dir: &[u8]) -> bool {
            dir != b"/home"
        }

        fn is_file(&self, _path: &[u8]) -> bool {
            true
        }
    }

    #[track_caller]
    fn gives(need: Need, why: Why, alone: Option<&str>, pattern: Option<&str>) {
        let is_dir = matches!(&need, Need::Write(path) if path.ends_with(b"dir"));
        let lacks = [Lack { is_dir, ..Lack::new(need, why) }];
        for (extent, wanted) in [(Extent::Alone, alone), (Extent::Pattern, pattern)] {
            let found = additions(&lacks, extent, &Flat, true);
            let wanted = wanted.map(|text| Spec::from_toml(text, false).unwrap());
            assert_eq!(found, wanted, "{extent:?}");
            if let Some(found) = found {
                check(&found).unwrap();
                let mut merged = Spec::default();
                merge(&mut merged, &found);
                merge(&mut merged, &found);
                assert_eq!(merged, found);
                let kept = Kept { allowed: found, never: Spec::default() };
                let read = Kept::from_toml(&kept.to_toml());
                assert_eq!(read.unwrap(), kept);
            }
        }
    }

    #[test]
    fn answers_reach_as_far_as_they_say() {
        let write = |path: &str| Need::Write(path.as_bytes().to_vec());
        let read = |path: &str| Need::Read(path.as_bytes().to_vec());
        let program = |path: &str| Need::Program(path.as_bytes().to_vec());
        let one = "write = ['/no/a']";
        gives(write("/no/a"), Why::Unapproved, Some(one), Some("write = ['/no']"));
        gives(write("/home/a"), Why::Unapproved, Some("write = ['/home/a']"), None);
        gives(write("/a"), Why::Unapproved, Some("write = ['/a']"), None);
        gives(write("/no/dir"), Why::Unapproved, None, Some("write = ['/no/dir']"));
        gives(write("/no/a"), Why::Blocked, None, None);
        gives(write("/no/a"), Why::Protected, None, None);
        let one = "read = ['/no/a']";
        gives(read("/no/a"), Why::Unreadable, Some(one), Some("read = ['/no']"));
        gives(program("git"), Why::Command, None, Some("commands = ['git']"));
        gives(program("/bin/sh"), Why::Command, None, None);
        gives(program(""), Why::Command, None, None);
        let module = Need::Module("a.b".to_owned());
        gives(module, Why::Import, Some("imports = ['a.b']"), Some("imports = ['a']"));
        let set = |name: &str| Need::Variable(name.to_owned());
        gives(set("A"), Why::Environment, Some("env = ['A']"), Some("env = ['A']"));
        gives(set("A*"), Why::Environment, None, None);
        gives(Need::Bytes(3), Why::TooMuch, None, None);
        let unknown = Switch::UnknownEvents;
        gives(Need::Switch(unknown), Why::Switch(unknown), None, None);
    }

    #[test]
    fn hosts_are_approved_with_their_port() {
        let to = |host: &str, port| Need::Connect(host.to_owned(), port);
        let both = |need: Need, part, wanted| gives(need, Why::Network(part), wanted, wanted);
        let named = "network = {hosts = ['a.org:443']}";
        both(to("a.org", 443), Part::All, Some(named));
        let address = "network = {hosts = ['[::1]:40000'], lookup = false}";
        both(to("[::1]", 40000), Part::Hosts, Some(address));
        both(to("*.org", 443), Part::Hosts, None);
        both(to("10.0.0.0/8", 443), Part::Hosts, None);
        both(to("a.org", u16::MAX), Part::Hosts, None);
        both(to("a.org", 443), Part::Block, None);
        both(to("a.org", 443), Part::MaxConnections, None);
        both(Need::OtherNetwork, Part::All, None);
    }

    #[test]
    fn answers_only_add_permissions() {
        for (text, key) in [
            ("block = ['/x']", "block"),
            ("max_bytes = 5", "max_bytes"),
            ("packages = ['data']", "packages"),
            ("network = false", "network"),
            ("network = {ports = [1]}", "network"),
        ] {
            let spec = Spec::from_toml(text, false).unwrap();
            let error = check(&spec).unwrap_err().to_string();
            assert!(error.starts_with(key), "{error}");
        }
    }

    #[test]
    fn a_file_is_read_as_it_is_written() {
        let given = "write = ['/a']\nnetwork = {hosts = ['a.org:443']}\n\
                     [never]\nread = ['/b']\nnetwork = {hosts = ['b.org:443']}\n";
        let kept = Kept::from_toml(given).unwrap();
        let text = kept.to_toml();
        assert_eq!(Kept::from_toml(&text).unwrap(), kept, "{text}");
        let mut merged = Kept::default();
        merged.merge(&kept);
        merged.merge(&kept);
        assert_eq!(merged, kept);
        let plain = Kept::from_toml("write = ['/a']").unwrap().to_toml();
        assert_eq!(plain, format!("{HEADER}write = [\"/a\"]\n"));
    }

    #[test]
    fn a_file_of_answers_holds_nothing_else() {
        for (text, told) in [
            ("never = 3", "never must be a table of the fields"),
            ("[never]\nblock = ['/x']", "block cannot be in a file of approvals"),
            ("[never]\nblok = ['/x']", "blok"),
            ("[never.never]\nwrite = []", "never"),
            ("max_bytes = 5", "max_bytes cannot be in a file of approvals"),
            ("write = [", "line 1"),
        ] {
            let error = Kept::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
