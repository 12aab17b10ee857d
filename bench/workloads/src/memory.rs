//! The process's memory: its size, and touching it before a comparison, so that neither side pays
//! for the kernel's first allocation of pages.

use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use program::failure::{self, Result};

/// The allocator's option to keep freed memory instead of returning it after a while.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";

/// Restarts this program with an allocator that keeps freed memory; returns if it already does.
pub(super) fn keep_what_is_freed() -> Result<()> {
    if std::env::var_os(PURGE_DELAY).is_some() {
        return Ok(());
    }
    let itself = Path::new("/proc/self/exe");
    let program = std::env::current_exe();
    let program = program.map_err(|error| failure::io("find the program", itself, &error))?;
    let error =
        Command::new(&program).args(std::env::args_os().skip(1)).env(PURGE_DELAY, "-1").exec();
    Err(failure::io("start again", &program, &error))
}

/// Allocates, writes and frees blocks of the sizes that ordered maps of small records use, and of
/// those that trees of nodes use.
pub(super) fn touch(records: u64) {
    const NODE_BYTES: usize = 16 << 10;
    const NODE_BYTES_A_RECORD: u64 = 256;
    let nodes = records * NODE_BYTES_A_RECORD / NODE_BYTES as u64;
    for (size, count) in
        [(24, records), (48, records), (112, records), (192, records), (NODE_BYTES, nodes)]
    {
        let blocks: Vec<Vec<u8>> = (0..count).map(|_| vec![1; size]).collect();
        black_box(&blocks);
    }
}

/// Resident memory of this process, in bytes.
pub(super) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
