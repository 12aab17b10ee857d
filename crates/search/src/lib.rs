//! Search inside the namespace, after Magellan: rows of metadata in clusters by sub-tree, filters
//! that skip clusters, and the queries that run over both.
//!
//! The index is a function of a tree of the store. Clusters describe a *base* (an immutable clone
//! of the tree), and the tree's current contents are the base and the difference from it. So a
//! create writes nothing to the index, and no index entry can be stale.
//!
//! Promises: a query by the index returns what a walk of the same state returns, in whatever order.
//! Both check the permissions of the caller the same way. Files of the index may be deleted at any
//! time: a query then walks, or reads a small tree as one difference. Damage in them is an error of
//! the index ([`Error`]), never a wrong row. A query ends when its caller cancels it, has no other
//! limit of time, and holds no lock of the volume. The memory of the index is bounded by its
//! options.
//!
//! Which module decides what:
//! * `index`: bases, differences from them, queries and totals over both
//! * `aggregate`: sums of directories
//! * `walk`: queries without the index
//! * `sort`: the order of matches, and how many are kept
//! * `query`: expressions, their syntax, and the conditions that they imply
//! * `matches`, `condition`: results; necessary conditions
//! * `cluster`: rows as columns in one blob, with a summary
//! * `assemble`, `stored`, `row`: rows from records, and what rows do not hold
//! * `path`, `error`: paths as bytes; errors

// What answers a query.
pub mod index;
pub mod aggregate;
mod walk;
mod sort;

// The language.
pub mod query;
mod matches;
mod condition;

// Rows, and where they are.
mod stored;
pub mod cluster;
mod assemble;
mod row;
mod path;

mod error;

pub use assemble::{
    CARRY_NOTHING, NamedEntry, Records, Searchable, VOLUME, of_directory, of_inode,
};
pub use condition::{Attribute, Condition, Narrow};
pub use error::{Error, Result};
pub use matches::{Details, Emit, Match, Outcome, Sort, SortBy, shown};
pub use path::last_name;
pub use query::{Request, Start};
pub use row::{Row, RowBuf};
pub use sort::Rank;
pub use stored::Stored;
pub use walk::walk;
