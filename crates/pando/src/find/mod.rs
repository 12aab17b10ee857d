//! `pando find`, except for the conversation with the daemon: the request, and how results are
//! printed.

mod arguments;
mod around;
mod format;
pub(crate) mod like;
mod list;
mod ordered;
mod print;
mod times;

pub(crate) use arguments::{Arguments, FindPath, HELP};
pub(crate) use around::Around;
pub(crate) use ordered::{NOTHING, Ordered};
pub(crate) use print::{Item, Printer, object};
pub(crate) use times::parse as parse_time;
