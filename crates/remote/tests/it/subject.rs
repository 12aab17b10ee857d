//! A served volume as the subject of the model: what POSIX has goes over the network, what only
//! verbs do is done by the volume itself.

use device::Timestamp;
use inode::Caller;
use remote::RemoteFs;
use testing::model::{Calls, Effect, ErrorKind, Op, OpPath, Slots, Subject, blame};

use crate::rig::Rig;

type Answer = Result<Effect, ErrorKind>;

/// The subject.
pub(crate) struct RemoteSubject {
    pub(crate) rig: Rig,
    /// Files held open.
    slots: Slots,
}

impl RemoteSubject {
    pub(crate) fn new(rig: Rig) -> RemoteSubject {
        RemoteSubject { rig, slots: Slots::new() }
    }

    fn far(&self) -> Calls<'_, RemoteFs> {
        Calls { fs: self.rig.far(), start: &[] }
    }

    /// As `far`, on the server's own side.
    fn near(&self) -> Calls<'_, fs::Volume> {
        Calls { fs: self.rig.near(), start: &[] }
    }

    fn versions(&self, caller: &Caller, op: &Op) -> Option<Answer> {
        Some(match op {
            Op::SnapshotCreate { directory, name } => self
                .near()
                .with(caller, directory, |fs, node| fs.snapshot_create(caller, node, name))
                .map(|_| Effect::Done),
            Op::SnapshotDelete { directory, name } => self
                .near()
                .with(caller, directory, |fs, node| fs.snapshot_delete(caller, node, name))
                .map(|()| Effect::Done),
            Op::SnapshotRename { directory, from, to } => self
                .near()
                .with(caller, directory, |fs, node| fs.snapshot_rename(caller, node, from, to))
                .map(|()| Effect::Done),
            Op::SnapshotList { directory } => self
                .near()
                .with(caller, directory, |fs, node| fs.snapshot_list(caller, node))
                .map(|found| {
                    let mut names: Vec<Vec<u8>> = found.into_iter().map(|one| one.name).collect();
                    names.sort();
                    Effect::Names(names)
                }),
            Op::Clone { from, to } => {
                let node = match self.near().walk(caller, from) {
                    Ok(node) => node,
                    Err(error) => return Some(Err(blame(&error))),
                };
                let cloned = self.near().at(caller, to, ErrorKind::Exists, |fs, parent, name| {
                    fs.clone_dir(caller, node, parent, name)
                });
                self.near().leave(node);
                cloned.map(|_| Effect::Done)
            }
            Op::SubvolumeCreate { path, mode } => self
                .near()
                .at(caller, path, ErrorKind::Exists, |fs, parent, name| {
                    let entry = fs.subvolume_create(caller, parent, name, *mode)?;
                    self.near().leave(entry.node);
                    Ok(())
                })
                .map(|()| Effect::Done),
            Op::Rollback { directory, name } => self
                .near()
                .with(caller, directory, |fs, node| fs.rollback(caller, node, name))
                .map(|()| Effect::Done),
            Op::Rmr { path } => self
                .near()
                .at(caller, path, ErrorKind::Busy, |fs, parent, name| fs.rmr(caller, parent, name))
                .map(|_| Effect::Done),
            _ => return None,
        })
    }
}

impl Subject for RemoteSubject {
    fn run(&mut self, now: Timestamp, caller: &Caller, op: &Op) -> Answer {
        if now.0 > 0 {
            self.rig.set_clock(now);
        }
        let done = match op {
            Op::Background { seed } => {
                let done = self.rig.background(1 + seed % 8);
                Some(done.map(|()| Effect::Done).map_err(|error| blame(&error)))
            }
            Op::Reopen => {
                self.slots.clear();
                self.rig.restart();
                Some(Ok(Effect::Done))
            }
            _ => None,
        };
        self.rig.disturb();
        if let Some(done) = done {
            return done;
        }
        let mut slots = std::mem::take(&mut self.slots);
        let answer = self.far().run(&mut slots, caller, op);
        self.slots = slots;
        answer.or_else(|| self.versions(caller, op)).expect("every operation is a call or a verb")
    }

    fn identity(&mut self, path: &OpPath) -> u64 {
        self.far().identity(path)
    }
}
