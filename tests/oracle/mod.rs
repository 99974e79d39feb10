//! Where paths lead and what a root approves, said in another way than the policy core says it.
//!
//! Where a path exists, `std::fs::canonicalize` (realpath(3)) says where it is. Where its tail
//! does not, the tail is taken as written from the longest part that does.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use fastaudit_rs::policy::files::path::Name;
use fastaudit_rs::policy::{Operation, Target};

/// The links that the system follows for one path (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Where a path leads, by the system: the longest part that exists, then the rest as written.
/// Links whose target is missing are read one by one, as `canonicalize` refuses them.
pub fn where_it_is(path: &Path) -> PathBuf {
    let mut real = PathBuf::from("/");
    let mut rest: Vec<PathBuf> = parts(path);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == Path::new("..") {
            real.pop();
            continue;
        }
        let next = real.join(&part);
        match fs::read_link(&next) {
            Ok(text) if links < MAX_LINKS => {
                links += 1;
                if text.is_absolute() {
                    real = PathBuf::from("/");
                }
                rest.extend(parts(&text));
            }
            _ => real = next,
        }
    }
    if let Ok(known) = fs::canonicalize(path) {
        assert_eq!(known, real, "the oracle disagrees with realpath(3) on {}", path.display());
    }
    real
}

fn parts(path: &Path) -> Vec<PathBuf> {
    let normal = path.components().filter_map(|part| match part {
        Component::Normal(part) => Some(PathBuf::from(part)),
        Component::ParentDir => Some(PathBuf::from("..")),
        _ => None,
    });
    let mut parts: Vec<_> = normal.collect();
    parts.reverse();
    parts
}

/// Each way to use an absolute path, and whether a policy with this one root, for reading too,
/// approves it.
pub fn uses<'a>(path: &'a [u8], root: &Path) -> [(Operation<'a>, bool); 6] {
    let target = Target::path(path);
    let landing = where_it_is(Path::new(OsStr::from_bytes(path)));
    let slash = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    let (dir, name) = (&path[..=slash], &path[slash + 1..]);
    let dir = where_it_is(Path::new(OsStr::from_bytes(dir)));
    let is_place = matches!(name, b"" | b"." | b"..");
    let holder = if is_place { landing.parent().unwrap_or(&landing) } else { &dir };
    let inside = landing.starts_with(root) && landing != root;
    [
        (Operation::ChangeEntry(target), holder.starts_with(root)),
        // The entry "." of archives: a root's own attributes, where they are extracted.
        (Operation::ChangeFile(target), inside || (is_place && landing == root)),
        (Operation::ChangePlace(target), dir.starts_with(root)),
        // A root is opened for writing by who makes a file without a name in it.
        (Operation::OpenForWriting(target), inside || (landing == root && root.is_dir())),
        (Operation::Read(target), landing.starts_with(root)),
        (Operation::ChangeDirectory { to: target, left: None }, landing.starts_with(root)),
    ]
}

/// Returns whether such a policy approves a symbolic link at this path, which is absolute, with
/// this text.
pub fn may_link<'a>(text: &'a [u8], at: &'a [u8], root: &Path) -> (Operation<'a>, bool) {
    let operation = Operation::LinkTo { text: Name::Path(text), at: Target::path(at) };
    let slash = at.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    let dir = where_it_is(Path::new(OsStr::from_bytes(&at[..=slash])));
    let target = dir.join(OsStr::from_bytes(text));
    let lands_inside = where_it_is(&target).starts_with(root);
    // An absolute text names an entry to which the link gives another way.
    let names_inside = !text.starts_with(b"/")
        || uses(text, root)
            .iter()
            .any(|(used, approved)| matches!(used, Operation::ChangePlace(_)) && *approved);
    (operation, lands_inside && names_inside)
}
