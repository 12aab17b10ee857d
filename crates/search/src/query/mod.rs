//! The query language: what is asked of every row, how it is written (as GNU find's arguments, or
//! in a search box), and what of it clusters can be skipped by.

mod code;
mod expr;
mod fires;
mod glob;
mod narrow;
mod regex;

pub use expr::{Accounts, Context, DEPTH_MAX, Expr, Fired, Kinds, NODES_MAX, Perm, PermKind, Test};
pub use glob::{Glob, GlobError, Letters};
pub use regex::{Dialect, Regex, RegexError};
