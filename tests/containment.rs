//! Path containment against a real temporary tree, with the operating system as the judge.
#![cfg(unix)]

mod oracle;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use fastaudit_rs::policy::files::path::{Base, resolve};
use fastaudit_rs::policy::{Operation, Os, Policy, Roots, Target, Verdict, Why};
use oracle::{may_link, uses, where_it_is};
use proptest::prelude::*;
use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

/// `root` is approved; `rootless`, whose name begins the same, and `out` are not.
struct Tree {
    dir: TempDir,
    policy: Policy,
}

fn tree() -> &'static Tree {
    static TREE: OnceLock<Tree> = OnceLock::new();
    TREE.get_or_init(|| {
        let dir = TempDir::new().unwrap();
        let at = |path: &str| dir.path().join(path);
        for path in ["root/sub/deep", "rootless/sub", "out/sub", "root/sp ace", "root/ünï"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        fs::write(at("root/file"), "").unwrap();
        for (text, link) in [
            ("sub", "root/in"),
            ("../out", "root/escape"),
            ("../../out/sub", "root/sub/escape"),
            ("../root/sub", "out/enter"),
            ("nowhere/at/all", "root/dangling"),
            ("../out/nowhere", "root/dangling_out"),
            ("in/deep", "root/chain"),
            (".", "root/here"),
            ("..", "root/up"),
            ("file", "root/to_file"),
        ] {
            symlink(text, at(link)).unwrap();
        }
        symlink(at("out"), at("root/absolute")).unwrap();
        symlink(at("root"), at("alias")).unwrap();
        let mut roots = Roots::new();
        let root = at("root");
        roots.add(&resolve(&Os, root.as_os_str().as_bytes(), Base::CurrentDir).unwrap());
        Tree { policy: Policy::new(roots.clone()).reading(Some(roots)), dir }
    })
}

fn component() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec![
            "root", "rootless", "out", "alias", "sub", "deep", "in", "escape", "enter", "dangling",
            "dangling_out", "chain", "here", "up", "file", "to_file", "absolute", "sp ace", "ünï",
        ]).prop_map(String::from),
        3 => Just("..".to_owned()),
        1 => Just(".".to_owned()),
        1 => Just(String::new()),
        2 => "[a-z]{1,6}",
    ]
}

fn relative_path() -> impl Strategy<Value = String> {
    (prop::collection::vec(component(), 0..8), any::<bool>())
        .prop_map(|(parts, slash)| parts.join("/") + if slash { "/" } else { "" })
}

fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| fs::canonicalize(tree().dir.path().join("root")).unwrap())
}

fn verdict(operation: Operation<'_>, allowed: bool) -> Verdict {
    match operation {
        _ if allowed => Ok(()),
        Operation::Read(_) => Err(Why::Unreadable),
        _ => Err(Why::Unapproved),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn resolution_agrees_with_the_system(relative in relative_path()) {
        let path = tree().dir.path().join(&relative);
        let resolved = resolve(&Os, path.as_os_str().as_bytes(), Base::CurrentDir).unwrap();
        let resolved = PathBuf::from(OsStr::from_bytes(resolved.as_bytes()));
        prop_assert_eq!(resolved, where_it_is(&path));
    }

    #[test]
    fn each_use_of_a_path_is_judged_by_where_it_leads(relative in relative_path()) {
        let path = format!("{}/{relative}", tree().dir.path().display());
        for (operation, approved) in uses(path.as_bytes(), root()) {
            prop_assert_eq!(tree().policy.check(&Os, operation), verdict(operation, approved));
        }
    }

    #[test]
    fn a_link_is_judged_by_where_its_text_leads(
        text in relative_path(), absolute in any::<bool>(), relative in relative_path(),
    ) {
        let dir = tree().dir.path().display();
        let text = if absolute { format!("{dir}/{text}") } else { text };
        let at = format!("{dir}/{relative}");
        let (operation, approved) = may_link(text.as_bytes(), at.as_bytes(), root());
        prop_assert_eq!(tree().policy.check(&Os, operation), verdict(operation, approved));
    }

    #[test]
    fn what_is_allowed_to_be_opened_is_made_inside(relative in relative_path()) {
        // By doing it, as below; through the links that there are.
        let path = tree().dir.path().join(&relative);
        let operation = Operation::OpenForWriting(Target::path(path.as_os_str().as_bytes()));
        let is_there = path.exists();
        if tree().policy.check(&Os, operation).is_ok()
            && let Ok(_file) = fs::OpenOptions::new().append(true).create(true).open(&path)
        {
            let landed = fs::canonicalize(&path).unwrap();
            if !is_there {
                fs::remove_file(&landed).unwrap();
            }
            prop_assert!(landed.starts_with(root()), "{} is outside", landed.display());
        }
    }

    #[test]
    fn what_is_allowed_to_be_made_is_made_inside(relative in relative_path()) {
        // Not by the oracle but by doing it: a directory that the policy lets be made there
        // turns up inside the root.
        let path = tree().dir.path().join(&relative).join("made");
        let operation = Operation::ChangeEntry(Target::path(path.as_os_str().as_bytes()));
        if tree().policy.check(&Os, operation).is_ok() && fs::create_dir(&path).is_ok() {
            let landed = fs::canonicalize(&path).unwrap();
            fs::remove_dir(&path).unwrap();
            let root = fs::canonicalize(tree().dir.path().join("root")).unwrap();
            prop_assert!(landed.starts_with(&root), "{} is outside", landed.display());
        }
    }
}

#[test]
fn relative_names_start_from_their_directory_descriptor() {
    let inside = fs::File::open(tree().dir.path().join("root/sub")).unwrap();
    let outside = fs::File::open(tree().dir.path().join("out")).unwrap();
    for (dir, name, verdict) in [
        (&inside, "new", Ok(())),
        (&inside, "deep/new", Ok(())),
        (&inside, "../new", Ok(())),
        (&inside, "../../new", Err(Why::Unapproved)),
        (&inside, "escape/new", Err(Why::Unapproved)),
        (&outside, "new", Err(Why::Unapproved)),
        (&outside, "enter/new", Ok(())),
    ] {
        let base = Base::Descriptor(std::os::fd::AsRawFd::as_raw_fd(dir));
        let target = Target { base, ..Target::path(name.as_bytes()) };
        assert_eq!(tree().policy.check(&Os, Operation::ChangeEntry(target)), verdict, "{name}");
    }
}

#[test]
fn a_descriptor_that_is_not_open_approves_nothing() {
    let target = Target { base: Base::Descriptor(-1), ..Target::path(b"new") };
    assert_eq!(tree().policy.check(&Os, Operation::ChangeEntry(target)), Err(Why::Unapproved));
}

#[test]
fn names_longer_than_the_system_allows() {
    let long = "x".repeat(300);
    let root = tree().dir.path().join("root");
    // Deeper than a path can be, and there.
    let (mut deep, step) = (root.display().to_string(), "y".repeat(250));
    let mut dir = rustix::fs::open(&root, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..20 {
        rustix::fs::mkdirat(&dir, &step, Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, &step, OFlags::DIRECTORY, Mode::empty()).unwrap();
        deep = format!("{deep}/{step}");
    }
    deep += "/new";
    for (path, verdict) in [
        // No such entry can be made, inside a root or not: the system's own error says so.
        (format!("{}/{long}/new", root.display()), Ok(())),
        (format!("{}/{long}/more/new", root.display()), Ok(())),
        (format!("{}/../out/{long}/new", root.display()), Err(Why::Unapproved)),
        // A path that is too long as a whole cannot be followed to its end.
        (deep, Err(Why::Unapproved)),
    ] {
        let operation = Operation::ChangeEntry(Target::path(path.as_bytes()));
        assert_eq!(tree().policy.check(&Os, operation), verdict, "{} bytes", path.len());
    }
}

#[test]
fn a_loop_of_links_ends() {
    let dir = TempDir::new().unwrap();
    symlink("b", dir.path().join("a")).unwrap();
    symlink("a", dir.path().join("b")).unwrap();
    let path = dir.path().join("a/new");
    assert!(resolve(&Os, path.as_os_str().as_bytes(), Base::CurrentDir).is_some());
}
