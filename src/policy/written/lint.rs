//! Rules of a policy that never apply.

use crate::policy::environment::is_dangerous;
use crate::policy::files::fs::FileSystem;
use crate::policy::files::os::Os;
use crate::policy::hosts::HostRule;
use crate::policy::network::{Destination, HostRules, NetworkRules};
use crate::policy::requests::RequestRule;
use crate::policy::written::spec::{NetworkUse, Spec};
use crate::policy::written::values::{Choice, Where, is_in, is_within_module};

/// The facts that a lint needs beside the policy itself.
pub struct LintFinding<'a> {
    /// The policy, with its paths resolved as far as they can be.
    pub spec: &'a Spec,
    /// The programs that do not exist, by their place in `commands`.
    pub missing_programs: Vec<usize>,
}

/// Names each rule that never applies, as a sentence that begins with the field.
pub fn lint(found: &LintFinding<'_>) -> Vec<String> {
    let spec = found.spec;
    let mut lints = Vec::new();
    let (write, read) = (spec.write.names(), spec.read.names());
    for (field, paths) in [("write", write), ("read", read), ("block", &spec.block[..])] {
        covered(field, paths, &mut lints);
    }
    for (field, paths) in [("write", write), ("read", read)] {
        for (index, path) in paths.iter().enumerate() {
            if let Some(block) = spec.block.iter().position(|block| is_in(path, block)) {
                lints.push(format!(
                    "{field}[{index}]: {path:?} is inside block[{block}], {:?}",
                    spec.block[block]
                ));
            }
        }
    }
    let writes_nowhere = spec.write == Where::Below(Vec::new());
    if writes_nowhere && matches!(&spec.protect, Choice::Named(names) if !names.is_empty()) {
        lints.push("protect: nothing may be written anyway".to_owned());
    }
    if writes_nowhere && spec.max_bytes.is_some() {
        lints.push("max_bytes: nothing may be written anyway".to_owned());
    }
    for &index in &found.missing_programs {
        let name = &spec.commands.names()[index];
        lints.push(format!("commands[{index}]: there is no program {name:?}"));
    }
    lints.extend(stars(spec));
    variables(spec, &mut lints);
    modules(spec, &mut lints);
    if let NetworkUse::Rules(rules) = &spec.network {
        requests(rules, &mut lints);
        let judge = HostRules::new(rules, None);
        if let Where::Below(hosts) = &rules.hosts {
            for (index, host) in hosts.iter().enumerate() {
                let blocked = host
                    .parse()
                    .is_ok_and(|address| judge.block(&Destination::Address(address), 0))
                    || rules.block.contains(host);
                if blocked {
                    lints.push(format!("network.hosts[{index}]: {host:?} is in block"));
                }
            }
            for (field, is_given) in [
                ("ports", rules.ports.is_some()),
                ("max_connections", rules.max_connections.is_some()),
                ("block", !rules.block.is_empty()),
            ] {
                if hosts.is_empty() && is_given {
                    lints.push(format!("network.{field}: no host may be reached anyway"));
                }
            }
        }
    }
    lints
}

/// Rules for requests to hosts that may not be reached, and what they mean without a sandbox.
fn requests(rules: &NetworkRules, lints: &mut Vec<String>) {
    for (index, text) in rules.http.iter().enumerate() {
        let (Ok(rule), Where::Below(hosts)) = (RequestRule::parse(text), &rules.hosts) else {
            continue;
        };
        let is_reached =
            |host: &String| HostRule::parse(host).is_ok_and(|host| host.may_meet(&rule.host));
        if !hosts.iter().any(is_reached) {
            lints.push(format!("network.http[{index}]: hosts has no host of {text:?}"));
        }
    }
    if !rules.http.is_empty() {
        lints.push(
            "network.http: a sandbox alone reads requests; without one its hosts are not reached"
                .to_owned(),
        );
    }
}

/// Names with a `*` that stands for itself, where a pattern was meant: no file has such a path.
pub fn stars(spec: &Spec) -> Vec<String> {
    let mut lints = Vec::new();
    let unix = match &spec.network {
        NetworkUse::Rules(rules) => rules.unix.names(),
        NetworkUse::All(_) => &[],
    };
    let places = [
        ("write", spec.write.names()),
        ("read", spec.read.names()),
        ("block", &spec.block[..]),
        ("network.unix", unix),
    ];
    for (field, paths) in places {
        for (index, path) in paths.iter().enumerate() {
            if let Some((before, _)) = path.split_once('*')
                && !path.starts_with('@')
                && !Os.exists(path.as_bytes())
            {
                let directory = match before.rsplit_once('/') {
                    Some(("", _)) => "/",
                    Some((directory, _)) => directory,
                    None => ".",
                };
                lints.push(format!(
                    "{field}[{index}]: {path:?} is the path of one file, no pattern: write the \
                     directory, {directory:?}"
                ));
            }
        }
    }
    for (index, name) in spec.protect.names().iter().enumerate() {
        if name.contains('*') {
            lints.push(format!(
                "protect[{index}]: {name:?} is the name of one file, no pattern: write each name"
            ));
        }
    }
    for (index, name) in spec.env.names().iter().enumerate() {
        if let Some((before, after)) = name.split_once('*')
            && !after.is_empty()
        {
            let pattern = format!("{before}*");
            lints.push(format!(
                "env[{index}]: {name:?} has a * that stands for itself: a pattern ends with it, \
                 as {pattern:?}"
            ));
        }
    }
    lints
}

/// Paths that are inside another of the same list.
fn covered(field: &str, paths: &[String], lints: &mut Vec<String>) {
    for (index, path) in paths.iter().enumerate() {
        let inside = paths.iter().enumerate().position(|(other, dir)| {
            other != index && is_in(path, dir) && (path != dir || other < index)
        });
        if let Some(other) = inside {
            lints.push(format!(
                "{field}[{index}]: {path:?} is inside {field}[{other}], {:?}",
                paths[other]
            ));
        }
    }
}

fn variables(spec: &Spec, lints: &mut Vec<String>) {
    for (index, name) in spec.env.names().iter().enumerate() {
        // A pattern does not allow the dangerous variables that begin so.
        if let Some(start) = name.strip_suffix('*')
            && !start.is_empty()
            && is_dangerous(format!("{start}_").as_bytes())
            && is_dangerous(start.as_bytes())
        {
            lints.push(format!(
                "env[{index}]: {name:?} stands for dangerous variables alone, which need naming"
            ));
        }
    }
}

fn modules(spec: &Spec, lints: &mut Vec<String>) {
    let blocks = &spec.imports.block;
    let blocked = |name: &String| blocks.iter().position(|block| is_within_module(name, block));
    for (index, name) in spec.imports.allow.names().iter().enumerate() {
        if let Some(block) = blocked(name) {
            lints.push(format!("imports.allow[{index}]: {name:?} is in imports.block[{block}]"));
        }
    }
    if spec.imports.allow == Choice::All(false) && !blocks.is_empty() {
        lints.push("imports.block: no module may be imported anyway".to_owned());
    }
    for (index, name) in spec.import_allow.iter().enumerate() {
        if let Some(block) = blocked(name) {
            lints.push(format!("import_allow[{index}]: {name:?} is in imports.block[{block}]"));
        } else if name != "*"
            && spec.import_allow.iter().any(|other| other != name && is_within_module(name, other))
        {
            lints.push(format!("import_allow[{index}]: another name has {name:?} in it already"));
        }
    }
}
