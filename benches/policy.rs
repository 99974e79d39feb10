//! The time of the policy core by itself, without an interpreter: `make bench-policy`.

use std::fs;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use criterion::{BenchmarkId, Criterion, criterion_main};
use fastaudit_rs::policy::events;
use fastaudit_rs::policy::files::path::{Base, resolve};
use fastaudit_rs::policy::files::places::PRESET;
use fastaudit_rs::policy::{Blocked, Name, Operation, Os, Policy, Protected, Roots, Target};
use tempfile::TempDir;

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn policy(roots: &[&Path]) -> Policy {
    let mut approved = Roots::new();
    for root in roots {
        approved.add(&resolve(&Os, bytes(root), Base::CurrentDir).unwrap());
    }
    Policy::new(approved)
}

fn lookup(criterion: &mut Criterion) {
    for (case, event) in
        [("hit", "open"), ("miss", "os.listdir"), ("long miss", "cpython.run_interactivehook")]
    {
        criterion.bench_function(&format!("lookup, {case}"), |bencher| {
            bencher.iter(|| events::lookup(black_box(event.as_bytes())));
        });
    }
}

fn check(criterion: &mut Criterion) {
    let dir = TempDir::new().unwrap();
    let (root, out) = (dir.path().join("root"), dir.path().join("out"));
    let deep = root.join("a/b/c/d/e");
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(&out).unwrap();
    symlink("a/b", root.join("link")).unwrap();
    let policy = policy(&[&root]);
    let mut case = |name: &str, path: &Path| {
        let operation = Operation::OpenForWriting(Target::path(bytes(path)));
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| policy.check(&Os, black_box(operation)));
        });
    };
    case("write, five levels down", &deep.join("file"));
    case("write, through a link", &root.join("link/c/file"));
    case("write, where nothing is", &root.join("none/at/all"));
    case("write, denied", &out.join("file"));
    let uri = [b"file:".as_slice(), bytes(&deep.join("db")), b"?mode=rwc"].concat();
    criterion.bench_function("database, URI", |bencher| {
        let operation = Operation::OpenDatabase(Name::Path(&uri));
        bencher.iter(|| policy.check(&Os, black_box(operation)));
    });
}

fn roots(criterion: &mut Criterion) {
    let dir = TempDir::new().unwrap();
    let mut group = criterion.benchmark_group("write, by the number of roots");
    let all: Vec<_> = (0..1000).map(|number| dir.path().join(format!("root{number}"))).collect();
    for root in &all {
        fs::create_dir(root).unwrap();
    }
    for count in [1, 10, 100, 1000] {
        let approved: Vec<&Path> = all[..count].iter().map(AsRef::as_ref).collect();
        let policy = policy(&approved);
        let path = all[count - 1].join("file");
        let operation = Operation::OpenForWriting(Target::path(bytes(&path)));
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| policy.check(&Os, black_box(operation)));
        });
    }
    group.finish();
}

/// Names that are kept from writing, and blocked places: neither depends on how many there are.
fn names(criterion: &mut Criterion) {
    let mut protected = Protected::default();
    for name in PRESET {
        protected.add(name);
    }
    for depth in [5, 100] {
        let path = "/directory".repeat(depth);
        criterion.bench_function(&format!("protected names, depth {depth}"), |bencher| {
            bencher.iter(|| protected.holds(black_box(path.as_bytes())));
        });
    }
    for count in [1, 10_000] {
        let mut blocked = Blocked::default();
        for number in 0..count {
            let place = format!("/srv/place{number}");
            blocked.add(&resolve(&Os, place.as_bytes(), Base::CurrentDir).unwrap());
        }
        criterion.bench_function(&format!("blocked places, {count}"), |bencher| {
            bencher.iter(|| blocked.holds(black_box(b"/home/user/project/out/file")));
        });
    }
}

mod groups {
    use super::{check, lookup, names, roots};

    criterion::criterion_group!(benches, lookup, check, roots, names);
}

criterion_main!(groups::benches);
