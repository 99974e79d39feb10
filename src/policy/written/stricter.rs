//! Tells whether one policy allows nothing that another does not.

use crate::policy::environment::Environment;
use crate::policy::network::{NetworkRules, Ports};
use crate::policy::packages;
use crate::policy::written::spec::{Imports, NetworkUse, OnViolation, Spec};
use crate::policy::written::values::{self, Choice, Where, is_within_module};

/// Returns the first field by which the new policy allows something that the old one does not, if
/// there is one. A field that cannot be compared counts as allowing more. Paths are resolved.
pub fn more_than(new: &Spec, old: &Spec) -> Option<&'static str> {
    let protects_less = || {
        let names: Vec<_> = new.protected_names().collect();
        old.protected_names().any(|name| !names.contains(&name))
    };
    let blocks_less = || {
        let is_blocked = |path: &String| new.block.iter().any(|block| is_in(path, block));
        !old.block.iter().all(is_blocked)
    };
    let writes_more = match (new.max_bytes, old.max_bytes) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(new), Some(old)) => new > old,
    };
    let is_in_a_package = |name: &String| {
        old.import_allow
            .iter()
            .any(|package| is_within_module(name, package))
    };
    let proceeds = new.on_violation != OnViolation::Raise && new.on_violation != old.on_violation;
    [
        ("write", !is_where_within(&new.write, &old.write)),
        ("read", !is_where_within(&new.read, &old.read)),
        ("block", blocks_less()),
        ("protect", protects_less()),
        ("max_bytes", writes_more),
        (
            "commands",
            !is_choice_of(&new.commands, &old.commands, |_| false),
        ),
        (
            "env",
            // `true` leaves out the dangerous ones, which a name does not.
            !is_choice_of(&new.env, &old.env, |_| false)
                || (old.env == Choice::All(true) && names_dangerous(&new.env)),
        ),
        (
            "import_allow",
            !new.import_allow.iter().all(is_in_a_package),
        ),
        ("threads", new.threads && !old.threads),
        ("unknown_events", new.unknown_events && !old.unknown_events),
        (
            "native",
            !are_modules_of(&new.native, &old.native)
                || (new.native_unjudged && !old.native_unjudged),
        ),
        ("on_violation", proceeds),
        ("imports", !are_imports_of(&new.imports, &old.imports)),
        ("network", !is_network_of(&new.network, &old.network)),
        ("packages", !packages::are_of(&new.packages, &old.packages)),
    ]
    .into_iter()
    .find_map(|(field, is_more)| is_more.then_some(field))
}

fn is_in(path: &str, dir: &str) -> bool {
    dir == "/" || values::is_in(path, dir)
}

fn is_where_within(new: &Where, old: &Where) -> bool {
    match (new, old) {
        (_, Where::Anywhere) => true,
        (Where::Anywhere, Where::Below(old)) => old.iter().any(|dir| dir == "/"),
        (Where::Below(new), Where::Below(old)) => new
            .iter()
            .all(|path| old.iter().any(|dir| is_in(path, dir))),
    }
}

fn is_choice_of(new: &Choice, old: &Choice, is_also: impl Fn(&str) -> bool) -> bool {
    match (new, old) {
        (_, Choice::All(true)) | (Choice::All(false), _) => true,
        (Choice::All(true), _) => false,
        (Choice::Named(new), Choice::All(false)) => new.is_empty(),
        (Choice::Named(new), Choice::Named(old)) => {
            new.iter().all(|name| old.contains(name) || is_also(name))
        }
    }
}

fn names_dangerous(new: &Choice) -> bool {
    match new {
        Choice::All(_) => false,
        Choice::Named(names) => names
            .iter()
            .any(|name| !name.ends_with('*') && !Environment::Harmless.may_set(name.as_bytes())),
    }
}

fn are_modules_of(new: &Choice, old: &Choice) -> bool {
    is_choice_of(new, old, |name| old.has_module(name))
}

fn are_imports_of(new: &Imports, old: &Imports) -> bool {
    let is_blocked = |name: &String| new.block.iter().any(|block| is_within_module(name, block));
    are_modules_of(&new.allow, &old.allow) && old.block.iter().all(is_blocked)
}

fn is_network_of(new: &NetworkUse, old: &NetworkUse) -> bool {
    match (new, old) {
        (_, NetworkUse::All(true)) | (NetworkUse::All(false), _) => true,
        (NetworkUse::All(true), _) | (_, NetworkUse::All(false)) => false,
        (NetworkUse::Rules(new), NetworkUse::Rules(old)) => are_rules_of(new, old),
    }
}

fn are_rules_of(new: &NetworkRules, old: &NetworkRules) -> bool {
    let hosts = match (&new.hosts, &old.hosts) {
        (_, Where::Anywhere) => true,
        (Where::Anywhere, Where::Below(_)) => false,
        (Where::Below(new), Where::Below(old)) => new.iter().all(|host| old.contains(host)),
    };
    // Hosts with a port of their own are not held to `ports`.
    let ports = match (&new.ports, &old.ports) {
        (_, None) => true,
        (None, Some(_)) => new.hosts == Where::Below(Vec::new()),
        (Some(new), Some(old)) => new
            .iter()
            .all(|ports: &Ports| old.iter().any(|old| old.hold(*ports))),
    };
    let own_ports = match &new.hosts {
        Where::Below(hosts) if old.ports.is_some() => match &old.hosts {
            Where::Anywhere => hosts.iter().all(|host| !host.contains(':')),
            Where::Below(_) => true,
        },
        _ => true,
    };
    let connections = match (new.max_connections, old.max_connections) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(new), Some(old)) => new <= old,
    };
    hosts
        && ports
        && own_ports
        && connections
        && old.block.iter().all(|host| new.block.contains(host))
        && is_choice_of(&new.listen, &old.listen, |_| false)
        && is_where_within(&new.unix, &old.unix)
        && (old.lookup || !new.lookup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_field_that_allows_more() {
        for (new, old, more) in [
            ("", "", None),
            ("write = []", "write = ['/a']", None),
            ("write = ['/a/b']", "write = ['/a']", None),
            ("write = ['/ab']", "write = ['/a']", Some("write")),
            ("write = 'anywhere'", "write = ['/a']", Some("write")),
            ("write = ['.']", "write = ['/a']", Some("write")),
            ("write = ['.']", "write = ['/']", None),
            ("read = ['/a']", "", None),
            ("", "read = ['/a']", Some("read")),
            ("block = ['/a']", "", None),
            ("block = ['/a']", "block = ['/a/b']", None),
            ("block = ['/a/b']", "block = ['/a']", Some("block")),
            ("protect = false", "", Some("protect")),
            ("protect = ['x', 'y']", "protect = ['x']", None),
            ("max_bytes = 1", "", None),
            ("max_bytes = 2", "max_bytes = 1", Some("max_bytes")),
            ("", "max_bytes = 1", Some("max_bytes")),
            ("commands = ['a']", "commands = ['a', 'b']", None),
            (
                "commands = ['c']",
                "commands = ['a', 'b']",
                Some("commands"),
            ),
            ("commands = true", "commands = ['a']", Some("commands")),
            ("env = ['A']", "env = true", None),
            ("env = ['PATH']", "env = true", Some("env")),
            ("env = true", "env = ['A']", Some("env")),
            ("import_allow = ['a.b']", "import_allow = ['a']", None),
            (
                "import_allow = ['*']",
                "import_allow = ['a']",
                Some("import_allow"),
            ),
            ("threads = 'inherit'", "", Some("threads")),
            ("unknown_events = 'deny'", "", None),
            ("", "unknown_events = 'deny'", Some("unknown_events")),
            ("native = ['a.b']", "native = ['a']", None),
            ("native = true", "native = ['a']", Some("native")),
            ("native = 'unjudged'", "native = true", Some("native")),
            ("native = true", "native = 'unjudged'", None),
            ("on_violation = 'log'", "", Some("on_violation")),
            ("", "on_violation = 'log'", None),
            ("imports = ['a.b']", "imports = ['a']", None),
            (
                "imports = ['a']",
                "imports = {block = ['b']}",
                Some("imports"),
            ),
            ("packages = ['numpy']", "packages = 'data'", None),
            (
                "packages = 'data'",
                "packages = ['numpy']",
                Some("packages"),
            ),
            ("network = false", "network = {hosts = []}", None),
            ("network = true", "network = {hosts = []}", Some("network")),
            (
                "network = {hosts = ['a']}",
                "network = {hosts = ['a', 'b']}",
                None,
            ),
            (
                "network = {hosts = ['c']}",
                "network = {hosts = ['a', 'b']}",
                Some("network"),
            ),
            (
                "network = {ports = [80]}",
                "network = {ports = ['1-99']}",
                None,
            ),
            (
                "network = {ports = [100]}",
                "network = {ports = ['1-99']}",
                Some("network"),
            ),
            (
                "network = {hosts = ['a:9'], ports = [1]}",
                "network = {ports = [1]}",
                Some("network"),
            ),
            (
                "network = {listen = true}",
                "network = {listen = false}",
                Some("network"),
            ),
        ] {
            let read = |text| Spec::from_toml(text, false).unwrap();
            assert_eq!(more_than(&read(new), &read(old)), more, "{new} | {old}");
        }
    }
}
