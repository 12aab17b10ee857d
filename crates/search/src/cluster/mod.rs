//! Clusters: the rows of a sub-tree as one immutable blob of columns, in balanced K-D order. Each
//! has a summary by which a query skips it (Magellan, 4.1 to 4.3).
//!
//! [`ClusterBuilder`] builds the bytes. [`Cluster`] opens them, reads a column when a query first
//! needs it, and keeps it until the caller releases it. This module does not know what the rows
//! describe.
//!
//! Which module decides what:
//! * `build`, `order`, `attributes`, `values`, `fields`: bytes from rows, and their order
//! * `summary`: whether a query may skip a cluster
//! * `scan`, `sieve`, `column_test`, `names`, `places`, `nearest`: which rows match
//! * `open`, `source`, `column`, `rows`: reading

// Building one.
mod build;
mod order;
mod attributes;

// Searching one.
mod places;
mod sieve;
mod scan;
mod summary;
mod nearest;
mod names;

// One that is open.
mod open;
mod rows;
mod fields;
mod column;
mod column_test;
mod source;
mod values;

#[cfg(test)]
mod tests;

pub use build::{Built, ClusterBuilder, ClusterOptions};
pub use fields::Fields;
pub(crate) use names::NameTest;
pub use nearest::Like;
pub(crate) use nearest::units;
pub use open::Cluster;
pub use rows::Rows;
pub(crate) use sieve::{NameSieve, Sieve};
pub use source::{BlobSource, Source};
pub use summary::Summary;
