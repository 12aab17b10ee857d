//! A volume before it is open: its two headers, the engine that they name, and how it is created.
//!
//! The only crate above the engines that names one.
//!
//! Promises: an [`volume::OpenError`] names the reason, and a volume that is refused is left as it
//! is. Nothing is written before the header, its copy and the files of the store agree on their
//! volume. A creation that a crash interrupted leaves a directory that is not taken for a volume. A
//! volume is durable when its creation returns. Neither file of the header is overwritten. Which
//! process may open a volume is decided by a lock, which the caller holds.
//!
//! Which module decides what:
//! * `header`: the two headers: which is right, and repair
//! * `engine`: which engine, its options, and its checks and repairs
//! * `create`: what is written when a volume is created, in which order

pub mod create;
pub mod header;
pub mod engine;
