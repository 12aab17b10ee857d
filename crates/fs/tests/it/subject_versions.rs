//! Snapshots, clones and other verbs of a volume, as the model names them. Other crates' subjects
//! include this file.

use inode::Caller;
use testing::model::{Calls, Effect, ErrorKind, Op};

/// What a call answers in terms of the model; `None`: the operation is none of these.
pub(crate) fn versions(
    calls: &Calls<'_, fs::Volume>,
    caller: &Caller,
    op: &Op,
) -> Option<Result<Effect, ErrorKind>> {
    Some(match op {
        Op::SnapshotCreate { directory, name } => calls
            .with(caller, directory, |fs, node| fs.snapshot_create(caller, node, name))
            .map(|_| Effect::Done),
        Op::SnapshotDelete { directory, name } => calls
            .with(caller, directory, |fs, node| fs.snapshot_delete(caller, node, name))
            .map(|()| Effect::Done),
        Op::SnapshotRename { directory, from, to } => calls
            .with(caller, directory, |fs, node| fs.snapshot_rename(caller, node, from, to))
            .map(|()| Effect::Done),
        Op::SnapshotList { directory } => {
            calls.with(caller, directory, |fs, node| fs.snapshot_list(caller, node)).map(|found| {
                let mut names: Vec<Vec<u8>> = found.into_iter().map(|one| one.name).collect();
                names.sort();
                Effect::Names(names)
            })
        }
        Op::Clone { from, to } => {
            let node = match calls.walk(caller, from) {
                Ok(node) => node,
                Err(error) => return Some(Err(calls.blame(&error))),
            };
            let cloned = calls.at(caller, to, ErrorKind::Exists, |fs, parent, name| {
                fs.clone_dir(caller, node, parent, name)
            });
            calls.leave(node);
            cloned.map(|_| Effect::Done)
        }
        Op::SubvolumeCreate { path, mode } => calls
            .at(caller, path, ErrorKind::Exists, |fs, parent, name| {
                let entry = fs.subvolume_create(caller, parent, name, *mode)?;
                calls.leave(entry.node);
                Ok(())
            })
            .map(|()| Effect::Done),
        Op::Rollback { directory, name } => calls
            .with(caller, directory, |fs, node| fs.rollback(caller, node, name))
            .map(|()| Effect::Done),
        Op::Rmr { path } => calls
            .at(caller, path, ErrorKind::Busy, |fs, parent, name| fs.rmr(caller, parent, name))
            .map(|_| Effect::Done),
        _ => return None,
    })
}
