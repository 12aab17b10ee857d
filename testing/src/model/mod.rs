//! A model of the file system that is simple enough to be trusted, and a generator of random
//! operations. A driver runs both a file system and the model and compares them.
//!
//! The model shares no code with `fs`: inodes in one map, directories as ordered maps, snapshots
//! and clones as deep copies. If POSIX allows several errors, the model returns all that apply, and
//! any of them is correct.

mod calls;
mod contents;
mod attributes;
mod drive;
mod dump;
mod generate;
mod histories;
mod names;
mod rename;
mod resolve;
mod versions;
mod state;
mod verdict;
mod op;

pub use calls::{Calls, Slots, allocate, copy_all};
pub use drive::{Comparison, Driver, Report};
pub use dump::{Dump, DumpNode, Subject};
pub use generate::{Generator, Weights};
pub use op::{AllocateStyle, Op, OpPath, RenameStyle, Target, XattrStyle, show_path};
pub use state::FsModel;
pub use verdict::{Effect, ErrorKind, Listed, Stat, Verdict, blame};
