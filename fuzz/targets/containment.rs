//! Any path through any tree: the policy core against the operating system.
#![no_main]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use arbitrary::Arbitrary;
use fastaudit_rs::policy::files::path::{Base, resolve};
use fastaudit_rs::policy::{Os, Policy, Roots};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

#[path = "../../tests/oracle/mod.rs"]
mod oracle;

/// One component of a path.
#[derive(Arbitrary, Debug)]
enum Part<'a> {
    /// One of the names that the tree is made of.
    Name(u8),
    Up,
    Here,
    Nothing,
    Bytes(&'a [u8]),
}

/// Something in the tree, in one of the directories made before.
#[derive(Arbitrary, Debug)]
struct Entry<'a> {
    dir: u8,
    name: u8,
    kind: Kind<'a>,
}

#[derive(Arbitrary, Debug)]
enum Kind<'a> {
    Dir,
    File,
    Link(Text<'a>),
}

/// A path, from the top of the tree or from where it is used.
#[derive(Arbitrary, Debug)]
struct Text<'a> {
    from_top: bool,
    parts: Vec<Part<'a>>,
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    entries: Vec<Entry<'a>>,
    path: Vec<Part<'a>>,
    text: Text<'a>,
}

const NAMES: &[&str] = &["root", "rootless", "out", "a", "b", "c", "ünï", "sp ace"];

/// The most that is made for one input, so that one does not take long.
const MAX_ENTRIES: usize = 24;
const MAX_PARTS: usize = 16;

fn name(at: u8) -> &'static str {
    NAMES[usize::from(at) % NAMES.len()]
}

fn bytes(parts: &[Part<'_>]) -> Vec<u8> {
    let parts = parts.iter().take(MAX_PARTS).map(|part| match part {
        Part::Name(at) => name(*at).as_bytes(),
        Part::Up => b"..",
        Part::Here => b".",
        Part::Nothing => b"",
        Part::Bytes(bytes) => &bytes[..bytes.len().min(32)],
    });
    parts.collect::<Vec<_>>().join(&b'/')
}

fn top() -> &'static Path {
    static TOP: OnceLock<PathBuf> = OnceLock::new();
    TOP.get_or_init(|| {
        // In memory, where that is at hand: trees are made and removed all the time.
        let dir = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new());
        fs::canonicalize(dir.unwrap().keep()).unwrap()
    })
}

/// A path from the top of the tree.
fn at_top(path: &[u8]) -> Vec<u8> {
    [top().as_os_str().as_bytes(), b"/", path].concat()
}

fn text(text: &Text<'_>) -> Vec<u8> {
    let path = bytes(&text.parts);
    if text.from_top { at_top(&path) } else { path }
}

fn make(entries: &[Entry<'_>]) {
    fs::create_dir(top()).unwrap();
    // Only directories that were made here, so that nothing is made through a link.
    let mut dirs = vec![top().join("root"), top().join("out"), top().to_owned()];
    for dir in &dirs[..2] {
        fs::create_dir(dir).unwrap();
    }
    for entry in entries.iter().take(MAX_ENTRIES) {
        let path = dirs[usize::from(entry.dir) % dirs.len()].join(name(entry.name));
        // Existing files stay.
        match &entry.kind {
            Kind::Dir if fs::create_dir(&path).is_ok() => dirs.push(path),
            Kind::Dir => {}
            Kind::File => drop(fs::File::create_new(&path)),
            Kind::Link(to) => drop(symlink(OsStr::from_bytes(&text(to)), &path)),
        }
    }
}

fuzz_target!(|input: Input<'_>| {
    let _ = fs::remove_dir_all(top());
    make(&input.entries);
    let root = top().join("root");
    let mut roots = Roots::new();
    let resolved = resolve(&Os, root.as_os_str().as_bytes(), Base::CurrentDir);
    roots.add(&resolved.unwrap());
    let policy = Policy::new(roots.clone()).reading(Some(roots));

    let path = at_top(&bytes(&input.path));
    let link = text(&input.text);
    let resolved = resolve(&Os, &path, Base::CurrentDir);
    if path.contains(&0) {
        // No such path can be used, whatever becomes of it.
        assert!(resolved.is_none());
        return;
    }
    let landing = oracle::where_it_is(Path::new(OsStr::from_bytes(&path)));
    assert_eq!(resolved.unwrap().as_bytes(), landing.as_os_str().as_bytes());
    for (operation, approved) in oracle::uses(&path, &root) {
        let allowed = policy.check(&Os, operation).is_ok();
        assert_eq!(allowed, approved, "{operation:?}");
    }
    if !link.contains(&0) {
        let (operation, approved) = oracle::may_link(&link, &path, &root);
        let allowed = policy.check(&Os, operation).is_ok();
        assert_eq!(allowed, approved, "{operation:?}");
    }
});
