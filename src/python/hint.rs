//! What a host would have to say to allow what was denied.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::denial::shown;
use super::denied::Denial;
use super::ffi as raw;
use super::plain;
use super::{command, decode, distributions};
use crate::policy::Why;
use crate::policy::fs::Os;
use crate::policy::network::Part;
use crate::policy::path::{self, Base};
use crate::policy::rules::{self, Access, Rule};

/// The hint for a denial; `None` where there is nothing to say.
pub fn of(py: Python<'_>, denial: &Denial) -> Option<String> {
    let event = denial.event.bind(py).to_str().ok()?;
    match denial.why {
        Some(Why::Blocked) => return Some("a policy whose block leaves it out".to_owned()),
        Some(Why::Protected) => {
            return Some("a policy whose protect leaves it out".to_owned());
        }
        Some(Why::Network(part)) => return Some(network(py, denial, part)),
        Some(Why::Import) => {
            let module = first_text(py, denial)?;
            return Some(format!("a policy whose imports have {module}"));
        }
        Some(Why::Thread) if denial.of_policy => return Some("threads = 'inherit'".to_owned()),
        Some(Why::Unknown) => return Some("unknown_events = 'allow'".to_owned()),
        Some(Why::TooMuch) => return Some("a policy with a larger max_bytes".to_owned()),
        Some(Why::Native) if denial.of_policy => {
            let callee = plain::text(&denial.args.bind(py).get_item(1).ok()?).ok()??;
            let package = distributions::package_of(callee.to_str().ok()?);
            return Some(format!("native = ['{package}']"));
        }
        Some(Why::Environment) if denial.of_policy => {
            let name = first_text(py, denial)?;
            return Some(format!("env = [{name}]"));
        }
        Some(Why::Unreadable) => {
            let root = root_for(py, denial, event, denial.path?)?;
            return Some(format!("read = [{root}]"));
        }
        Some(Why::Unapproved) => {
            if let Some(root) = root_for(py, denial, event, denial.path?) {
                return Some(if denial.of_policy {
                    format!("write = [{root}]")
                } else {
                    format!("approve a root that holds it, mk_audit([..., {root}])")
                });
            }
        }
        Some(Why::Command) if denial.of_policy => {
            let program = command::shown(event, denial.args.bind(py))?;
            let program = raw::str_repr(&program).ok()?;
            return Some(format!("commands = [{program}]"));
        }
        Some(Why::Environment | Why::Command | Why::Native | Why::Thread) | None => {}
    }
    if event == "fastaudit.call" {
        let callee = denial.args.bind(py).get_item(1).ok()?;
        let callee = shown(&callee).ok()?;
        return Some(format!("an on_call that returns False for {callee}"));
    }
    if !denial.has_roots() {
        // The guard failed to check it.
        return None;
    }
    if matches!(event, "os.fork" | "os.forkpty") {
        return Some(format!(
            "no other thread, or a before_deny that returns True for {event:?}"
        ));
    }
    Some(format!("a before_deny that returns True for {event:?}"))
}

/// The first argument of the event, as Python and TOML write a text.
fn first_text(py: Python<'_>, denial: &Denial) -> Option<String> {
    let text = plain::text(&denial.args.bind(py).get_item(0).ok()?).ok()??;
    raw::str_repr(&text).ok().map(|text| text.to_string())
}

/// What would allow a use of the network.
fn network(py: Python<'_>, denial: &Denial, part: Part) -> String {
    let host = || {
        let host = denial.host(py).ok()??;
        raw::str_repr(host.bind(py))
            .ok()
            .map(|text| text.to_string())
    };
    let port = || {
        let args = denial.args.bind(py);
        let address = args.get_item(1).ok()?.cast_into::<PyTuple>().ok()?;
        raw::int_value(&address.get_item(1).ok()?)
    };
    let field = part.name();
    match (part, host()) {
        (Part::Hosts | Part::Listen, Some(host)) => format!("{field} = [{host}]"),
        (Part::Unix, Some(path)) => format!("{field} = [{path}]"),
        (Part::Ports, _) => match port() {
            Some(port) => format!("{field} = [{port}]"),
            None => format!("{field} = 'any'"),
        },
        (Part::Block, _) => format!("a policy whose {field} leaves it out"),
        (Part::Lookup, _) => format!("{field} = true"),
        (Part::MaxConnections, _) => format!("a policy with a larger {field}"),
        _ => "network = true".to_owned(),
    }
}

/// The directory that would have to be a root, as Python and TOML write it.
fn root_for(py: Python<'_>, denial: &Denial, event: &str, index: usize) -> Option<String> {
    let args = denial.args.bind(py);
    let rule = rules::lookup(event.as_bytes())?;
    let dir_fd = match rule {
        Rule::Entries(paths) | Rule::Read(paths) => paths
            .iter()
            .find(|path| path.path == index)
            .and_then(|path| path.dir_fd),
        Rule::Symlink if index == 1 => Some(2),
        _ => None,
    };
    let base = decode::base_at(args, dir_fd);
    let given = plain::text(&args.get_item(index).ok()?).ok()??;
    let name = decode::root_name(given.as_any()).ok()?;
    let directory = match rule {
        Rule::ChangeDirectory | Rule::Read(_) => &name[..],
        // A URI names no directory.
        Rule::Database if name.starts_with(b"file:") => return None,
        // A relative text leads from the link's directory.
        Rule::Symlink if index == 0 && !name.starts_with(b"/") => return None,
        _ => path::split(&name).0,
    };
    let base = match name.starts_with(b"/") {
        true => Base::CurrentDir,
        false => base,
    };
    let resolved = if follows_links(rule, index) {
        path::resolve(&Os, &name, base)?.into_parent()
    } else {
        path::resolve(&Os, directory, base)?
    };
    let text = raw::fs_decode(py, resolved.as_bytes()).ok()?;
    raw::str_repr(&text).ok().map(|text| text.to_string())
}

/// Whether what the path at this place leads to is what counts.
fn follows_links(rule: Rule, index: usize) -> bool {
    match rule {
        Rule::Open | Rule::Database => true,
        Rule::Entries(paths) => paths
            .iter()
            .find(|path| path.path == index)
            .is_some_and(|path| path.access == Access::File),
        _ => false,
    }
}
