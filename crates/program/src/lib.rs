//! What the programs of PandoFS share: `pando`, and `pando-bench`, which opens volumes in its own
//! process.
//!
//! * To users: [`Output`] in one of two forms, [`failure`]s that name the next step, [`exit`]
//!   codes, interrupts, the engine and the sizes that options name.
//! * Lists of names with attributes: [`manifest`]. Estimated [`prices`] of requests to a store.
//! * As the one process that has a volume open: its log, if that is stored elsewhere
//!   ([`log_place`]), its memory ([`cache_size`], [`index_cache`]), its [`Background`] work.
//!
//! Promises: exit codes and kinds of failures are an interface and keep their numbers. Bytes that
//! could control a terminal are escaped where output is for people. [`Background`] runs the steps
//! of a volume in threads that it starts and ends. A step that fails is logged and tried again
//! later, and ends no thread.
//!
//! Which module decides what:
//! * `output`, `failure`, `exit`: what is printed; words of a failure, and its code
//! * `interrupt`: what Ctrl-C does
//! * `background`, `pace`: which thread runs which step; how fast work proceeds
//! * `cache_size`, `index_cache`: memory of nodes, and of the index
//! * `engine`: the engine that an option names
//! * `log_place`, `log`: a log stored elsewhere, and who may have it; the program's own log
//! * `manifest`: lists of names with attributes
//! * `prices`: what requests to an object store cost

pub mod interrupt;
pub mod exit;
pub mod log_place;
mod background;
mod pace;
pub mod cache_size;
mod engine;
pub mod index_cache;
pub mod log;
pub mod output;
pub mod failure;
pub mod manifest;
pub mod prices;

pub use background::Background;
pub use engine::EngineArg;
pub use output::Output;
