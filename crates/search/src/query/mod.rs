//! The query language: the expressions that test every row, and their syntax (GNU find's arguments,
//! or a search box). Also the conditions by which clusters are skipped.
//!
//! Which module decides what:
//! * `parse`, `search_box`, `format`: syntax
//! * `expr`, `combine`, `code`, `request`: expressions, also in messages
//! * `narrow`, `sieve`: what clusters and columns decide
//! * `glob`, `regex`, `work`: patterns, and how long they may take

mod parse;
mod search_box;
mod combine;
mod format;
mod sieve;
mod narrow;
mod code;
mod request;
mod expr;
mod regex;
mod glob;
mod work;

pub use expr::{Accounts, Context, DEPTH_MAX, Expr, Fired, Kinds, NODES_MAX, Perm, PermKind, Test};
pub use format::{Directive, Format, Piece};
pub use glob::{Glob, GlobError, Letters};
pub use parse::{
    Action, Command, Fields, ParseError, Reference, Surroundings, What, begins_expression,
    operands, parse,
};
pub use regex::{Dialect, Regex, RegexError};
pub use request::{Request, Start};
pub use search_box::{is_query, meant_key, parse as parse_search_box};
pub(crate) use sieve::ByColumns;
