//! The permissions that would allow a denied event, in words.

use crate::policy::learn::Need;
use crate::policy::operation::Why;
use crate::policy::sql::names::{self, Database, UriTarget};
use crate::policy::written::spec::Spec;
use crate::policy::written::widening::{self, Lack, Places};
use crate::policy::written::wording::{Literal, Told, Words};

/// The advice for reading a database without the files that SQLite makes for that.
pub const READ_COPY: &str = "a copy of the database in a root, or 'mode=ro&immutable=1' in its URI if nobody writes to it: \
     reading a database with a write-ahead log makes files beside it";

/// Returns whether a database was to be opened for reading alone.
#[must_use]
pub fn reads_logged_database(event: &str, why: Option<Why>, name: &[u8]) -> bool {
    why == Some(Why::Unapproved)
        && event.starts_with("sqlite3.")
        && matches!(names::parse(name), Database::Uri(UriTarget::ReadShared(_)))
}

/// Returns the hint for an extension module that may not be loaded; without a field that denies, its
/// file is in a root.
#[must_use]
pub fn import_before(module: &str, why: Option<Why>) -> String {
    let place = match why {
        None => "its file is in a root, where guarded code may have written it",
        Some(_) => "its file is not where packages are installed",
    };
    format!("import {module} before the guard is entered: it is native code, and {place}")
}

/// Returns the hint for an event that a written policy denies, and the policy that would allow it
/// where one does.
#[must_use]
pub fn of_policy(
    told: &Told,
    event: &str,
    why: Option<Why>,
    mut lacks: Vec<Lack>,
    places: &impl Places,
    literal: Literal<'_>,
) -> (String, Option<Spec>) {
    if matches!(told.words, Words::Sandbox | Words::SandboxOptions) {
        for lack in &mut lacks {
            as_the_kernel_can_hold(lack);
        }
    }
    let wide = widening::widened(&told.spec, &lacks, places);
    if let Some(text) = told.change_to(&wide, literal) {
        return (text, Some(wide));
    }
    let text = match event {
        _ if why == Some(Why::Command) => "nothing would: there is no such program".to_owned(),
        // A name could be taken from `protect`.
        _ if why == Some(Why::Protected) => {
            "nothing would: the host's policy, answers or log are in that file".to_owned()
        }
        "os.fork" | "os.forkpty" => format!("no other thread, or {}", told.never(event)),
        _ => told.never(event),
    };
    (text, None)
}

/// Changes a place to one that the kernel can enforce: an existing file, or the directory of
/// entries that are made or removed.
fn as_the_kernel_can_hold(lack: &mut Lack) {
    let (Need::Write(path), Some(root)) = (&mut lack.need, &lack.root) else {
        return;
    };
    if !lack.is_file && root != b"/" {
        path.clone_from(root);
    }
}
