//! The decisions of policies: `tests/decisions/*.toml`, asked of the policy core.
//! `tests/policy/test_decisions.py` asks guards the same; the tables say at their head how they are
//! read.
#![cfg(unix)]

#[path = "decisions/plain.rs"]
mod plain;

use std::cell::Cell;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use fastaudit_rs::policy::files::fs::PathBuf;
use fastaudit_rs::policy::files::path::resolve;
use fastaudit_rs::policy::judge::{Arguments, Denied, Moment, judge_any};
use fastaudit_rs::policy::written::landings::Landings;
use fastaudit_rs::policy::written::spec::PRESETS;
use fastaudit_rs::policy::written::spec::{NetworkUse, Spec};
use fastaudit_rs::policy::written::values::{Choice, Where};
use fastaudit_rs::policy::written::widening::Places;
use fastaudit_rs::policy::written::wording::{HintStyle, Words, import_before, of_policy};
use fastaudit_rs::policy::{Base, Blocked, FileSystem, Os, Policy, Roots, Why};
use plain::{Argument, Event, Plain};
use toml::{Table, Value};

/// Makes what a table has in its tree.
fn make_tree(tree: &Table, at: &Path) {
    let texts = |key: &str| {
        let found = tree.get(key).and_then(Value::as_array);
        found.into_iter().flatten().map(|text| text.as_str().unwrap())
    };
    for directory in texts("directories") {
        fs::create_dir_all(at.join(directory)).unwrap();
    }
    for file in texts("files") {
        fs::write(at.join(file), "").unwrap();
    }
    for program in texts("programs") {
        fs::write(at.join(program), "#!/bin/sh\n").unwrap();
        fs::set_permissions(at.join(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let links = tree.get("links").and_then(Value::as_table);
    for (link, text) in links.into_iter().flatten() {
        let text = text.as_str().unwrap();
        symlink(text.replace("TREE", at.to_str().unwrap()), at.join(link)).unwrap();
    }
}

fn roots<'a>(paths: impl IntoIterator<Item = &'a String>) -> Roots {
    let mut roots = Roots::new();
    for path in paths {
        roots.add(&resolve(&Os, path.as_bytes(), Base::CurrentDir).unwrap());
    }
    roots
}

/// The roots of a contract, where the current directory is whichever it is by then.
fn followed(paths: &[String]) -> Roots {
    let (follows, fixed): (Vec<_>, Vec<_>) = paths.iter().partition(|path| *path == ".");
    let mut roots = roots(fixed);
    if !follows.is_empty() {
        roots.follow_current_dir();
    }
    roots
}

/// Reads a policy as a host does who writes it so.
fn policy(written: &Table, tree: &str) -> (Policy, Option<Spec>) {
    if let Some(paths) = written.get("roots") {
        let paths = paths.as_array().unwrap().iter();
        let paths: Vec<_> = paths.map(|path| path.as_str().unwrap().to_owned()).collect();
        let policy = match written["contract"].as_str().unwrap() {
            "mk_audit" => Policy::new(followed(&paths)),
            "v02" => Policy::strict(followed(&paths), Vec::new()),
            contract => panic!("no contract: {contract}"),
        };
        return (policy, None);
    }
    let mut fields = Table::new();
    if let Some(preset) = written.get("preset") {
        let preset = preset.as_str().unwrap();
        let (_, text) = PRESETS.iter().find(|(name, _)| *name == preset).unwrap();
        fields = text.parse().unwrap();
    }
    if let Some(own) = written.get("toml") {
        let own: Table = own.as_str().unwrap().replace("TREE", tree).parse().unwrap();
        fields.extend(own);
    }
    let spec = Spec::from_toml(&fields.to_string(), false).unwrap();
    let everywhere = ["/".to_owned()];
    let (write, below) = match &spec.write {
        Where::Anywhere => (roots(&everywhere), Vec::new()),
        Where::Below(paths) => (roots(paths), paths.clone()),
    };
    let read = match &spec.read {
        Where::Anywhere => None,
        Where::Below(paths) => Some(roots(paths.iter().chain(&below))),
    };
    let mut block = Blocked::default();
    for path in &spec.block {
        block.add(&resolve(&Os, path.as_bytes(), Base::CurrentDir).unwrap());
    }
    let unix = match &spec.network {
        NetworkUse::Rules(rules) => match &rules.unix {
            Where::Anywhere => None,
            Where::Below(paths) => Some(roots(paths.iter().filter(|path| !path.starts_with('@')))),
        },
        NetworkUse::All(_) => None,
    };
    let programs: &[String] = match &spec.commands {
        Choice::Named(names) => names,
        Choice::All(_) => &[],
    };
    let programs = programs.iter();
    let landings = Landings {
        write,
        read,
        block,
        unix,
        programs: programs.map(|name| PathBuf::from_slice(name.as_bytes())).collect(),
        search: search(tree),
        ..Landings::default()
    };
    (spec.policy(&Os, landings), Some(spec))
}

/// The `PATH` that rows are judged under.
fn search(tree: &str) -> Vec<u8> {
    format!("{tree}/bin").into_bytes()
}

/// The verdict on a row, as the tables write it, and the hint of a policy of TOML.
fn verdict(
    policy: &Policy,
    spec: Option<&Spec>,
    row: &[Value],
    tree: &str,
) -> (&'static str, Option<String>) {
    let name = row[0].as_str().unwrap();
    let args = row[1].as_array().unwrap().iter();
    let facts = row.iter().skip(3).find_map(Value::as_table);
    let facts = facts.cloned().unwrap_or_default();
    let connected = facts.get("connected").and_then(Value::as_integer);
    let event = Event {
        name,
        args: Plain(args.map(|value| Argument::read(value, tree)).collect()),
        policy,
        search: search(tree),
        first_dir: Some(tree.as_bytes().to_vec()),
        connected: Cell::new(connected.unwrap_or(0).try_into().unwrap()),
        facts,
    };
    match judge_any(&event, policy.rules().rule(name.as_bytes())) {
        Ok(()) => ("allowed", None),
        Err(reason) => {
            let verdict = reason.why().map_or("event", Why::field);
            (verdict, spec.map(|spec| hint(&event, reason.why(), spec)))
        }
    }
}

/// The hint of a policy that was written in TOML.
fn hint(event: &Event<'_>, why: Option<Why>, spec: &Spec) -> String {
    let module = event.args.text(0).unwrap_or_default();
    if event.name == "import" && why.is_none() {
        return import_before(&module, why);
    }
    let denied = Denied {
        fs: &Os,
        event: event.name,
        args: &event.args,
        moment: Moment::default(),
        policy: event.policy,
    };
    let lacks = why.map_or_else(Vec::new, |why| denied.lacks(why, event).unwrap());
    let told = HintStyle::new(Words::Toml, spec.clone());
    of_policy(&told, event.name, why, lacks, &Here, &|_| None).0
}

/// The places that a policy names, as they are.
struct Here;

impl Places for Here {
    fn resolve(&self, path: &str) -> Option<Vec<u8>> {
        let landing = resolve(&Os, path.as_bytes(), Base::CurrentDir)?;
        Some(landing.as_bytes().to_vec())
    }

    fn may_stand_for_its_files(&self, dir: &[u8]) -> bool {
        dir != b"/"
    }

    fn is_file(&self, path: &[u8]) -> bool {
        Os.exists(path) && !Os.is_dir(path)
    }
}

#[test]
fn the_core_decides_as_the_tables_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/decisions");
    let mut wrong = Vec::new();
    let (mut rows, mut hints) = (0, 0);
    let mut tables: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    tables.sort();
    for path in tables {
        let table: Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().canonicalize().unwrap();
        if let Some(tree) = table.get("tree") {
            make_tree(tree.as_table().unwrap(), &at);
        }
        std::env::set_current_dir(&at).unwrap();
        let tree = std::str::from_utf8(at.as_os_str().as_bytes()).unwrap();
        for (number, written) in table["policy"].as_array().unwrap().iter().enumerate() {
            let written = written.as_table().unwrap();
            let (policy, spec) = policy(written, tree);
            for row in written["rows"].as_array().unwrap() {
                let row = row.as_array().unwrap();
                rows += 1;
                let (found, hint) = verdict(&policy, spec.as_ref(), row, tree);
                let name = path.file_name().unwrap().to_string_lossy();
                let shown = format!("{name}, policy {number}: {} {}", row[0], row[1]);
                let expected = match row[2].as_str().unwrap() {
                    // A guard raises what the act would without one; the core denies it.
                    "missing" => "commands",
                    expected => expected,
                };
                if expected != found {
                    wrong.push(format!("{shown}: {found}, not {expected}"));
                }
                // A preset is told of in Python.
                let hint = hint.filter(|_| !written.contains_key("preset"));
                if let (Some(hint), Some(part)) = (hint, row.get(3).and_then(Value::as_str)) {
                    hints += 1;
                    if !hint.contains(&part.replace("TREE", tree)) {
                        wrong.push(format!("{shown}: {hint}, not {part}"));
                    }
                }
            }
        }
        // Another process may have its own there.
        std::env::set_current_dir("/").unwrap();
    }
    assert!(wrong.is_empty(), "{} of {rows}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows >= 300 && hints >= 90, "{rows} rows, {hints} hints");
}
