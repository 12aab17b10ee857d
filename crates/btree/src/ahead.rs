//! Reads nodes ahead, so that the disk works on many of them at once.
//!
//! A comparison opens two trees node by node in key order, so it knows the nodes that it will need.
//! They are the pending subtrees of either side, except those that both sides share. For each level
//! it keeps a window of reads requested. A request is a hint: the thread that reads the node gets
//! any error.

use std::ops::Range;

use crate::nodes::{Nodes, unread};
use crate::sides::{Side, Subtree, same};

/// Nodes of a level that are requested at once, on each side. A leaf takes up to 16 KiB.
const WINDOW: usize = 128;
/// More nodes are requested when this many are left.
const LOW_WATER: usize = WINDOW / 2;

/// Called when the next subtree of `side` is about to be opened. Requests that subtree and the
/// following ones, unless they were requested before.
pub(crate) fn ask(nodes: &Nodes, side: &mut Side, other: &Side) {
    let Some(next) = side.subtrees.last() else { return };
    let (level, count) = (next.level, side.subtrees.len());
    let unasked = |subtree: &Subtree| subtree.level == level && !subtree.asked;
    let later = count.checked_sub(LOW_WATER).map(|at| &side.subtrees[at]);
    if !unasked(next) && !later.is_some_and(unasked) {
        return;
    }
    // The part beyond the other side's first node that is not opened that far may be in there.
    let unopened = other.subtrees.iter().rev().find(|subtree| subtree.level > level);
    let mut places = Vec::new();
    for (ahead, subtree) in side.subtrees.iter_mut().rev().take(WINDOW).enumerate() {
        let hidden = unopened.is_some_and(|unopened| unopened.low <= subtree.low);
        if subtree.level != level || (hidden && ahead > 0) {
            break;
        }
        if !subtree.asked && !is_shared(subtree, other) {
            places.extend(unread(&subtree.child));
        }
        subtree.asked = true;
    }
    nodes.ask_for(places);
}

/// Whether the other side has the same subtree at the same place, so that both will skip it.
fn is_shared(subtree: &Subtree, other: &Side) -> bool {
    let at = other.subtrees.partition_point(|one| one.low > subtree.low);
    let alike = other.subtrees[at..].iter().take_while(|one| one.low == subtree.low);
    alike.into_iter().any(|one| one.level == subtree.level && same(&one.child, &subtree.child))
}

impl Nodes {
    /// Has the disk read places without waiting; adjacent places are read in one request.
    pub(crate) fn ask_for(&self, mut places: Vec<Range<u64>>) {
        places.sort_unstable_by_key(|place| place.start);
        let mut places = places.into_iter();
        let Some(mut run) = places.next() else { return };
        for place in places {
            if place.start == run.end {
                run.end = place.end;
                continue;
            }
            self.file.prefetch(run.start, run.end - run.start);
            run = place;
        }
        self.file.prefetch(run.start, run.end - run.start);
    }
}
