//! Bytes on disk and nothing else: no I/O, no panics, one file per structure.
//!
//! Integers are little-endian, except in sortable keys, which are big-endian. Every length and
//! count is bounded before anything is allocated for it.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::expect_used,
    clippy::as_conversions,
    reason = "a decoder must survive any bytes"
)]

pub mod batch;
mod bytes;
mod corruption;

pub use bytes::{Malformed, Reader, Writer};
pub use corruption::Corruption;
