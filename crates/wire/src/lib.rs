//! Messages and framing of the control socket, the protocol between a command and the daemon of a
//! volume (`docs/protocol/control.md`). Also those of served volumes, between a client and a server
//! ([`remote`]).
//!
//! A connection starts with one [`Hello`] and one [`Welcome`]. Then the client sends [`Request`]s
//! and the daemon answers each with any number of parts and one end, all carrying the request's
//! number. Every message is one frame. This crate only encodes, decodes, reads and writes: the
//! daemon authorizes requests, by the caller's credentials from the kernel.
//!
//! Promises: any bytes are decoded to a message or an error, in memory that the length of the frame
//! bounds. A frame has a maximum. The layout of `Hello` and `Welcome` never changes. Everything
//! else is sent only between ends of the same [`VERSION`], and `cargo xtask tidy` refuses a type
//! that changed without it. A [`Failure`] names what failed and what to do.
//!
//! Which module decides what:
//! * `call`: requests, and the version of all messages
//! * `reply`: parts and ends of answers
//! * `failure`: kinds of failures
//! * `frame`, `codec`, `bytes`: lengths, encoding, bytes
//! * `find`, `totals`, `history`, `difference`: searches and comparisons
//! * `import`, `export`, `scan`, `stream`: streams
//! * `status`, `snapshot`, `trash`, `retention`, `attr`: what answers carry
//! * `remote`: messages of served volumes

// Requests and answers.
mod call;
mod reply;

// What they carry.
mod history;
mod status;
mod find;
mod totals;
mod difference;
mod trash;
mod export;
mod import;
mod snapshot;
mod retention;
mod attr;
mod scan;
mod stream;
mod failure;

// Served volumes.
pub mod remote;

// Frames.
mod frame;
mod codec;
mod bytes;

pub use attr::{Attr, Kind};
pub use bytes::Bytes;
pub use call::{Call, DIFF_MEMORY, HELLO_MAGIC, Hello, Request, STREAM_MEMORY, VERSION, Welcome};
pub use codec::{DecodeError, decode, encode};
pub use difference::Difference;
pub use export::{ExportItem, remembered_bytes};
pub use failure::{Failure, FailureKind, QUOTA_HINT, os_words};
pub use find::{Find, FindFrom, Found, FoundOutcome, ORDERED_MAX, Snapshots};
pub use frame::{FRAME_BYTES_MAX, FrameError, PAYLOAD_BYTES_MAX, read_frame, write_frame};
pub use history::Version;
pub use import::{ImportAttr, ImportStop, Item, ItemError, Items};
pub use reply::{
    Answer, Body, CheckAction, CheckFinding, Checked, Collected, Garbage, Info, LimitChange,
    ListEntry, Quota, QuotaDifference, QuotaOf, QuotaOwner, Reply, Session, StatAnswer,
};
pub use retention::{Hold, Keep, Schedule, ScheduleChange, Scheduled};
pub use scan::{
    Followed, ScanDirectory, ScanInfo, ScanItem, ScanRow, ScanWatch, next_scan_item, push_scan_item,
};
pub use snapshot::{KeptSnapshot, Snapshot};
pub use status::{Background, Merges, Status, StoreCache, StoreStatus, Stuck, ValueLogs};
pub use stream::{Received, Receiving, Sent};
pub use totals::{DIRECTORIES_MAX, DirectoryTotals, Sums, SumsOf, Top, Totals};
pub use trash::{Removed, Trash};
