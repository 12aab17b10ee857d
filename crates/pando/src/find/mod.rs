//! `pando find`, but for the conversation with the owner: what is asked, and how what is found is
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
