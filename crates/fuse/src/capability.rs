//! File capabilities end when a file changes owner or contents, as set-id bits do.
//!
//! The kernel leaves both to the daemon (`FUSE_HANDLE_KILLPRIV_V2`). If the kernel did it itself,
//! it would have to ask for the capabilities of the file before every write(2), one more request
//! each. It still asks before the first write, and then removes what it finds. A change carries
//! what it ends ([`inode::Ends`]), so that the namespace does both at once. The kernel reports
//! whether the caller may keep set-id bits (`CAP_FSETID`) for writes and truncation only; for other
//! requests this module reads it.

use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use inode::{Caller, Enforce};

const NAME: &[u8] = b"security.capability";
/// The bit of `CAP_FSETID` in a set of capabilities.
const FSETID: u32 = 4;
/// The same of `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// Whether an extended attribute holds capabilities. The kernel checks by itself whether a caller
/// may remove it, and removes it in the name of the process that changes the file.
pub(crate) fn are_in(name: &[u8]) -> bool {
    name == NAME
}

/// The identity that removes them: that needs no rights of its own.
pub(crate) fn taker() -> Caller {
    Caller { enforce: Enforce::Kernel, ..Caller::root() }
}

/// Whether a thread of the superuser may keep the set-id bits of what it changes. A thread that
/// cannot be seen may not: bits that ended too early can be set again, but bits that stayed are a
/// security hole.
pub(crate) fn keeps_set_id(pid: u32) -> bool {
    has(pid, FSETID)
}

/// Whether a process could mount by itself what this one would mount for it: at the same places,
/// and with the right to.
pub fn mounts_as_we_do(pid: u32) -> bool {
    // It may have another directory as its root, so that a path means another place.
    let same = |name| link("self", name).is_some_and(|ours| link(pid, name) == Some(ours));
    // Its text does not distinguish roots: one that is outside ours is shown as `/`, too.
    let ours = root("self");
    has(pid, SYS_ADMIN) && same("ns/mnt") && ours.is_some() && root(pid) == ours
}

/// The root directory of a process.
fn root(process: impl Display) -> Option<(u64, u64)> {
    let found = std::fs::metadata(format!("/proc/{process}/root")).ok()?;
    Some((found.dev(), found.ino()))
}

/// The target of a link of a process.
fn link(process: impl Display, name: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{process}/{name}")).ok()
}

/// Whether a thread that can be seen has a capability in our user namespace.
fn has(pid: u32, capability: u32) -> bool {
    // Its rights in a user namespace of its own count nowhere else.
    let ours = link("self", "ns/user");
    let status = std::fs::read(format!("/proc/{pid}/status")).ok();
    pid != 0
        && ours.is_some()
        && link(pid, "ns/user") == ours
        && status.is_some_and(|status| may(&status, capability))
}

/// Whether the effective set of a status has a capability.
fn may(status: &[u8], capability: u32) -> bool {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"CapEff:"));
    let set = line.and_then(|line| std::str::from_utf8(line).ok());
    let set = set.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    set.is_some_and(|set| set >> capability & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_effective_set() {
        assert!(may(b"CapPrm:\t0\nCapEff:\t0000000000000010\nCapBnd:\t0\n", FSETID));
        assert!(!may(b"CapPrm:\t10\nCapEff:\t000001ffffffffef\nCapBnd:\t10\n", FSETID));
        assert!(!may(b"CapEff:\tnothing\n", FSETID));
        assert!(!may(b"Name:\tx\n", FSETID));
    }

    #[test]
    fn an_unseen_process_keeps_no_capability() {
        assert!(!keeps_set_id(0));
        assert!(!keeps_set_id(u32::MAX));
        assert!(!mounts_as_we_do(0) && !mounts_as_we_do(u32::MAX));
    }
}
