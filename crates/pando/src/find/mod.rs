//! `pando find`, except for the conversation with the daemon: the request, and how results are
//! printed.

mod around;
mod print;
mod format;
mod list;
mod item;
mod times;
mod ordered;
pub(crate) mod like;
mod arguments;

pub(crate) use arguments::{Arguments, FindPath, HELP};
pub(crate) use around::Around;
pub(crate) use item::Item;
pub(crate) use ordered::{NOTHING, Ordered};
pub(crate) use print::{Printer, object};
pub(crate) use times::parse as parse_time;
