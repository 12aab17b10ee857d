//! The yardstick: the ordered map of the standard library. It replays the record operations that a
//! tap recorded, with the product's allocator, without a log, clones, or anything else.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::time::Duration;

use device::Clock;
use format::batch::{LaneList, Op, Ops};

use super::tap::{Note, Notes};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Ordered maps, one per tree.
#[derive(Default)]
pub(super) struct Yardstick {
    trees: Vec<(u64, Map)>,
}

/// A record operation, decoded in advance.
enum Step<'a> {
    Get(usize, &'a [u8]),
    Put(usize, &'a [u8], &'a [u8]),
    Delete(usize, &'a [u8]),
    Merge(usize, &'a [u8], LaneList<'a>),
    Scan(usize, &'a [u8], Option<&'a [u8]>),
    DeleteRange(usize, &'a [u8], &'a [u8]),
}

impl Yardstick {
    /// Replays the recorded requests, and returns how long it took. Decoding is not counted.
    pub(super) fn replay(&mut self, all: &[Notes], clock: &dyn Clock) -> Duration {
        let mut steps = Vec::new();
        for notes in all {
            self.take_apart(notes, &mut steps);
        }
        let start = clock.monotonic();
        for step in &steps {
            self.step(step);
        }
        clock.monotonic().saturating_sub(start)
    }

    fn take_apart<'a>(&mut self, notes: &'a Notes, steps: &mut Vec<Step<'a>>) {
        let mut rest = notes.bytes.as_slice();
        let mut take = |length: usize| {
            let (taken, after) = rest.split_at(length);
            rest = after;
            taken
        };
        for note in &notes.notes {
            match *note {
                Note::Get(tree, key) => {
                    steps.push(Step::Get(self.tree(tree), take(usize::from(key))));
                }
                Note::Scan(tree, from, to) => {
                    let from = take(usize::from(from));
                    let to = to.map(|to| take(usize::from(to)));
                    steps.push(Step::Scan(self.tree(tree), from, to));
                }
                Note::Commit(length) => {
                    for op in Ops::new(take(length as usize)) {
                        let op = op.expect("invariant: the batch was made by this program");
                        self.take_op(&op, steps);
                    }
                }
            }
        }
    }

    fn take_op<'a>(&mut self, op: &Op<'a>, steps: &mut Vec<Step<'a>>) {
        match *op {
            Op::Put { tree, key, value } => steps.push(Step::Put(self.tree(tree), key, value)),
            Op::Delete { tree, key } => steps.push(Step::Delete(self.tree(tree), key)),
            Op::Merge { tree, key, lanes } => {
                steps.push(Step::Merge(self.tree(tree), key, lanes));
            }
            Op::DeleteRange { tree, from, to } => {
                steps.push(Step::DeleteRange(self.tree(tree), from, to));
            }
            // An ordered map cannot do this; no workload with a yardstick requests it.
            Op::CreateTree { .. }
            | Op::CloneTree { .. }
            | Op::DropTree { .. }
            | Op::Ingest { .. }
            | Op::Link { .. } => {}
        }
    }

    fn tree(&mut self, tree: u64) -> usize {
        if let Some(index) = self.trees.iter().position(|(known, _)| *known == tree) {
            return index;
        }
        self.trees.push((tree, Map::new()));
        self.trees.len() - 1
    }

    fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Get(tree, key) => {
                black_box(self.trees[*tree].1.get(*key).map(Vec::as_slice));
            }
            Step::Put(tree, key, value) => {
                black_box(self.trees[*tree].1.insert(key.to_vec(), value.to_vec()));
            }
            Step::Delete(tree, key) => {
                black_box(self.trees[*tree].1.remove(*key));
            }
            Step::Merge(tree, key, lanes) => {
                let map = &mut self.trees[*tree].1;
                if let Some(value) = map.get_mut(*key) {
                    lanes.apply(value);
                } else {
                    let mut value = Vec::new();
                    lanes.apply(&mut value);
                    map.insert(key.to_vec(), value);
                }
            }
            Step::Scan(tree, from, to) => {
                let end = to.map_or(Bound::Unbounded, Bound::Excluded);
                let range = (Bound::Included(*from), end);
                for (key, value) in self.trees[*tree].1.range::<[u8], _>(range) {
                    black_box((key.as_slice(), value.as_slice()));
                }
            }
            Step::DeleteRange(tree, from, to) => {
                let map = &mut self.trees[*tree].1;
                let mut removed = map.split_off(*from);
                let mut kept = removed.split_off(*to);
                map.append(&mut kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use device::SystemClock;
    use store::{Batch, Lane, MergeKind, TreeId};

    use super::*;

    #[test]
    fn a_batch_is_replayed() {
        let mut batch = Batch::new();
        batch.put(TreeId(32), b"a", b"1");
        batch.put(TreeId(32), b"b", b"2");
        batch.delete(TreeId(32), b"a");
        let lane = Lane { offset: 0, kind: MergeKind::Add, operand: 7 };
        batch.merge(TreeId(32), b"m", &[lane]);
        let bytes = batch.as_bytes().to_vec();
        let notes = Notes { notes: vec![Note::Commit(bytes.len() as u32)], bytes };
        let mut yardstick = Yardstick::default();
        yardstick.replay(&[notes], &SystemClock::new());
        let map = &yardstick.trees[0].1;
        assert_eq!(map.get(&b"b"[..]), Some(&b"2".to_vec()));
        assert_eq!(map.get(&b"m"[..]), Some(&7_i64.to_le_bytes().to_vec()));
        assert_eq!(map.len(), 2);
    }
}
