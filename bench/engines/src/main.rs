//! Ordered stores side by side: ours, redb, fjall and RocksDB. The ordered map of the standard
//! library is the limit of what memory alone can do.
//!
//! `pando-engines run ENGINE [OPTIONS]` measures one engine in a process of its own and prints one
//! JSON object. `pando-engines table FILE` makes a Markdown table of many such objects, with the
//! median of the rounds. `bench/engines.sh` does both. `pando-engines latches` measures ways to
//! latch one tree in memory (decision 0006).

mod latches;
mod latched_tree;
mod phases;
mod process;
mod options;
mod page_cache;
mod keys;
mod table;
mod engines;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod redb;
mod ours;
mod map;
mod fjall;
mod engine;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "\
usage: pando-engines run ENGINE [--entries N] [--updates N] [--reads N]
                                [--cache-mib N] [--dir DIR] [--cold]
       pando-engines table FILE
       pando-engines latches [--entries N] [--operations N] [--rounds N]
engines: btree lsm redb redb-1 fjall rocksdb map
  --entries N     entries that are inserted (1000000)
  --updates N     of them at random; with fewer than all, so many more are inserted at random into
                  a store of all, and as many deleted at most
  --reads N       look-ups of either kind (as many as entries)
  --cache-mib N   memory that the engine may use for its cache and write buffers (256)
  --dir DIR       where stores are made (the temporary directory)
  --cold          drop what the operating system caches of the store's files, all the time
latches: two threads in one tree in memory, by ways to latch it
  --entries N     entries of each thread (1000000)
  --operations N  changes, and look-ups, of each thread (2000000)
  --rounds N      rounds, alternately (9)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((verb, rest)) if verb == "run" => options::Options::parse(rest).and_then(phases::run),
        Some((verb, [file])) if verb == "table" => table::print(file),
        Some((verb, rest)) if verb == "latches" => latches::run(rest),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
