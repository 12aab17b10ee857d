//! A volume before it is open: its two headers, the engine that they name, and how it is created.
//!
//! The only crate above the engines that names one.

pub mod create;
pub mod header;
pub mod engine;
