//! Supplementary groups of the process that sent a request.
//!
//! The kernel sends one group only. If permissions are checked here, the others are read from
//! `/proc/PID/status` and cached briefly. So a program that makes a thousand calls is read once,
//! and a reused process number cannot inherit rights for longer than the cache lifetime.

use std::collections::BTreeMap;

use device::Timestamp;
use device::sync::Mutex;

/// How long an answer is valid, in nanoseconds.
const KEPT_NANOS: i64 = 200_000_000;
/// Answers kept before all are dropped.
const KEPT_MAX: usize = 1024;

/// A cache of supplementary groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    known: Mutex<BTreeMap<Key, (Timestamp, Vec<u32>)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    pid: u32,
    uid: u32,
}

impl Groups {
    /// The supplementary groups of a process, or none if it is gone or hidden from us.
    pub(crate) fn of(&self, pid: u32, uid: u32, now: Timestamp) -> Vec<u32> {
        let key = Key { pid, uid };
        if let Some((read_at, groups)) = self.known.lock().get(&key)
            && (0..KEPT_NANOS).contains(&now.0.saturating_sub(read_at.0))
        {
            return groups.clone();
        }
        let groups = read(pid).unwrap_or_default();
        let mut known = self.known.lock();
        if known.len() >= KEPT_MAX {
            known.clear();
        }
        known.insert(key, (now, groups.clone()));
        groups
    }
}

fn read(pid: u32) -> Option<Vec<u32>> {
    // 0: the process is in another namespace, where its number means nothing to us.
    if pid == 0 {
        return None;
    }
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    parse(&status)
}

fn parse(status: &[u8]) -> Option<Vec<u32>> {
    let line =
        status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Groups:"))?;
    let numbers = std::str::from_utf8(line).ok()?;
    Some(numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_the_status() {
        assert_eq!(parse(b"Name:\tx\nGroups:\t4 24 1000 \nNStgid:\t1\n"), Some(vec![4, 24, 1000]));
        assert_eq!(parse(b"Groups:\t \n"), Some(vec![]));
        assert_eq!(parse(b"Name:\tx\n"), None);
    }

    #[test]
    fn a_dead_process_has_no_groups() {
        let groups = Groups::default();
        assert_eq!(groups.of(u32::MAX, 5, Timestamp(7)), Vec::<u32>::new());
        assert_eq!(groups.of(0, 5, Timestamp(7)), Vec::<u32>::new());
        assert_eq!(groups.known.lock().len(), 2);
    }
}
