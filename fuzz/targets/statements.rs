//! Any SQL: what SQLite's authorizer says is opened must be found in it.
#![no_main]

use std::cell::{Cell, RefCell};

use fastaudit_rs::policy::sql::{OpenedDatabase, may_open, opened};
use libfuzzer_sys::fuzz_target;
use rusqlite::Connection;
use rusqlite::ffi::SQLITE_ATTACH;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;

thread_local! {
    static ASKED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// The answer to opening a database. The next statement runs only if this one is ignored, and
    /// `VACUUM` crashes SQLite if it is ignored.
    static ANSWER: Cell<Authorization> = const { Cell::new(Authorization::Deny) };
}

/// Notes what would be opened, and lets nothing happen.
fn authorize(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Attach { filename } => {
            ASKED.with_borrow_mut(|asked| asked.push(filename.to_owned()));
            ANSWER.get()
        }
        // An expression says which, so there is no name.
        AuthAction::Unknown { code: SQLITE_ATTACH, .. } => {
            ASKED.with_borrow_mut(|asked| asked.push(String::new()));
            ANSWER.get()
        }
        AuthAction::Pragma { .. } | AuthAction::Recursive => Authorization::Deny,
        _ => Authorization::Allow,
    }
}

/// The names that SQLite would open, and "" where an expression says which.
fn ask(sql: &str) -> Vec<String> {
    let database = Connection::open_in_memory().unwrap();
    database.authorizer(Some(authorize));
    database.set_limit(Limit::SQLITE_LIMIT_LENGTH, 100_000).unwrap();
    database.progress_handler(10_000, Some(|| true));
    ASKED.with_borrow_mut(Vec::clear);
    let vacuums = sql.to_ascii_lowercase().contains("vacuum");
    ANSWER.set(if vacuums { Authorization::Deny } else { Authorization::Ignore });
    // Errors in the statements do not matter.
    let _ = database.execute_batch(sql);
    ASKED.take()
}

fuzz_target!(|sql: &str| {
    let found = opened(sql.as_bytes());
    assert!(may_open(sql.as_bytes()) || found.is_empty(), "{found:?}");
    // `explain` asks, and opens nothing.
    if sql.contains('\0') || sql.to_ascii_lowercase().contains("explain") {
        return;
    }
    for name in ask(sql) {
        // Databases that `VACUUM` makes for itself.
        if name.is_empty() && sql.to_ascii_lowercase().contains("vacuum") {
            continue;
        }
        let is_it = |opened: &OpenedDatabase| match opened {
            OpenedDatabase::Named(own) => own == name.as_bytes(),
            OpenedDatabase::Parameter | OpenedDatabase::Unknown => true,
        };
        assert!(found.iter().any(is_it), "{name:?} is not in {found:?}");
    }
});
