//! The engine's tests: the suite that every engine must pass, and what is particular to this one.

mod checking;
mod column;
mod conformance;
mod cuts;
mod far;
mod far_suite;
mod ingest;
mod killed;
mod reads;
mod rotten;
mod util;
mod variants;
