//! `Blobs` that hosts share: on a server that implements the S3 protocol, or in a directory of a
//! shared file system, by one name ([`Location`]). Calls block until the answer, like everything in
//! the core; there is no async runtime.
//!
//! Promises: an object is created by a conditional request (`If-None-Match: *`), so of two
//! clients that create the same name, one learns that it exists. A server that ignores the
//! condition is refused when the store is opened. Unanswered requests are retried; if the answer to
//! a creation was lost, comparing the object's bytes shows whether it succeeded.
//!
//! Which module decides what:
//! * `location`, `open`: names of stores, and opening one
//! * `settings`, `aws`: what a user chooses; keys, region and endpoint
//! * `probe`, `rules`: whether a server creates a name once, and whether rules delete objects
//! * `s3`, `server`, `request`: objects as requests; time-outs, repeats, lost answers
//! * `source`: objects of others, to be read
//! * `prompt`: calls that end in time where the system sets no limit
//! * `cached`, `cache_index`, `ahead`: chunks on the host's disk: which stay, how many are read
//! * `presence`: signs of life
//! * `traffic`, `explain`: counts; what a refusal means

// Objects of others.
mod source;

// A location becomes a store.
mod open;
mod location;
mod rules;
mod prompt;

// What a volume has of it.
mod presence;
mod cached;
mod ahead;
mod cache_index;

// Requests.
mod s3;
mod probe;
mod server;
mod request;
mod traffic;

// Credentials, and what a refusal means.
mod explain;
mod aws;
mod settings;

pub use crate::aws::Keys;
pub use crate::cached::{CacheStats, CachedBlobs};
pub use crate::location::{Location, LocationError};
pub use crate::presence::{Holder, Presence, Sign, Verdict};
pub use crate::s3::{S3Blobs, S3Bucket};
pub use crate::settings::{Opened, Probe, Seams, Settings, Style};
pub use crate::source::{Source, SourceObject, SourcePrefix};
pub use crate::traffic::{Failing, Kind, Traffic, TrafficCounts};
