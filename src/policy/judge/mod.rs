//! The judge: an audit event with its arguments in, a verdict out.
//!
//! [`Arguments`] reads the arguments as plain values, and [`Surroundings`] answers the questions
//! that only the interpreter can: the binding implements both for Python objects, a test for plain
//! values.

mod act;
mod address;
mod arguments;
mod event;
mod files;
mod imports;
mod lacking;
mod network;
mod places;
mod surroundings;

pub use act::{Act, ActRules, Refused, Value, Values};
pub use address::{Endpoint, FAMILIES, Host, UNIX_FAMILY, family_of, is_internet, parse_address};
pub use arguments::{Arguments, Named, PathLikes, SHELL, is_open_for_reading, program};
pub use event::{judge, judge_any};

pub use lacking::{Denied, Knowledge, MOST_PATHS, Moment, is_of_the_moment};
pub use surroundings::{Follows, Reason, Surroundings};
