//! `Blobs` on a server that speaks the protocol of S3: a preparation for stores that many machines
//! see. Calls wait for their answer, as everything in the core does; there is no runtime.
//!
//! Invariants: an object is made by a conditional request (`If-None-Match: *`), so of two who make
//! the same name one is told that it is taken; a server that does not heed the condition is refused
//! when the place is opened. What was not answered is asked for again; whether an object was made
//! by a request whose answer was lost is seen by its bytes.

mod request;
mod s3;

pub use crate::s3::{Place, S3Blobs};
