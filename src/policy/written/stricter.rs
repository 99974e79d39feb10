//! Compares fields of two policies: whether the new one allows nothing that the old one does not.
//! Paths are resolved.

use crate::policy::environment::is_dangerous;
use crate::policy::network::{NetworkRules, Ports};
use crate::policy::requests::RequestRule;
use crate::policy::written::spec::Spec;
use crate::policy::written::values::{self, Choice, Where, is_within_module};

pub fn blocks_less(new: &Spec, old: &Spec) -> bool {
    let is_blocked = |path: &String| new.block.iter().any(|block| is_in(path, block));
    !old.block.iter().all(is_blocked)
}

pub fn protects_less(new: &Spec, old: &Spec) -> bool {
    let names: Vec<_> = new.protected_names().collect();
    old.protected_names().any(|name| !names.contains(&name))
}

/// Returns whether a limit is higher; `None` is no limit.
pub fn is_more<T: PartialOrd>(new: &Option<T>, old: &Option<T>) -> bool {
    match (new, old) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(new), Some(old)) => new > old,
    }
}

/// Returns whether more variables may be set: `true` leaves out the dangerous ones, which a name
/// does not.
pub fn sets_more(new: &Choice, old: &Choice) -> bool {
    !is_choice_of(new, old) || (*old == Choice::All(true) && names_dangerous(new))
}

/// Returns whether all of the modules are named, or below a named one.
pub fn are_within(modules: &[String], names: &[String]) -> bool {
    let is_within = |module: &String| names.iter().any(|name| is_within_module(module, name));
    modules.iter().all(is_within)
}

pub fn is_where_within(new: &Where, old: &Where) -> bool {
    match (new, old) {
        (_, Where::Anywhere) => true,
        (Where::Anywhere, Where::Below(old)) => old.iter().any(|dir| dir == "/"),
        (Where::Below(new), Where::Below(old)) => {
            new.iter().all(|path| old.iter().any(|dir| is_in(path, dir)))
        }
    }
}

pub fn is_choice_of(new: &Choice, old: &Choice) -> bool {
    is_chosen(new, old, |_| false)
}

/// Returns whether the modules are among the others, or below one of them.
pub fn are_modules_of(new: &Choice, old: &Choice) -> bool {
    is_chosen(new, old, |name| old.has_module(name))
}

pub fn has_more_hosts(new: &NetworkRules, old: &NetworkRules) -> bool {
    match (&new.hosts, &old.hosts) {
        (_, Where::Anywhere) => false,
        (Where::Anywhere, Where::Below(_)) => true,
        (Where::Below(new), Where::Below(old)) => new.iter().any(|host| !old.contains(host)),
    }
}

/// Returns whether more ports may be reached. Hosts with a port of their own are not held to
/// `ports`.
pub fn has_more_ports(new: &NetworkRules, old: &NetworkRules) -> bool {
    let ports = match (&new.ports, &old.ports) {
        (_, None) => true,
        (None, Some(_)) => new.hosts == Where::Below(Vec::new()),
        (Some(new), Some(old)) => {
            new.iter().all(|ports: &Ports| old.iter().any(|old| old.hold(*ports)))
        }
    };
    let own_ports = match &new.hosts {
        Where::Below(hosts) if old.ports.is_some() && old.hosts == Where::Anywhere => {
            hosts.iter().all(|host| !host.contains(':'))
        }
        _ => true,
    };
    !(ports && own_ports)
}

/// Returns whether more requests may be made. A host without rules is held to none, so that one that
/// had some must have some still.
pub fn has_more_requests(new: &NetworkRules, old: &NetworkRules) -> bool {
    let host = |rule: &String| RequestRule::parse(rule).ok().map(|rule| rule.host);
    let is_held = |rule| new.http.iter().any(|own| host(own) == host(rule));
    let has_more = !old.http.is_empty() && new.http.iter().any(|rule| !old.http.contains(rule));
    has_more || !old.http.iter().all(is_held)
}

fn is_in(path: &str, dir: &str) -> bool {
    dir == "/" || values::is_in(path, dir)
}

fn is_chosen(new: &Choice, old: &Choice, is_also: impl Fn(&str) -> bool) -> bool {
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
    let mut names = new.names().iter();
    names.any(|name| !name.ends_with('*') && is_dangerous(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use crate::policy::written::spec::Spec;

    #[test]
    #[rustfmt::skip]
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
            ("commands = ['c']", "commands = ['a', 'b']", Some("commands")),
            ("commands = true", "commands = ['a']", Some("commands")),
            ("env = ['A']", "env = true", None),
            ("env = ['PATH']", "env = true", Some("env")),
            ("env = true", "env = ['A']", Some("env")),
            ("import_allow = ['a.b']", "import_allow = ['a']", None),
            ("import_allow = ['*']", "import_allow = ['a']", Some("import_allow")),
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
            ("imports = ['a']", "imports = {block = ['b']}", Some("imports")),
            ("packages = ['numpy']", "packages = 'data'", None),
            ("packages = 'data'", "packages = ['numpy']", Some("packages")),
            ("packages = ['other']", "packages = 'data'", Some("packages")),
            ("network = false", "network = {hosts = []}", None),
            ("network = true", "network = {hosts = []}", Some("network")),
            ("network = {hosts = ['a']}", "network = {hosts = ['a', 'b']}", None),
            ("network = {hosts = ['c']}", "network = {hosts = ['a', 'b']}", Some("network")),
            ("network = {ports = [80]}", "network = {ports = ['1-99']}", None),
            ("network = {ports = [100]}", "network = {ports = ['1-99']}", Some("network")),
            ("network = {hosts = ['a:9'], ports = [1]}", "network = {ports = [1]}", Some("network")),
            ("network = {http = ['GET a/x']}", "", None),
            ("", "network = {http = ['GET a/x']}", Some("network")),
            ("network = {}", "network = {http = ['GET a/x']}", Some("network")),
            ("network = {http = ['GET a/x']}", "network = {http = ['GET a/x', 'GET a/y']}", None),
            ("network = {http = ['GET a/x', 'GET a/y']}", "network = {http = ['GET a/x']}", Some("network")),
            ("network = {http = ['GET a/x']}", "network = {http = ['GET a/x', 'GET b/y']}", Some("network")),
            ("network = {listen = true}", "network = {listen = false}", Some("network")),
        ] {
            let read = |text| Spec::from_toml(text, false).unwrap();
            assert_eq!(
                read(new).allows_more_than(&read(old)),
                more,
                "{new} | {old}"
            );
        }
    }
}
