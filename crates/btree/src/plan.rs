//! The plan of a batch before it is committed: read once from its bytes.

use format::batch::{MergeKind, Op};
use smallvec::SmallVec;
use store::{Batch, Error, Need, Result};

use crate::leaf::Change;
use crate::stripes::{Mode, Wanted};

/// Changes that are kept without allocating: one more than creating a file needs.
const FEW: usize = 4;

/// A change of one key.
pub(crate) struct Step<'a> {
    pub(crate) tree: u64,
    pub(crate) key: &'a [u8],
    pub(crate) change: Change<'a>,
}

/// A batch, and the locks that it needs.
#[derive(Default)]
pub(crate) struct Plan<'a> {
    pub(crate) wanted: Wanted,
    /// Whether it needs the gate exclusively; then `steps` and `wanted` are not used.
    pub(crate) alone: bool,
    /// All its changes in order, unless it needs the gate exclusively.
    pub(crate) steps: SmallVec<[Step<'a>; FEW]>,
    /// The class of its space need.
    pub(crate) need: Need,
}

impl<'a> Plan<'a> {
    /// Reads a batch.
    pub(crate) fn of(batch: &'a Batch) -> Result<Plan<'a>> {
        let mut plan = Plan { need: batch.need(), ..Plan::default() };
        for op in batch.ops() {
            match op.map_err(malformed)? {
                Op::Put { tree, key, value } => {
                    plan.add(tree, key, Change::Put(value), Mode::Changes);
                }
                Op::Delete { tree, key } => {
                    plan.add(tree, key, Change::Delete, Mode::Changes);
                }
                Op::Merge { tree, key, lanes } => {
                    let adds = lanes.iter().all(|lane| lane.kind == MergeKind::Add);
                    let mode = if adds { Mode::Adds } else { Mode::Changes };
                    plan.add(tree, key, Change::Merge(lanes), mode);
                }
                Op::DeleteRange { .. }
                | Op::DropTree { .. }
                | Op::CreateTree { .. }
                | Op::CloneTree { .. }
                | Op::Ingest { .. }
                | Op::Link { .. } => plan.alone = true,
            }
        }
        Ok(plan)
    }

    #[inline]
    fn add(&mut self, tree: u64, key: &'a [u8], change: Change<'a>, mode: Mode) {
        if !self.alone {
            self.wanted.add(tree, key, mode);
            self.steps.push(Step { tree, key, change });
        }
    }

    /// Whether the batch frees space, so that it may use the reserve.
    pub(crate) fn frees_space(&self) -> bool {
        self.need != Need::Adds
    }
}

/// A log record that is not a batch. The log adds where it is stored.
pub(crate) fn malformed(malformed: format::Malformed) -> Error {
    malformed.located("", 0).into()
}
