//! `Blobs` on a server that implements the S3 protocol: preparation for stores shared by many
//! machines. Calls block until the answer, like everything in the core; there is no async runtime.
//!
//! Invariants: an object is created by a conditional request (`If-None-Match: *`), so of two
//! clients that create the same name, one learns that it exists. A server that ignores the
//! condition is refused when the store is opened. Unanswered requests are retried; if the answer to
//! a creation was lost, comparing the object's bytes shows whether it succeeded.

mod request;
mod s3;

pub use crate::s3::{Place, S3Blobs};
