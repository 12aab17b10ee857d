//! How much memory a daemon gives to cached nodes: the requested size, or a quarter of the
//! machine's memory. If the process's control group may use less, it is a quarter of that.

use std::path::{Path, PathBuf};

/// The default divisor of the memory.
const SHARE: u64 = 4;
/// With less, the interior nodes alone of a large volume would not stay in memory.
pub const CACHE_BYTES_MIN: u64 = 16 << 20;
/// Used when the machine's memory cannot be determined.
const MEMORY_BYTES_UNKNOWN: u64 = 1 << 30;

/// A size from the command line.
pub fn parse(text: &str) -> Result<u64, String> {
    match inode::parse_bytes(text) {
        None => Err("expected a number of bytes, such as 512M or 4G".to_owned()),
        Some(bytes) if bytes < CACHE_BYTES_MIN => {
            Err(format!("must be at least {} MiB", CACHE_BYTES_MIN >> 20))
        }
        Some(bytes) => Ok(bytes),
    }
}

/// A quarter of the memory.
pub fn default_bytes() -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    share(machine_bytes(read(Path::new("/proc/meminfo")).as_deref()), group_bytes(&read))
}

fn share(machine: Option<u64>, group: Option<u64>) -> u64 {
    let memory = machine.into_iter().chain(group).min().unwrap_or(MEMORY_BYTES_UNKNOWN);
    (memory / SHARE).max(CACHE_BYTES_MIN)
}

/// The size in `/proc/meminfo`.
fn machine_bytes(text: Option<&str>) -> Option<u64> {
    let line = text?.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The smallest limit of the process's control group and those above it (version 2).
fn group_bytes(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let root = Path::new("/sys/fs/cgroup");
    let own: PathBuf = root.join(own.trim().trim_start_matches('/'));
    own.ancestors()
        .take_while(|path| path.starts_with(root))
        .filter_map(|path| read(&path.join("memory.max"))?.trim().parse::<u64>().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_smallest_is_taken() {
        assert_eq!(share(Some(8 << 30), None), 2 << 30);
        assert_eq!(share(Some(8 << 30), Some(1 << 30)), 256 << 20);
        assert_eq!(share(Some(1 << 20), None), CACHE_BYTES_MIN);
        assert_eq!(share(None, None), 256 << 20);
        let text = "MemFree: 5 kB\nMemTotal:       1024 kB\n";
        assert_eq!(machine_bytes(Some(text)), Some(1 << 20));
        assert_eq!(machine_bytes(Some("nothing")), None);
    }

    #[test]
    fn limits_of_parent_control_groups_count() {
        let read = |path: &Path| match path.to_str() {
            Some("/proc/self/cgroup") => Some("0::/user/app\n".to_owned()),
            Some("/sys/fs/cgroup/user/app/memory.max") => Some("max\n".to_owned()),
            Some("/sys/fs/cgroup/user/memory.max") => Some("4096\n".to_owned()),
            _ => None,
        };
        assert_eq!(group_bytes(&read), Some(4096));
        assert_eq!(group_bytes(&|_| None), None);
    }

    #[test]
    fn too_small_a_cache_is_refused() {
        assert_eq!(parse("64M"), Ok(64 << 20));
        assert!(parse("1M").is_err_and(|message| message.contains("16 MiB")));
        assert!(parse("much").is_err_and(|message| message.contains("512M")));
    }
}
