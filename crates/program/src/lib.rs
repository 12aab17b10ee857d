//! What the programs of PandoFS share: `pando`, and `pando-bench`, which opens volumes in its own
//! process.
//!
//! * To users: [`Output`] in one of two forms, [`failure`]s that name the next step, [`exit`]
//!   codes, interrupts, the engine and the sizes that options name.
//! * Lists of names with attributes: [`manifest`].
//! * As the one process that has a volume open: its log, if that is stored elsewhere
//!   ([`log_place`]), its memory ([`cache_size`], [`index_cache`]), its [`Background`] work.

pub mod interrupt;
pub mod output;
pub mod exit;
pub mod log_place;
pub mod failure;
mod background;
pub mod cache_size;
mod engine;
pub mod index_cache;
pub mod log;
pub mod manifest;

pub use background::Background;
pub use engine::EngineArg;
pub use output::Output;
