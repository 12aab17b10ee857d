//! All requests except imports. Each resolves its paths with the caller's rights and makes one
//! call of the volume.

use std::os::unix::ffi::OsStrExt;

use fs::{Entry, FileSystem, Follow, Volume};
use inode::{Caller, FsError, Kind};
use wire::{
    Answer, Background, Body, Bytes, Call, Failure, FailureKind, Info, StatAnswer, Status,
    StoreStatus, Stuck,
};

use super::about::{Answered, WHO_CLONES, about, advise};
use super::held::{Held, at, below, of_snapshots, split};
use super::load::Granted;
use super::replies::Replies;
use super::server::Server;
use super::sessions::Who;
use super::trash;
use super::{
    check, clusters, diff, find, history, list, mounted, quota, restore, schedule_calls, snapshots,
    stream_terms, streams, totals, watch,
};

/// Bytes of contents in one message.
const READ_BYTES: usize = 256 << 10;

const WHO_REMOVES: &str =
    "only root may, or a user who owns every directory below and may write its parent";

/// Answers one request.
pub(super) fn answer(
    server: &Server,
    caller: &Caller,
    call: &Call<'_>,
    replies: &mut Replies,
) -> Answered<Answer> {
    let fs = server.fs();
    if matches!(call, Call::Sync | Call::SnapshotCreate { .. } | Call::Clone { .. }) {
        server.catch_up();
    }
    mounted::refuse(server, caller, call)?;
    match *call {
        Call::Status => status(server).map(|status| Answer::Status(Box::new(status))),
        Call::Info { path } => info(fs, caller, path, replies),
        Call::Stat { path } => stat(fs, caller, path),
        Call::List { path, recursive } => {
            list::list(fs, caller, path, recursive, replies).map(|()| Answer::Nothing)
        }
        Call::Find(ref question) => find::find(server, caller, question, replies),
        Call::SnapshotList { path } => {
            let held = Held::resolve(fs, caller, path, Follow::Yes)?;
            let directory = (held.entry.node, path);
            snapshots::of_directory(fs, caller, directory, replies).map(|()| Answer::Nothing)
        }
        Call::SnapshotsOfVolume { removed } => {
            snapshots::of_volume(fs, caller, removed, replies).map(|()| Answer::Nothing)
        }
        Call::Remove { path } => {
            let answer = remove(fs, caller, path)?;
            settled(server)?;
            Ok(answer)
        }
        Call::Reclaiming { detached } => {
            let fs::Waiting { trees, held, stuck } = fs.reclaim_waits(detached)?;
            Ok(Answer::Reclaiming { trees, held, stuck })
        }
        Call::Totals { path, depth, top } => {
            totals::totals(fs, caller, path, &totals::Ask { depth, top }, replies)
        }
        Call::History { path } => {
            history::history(fs, caller, path, replies).map(|()| Answer::Nothing)
        }
        Call::ReceiveToken { path } => streams::token(fs, caller, path),
        Call::Searchable => {
            let names = fs.searchable().map_err(Failure::from)?;
            Ok(Answer::Searchable(names.into_iter().map(Bytes).collect()))
        }
        Call::QuotaGet { path } => {
            let held = Held::resolve(fs, caller, path, Follow::Yes)?;
            let found = fs.quota_get(held.entry.node).map_err(|error| about(error, path))?;
            quota::shown(fs, caller, found.as_slice()).map(Answer::Quotas)
        }
        Call::OwnerQuotaGet { owner } => quota::of_owner(fs, caller, owner),
        Call::QuotaList => quota::all(fs, caller, replies),
        Call::QuotaCheck => quota::check(fs, caller, replies),
        Call::QuotaSet { .. } | Call::OwnerQuotaSet { .. } => {
            let answer = quota::set(fs, caller, call, replies)?;
            settled(server)?;
            Ok(answer)
        }
        Call::ScheduleGet { path } => schedule_calls::get((fs, server.schedules()), caller, path),
        Call::Schedules => schedule_calls::all((fs, server.schedules()), caller, replies),
        Call::TrashList { path } => trash::list(fs, caller, path, replies),
        Call::TrashSet { .. } | Call::TrashEmpty { .. } | Call::Restore { .. } => {
            let answer = from_trash(fs, caller, call)?;
            settled(server)?;
            Ok(answer)
        }
        Call::ClusterLimits { directories: None, inodes: None } => clusters::limits(fs),
        Call::Declare { .. } | Call::ClusterLimits { .. } | Call::IndexFlush { .. } => {
            let answer = clusters::set(fs, caller, call)?;
            settled(server)?;
            Ok(answer)
        }
        Call::HandOver => hand_over(server, caller),
        Call::ServesMount { device } => serves_mount(server, device),
        Call::Check => check::check(server, caller, replies),
        Call::Collect { delete_after } => check::collect(server, caller, delete_after, replies),
        Call::Sync => fs.sync().map(|()| Answer::Nothing).map_err(Failure::from),
        _ => {
            change(fs, caller, call)?;
            settled(server)?;
            Ok(Answer::Nothing)
        }
    }
}

/// Compares two states of a directory.
pub(super) fn diff(
    server: &Server,
    caller: &Caller,
    (old, new, given): (&[u8], &[u8], Granted),
    replies: &mut Replies,
) -> Answered<Answer> {
    // A change that returned before this call is in the present state.
    server.catch_up();
    let fs = server.fs();
    let from = Held::resolve(fs, caller, old, Follow::Yes)?;
    let to = Held::resolve(fs, caller, new, Follow::Yes)?;
    for (held, path) in [(&from, old), (&to, new)] {
        diff::check(&held.entry).map_err(|failure| failure.at(path))?;
    }
    let peer = replies.stream().map_err(|error| watch::cannot(&error))?;
    let entries = (&from.entry, &to.entry);
    let entries = (entries, (stream_terms::bounded(caller, given.bytes), given.is_short));
    let done = diff::diff(fs, caller, entries, &peer, &mut |body| replies.part(body));
    done.map(|()| Answer::Nothing).map_err(|failure| match failure.kind {
        FailureKind::Interrupted => failure,
        _ if failure.path.0.is_empty() => failure.at(old),
        _ => failure,
    })
}

/// Called after a change: the answer promises that a power cut does not undo it.
fn settled(server: &Server) -> Answered<()> {
    server.fs().sync().map_err(Failure::from)?;
    server.settle();
    server.background().wake();
    Ok(())
}

/// Whether this daemon serves a mount.
fn serves_mount(server: &Server, device: &[u8]) -> Answered<Answer> {
    // The number of one that is gone may belong to another file system.
    if server.mounted().is_some_and(|(mount, _)| mount.is_device(device)) {
        return Ok(Answer::Nothing);
    }
    let failure = Failure::new(FailureKind::NotFound, "the daemon does not serve that mount");
    Err(failure.hint("findmnt(8) shows what is mounted there; unmount it with umount(8)"))
}

/// The requests that change a trash.
fn from_trash(fs: &Volume, caller: &Caller, call: &Call<'_>) -> Answered<Answer> {
    match *call {
        Call::TrashSet { path, on, keep_seconds } => {
            trash::set(fs, caller, path, (on, keep_seconds))
        }
        Call::TrashEmpty { path } => trash::empty(fs, caller, path),
        Call::Restore { path, to, at, since } => {
            trash::restore(fs, caller, (path, to), &fs::RestoreOptions { at, since })
        }
        _ => Err(Failure::new(FailureKind::Protocol, "an unexpected request")),
    }
}

/// The requests that change the volume.
fn change(fs: &Volume, caller: &Caller, call: &Call<'_>) -> Answered<()> {
    match *call {
        Call::SnapshotCreate { path, name } => {
            at(fs, caller, path, |node| fs.snapshot_create(caller, node, name).map(drop))
                .map_err(|failure| advise(called(failure, name), WHO_CLONES))
        }
        Call::SnapshotDelete { path, name } => {
            at(fs, caller, path, |node| fs.snapshot_delete(caller, node, name))
                .map_err(|failure| named(failure, name, WHO_CLONES))
        }
        Call::SnapshotRename { path, from, to } => {
            at(fs, caller, path, |node| fs.snapshot_rename(caller, node, from, to))
                .map_err(|failure| named(called(failure, to), from, WHO_CLONES))
        }
        Call::Clone { source, destination } => {
            let held = Held::resolve(fs, caller, source, Follow::Yes)?;
            if held.entry.attr.kind != Kind::Directory {
                let failure = about(FsError::NotDirectory, source);
                return Err(failure.hint("directories are cloned; `cp` copies a file"));
            }
            below(fs, caller, destination, |parent, name| {
                fs.clone_dir(caller, held.entry.node, parent, name).map(drop)
            })
            .map_err(|failure| advise(failure, WHO_CLONES))
        }
        Call::Rollback { path, snapshot } => {
            at(fs, caller, path, |node| fs.rollback(caller, node, snapshot))
                .map_err(|failure| named(failure, snapshot, WHO_REMOVES))
        }
        Call::ScheduleSet { .. } | Call::SnapshotHold { .. } => {
            schedule_calls::change(fs, caller, call)
        }
        Call::RestoreFrom { snapshot, path, to } => {
            restore::restore(fs, caller, snapshot, (path, to))
        }
        Call::SnapshotDeleteNumber { number } => snapshots::delete(fs, caller, number),
        Call::SubvolumeCreate { path, umask } => below(fs, caller, path, |parent, name| {
            let maker = Caller { umask, ..caller.clone() };
            let made = fs.subvolume_create(&maker, parent, name, 0o777)?;
            fs.forget(made.node, 1);
            Ok(())
        }),
        _ => Err(Failure::new(FailureKind::Protocol, "an unexpected request")),
    }
}

/// Removes a tree or a single file. Returns how many snapshots of the removed tree remain.
fn remove(fs: &Volume, caller: &Caller, path: &[u8]) -> Answered<Answer> {
    if split(path)?.1 == fs.snapshot_dir() {
        return Err(of_snapshots(path));
    }
    below(fs, caller, path, |parent, name| {
        let there = fs.stat_at(caller, parent, name)?;
        if there.kind == Kind::Directory {
            // A failure to count does not stop the removal.
            let snapshots = fs.snapshots_of_tree(parent, name).unwrap_or_default();
            let removed = fs.rmr(caller, parent, name)?;
            let detached = removed.detached;
            // A directory in the trash is still reachable, with its snapshots.
            let snapshots = if detached == 0 { 0 } else { snapshots };
            return Ok(Answer::Removed { snapshots, detached });
        }
        fs.unlink(caller, parent, name)?;
        fs.invalidate_entry(parent, name);
        // Its other names now show one link less.
        fs.invalidate_attributes(there.node);
        Ok(Answer::Removed { snapshots: 0, detached: 0 })
    })
    .map_err(|failure| {
        let above = split(path).map_or(&b""[..], |(above, _)| above);
        let above = above.strip_suffix(b"/").unwrap_or(above);
        if failure.kind == FailureKind::Permission && above.ends_with(fs.snapshot_dir()) {
            return failure.hint("`pando snapshot delete DIR NAME` deletes a snapshot");
        }
        advise(failure, WHO_REMOVES)
    })
}

fn stat(fs: &Volume, caller: &Caller, path: &[u8]) -> Answered<Answer> {
    let held = Held::shown(fs, caller, path, Follow::No)?;
    let target = held.target(caller, path)?;
    Ok(Answer::Stat(Box::new(StatAnswer { attr: (&held.entry.attr).into(), target })))
}

fn info(fs: &Volume, caller: &Caller, path: &[u8], replies: &mut Replies) -> Answered<Answer> {
    let held = Held::resolve(fs, caller, path, Follow::No)?;
    let target = held.target(caller, path)?;
    let Entry { node, attr } = held.entry;
    if attr.kind == Kind::Directory {
        snapshots::of_directory(fs, caller, (node, path), replies)?;
    }
    let names = fs.listxattr(caller, node).map_err(|error| about(error, path))?;
    let xattrs = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    // The index keeps the size that the directory had at the import source.
    let entries = match attr.kind {
        // A virtual directory, such as a directory of snapshots, has no record that counts
        // entries.
        Kind::Directory if Volume::is_virtual(node) => attr.size,
        Kind::Directory => fs.entries(node).map_err(|error| about(error, path))?,
        _ => 0,
    };
    let copied = fs.copied_from(node).map_err(|error| about(error, path))?;
    let subvolume = fs.subvolume_of(attr.node).map_err(|error| about(error, path))?;
    let copied = match copied {
        Some(from) if Held::is_seen(fs, caller, &from)? => Some(from),
        _ => None,
    };
    Ok(Answer::Info(Box::new(Info {
        attr: (&attr).into(),
        subvolume: subvolume.0,
        ino: attr.node.ino().0,
        entries,
        xattrs: xattrs.map(Bytes::from).collect(),
        target,
        copy_of: copied.map(Bytes),
    })))
}

/// Sends what a file contains. `found` is called when it was found: nothing is searched after that.
pub(super) fn read(
    fs: &Volume,
    caller: &Caller,
    path: &[u8],
    replies: &mut Replies,
    found: impl FnOnce(),
) -> Answered<Answer> {
    let held = Held::shown(fs, caller, path, Follow::Yes)?;
    found();
    match held.entry.attr.kind {
        Kind::File => {}
        Kind::Directory => return Err(about(FsError::IsDirectory, path)),
        _ => return Err(about(FsError::InvalidArgument("not a regular file"), path)),
    }
    let mut offset = 0;
    loop {
        let mut bytes = vec![0; READ_BYTES];
        let read = fs.read(caller, held.entry.node, offset, &mut bytes);
        let length = read.map_err(|error| about(error, path))?;
        if length == 0 {
            return Ok(Answer::Nothing);
        }
        bytes.truncate(length);
        offset += length as u64;
        replies.part(Body::Data(Bytes(bytes)))?;
    }
}

/// The object store of the volume, if it is in one.
fn store_status(server: &Server, status: &fs::VolumeStatus) -> Option<StoreStatus> {
    let (store, running) = server.store()?;
    let counts = store.traffic.counts();
    let now = server.clock().monotonic();
    let waits = status.objects.as_ref().and_then(|objects| objects.waits.clone());
    let commits = status.objects.as_ref().map(|objects| objects.commits.clone());
    let commits = commits.unwrap_or_default();
    let limits = device::CLASSES.into_iter().map(Some).chain([None]);
    Some(StoreStatus {
        url: store.location.to_string(),
        creates: counts.create,
        reads: counts.read,
        lists: counts.list,
        heads: counts.head,
        deletes: counts.delete,
        retries: counts.retries,
        bytes_in: counts.bytes_in,
        bytes_out: counts.bytes_out,
        cache: store.cache(),
        seconds: running.as_secs(),
        stored_bytes: status.objects.as_ref().and_then(|objects| objects.bytes),
        content_objects: status.objects.as_ref().map_or(0, |objects| objects.contents),
        commit_times: limits.zip(commits.classes).collect(),
        commit_micros: u64::try_from(commits.total.as_micros()).unwrap_or(u64::MAX),
        silent: server.silent().map(|silent| silent.as_secs()),
        unreachable: counts
            .failing
            .map(|failing| (now.saturating_sub(failing.since).as_secs(), failing.why)),
        waits: waits.map(|(lasts, why)| (lasts.as_secs(), why)),
    })
}

pub(super) fn status(server: &Server) -> Answered<Status> {
    let status = server.fs().status()?;
    let store = store_status(server, &status);
    let mount_point = server.mount_point().map(|path| Bytes::from(path.as_os_str().as_bytes()));
    Ok(Status {
        volume: status.id.to_string(),
        format_version: status.format_version,
        engine: status.engine.to_owned(),
        durability: status.durability.name().to_owned(),
        pid: std::process::id(),
        mount_point,
        files: status.files,
        bytes: status.bytes,
        snapshots: status.snapshots,
        clones: status.clones,
        subvolumes: status.subvolumes,
        disk_bytes: status.disk_bytes,
        log_bytes: status.log_bytes,
        log_bytes_since_checkpoint: status.log_bytes_since_checkpoint,
        cache_bytes: status.cache_bytes,
        written_bytes: status.written_bytes,
        writes: status.writes,
        checkpoint_bytes: status.checkpoint_written.0,
        checkpoint_writes: status.checkpoint_written.1,
        merge_bytes: status.merge_bytes,
        ingest_bytes: status.ingest_bytes,
        given_bytes: status.given_bytes,
        merges: status.merges.map(merges),
        checkpoints: status.checkpoints,
        commits: status.commits,
        replayed: status.replayed,
        nodes: status.nodes,
        created: status.created.0,
        last_checkpoint: status.last_checkpoint.map(|time| time.0),
        background: Background {
            detached: status.detached,
            dropping: status.dropping,
            prunes: status.prunes,
            freeing_bytes: status.freeing_bytes,
            freed_bytes: status.freed_bytes,
            collecting: status.collecting,
            counting: status.counting,
            reclaimed: server.background().done(),
            reclaimed_a_second: server.background().done_a_second(),
        },
        read_only: status.read_only,
        damaged: status.damaged,
        stuck: server
            .fs()
            .stuck()
            .map(|(trees, error)| Stuck { trees, failure: Failure::from(error) }),
        store,
    })
}

/// Leaves so that a mount can take the volume, unless a long request is under way.
fn hand_over(server: &Server, caller: &Caller) -> Answered<Answer> {
    if server.mount().is_some() {
        let failure = Failure::new(FailureKind::Busy, "the volume is mounted");
        return Err(failure.hint("`pando status VOLUME` shows where; `pando umount` it first"));
    }
    if server.is_served() {
        let message = format!("process {} serves the volume", std::process::id());
        // Not busy: who finds a busy daemon asks again for a while.
        return Err(Failure::new(FailureKind::NotSupported, message).hint(
            "mount pando://localhost/NAME, which others see too; or end that process first",
        ));
    }
    // The user that owns the volume's directory may have it mounted, whichever user's command
    // started this daemon.
    if !server.trusts(caller.uid) {
        let hint = match server.idle() {
            Some(idle) => format!("it ends after {} s without a request", idle.as_secs()),
            None => format!("`pando umount {}` ends it", server.volume().display()),
        };
        return Err(Failure::new(FailureKind::Permission, check::holder()).hint(hint));
    }
    match server.hand_over() {
        Ok(()) => Ok(Answer::Nothing),
        Err((session, Who { uid, pid, .. }, busy, lasts)) => {
            let message = format!(
                "process {} has the volume open, and is in the middle of {} for process {pid} of \
                 user {uid}, for {} s now",
                std::process::id(),
                busy.task.what,
                lasts.as_secs()
            );
            let end = format!("`pando session end {} {session}`", server.volume().display());
            let hint = format!("try again when it has ended, or end it with {end}");
            Err(Failure::new(FailureKind::Busy, message).hint(hint))
        }
    }
}

/// An error about the name of a new snapshot.
fn called(failure: Failure, snapshot: &[u8]) -> Failure {
    let name = snapshot.escape_ascii();
    let message = match failure.kind {
        FailureKind::Exists => format!("it already has a snapshot {name}"),
        FailureKind::Invalid => format!("a snapshot cannot be called {name}: {failure}"),
        _ => return failure,
    };
    Failure { message, ..failure }
}

/// An error about a path and a snapshot of it.
fn named(failure: Failure, snapshot: &[u8], who: &str) -> Failure {
    if failure.kind == FailureKind::NotFound {
        let message = format!("no such directory or snapshot ({})", snapshot.escape_ascii());
        return Failure { message, ..failure }.hint(
            "`pando snapshot list` shows what there is, with --removed what is left of directories \
             that are gone",
        );
    }
    advise(failure, who)
}

fn merges(merges: store::MergeStats) -> wire::Merges {
    let logs = merges.logs;
    wire::Merges {
        ended: merges.ended,
        cleaned: merges.cleaned,
        logs: (logs.values_from > 0 || logs.logs > 0).then_some(wire::ValueLogs {
            values_from: logs.values_from,
            logs: logs.logs,
            disk_bytes: logs.disk_bytes,
            rows_bytes: logs.rows_bytes,
            live_bytes: logs.live_bytes,
            sparse: logs.sparse,
        }),
        under_way: merges.under_way,
        next: merges.next,
        depth: merges.depth,
        rate: merges.rate,
    }
}
