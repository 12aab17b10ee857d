//! The engine's tests: the suite that every engine must pass, and what is particular to this one.

mod budget;
mod cache;
mod checking;
mod clones;
mod conformance;
mod cramped;
mod damage;
mod diffs;
mod early;
mod ingest;
mod invariants;
mod load;
mod moving;
mod replay;
mod replay_budget;
mod room;
mod rotten;
mod runs;
mod shrink;
mod splits;
mod superblocks;
mod thread_faults;
mod threads;
mod twice;
mod unread;
mod util;
