//! Makes what was received visible: takes the snapshot, puts it in place, and gives directories
//! their properties. A destination that was changed since the base is not replaced; what a trash
//! there deletes by itself is no such change.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use format::stream::Origin;
use fs::{ChangeKind, Difference, Field, FileSystem, Fs, SnapshotInfo};
use inode::{Caller, FsError, NodeId};

use super::apply::Apply;
use crate::error::{Error, Result};
use crate::properties::{self, Plan, PropertyChange, Terms};
use crate::stage::Stage;
use crate::walk::Held;

/// Name of the hold on the last snapshot that was received.
const HOLD: &[u8] = b"received";

/// A snapshot that is in place, or the failure of that, and what became of its properties.
pub(super) struct Published {
    pub(super) snapshot: SnapshotInfo,
    pub(super) in_place: Result<Vec<PropertyChange>>,
}

/// Where a stream is received, and by whom.
pub(super) struct Destination<'a> {
    pub(super) fs: &'a Fs,
    pub(super) caller: &'a Caller,
    /// The directory that has or gets it, and the name in it.
    pub(super) at: (NodeId, &'a [u8]),
    /// Which properties are set; `None`: none.
    pub(super) terms: Option<Terms>,
    /// Whether changes are given up that were made at the destination since the base.
    pub(super) force: bool,
}

/// What becomes visible.
pub(super) struct Received<'a> {
    pub(super) apply: &'a Apply<'a>,
    /// The snapshot's name and identities, and the identity by which the stage is found.
    pub(super) name: &'a [u8],
    pub(super) origins: &'a [Origin],
    pub(super) origin: Origin,
    /// The base of an increment, and the destination that had it.
    pub(super) base: Option<(&'a SnapshotInfo, Option<NodeId>)>,
}

impl Destination<'_> {
    /// Refuses to give up changes of the destination, unless they are to be.
    pub(super) fn check_unchanged(&self, nodes: (NodeId, NodeId)) -> Result<()> {
        if !self.force && !equals(self.fs, self.caller, nodes)? {
            return Err(Error::refused(
                "the destination was changed since the base of the stream",
                "`pando diff` shows how; `--force` discards these changes",
            ));
        }
        Ok(())
    }

    /// Takes the snapshot and puts it in place.
    pub(super) fn publish(&self, received: &Received<'_>) -> Result<Published> {
        let (fs, caller, (parent, name)) = (self.fs, self.caller, self.at);
        let Received { apply, origins, origin, .. } = *received;
        let stage = &apply.stage;
        apply.settle()?;
        let carried = apply.properties();
        let Some((base, expected)) = received.base else {
            let nodes = (stage.node(), stage.node());
            let plan = Plan::new((fs, caller), carried, None, self.terms.as_ref())?;
            let snapshot = fs.snapshot_received(caller, nodes, received.name, origins)?;
            stage.publish(name)?;
            Stage::remove_others(fs, caller, (parent, name), origin);
            let in_place = plan.apply(fs, caller, (stage.node(), &snapshot));
            return Ok(Published { snapshot, in_place });
        };
        let present = Held::new(fs, fs.lookup(caller, parent, name)?);
        if expected != Some(present.node()) {
            return Err(Error::refused(
                "the destination was replaced while the stream was received",
                "send it again",
            ));
        }
        // It was compared at the beginning: the stream may have taken long.
        self.check_unchanged((base.root, present.node()))?;
        let there = Some((present.node(), base));
        let plan = Plan::new((fs, caller), carried, there, self.terms.as_ref())?;
        let nodes = (stage.node(), present.node());
        let snapshot = fs.snapshot_received(caller, nodes, received.name, origins)?;
        let rolled_back = fs.rollback(caller, present.node(), received.name).map_err(Error::from);
        stage.remove()?;
        Stage::remove_others(fs, caller, (parent, name), origin);
        let in_place = rolled_back.and_then(|()| {
            let present = Held::new(fs, fs.lookup(caller, parent, name)?);
            plan.apply(fs, caller, (present.node(), &snapshot))
        });
        Ok(Published { snapshot, in_place })
    }

    /// Holds the new snapshot, the base of the next increment, instead of the last base.
    pub(super) fn hold(&self, snapshot: &SnapshotInfo, base: Option<&SnapshotInfo>) {
        if let Err(error) = self.fs.hold(self.caller, snapshot.subvol, HOLD) {
            tracing::info!(%error, "a received snapshot is not held");
            return;
        }
        if let Some(base) = base {
            match self.fs.release(self.caller, base.subvol, HOLD) {
                Ok(()) | Err(FsError::NotFound) => {}
                Err(error) => tracing::info!(%error, "the hold on a base is not released"),
            }
        }
    }
}

/// Whether a directory equals a snapshot of it, apart from what it got with its name, and from what
/// its trashes delete by themselves.
pub fn equals(fs: &Fs, caller: &Caller, (snapshot, present): (NodeId, NodeId)) -> Result<bool> {
    let trashes = properties::trashes(fs, caller, present)?;
    let cancel = AtomicBool::new(false);
    let mut has_changed = false;
    let mut take = |change: &Difference| {
        // A directory that got its name has another time of change.
        let is_name = change.path().is_empty()
            && change.kind == ChangeKind::Modified
            && change.fields.iter().all(|field| field == Field::Ctime);
        let mut paths = [&change.old, &change.new].into_iter().flatten().map(|(path, _)| path);
        has_changed |= !is_name && !paths.all(|path| is_in(&trashes, path));
        if has_changed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    fs.compare(caller, (snapshot, present), &cancel, &mut take)?;
    Ok(!has_changed)
}

/// Whether a path is that of a trash, or of something in one.
fn is_in(trashes: &BTreeSet<Vec<u8>>, path: &[u8]) -> bool {
    let ends = (0..path.len()).filter(|at| path[*at] == b'/').chain([path.len()]);
    !trashes.is_empty() && ends.into_iter().any(|end| trashes.contains(&path[..end]))
}
