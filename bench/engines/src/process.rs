//! What the operating system reports of this process and of a directory.

use std::path::Path;
use std::time::Duration;

use crate::engine::Result;

/// Highest resident memory so far, in bytes.
pub(crate) fn peak_memory() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("no VmHWM in /proc/self/status")?.parse::<u64>()? << 10)
}

/// Processor time of all threads so far.
pub(crate) fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Bytes that this process has had written to the disk so far, page cache included.
pub(crate) fn written_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    let number = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(number.ok_or("no write_bytes in /proc/self/io")?.parse()?)
}

/// Space that the files below a directory occupy, in bytes.
pub(crate) fn disk_bytes(path: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        // What background work has removed meanwhile takes no space.
        let Ok(found) = entry.metadata() else { continue };
        bytes += if found.is_dir() { disk_bytes(&entry.path())? } else { found.blocks() * 512 };
    }
    Ok(bytes)
}
