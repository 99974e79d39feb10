//! The judge: an audit event with its arguments in, a verdict out.
//!
//! [`Arguments`] reads the arguments as plain values, and [`Surroundings`] answers the questions
//! that only the interpreter can: the binding implements both for Python objects, a test for plain
//! values.

mod act;
mod arguments;
mod event;
mod files;
mod lacking;
mod network;
mod places;
mod surroundings;

pub use act::{Act, ActRules, Refused, Value, Values};
pub use arguments::{
    Arguments, Endpoint, FAMILIES, Host, Named, PathLikes, SHELL, UNIX_FAMILY, family_of,
    is_internet, is_open_for_reading, parse_address, program,
};
pub use event::{judge, judge_any};

pub use lacking::{Denied, Knowledge, MOST_PATHS, Moment, is_of_the_moment};
pub use surroundings::{Follows, Reason, Surroundings};
