//! What each request costs the daemon, by which requests of one user are bounded (`sessions.rs`).

use wire::Call;

use super::sessions::Load;

/// What a request costs. Each call is named, so that a new one is decided, too.
pub(super) fn load(call: &Call<'_>) -> Load {
    if paths(call).iter().any(|path| path.contains(&b'@')) {
        return Load::Search;
    }
    match call {
        Call::Find(find) if find.order.is_some() => Load::Ordered,
        // They walk trees, lists of all users, or contents.
        Call::Find(_)
        | Call::List { recursive: true, .. }
        | Call::Export { .. }
        | Call::Rollback { .. }
        | Call::Remove { .. }
        | Call::Totals { .. }
        | Call::History { .. }
        | Call::Diff { .. }
        | Call::Send { .. }
        | Call::Dump { .. }
        | Call::SnapshotsOfVolume { .. }
        | Call::Schedules
        | Call::IndexFlush { .. }
        | Call::Check
        | Call::Collect { .. }
        | Call::QuotaSet { .. }
        | Call::OwnerQuotaSet { .. }
        | Call::QuotaList
        | Call::QuotaCheck
        | Call::TrashList { .. }
        | Call::TrashEmpty { .. }
        | Call::RestoreFrom { .. } => Load::Search,
        Call::Status
        | Call::Info { .. }
        | Call::Stat { .. }
        | Call::List { recursive: false, .. }
        | Call::Read { .. }
        | Call::SnapshotCreate { .. }
        | Call::SnapshotList { .. }
        | Call::SnapshotDeleteNumber { .. }
        | Call::SnapshotDelete { .. }
        | Call::SnapshotRename { .. }
        | Call::ScheduleSet { .. }
        | Call::ScheduleGet { .. }
        | Call::SnapshotHold { .. }
        | Call::Clone { .. }
        | Call::Reclaiming { .. }
        | Call::SubvolumeCreate { .. }
        | Call::ReceiveOpen { .. }
        | Call::Receive { .. }
        | Call::ReceiveClose
        | Call::ReceiveToken { .. }
        | Call::Searchable
        | Call::Declare { .. }
        | Call::ClusterLimits { .. }
        | Call::Sync
        | Call::HandOver
        | Call::Sessions
        | Call::SessionEnd { .. }
        | Call::ImportOpen { .. }
        | Call::ImportPublish { .. }
        | Call::Import { .. }
        | Call::ImportEnter { .. }
        | Call::ImportFlush
        | Call::ImportClose
        | Call::ScanInfo
        | Call::ScanFollow { .. }
        | Call::ScanOpen { .. }
        | Call::ScanDirectories
        | Call::Scan { .. }
        | Call::ScanFlush
        | Call::ScanClose { .. }
        | Call::QuotaGet { .. }
        | Call::OwnerQuotaGet { .. }
        | Call::TrashSet { .. }
        | Call::Restore { .. }
        | Call::ServesMount { .. } => Load::Light,
    }
}

/// The paths of a request that are looked for in snapshots where nothing is called so: with `@` in
/// one, all snapshots of removed directories may be listed.
fn paths<'a>(call: &Call<'a>) -> [&'a [u8]; 2] {
    match *call {
        Call::Info { path }
        | Call::Stat { path }
        | Call::List { path, .. }
        | Call::Read { path }
        | Call::Export { path }
        | Call::SnapshotCreate { path, .. }
        | Call::SnapshotList { path }
        | Call::Remove { path }
        | Call::SubvolumeCreate { path, .. }
        | Call::IndexFlush { path }
        | Call::ImportOpen { path, .. }
        | Call::ReceiveOpen { path, .. }
        | Call::ReceiveToken { path }
        | Call::Dump { path, .. }
        | Call::QuotaSet { path, .. }
        | Call::QuotaGet { path }
        | Call::ScheduleSet { path, .. }
        | Call::ScheduleGet { path }
        | Call::TrashSet { path, .. }
        | Call::TrashList { path }
        | Call::TrashEmpty { path } => [path, b""],
        Call::SnapshotDelete { path, name: second }
        | Call::SnapshotRename { path, from: second, .. }
        | Call::Rollback { path, snapshot: second }
        | Call::Clone { source: path, destination: second }
        | Call::Diff { old: path, new: second } => [path, second],
        Call::Restore { path, to, .. } | Call::RestoreFrom { path, to, .. } => {
            [path, to.unwrap_or_default()]
        }
        _ => [b"", b""],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_walks_a_tree_counts_as_a_search() {
        let path = &b"/a"[..];
        let calls = [
            Call::List { path, recursive: true },
            Call::Export { path },
            Call::Remove { path },
            Call::Rollback { path, snapshot: path },
            Call::TrashList { path },
            Call::TrashEmpty { path },
            Call::IndexFlush { path },
            Call::RestoreFrom { snapshot: path, path, to: None },
        ];
        for call in calls {
            assert_eq!(load(&call), Load::Search, "{call:?}");
        }
    }

    #[test]
    fn listing_all_snapshots_counts_as_a_search() {
        let (plain, marked) = (&b"/a/b"[..], &b"/a@monday/b"[..]);
        assert_eq!(load(&Call::SnapshotsOfVolume { removed: true }), Load::Search);
        for (path, expected) in [(plain, Load::Light), (marked, Load::Search)] {
            let calls = [
                Call::Stat { path },
                Call::Read { path },
                Call::List { path, recursive: false },
                Call::Clone { source: plain, destination: path },
                Call::Restore { path: plain, to: Some(path), at: None, since: None },
                Call::SnapshotDelete { path: plain, name: path },
            ];
            for call in calls {
                assert_eq!(load(&call), expected, "{call:?}");
            }
        }
    }
}
