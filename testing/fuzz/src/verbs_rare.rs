//! What commands ask of a volume beside `verbs`: its settings, comparisons, streams, and snapshots
//! by number. Settings are made before a volume is falsified, too, so that their records are.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use format::retention::Keep;
use fs::{
    Changes, Entry, FileSystem, Follow, LimitChange, Owner, QuotaChange, QuotaLimits,
    RestoreOptions, ScanOptions, Schedule, SnapshotQuery, SnapshotsOf, SyncScope, WalkControl,
};
use inode::{Caller, NodeId};
use transfer::{ReceiveOptions, Receiver, SendOptions};

use crate::target::seen;
use crate::world::World;

/// Most memory of a stream or a dump.
const MEMORY: usize = 1 << 20;

/// Most snapshots, schedules or nodes that are looked at one by one.
const EACH_MAX: usize = 20;

pub(crate) const ALL: &[fn(&World)] = &[
    settings,
    nodes,
    schedules,
    numbered,
    comparisons,
    streams,
    removed,
    declared,
    scan,
    quotas,
    state,
];

/// Settings of each kind that a record keeps.
pub(crate) fn settings(world: &World) {
    let (fs, root) = (&world.fs, Caller::root());
    let keep = Keep { hours: 3, days: 2, weeks: 1, months: 0, years: 0 };
    let schedule = Schedule { cron: "@hourly".to_owned(), prefix: b"auto-".to_vec(), keep };
    seen(fs.schedule_set(&root, NodeId::ROOT, Some(&schedule)));
    if let Ok(made) = fs.snapshot_create(&root, NodeId::ROOT, b"held") {
        seen(fs.hold(&root, made.subvol, b"by fuzzing"));
    }
    seen(fs.declare_searchable(&[b"user.one".to_vec()]));
    seen(fs.set_cluster_limits(Some(5), Some(50)));
    seen(fs.trash_set(&root, NodeId::ROOT, Some(10)));
    let limits = QuotaLimits { inodes: Some(10_000), bytes: Some(1 << 40) };
    seen(fs.quota_set(&root, NodeId::ROOT, limits));
    seen(fs.owner_quota_set(&root, Owner::Group(7), limits));
}

/// As mounts and searches look at single nodes.
fn nodes(world: &World) {
    let (fs, root) = (&world.fs, Caller::root());
    let mut names = Vec::new();
    seen(fs.readdirplus(&root, NodeId::ROOT, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        WalkControl::Continue
    }));
    seen(fs.entries(NodeId::ROOT));
    for name in names.iter().take(EACH_MAX) {
        seen(fs.stat_at(&root, NodeId::ROOT, name));
        let Ok(Entry { node, .. }) = fs.lookup(&root, NodeId::ROOT, name) else { continue };
        seen(fs.getxattr(&root, node, b"user.one"));
        seen(fs.getxattr(&root, node, b"user.pando.rbytes"));
        seen(fs.read_untimed(&root, node, 0, &mut [0; 8192]));
        seen(fs.readlink_untimed(&root, node));
        seen(fs.append(&root, node, b"appended"));
        seen(fs.fsync(node, SyncScope::All));
        seen(fs.path_of(node));
        seen(fs.copied_from(node));
        seen(fs.subvolume_of(node));
        seen(fs.subvolume_of_root(node));
        seen(fs.snapshot_of_root(node));
        seen(fs.snapshots_of_tree(NodeId::ROOT, name));
        let copies = fs.copies_first(node, true) || fs.copies_first(node, false);
        for is in [fs.is_in_snapshot(node), fs.may_be_held(node), fs.takes_snapshots(node), copies]
        {
            seen(is);
        }
        seen(fs.generation(node));
        fs.forget(node, 1);
    }
}

fn schedules(world: &World) {
    let fs = &world.fs;
    seen(fs.schedule_get(NodeId::ROOT));
    for of in fs.schedules().unwrap_or_default().iter().take(EACH_MAX) {
        let at = fs.now();
        if let Ok(Some(dir)) = fs.schedule_directory(of) {
            seen(fs.snapshot_scheduled((of, Vec::new()), dir, b"auto-1", at));
            fs.forget(dir, 1);
        }
        seen(fs.schedule_forget(of));
    }
}

/// Snapshots by their numbers, with those of directories that were removed.
fn numbered(world: &World) {
    let (fs, root) = (&world.fs, Caller::root());
    let mut left = EACH_MAX;
    seen(fs.snapshot_each(&root, NodeId::ROOT, &mut |info| {
        seen(info);
        left -= 1;
        if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }));
    for of in [SnapshotsOf::Removed, SnapshotsOf::All] {
        let (mut all, proceed) = (Vec::new(), AtomicBool::new(false));
        seen(fs.snapshot_list_volume(&root, &SnapshotQuery::all(of, &proceed), &mut |kept| {
            all.push(kept);
            if all.len() < EACH_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }));
        for kept in &all {
            let number = kept.snapshot.subvol;
            seen(fs.snapshot_info(number));
            seen(fs.holds_of(number));
            seen(fs.origins(number));
            seen(fs.received(number));
            seen(fs.hold(&root, number, b"another"));
            seen(fs.release(&root, number, b"another"));
            if let Ok(entry) = fs.snapshot_entry(&root, number) {
                fs.forget(entry.node, 1);
            }
            let path = [b"/.snapshots/", &fs::name_of_number(number)[..], b"/a"].concat();
            if let Ok(entry) = fs.resolve(&root, &path, Follow::No) {
                fs.forget(entry.node, 1);
            }
            seen(fs.snapshot_delete_number(&root, number));
        }
    }
}

/// The present root, and a snapshot of it that is taken and held for a while.
fn with_snapshot(world: &World, name: &[u8], work: impl FnOnce(NodeId)) {
    let (fs, root) = (&world.fs, Caller::root());
    seen(fs.snapshot_create(&root, NodeId::ROOT, name));
    if let Ok(entry) = fs.resolve(&root, &[b"/.snapshots/", name].concat(), Follow::No) {
        work(entry.node);
        fs.forget(entry.node, 1);
    }
    seen(fs.snapshot_delete(&root, NodeId::ROOT, name));
}

fn comparisons(world: &World) {
    let (fs, root, cancel) = (&world.fs, Caller::root(), AtomicBool::new(false));
    with_snapshot(world, b"compared", |snapshot| {
        seen(fs.mkdir(&root, NodeId::ROOT, b"differs", 0o755));
        for nodes in [(snapshot, NodeId::ROOT), (NodeId::ROOT, snapshot)] {
            seen(fs.compare(&root, nodes, &cancel, &mut |_| ControlFlow::Continue(())));
            let pass: Changes<'_> = &mut |_| ControlFlow::Continue(());
            seen(fs.compare_within(&root, nodes, 1 << 16, (&cancel, pass)));
        }
    });
}

/// A snapshot is sent, received beside its source, and dumped.
fn streams(world: &World) {
    let (fs, root, cancel) = (&world.fs, Caller::root(), AtomicBool::new(false));
    with_snapshot(world, b"sent", |snapshot| {
        let mut stream = Vec::new();
        let options = SendOptions { memory: MEMORY, ..SendOptions::default() };
        let mut emit = |part: &[u8]| {
            stream.extend_from_slice(part);
            true
        };
        let sent = transfer::send(fs, &root, (None, snapshot), &options, (&cancel, &mut emit));
        let destination = (NodeId::ROOT, &b"received"[..]);
        let mut receiver = Receiver::new(fs, &root, destination, ReceiveOptions::default());
        if sent.is_ok() && receiver.feed(&stream).is_ok() && receiver.is_complete() {
            seen(receiver.finish());
        } else {
            seen(receiver.give_up(None));
        }
        seen(Receiver::token(fs, &root, destination));
        seen(transfer::dump(fs, &root, snapshot, MEMORY, (&cancel, &mut |_| true)));
    });
}

/// What was removed is listed and restored.
fn removed(world: &World) {
    let (fs, root) = (&world.fs, Caller::root());
    seen(fs.rmr(&root, NodeId::ROOT, b"a"));
    let mut paths = Vec::new();
    seen(fs.trash_list(&root, (NodeId::ROOT, &[]), &mut |removed| {
        paths.push(removed.path);
        WalkControl::Continue
    }));
    for names in paths.iter().take(EACH_MAX) {
        let options = RestoreOptions { at: None, since: None };
        seen(fs.restore(&root, (NodeId::ROOT, names), None, &options));
        let to = Some((NodeId::ROOT, &b"restored"[..]));
        seen(fs.restore(&root, (NodeId::ROOT, names), to, &options));
    }
}

fn declared(world: &World) {
    let fs = &world.fs;
    seen(fs.searchable());
    seen(fs.declare_searchable(&[b"user.two".to_vec()]));
    seen(fs.undeclare_searchable(&[b"user.one".to_vec(), b"user.two".to_vec()]));
    seen(fs.cluster_limits());
    seen(fs.set_cluster_limits(Some(4), Some(10)));
}

/// A volume that is no index refuses a scan, unless its records allow one.
fn scan(world: &World) {
    seen(world.fs.scan_info());
    let options = ScanOptions {
        source: b"/source".to_vec(),
        started: 1,
        crosses_mounts: false,
        keeps_xattrs: true,
        hidden: false,
    };
    if let Ok(scan) = world.fs.scan_begin(&options) {
        seen(scan.directories(&mut |_| Ok(())));
        seen(scan.finish(2, 0));
    }
}

fn quotas(world: &World) {
    let (fs, root) = (&world.fs, Caller::root());
    let proceed = &mut |_: u64, _: u64| ControlFlow::Continue(());
    seen(fs.quota_get(NodeId::ROOT));
    seen(fs.owner_quota_get(&root, Owner::Group(7)));
    let change = QuotaChange { inodes: LimitChange::Set(500), bytes: LimitChange::Keep };
    seen(fs.quota_set_with_progress(&root, NodeId::ROOT, change, proceed));
    seen(fs.owner_quota_set_with_progress(&root, Owner::Group(7), change, proceed));
    seen(fs.quota_check_with_progress(proceed));
}

fn state(world: &World) {
    let fs = &world.fs;
    seen(fs.stuck());
    seen(fs.measure_objects());
    seen(fs.inode_uppers());
    seen(fs.reclaim_waits(1));
    world.env.clock.advance(Duration::from_secs(1));
    seen(fs.sync_all());
}
