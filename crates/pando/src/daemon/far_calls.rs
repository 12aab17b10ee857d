//! Requests of users of other machines: what they may not ask of a daemon, and what they are not
//! shown.

use inode::Caller;
use wire::{Answer, Call, Failure, FailureKind, FoundOutcome};

use super::about::Answered;
use super::stream_terms::MEMORY_OF_USERS;

/// Refuses requests that only commands on the daemon's own machine may send. They name its
/// processes, its mounts and its directories, or keep it busy for everybody. `stream`: most memory
/// of a stream of theirs.
pub(super) fn check(call: &mut Call<'_>, caller: &Caller, stream: u64) -> Answered<()> {
    let what = match call {
        Call::HandOver | Call::ServesMount { .. } => "ending or asking about its daemon",
        Call::MountAgain { .. } => "mounting on the server",
        Call::Sessions | Call::SessionEnd { .. } => "sessions of its daemon",
        Call::ScanOpen { .. } | Call::Scan { .. } | Call::ScanFlush => "updates of an index",
        // Here they are for root and for the user of this process, which no client acts for by the
        // number alone.
        Call::Declare { .. } if !caller.is_root() => "declaring attributes",
        Call::ClusterLimits { .. } if !caller.is_root() => "limits of the cluster",
        Call::IndexFlush { .. } if !caller.is_root() => "writing an index",
        Call::ScanFollow { .. } if !caller.is_root() => "following a source",
        Call::Check if !caller.is_root() => "a check",
        Call::Collect { .. } if !caller.is_root() => "a collection",
        // It names a directory of this machine and a process.
        Call::ScanInfo if !caller.is_root() => "the source of an index",
        // The memory is this machine's: root of another one has as much as users.
        Call::Export { memory, .. } => {
            *memory = (*memory).min(MEMORY_OF_USERS).min(stream);
            return Ok(());
        }
        // (What one gets that names none is decided when it begins: `load.rs`.)
        Call::Send { memory, .. } | Call::Dump { memory, .. } | Call::Diff { memory, .. } => {
            *memory = memory.map(|memory| memory.min(MEMORY_OF_USERS).min(stream));
            return Ok(());
        }
        // Each call is named: whether a new one is for this machine alone is decided here.
        Call::Declare { .. }
        | Call::ClusterLimits { .. }
        | Call::IndexFlush { .. }
        | Call::Check
        | Call::Collect { .. }
        | Call::ScanInfo
        | Call::ScanFollow { .. }
        | Call::Status
        | Call::Info { .. }
        | Call::Stat { .. }
        | Call::List { .. }
        | Call::Find(_)
        | Call::Read { .. }
        | Call::SnapshotCreate { .. }
        | Call::SnapshotList { .. }
        | Call::SnapshotsOfVolume { .. }
        | Call::SnapshotDeleteNumber { .. }
        | Call::SnapshotDelete { .. }
        | Call::SnapshotRename { .. }
        | Call::ScheduleSet { .. }
        | Call::ScheduleGet { .. }
        | Call::Schedules
        | Call::SnapshotHold { .. }
        | Call::Clone { .. }
        | Call::Rollback { .. }
        | Call::Remove { .. }
        | Call::Reclaiming { .. }
        | Call::SubvolumeCreate { .. }
        | Call::Totals { .. }
        | Call::History { .. }
        | Call::ReceiveOpen { .. }
        | Call::Receive { .. }
        | Call::ReceiveClose
        | Call::ReceiveToken { .. }
        | Call::Searchable
        | Call::Sync
        | Call::ImportOpen { .. }
        | Call::ImportPublish { .. }
        | Call::Import { .. }
        | Call::ImportEnter { .. }
        | Call::ImportFlush
        | Call::ImportClose
        | Call::ScanDirectories
        | Call::ScanClose { .. }
        | Call::QuotaSet { .. }
        | Call::QuotaGet { .. }
        | Call::OwnerQuotaSet { .. }
        | Call::OwnerQuotaGet { .. }
        | Call::QuotaList
        | Call::QuotaCheck
        | Call::TrashSet { .. }
        | Call::TrashList { .. }
        | Call::TrashEmpty { .. }
        | Call::Restore { .. }
        | Call::RestoreFrom { .. } => return Ok(()),
    };
    let message = format!("{what}: not over a network");
    let hint = "run the command on the server; some take a certificate with --keep-root";
    Err(Failure::new(FailureKind::NotSupported, message).hint(hint))
}

/// An answer as users of other machines may see it. The entries that a search read reveal what
/// exists. To the user of this process that is no secret, but no client is that user by the number
/// alone.
pub(super) fn shown(answer: Answer, caller: &Caller) -> Answer {
    match answer {
        Answer::Found(total) if !caller.is_root() => Answer::Found(FoundOutcome {
            clusters: 0,
            clusters_read: 0,
            walked: 0,
            rows_tested: 0,
            ..total
        }),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use inode::Caller;
    use wire::{Answer, Call, FailureKind, FoundOutcome, ScanWatch};

    use super::{MEMORY_OF_USERS, check, shown};

    /// A client need not be this program, which refuses most of them itself: the daemon decides.
    #[test]
    fn what_acts_on_the_daemons_machine_is_refused() {
        let path = &b"/"[..];
        let root = Caller::root();
        let user = Caller { uid: 1000, gid: 1000, ..Caller::root() };
        let (crosses_mounts, keeps_xattrs, hidden) = (false, false, false);
        let open =
            Call::ScanOpen { source: path, started: 0, crosses_mounts, keeps_xattrs, hidden };
        let of_nobody = [
            Call::HandOver,
            Call::ServesMount { device: path },
            Call::MountAgain {
                mount_point: path,
                options: "",
                cache: None,
                index: None,
                metrics: None,
                traces: false,
            },
            Call::Sessions,
            Call::SessionEnd { id: 1 },
            Call::ScanFlush,
            Call::Scan { items: &[] },
            open,
        ];
        for call in of_nobody {
            for caller in [&root, &user] {
                let refused =
                    check(&mut call.clone(), caller, u64::MAX).expect_err(&format!("{call:?}"));
                assert_eq!(refused.kind, FailureKind::NotSupported, "{call:?}");
            }
        }
        let of_root = [
            Call::Check,
            Call::Collect { delete_after: None },
            Call::ScanInfo,
            Call::IndexFlush { path },
            Call::ClusterLimits { directories: Some(1), inodes: None },
            Call::ScanFollow { by: ScanWatch::Inotify, unwatched: 0 },
        ];
        for call in of_root {
            let refused = check(&mut call.clone(), &user, u64::MAX).unwrap_err();
            assert_eq!(refused.kind, FailureKind::NotSupported, "{call:?}");
            assert!(check(&mut call.clone(), &root, u64::MAX).is_ok(), "{call:?}");
        }
        let mut dump = Call::Dump { path, memory: Some(u64::MAX) };
        check(&mut dump, &root, u64::MAX).unwrap();
        assert_eq!(dump, Call::Dump { path, memory: Some(MEMORY_OF_USERS) });
        check(&mut dump, &root, 32 << 20).unwrap();
        assert_eq!(dump, Call::Dump { path, memory: Some(32 << 20) });
        let mut export = Call::Export { path, memory: u64::MAX };
        check(&mut export, &root, u64::MAX).unwrap();
        assert_eq!(export, Call::Export { path, memory: MEMORY_OF_USERS });
        let (base, token, hold) = (None, None, None);
        let mut send = Call::Send {
            base,
            snapshot: path,
            token,
            memory: Some(u64::MAX),
            dry_run: false,
            hold,
        };
        check(&mut send, &root, u64::MAX).unwrap();
        assert!(matches!(send, Call::Send { memory: Some(MEMORY_OF_USERS), .. }));
        check(&mut Call::Stat { path }, &user, u64::MAX).unwrap();
    }

    /// The number of this process's user is any client's to name.
    #[test]
    fn what_a_search_read_is_shown_to_root_alone() {
        let total = FoundOutcome { matched: 3, walked: 5, rows_tested: 7, ..Default::default() };
        let own = rustix::process::geteuid().as_raw().max(1);
        let user = Caller { uid: own, gid: own, ..Caller::root() };
        let Answer::Found(seen) = shown(Answer::Found(total), &user) else { panic!() };
        assert_eq!((seen.matched, seen.walked, seen.rows_tested), (3, 0, 0));
        let Answer::Found(seen) = shown(Answer::Found(total), &Caller::root()) else { panic!() };
        assert_eq!(seen.walked, 5);
    }
}
