//! Selects the runs to merge next: pure functions of the layers of a tree.
//!
//! Three rules, in this order ([`Policy::Full`] has the first, and then merges all runs of a
//! section into one as soon as there are two):
//!
//! 1. *Space.* A layer may hide at least half of what is below it, alone or together with others
//!    below it. Then the layer is merged with what it hides.
//! 2. *Tiers.* Each run belongs to the tier of its size, each tier four times the one below. Four
//!    runs of a tier, with only smaller ones between them, become one with those. So an entry is
//!    written about once a tier, and a look-up meets at most three runs a tier. While all runs of a
//!    tree are of one tier, this equals BabuDB's full merge.
//! 3. *Depth.* The first two merge only within a *section*, layers that the same trees share, so
//!    that nothing is on disk twice. A chain of clones has no section of two runs, and would be as
//!    deep as it is long. So in a stack that is too deep, the oldest eight runs of a tier are
//!    merged regardless, in all trees that have them. Trees that have only some of them keep the
//!    old runs.
//!
//! `candidates` tracks which sections and stacks have something to merge, in all trees.
//!
//! A store of blobs may bound the length of a blob, and the disk the space that a merge may take
//! until it ends ([`Limits`]). Longer runs are left apart, and merged in parts if they are hidden.
//! A tree whose runs have the maximum length has as many of them as its bytes require, and a
//! look-up tests the filter of each.
//!
//! Each rule is monotonic in the bound: what it would not merge without a bound, it merges under
//! none.

use crate::layer::LayerId;
use crate::options::Policy;

/// Estimated bytes of a tombstone of a short key in a run, packed and with its part of the index.
pub(crate) const TOMBSTONE_BYTES: u64 = 16;

/// A layer, as far as the rules need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) id: LayerId,
    pub(crate) bytes: u64,
    /// Estimated bytes of what is below it in its section that it hides.
    pub(crate) hides: u64,
    /// Estimated bytes of its own that are dropped if nothing is below: tombstones and ranges.
    pub(crate) ends: u64,
}

/// What is to be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Merge {
    /// Layers that follow each other in a stack, newest first.
    pub(crate) layers: Vec<LayerId>,
    /// Whether nothing is below them.
    pub(crate) lowest: bool,
    /// Whether it is made to free space.
    pub(crate) returns: bool,
}

/// Most bytes that merges may write, as far as blobs and the disk bound that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// A merge.
    pub(crate) bytes: u64,
    /// A merge to free space.
    pub(crate) returning: u64,
}

/// Runs of a tier that become one.
const FAN: usize = 4;
/// The same where the trees that share them differ.
const SHARED_FAN: usize = 8;
/// Depth of a stack from which runs are merged although the trees that share them differ.
pub(crate) const DEPTH_MAX: usize = 16;
/// Runs up to this size are of the lowest tier.
const TIER_BYTES: u64 = 64 << 10;

/// The tier of a run.
fn tier(bytes: u64) -> u32 {
    (bytes / TIER_BYTES).checked_ilog(FAN as u64).map_or(0, |log| log + 1)
}

/// The tier of a run in a stack that is too deep: there are more of them, for such runs are small.
fn fine_tier(bytes: u64) -> u32 {
    bytes.checked_ilog(SHARED_FAN as u64).unwrap_or(0)
}

/// The range of adjacent layers, newest first, that a rule merges.
pub(crate) type LayerRange = Option<(usize, usize)>;

/// Bytes of layers.
fn bytes(layers: &[Facts]) -> u64 {
    layers.iter().map(|layer| layer.bytes).fold(0, u64::saturating_add)
}

/// The first rule, for a section, below which there may be nothing.
pub(crate) fn hiding(section: &[Facts], lowest: bool, bytes_max: u64) -> LayerRange {
    (0..section.len()).find_map(|at| {
        let below = &section[at..];
        let half_hidden = |to: usize| {
            let (hidden, all) = (hidden_within(below, to), bytes(&below[..to]));
            // A layer that hides others and has nothing left below it is dropped as well. On a full
            // disk that may be more than there is space for.
            let ends = if lowest && to == below.len() { below[..to].iter() } else { [].iter() };
            let ends = ends.map(|layer| layer.ends).fold(0, u64::saturating_add);
            let left = (all - hidden).saturating_sub(ends);
            (hidden > 0 && hidden >= bytes(&below[1..to]) / 2).then_some((all, left))
        };
        // What is hidden is an estimate, so half of the bound is enough if it is not everything.
        let fits = |to: &usize| {
            let fits = |(all, left)| all <= bytes_max || bytes_max > 0 && left <= bytes_max / 2;
            half_hidden(*to).is_some_and(fits)
        };
        if below[0].hides == 0 || half_hidden(below.len()).is_none() {
            return None;
        }
        (2..=below.len()).rev().find(fits).map(|to| (at, at + to))
    })
}

/// Estimated bytes of the first layers of a section that those among them hide. What each hides of
/// everything below it is spread evenly over that. Two may hide the same, or one what another
/// hides.
fn hidden_within(section: &[Facts], to: usize) -> u64 {
    let (mut below, mut within) = (bytes(&section[1..]), bytes(&section[1..to]));
    let mut hidden = 0_u64;
    let most = within;
    for at in 0..to.saturating_sub(1) {
        let share = u128::from(section[at].hides) * u128::from(within) / u128::from(below.max(1));
        hidden = hidden.saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
        let next = section[at + 1].bytes;
        (below, within) = (below.saturating_sub(next), within.saturating_sub(next));
    }
    hidden.min(most)
}

/// The second rule, for a section.
pub(crate) fn by_size(policy: Policy, section: &[Facts], bytes_max: u64) -> LayerRange {
    match policy {
        Policy::Full if section.len() > 1 && bytes(section) <= bytes_max => {
            Some((0, section.len()))
        }
        // By tiers if all of them together would be too long.
        Policy::Full | Policy::Tiered => tiers(section, bytes_max),
    }
}

/// The whole row of the lowest tier that has four in a row.
fn tiers(section: &[Facts], bytes_max: u64) -> LayerRange {
    let tiers: Vec<u32> = section.iter().map(|layer| tier(layer.bytes)).collect();
    let enough = |from: usize, to: usize, most| {
        // The longest part of the row that fits; of equal parts the oldest.
        let fits = |(from, to): &(usize, usize)| {
            tiers[*from..*to].iter().filter(|&&tier| tier == most).count() >= FAN
                && bytes(&section[*from..*to]) <= bytes_max
        };
        let parts = |length| (from..=to - length).rev().map(move |from| (from, from + length));
        (FAN..=to - from).rev().flat_map(parts).find(fits)
    };
    row(&tiers, enough)
}

/// The third rule, for a whole stack: the oldest eight of the lowest tier that has eight in a row.
pub(crate) fn deep(stack: &[Facts], bytes_max: u64) -> LayerRange {
    if stack.len() <= DEPTH_MAX {
        return None;
    }
    let tiers: Vec<u32> = stack.iter().map(|layer| fine_tier(layer.bytes)).collect();
    let enough = |from: usize, to: usize, _| {
        let oldest = to.checked_sub(SHARED_FAN).filter(|oldest| *oldest >= from)?;
        (bytes(&stack[oldest..to]) <= bytes_max).then_some((oldest, to))
    };
    row(&tiers, enough)
}

/// The range to merge of the lowest tier that has, together with lower ones, enough adjacent
/// layers; the oldest such range.
fn row(tiers: &[u32], enough: impl Fn(usize, usize, u32) -> LayerRange) -> LayerRange {
    let mut distinct = tiers.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    distinct.into_iter().find_map(|most| {
        let mut end = tiers.len();
        while end > 0 {
            let count = tiers[..end].iter().rev().take_while(|tier| **tier <= most).count();
            let found = enough(end - count, end, most);
            if found.is_some() {
                return found;
            }
            end -= count.max(1);
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Limits {
        /// Only the bound of blobs of this many bytes.
        fn of_blobs(bytes: u64) -> Limits {
            Limits { bytes, returning: bytes }
        }
    }

    /// A layer of a stack, and how many trees have it.
    #[derive(Debug, Clone)]
    struct Held {
        facts: Facts,
        sharers: u32,
    }

    /// The range of layers that the same trees share as the one at `at`.
    fn alike(stack: &[Held], at: usize) -> usize {
        let sharers = stack[at].sharers;
        at + stack[at..].iter().take_while(|layer| layer.sharers == sharers).count()
    }

    /// The next merge in stacks: each rule in turn, for all sections of all stacks.
    fn pick(policy: Policy, stacks: &[Vec<Held>], limits: Limits) -> Option<Merge> {
        let in_sections = |rule: &dyn Fn(&[Facts]) -> LayerRange| {
            stacks.iter().find_map(|stack| {
                let facts: Vec<Facts> = stack.iter().map(|held| held.facts).collect();
                let mut at = 0;
                while at < stack.len() {
                    let end = alike(stack, at);
                    if let Some((from, to)) = rule(&facts[at..end]) {
                        return Some(merge(&facts, at + from, at + to));
                    }
                    at = end;
                }
                None
            })
        };
        let in_stacks = || {
            stacks.iter().find_map(|stack| {
                let facts: Vec<Facts> = stack.iter().map(|held| held.facts).collect();
                deep(&facts, limits.bytes).map(|(from, to)| merge(&facts, from, to))
            })
        };
        in_sections(&|section| hiding(section, false, limits.returning))
            .map(|merge| Merge { returns: true, ..merge })
            .or_else(|| in_sections(&|section| by_size(policy, section, limits.bytes)))
            .or_else(in_stacks)
    }

    fn merge(stack: &[Facts], from: usize, to: usize) -> Merge {
        let layers = stack[from..to].iter().map(|layer| layer.id).collect();
        Merge { layers, lowest: to == stack.len(), returns: false }
    }

    fn layer(id: u64, bytes: u64, sharers: u32, hides: u64) -> Held {
        Held { facts: Facts { id, bytes, hides, ends: 0 }, sharers }
    }

    fn layers(sizes: &[u64]) -> Vec<Held> {
        let count = sizes.len() as u64;
        let sizes = sizes.iter().enumerate();
        sizes.map(|(at, &bytes)| layer(count - at as u64, bytes, 1, 0)).collect()
    }

    fn whole(stack: &[Held]) -> u64 {
        stack.iter().map(|held| held.facts.bytes).sum()
    }

    fn picked(stacks: &[Vec<Held>]) -> Option<(Vec<u64>, bool)> {
        pick(Policy::Tiered, stacks, Limits::of_blobs(u64::MAX))
            .map(|merge| (merge.layers, merge.lowest))
    }

    #[test]
    fn four_runs_of_a_tier_are_merged_into_one() {
        let small = 1000;
        let large = TIER_BYTES * 100;
        assert_eq!(picked(&[layers(&[small, small, small, large])]), None);
        let found = picked(&[layers(&[small, small, small, small, large])]);
        assert_eq!(found, Some((vec![5, 4, 3, 2], false)));
        let found = picked(&[layers(&[large, small, large, large, large])]);
        assert_eq!(found, Some((vec![5, 4, 3, 2, 1], true)));
        assert_eq!(picked(&[layers(&[large, large, small, small, large * 4, large])]), None);
    }

    /// Merges as long as something is picked; returns the sizes of what is left, and the number of
    /// merges.
    fn settled(mut stack: Vec<Held>, bytes_max: u64) -> (Vec<u64>, u64) {
        let (mut merges, limits) = (0, Limits::of_blobs(bytes_max));
        while let Some(merge) = pick(Policy::Tiered, std::slice::from_ref(&stack), limits) {
            let first = |held: &Held| held.facts.id == merge.layers[0];
            let at = stack.iter().position(first).unwrap();
            let end = at + merge.layers.len();
            let (all, hides) = (whole(&stack[at..end]), stack[at].facts.hides);
            let hidden = hides.min(whole(&stack[at + 1..end]));
            assert!(all - hidden <= bytes_max, "{merge:?} of {stack:?}");
            let hides = if merge.lowest { 0 } else { hides - hidden };
            let merged = layer(1000 + merges, all - hidden, 1, hides);
            stack.splice(at..end, [merged]);
            merges += 1;
            assert!(merges < 1000, "it never ends: {stack:?}");
        }
        (stack.iter().map(|held| held.facts.bytes).collect(), merges)
    }

    #[test]
    fn runs_too_long_together_are_not_merged() {
        let large = TIER_BYTES * 100;
        let five = layers(&[large; 5]);
        assert_eq!(settled(five.clone(), large * 3), (vec![large; 5], 0));
        assert_eq!(settled(five.clone(), large * 4), (vec![large, large * 4], 1));
        assert_eq!(settled(five, large * 5), (vec![large * 5], 1));
        // Smaller runs are merged up to the bound and no further.
        assert_eq!(settled(layers(&[large; 64]), large * 16), (vec![large * 16; 4], 4));
        // The oldest does not fit, and does not block those above it.
        let found = settled(layers(&[large, large, large, large, large * 3 / 2]), large * 4);
        assert_eq!(found, (vec![large * 4, large * 3 / 2], 1));
        // A deep stack of runs of the maximum length stays as it is.
        assert_eq!(settled(layers(&[large; 40]), large), (vec![large; 40], 0));
    }

    #[test]
    fn too_long_hidden_runs_are_merged_in_parts() {
        let large = TIER_BYTES * 100;
        let mut stack = vec![layer(9, 1000, 1, large * 6)];
        stack.extend(layers(&[large; 6]));
        let (left, _) = settled(stack, large);
        assert_eq!(left, [1000]);
    }

    #[test]
    fn a_merge_that_frees_space_may_use_more_of_it() {
        let large = TIER_BYTES * 100;
        let hiding = vec![layer(9, 1000, 1, large), layer(8, large, 1, 0)];
        let picked = |stack: &Vec<Held>, bytes, returning| {
            let limits = Limits { bytes, returning };
            pick(Policy::Tiered, std::slice::from_ref(stack), limits).map(|merge| merge.returns)
        };
        assert_eq!(picked(&hiding, 0, 2000), Some(true));
        assert_eq!(picked(&hiding, 2000, 0), None);
        let tier = layers(&[large; 4]);
        assert_eq!(picked(&tier, 4 * large, 0), Some(false));
        assert_eq!(picked(&tier, 4 * large - 1, u64::MAX), None);
    }

    #[test]
    fn a_full_merge_takes_all_that_the_same_trees_share() {
        let picked = |stack: &Vec<Held>| {
            let merge = pick(Policy::Full, std::slice::from_ref(stack), Limits::of_blobs(u64::MAX));
            merge.map(|merge| (merge.layers, merge.lowest))
        };
        let mut stack = layers(&[10, 10, TIER_BYTES * 100]);
        assert_eq!(picked(&stack), Some((vec![3, 2, 1], true)));
        stack[2].sharers = 2;
        assert_eq!(picked(&stack), Some((vec![3, 2], false)));
        stack[1].sharers = 2;
        assert_eq!(picked(&stack), Some((vec![2, 1], true)));
        assert_eq!(picked(&layers(&[10])), None);
    }

    #[test]
    fn runs_shared_by_different_trees_are_not_merged() {
        let mut stack = layers(&[10; 6]);
        for layer in &mut stack[3..] {
            layer.sharers = 2;
        }
        assert_eq!(picked(&[stack]), None);
    }

    #[test]
    fn a_run_that_hides_most_of_the_rest_is_merged_with_it() {
        let stack = vec![layer(3, 100, 1, 0), layer(2, 100, 1, 5000), layer(1, 9000, 1, 0)];
        assert_eq!(picked(std::slice::from_ref(&stack)), Some((vec![2, 1], true)));
        let mut shared = stack;
        shared[2].sharers = 2;
        assert_eq!(picked(&[shared]), None);
    }

    #[test]
    fn runs_that_together_hide_most_of_the_rest_are_merged_with_it() {
        let large = TIER_BYTES * 100;
        // Ten runs, each of which hides a part of the one below them.
        let picked = |hides, returning| {
            let mut stack: Vec<Held> =
                (0..10).rev().map(|n| layer(n + 2, 1000, 1, hides)).collect();
            stack.push(layer(1, large, 1, 0));
            let limits = Limits { bytes: 0, returning };
            pick(Policy::Tiered, &[stack], limits).map(|merge| (merge.layers.len(), merge.lowest))
        };
        assert_eq!(picked(large / 10, u64::MAX), Some((11, true)));
        assert_eq!(picked(large / 19, u64::MAX), Some((11, true)));
        assert_eq!(picked(large / 25, u64::MAX), None);
        // What is left takes space, and merging it frees none.
        assert_eq!(picked(large / 10, 20_000), Some((11, true)));
        assert_eq!(picked(large / 10, 19_999), None);
    }

    #[test]
    fn tombstones_are_dropped_if_nothing_is_below() {
        let large = TIER_BYTES * 100;
        let facts = |id, bytes, hides| Facts { id, bytes, hides, ends: hides / 10 };
        // Nothing is left of all layers, and a full disk has space for hardly anything.
        let section = [facts(2, large / 10, large), facts(1, large, 0)];
        assert_eq!(hiding(&section, true, 1000), Some((0, 2)));
        assert_eq!(hiding(&section, false, 1000), None);
        assert_eq!(hiding(&section, false, large / 5), Some((0, 2)));
        // A run may have other entries, too; and without any space there is none for what is left.
        let section = [facts(2, large * 2, large), facts(1, large, 0)];
        assert_eq!(hiding(&section, true, 1000), None);
        let section = [facts(2, large / 10, large), facts(1, large, 0)];
        assert_eq!(hiding(&section, true, 0), None);
    }

    #[test]
    fn a_chain_of_clones_does_not_stay_deep() {
        // Clone n has the layers of all before it and its own.
        let mut stacks: Vec<Vec<Held>> =
            (0..300_u64).map(|n| (0..=n).rev().map(|id| layer(id, 200, 0, 0)).collect()).collect();
        let (mut next, mut written) = (300, 0);
        loop {
            let mut sharers = std::collections::BTreeMap::new();
            for held in stacks.iter().flatten() {
                *sharers.entry(held.facts.id).or_insert(0) += 1;
            }
            for held in stacks.iter_mut().flatten() {
                held.sharers = sharers[&held.facts.id];
            }
            let Some(merge) = pick(Policy::Tiered, &stacks, Limits::of_blobs(u64::MAX)) else {
                break;
            };
            let mut bytes = 0;
            for stack in &mut stacks {
                let at = stack.iter().position(|held| held.facts.id == merge.layers[0]);
                let end = at.map(|at| at + merge.layers.len()).filter(|end| *end <= stack.len());
                let (Some(at), Some(end)) = (at, end) else { continue };
                let ids: Vec<u64> = stack[at..end].iter().map(|held| held.facts.id).collect();
                if ids == merge.layers {
                    bytes = whole(&stack[at..end]);
                    stack.splice(at..end, [layer(next, bytes, 0, 0)]);
                }
            }
            assert!(bytes > 0, "what was picked is in a stack");
            written += bytes;
            next += 1;
        }
        let deepest = stacks.iter().map(Vec::len).max();
        assert!(deepest <= Some(3 * DEPTH_MAX), "{deepest:?}");
        // Each layer of 200 bytes was written a few times, not once a clone.
        assert!(written <= 300 * 200 * 6, "{written} bytes");
    }

    #[test]
    fn each_entry_is_written_about_once_per_tier() {
        let flush = TIER_BYTES * 16;
        let (mut stack, mut next, mut written, flushes) = (Vec::new(), 0, 0, 1024_u64);
        let mut deepest = 0;
        for _ in 0..flushes {
            stack.insert(0, layer(next, flush, 1, 0));
            next += 1;
            let limits = Limits::of_blobs(u64::MAX);
            let pick =
                |stack: &Vec<Held>| pick(Policy::Tiered, std::slice::from_ref(stack), limits);
            while let Some(merge) = pick(&stack) {
                let first = |held: &Held| held.facts.id == merge.layers[0];
                let at = stack.iter().position(first).unwrap();
                let end = at + merge.layers.len();
                let bytes = whole(&stack[at..end]);
                written += bytes;
                stack.splice(at..end, [layer(next, bytes, 1, 0)]);
                next += 1;
            }
            deepest = deepest.max(stack.len());
        }
        let times = written as f64 / (flush * flushes) as f64;
        assert!(times <= 5.5, "each entry was merged {times} times");
        assert!(deepest <= 3 * 5 + 1, "{deepest} runs");
    }
}
