//! On-disk formats: encoding and decoding only, no I/O, no panics, one file per structure.
//!
//! Integers are little-endian, except in sortable keys, which are big-endian. Every length and
//! count is bounded before anything is allocated for it.
//!
//! Promises: a decoder accepts any bytes, and returns the structure or a [`Malformed`] that names
//! the field. It takes memory in proportion to the bytes that it was given, never to a number in
//! them. What was encoded is decoded to the same value. A structure with a checksum is returned
//! only if the checksum is right; who wrote it is not proved by it. Bytes of every earlier version
//! that `docs/format/versions.md` lists as readable are decoded, and those of a newer version are
//! refused as newer, not as damaged. Nothing here keeps state: all functions may be called from any
//! thread. Each structure has a page in `docs/format/`, which a test compares with the code.
//!
//! Which module decides what:
//! * `key`, `entry_record`, `directory_record`, `inode_record`, `inode_number`, `xattr_record`,
//!   `acl`: names and inodes, and their keys
//! * `extent`, `segment`, `usage`: contents
//! * `volume`, `numbers`, `subvolume_record`, `detached_record`, `inherited_record`: a volume, its
//!   subvolumes, what waits
//! * `kept_twice`: which records have a copy; features that earlier programs must know
//! * `quota`, `owner_quota`, `trash`, `retention`, `candidate`: settings, limits, holds
//! * `answer_record`, `received_record`, `presence`, `cached_chunk`: clients, streams, hosts
//! * `batch`, `log_record`, `log_segment`, `log_object`: the log
//! * `node`, `pointer`, `catalog`, `superblock`, `space_map`, `map_directory`: the B-tree
//! * `run_block`, `run_index`, `run_manifest`, `row_pointer`: `lsm`
//! * `base_record`, `scan_record`, `manifest`, `cluster_limits`: the index
//! * `cluster`, `cluster_summary`, `cluster_filter`, `cluster_groups`, `cluster_directories`: its
//!   clusters
//! * `cluster_names`, `cluster_numbers`, `cluster_values`: their columns
//! * `stream`, `trace`: streams and traces
//! * `sealed`, `bytes`, `layout`, `corruption`, `damaged`: parts of all: heads, cursors, tables of
//!   pages, reports
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::expect_used,
    clippy::as_conversions,
    reason = "a decoder must survive any bytes"
)]

pub mod acl;
pub mod answer_record;
pub mod base_record;
pub mod batch;
mod bytes;
pub mod cached_chunk;
pub mod candidate;
pub mod catalog;
pub mod cluster;
pub mod cluster_directories;
pub mod cluster_filter;
pub mod cluster_groups;
pub mod cluster_limits;
pub mod cluster_names;
pub mod cluster_numbers;
pub mod cluster_summary;
pub mod cluster_values;
mod corruption;
#[cfg(test)]
mod damaged;
pub mod detached_record;
pub mod directory_record;
pub mod entry_record;
pub mod extent;
pub mod inherited_record;
mod inode_number;
pub mod inode_record;
pub mod kept_twice;
pub mod key;
pub mod layout;
pub mod log_object;
pub mod log_record;
pub mod log_segment;
pub mod manifest;
pub mod map_directory;
pub mod node;
pub mod numbers;
pub mod owner_quota;
pub mod pointer;
pub mod presence;
pub mod quota;
pub mod received_record;
pub mod retention;
pub mod row_pointer;
pub mod run_block;
pub mod run_index;
pub mod run_manifest;
pub mod scan_record;
mod sealed;
pub mod segment;
pub mod space_map;
pub mod stream;
pub mod subvolume_record;
pub mod superblock;
pub mod trace;
pub mod trash;
pub mod usage;
pub mod volume;
pub mod xattr_record;

pub use bytes::{COUNTED_MAX, Malformed, Reader, Writer};
pub use corruption::Corruption;
pub use pointer::{LAYOUT as POINTER_LAYOUT, POINTER_BYTES, POINTER_UNITS_MAX, Pointer, UNITS_END};
