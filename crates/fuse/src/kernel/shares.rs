//! How many of the threads that serve a mount may be busy with requests of users that may take
//! long. The others are left to everybody's short requests. Further requests go to the threads for
//! requests that take long. One user has a few of those.
//!
//! The bound is one for all users together: two users must not take every thread either.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::numbers::op;
use super::request::Request;
use super::slow::is_change;
use crate::adapter::Adapter;

/// What decides whether a request may take long, beside its kind.
pub(super) trait Costs {
    /// Whether a directory is one of snapshots.
    fn takes_snapshots(&self, node: u64) -> bool;
    /// Whether a change of a node, or a look-up in a directory, may have to copy subvolumes first.
    fn copies_first(&self, node: u64, changes: bool) -> bool;
}

impl Costs for Adapter {
    fn takes_snapshots(&self, node: u64) -> bool {
        Adapter::takes_snapshots(self, node)
    }

    fn copies_first(&self, node: u64, changes: bool) -> bool {
        Adapter::copies_first(self, node, changes)
    }
}

/// How many threads serve requests that may take long.
pub(super) struct Shares {
    busy: AtomicUsize,
    most: usize,
}

/// A thread that serves a request, until this is dropped.
pub(super) struct Share<'a>(Option<&'a AtomicUsize>);

impl Shares {
    /// For so many threads. A quarter of them, and one at least, serves short requests alone.
    pub(super) fn new(threads: usize) -> Shares {
        Shares { busy: AtomicUsize::new(0), most: threads - (threads / 4).clamp(1, threads) }
    }

    /// A thread is about to serve a request. `None`: it may take long, and as many threads as may
    /// are busy with such requests.
    pub(super) fn take(&self, request: &Request<'_>, costs: &impl Costs) -> Option<Share<'_>> {
        // Writes that the kernel makes by itself are root's, and wait for nothing.
        if request.who.uid == 0 || !may_take_long(request, costs) {
            return Some(Share(None));
        }
        let one_more = |busy| (busy < self.most).then_some(busy + 1);
        self.busy.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Share(Some(&self.busy)))
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if let Some(busy) = self.0 {
            busy.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Whether a request may take long. Its time may be proportional to the file that it is about. Or
/// it is proportional to the depth of a directory: one that a directory moves to, or that has a
/// trash far above it. It may be proportional to the subvolumes below a directory of which a
/// snapshot is taken, or to those that a snapshot inherits. Or it waits for a disk.
fn may_take_long(request: &Request<'_>, costs: &impl Costs) -> bool {
    match request.opcode {
        op::SETATTR
        | op::FALLOCATE
        | op::COPY_FILE_RANGE
        | op::LSEEK
        | op::FSYNC
        | op::FSYNCDIR
        | op::RENAME
        | op::RENAME2
        | op::UNLINK
        | op::RMDIR => true,
        // A snapshot: others of the directory may have to get what they inherit first.
        op::MKDIR if costs.takes_snapshots(request.node) => true,
        // What they show may have to be copied first.
        op::LOOKUP | op::READDIR | op::READDIRPLUS => costs.copies_first(request.node, false),
        // Others may have to get copies of what changes first.
        opcode => is_change(opcode) && costs.copies_first(request.node, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::slow::{is_change, message};

    /// Whether a directory takes snapshots, and whether look-ups or changes copy first.
    #[derive(Clone, Copy, Default)]
    struct Of {
        snapshots: bool,
        look_ups: bool,
        changes: bool,
    }

    impl Costs for Of {
        fn takes_snapshots(&self, _node: u64) -> bool {
            self.snapshots
        }

        fn copies_first(&self, _node: u64, changes: bool) -> bool {
            if changes { self.changes } else { self.look_ups }
        }
    }

    fn take_in(shares: &Shares, opcode: u32, user: u32, of: Of) -> Option<Share<'_>> {
        let message = message(opcode, 2, user, 0);
        shares.take(&Request::parse(&message).expect("a request"), &of)
    }

    fn take(shares: &Shares, opcode: u32, user: u32) -> Option<Share<'_>> {
        take_in(shares, opcode, user, Of::default())
    }

    /// Requests that change something, in a short time.
    const CHANGES: [&str; 8] =
        ["SYMLINK", "MKNOD", "LINK", "WRITE", "SETXATTR", "REMOVEXATTR", "CREATE", "TMPFILE"];

    /// Requests that change something, and may take long.
    const LONG_CHANGES: [&str; 8] = [
        "SETATTR",
        "MKDIR",
        "UNLINK",
        "RMDIR",
        "RENAME",
        "FALLOCATE",
        "RENAME2",
        "COPY_FILE_RANGE",
    ];

    /// Requests that change nothing, and may take long.
    const LONG: [&str; 3] = ["FSYNC", "FSYNCDIR", "LSEEK"];

    /// Requests that look names up, in a short time where nothing is inherited.
    const LOOK_UPS: [&str; 3] = ["LOOKUP", "READDIR", "READDIRPLUS"];

    /// All others.
    const SHORT: [&str; 20] = [
        "FORGET",
        "GETATTR",
        "READLINK",
        "OPEN",
        "READ",
        "STATFS",
        "RELEASE",
        "GETXATTR",
        "LISTXATTR",
        "FLUSH",
        "INIT",
        "OPENDIR",
        "RELEASEDIR",
        "GETLK",
        "SETLK",
        "SETLKW",
        "INTERRUPT",
        "DESTROY",
        "BATCH_FORGET",
        "STATX",
    ];

    /// Both have a default: a new request is added to one of the lists, and so decided.
    #[test]
    fn each_request_is_decided() {
        let numbers = include_str!("numbers.rs");
        let block = numbers.split("mod op {").nth(1).expect("the numbers");
        let lines = block.split("\n}").next().unwrap_or_default().lines();
        let constants = lines.filter_map(|line| line.trim().strip_prefix("pub(crate) const "));
        let mut count = 0;
        for (name, number) in constants.filter_map(|rest| rest.split_once(": u32 = ")) {
            let opcode = number.trim_end_matches(';').parse().expect("a number");
            let is = |list: &[&str]| list.contains(&name);
            let lists = [is(&CHANGES), is(&LONG_CHANGES), is(&LONG), is(&SHORT), is(&LOOK_UPS)];
            assert_eq!(lists.iter().filter(|is| **is).count(), 1, "{name} is in one of the lists");
            assert_eq!(is_change(opcode), lists[0] || lists[1], "{name}");
            let message = message(opcode, 2, 7, 0);
            let request = Request::parse(&message).expect("a request");
            let long = |of: Of| may_take_long(&request, &of);
            let snapshots = Of { snapshots: true, ..Of::default() };
            let (look_ups, changes) =
                (Of { look_ups: true, ..Of::default() }, Of { changes: true, ..Of::default() });
            let always = lists[1] || lists[2];
            assert_eq!(long(snapshots), always, "{name}");
            assert_eq!(long(Of::default()), always && name != "MKDIR", "{name}");
            // The first look-up of what is inherited, and the first change of it.
            assert_eq!(long(look_ups), always && name != "MKDIR" || lists[4], "{name}");
            assert_eq!(long(changes), always || lists[0], "{name}");
            count += 1;
        }
        let short = SHORT.len() + LOOK_UPS.len();
        assert_eq!(count, CHANGES.len() + LONG_CHANGES.len() + LONG.len() + short);
    }

    #[test]
    fn users_together_leave_a_quarter_of_the_threads() {
        let shares = Shares::new(8);
        let mut held: Vec<_> =
            (0..6).filter_map(|number| take(&shares, op::FSYNCDIR, 7 + number % 2)).collect();
        assert_eq!(held.len(), 6);
        for user in [7, 8, 9] {
            for long in [op::FSYNC, op::RENAME, op::RENAME2, op::UNLINK, op::RMDIR] {
                assert!(take(&shares, long, user).is_none(), "user {user}");
            }
            assert!(take(&shares, op::GETATTR, user).is_some(), "user {user}");
            // A directory that is made is a snapshot where snapshots are taken.
            assert!(take(&shares, op::MKDIR, user).is_some(), "user {user}");
            let snapshots = Of { snapshots: true, ..Of::default() };
            assert!(take_in(&shares, op::MKDIR, user, snapshots).is_none(), "user {user}");
        }
        assert!(take(&shares, op::FSYNC, 0).is_some());
        held.pop();
        let last = take(&shares, op::SETATTR, 9);
        assert!(last.is_some() && take(&shares, op::FSYNCDIR, 9).is_none());
    }
}
