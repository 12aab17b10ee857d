//! The state of the disk after a power cut.

use std::collections::{BTreeMap, BTreeSet};

use super::content::{BLOCK, Change, Content};
use super::disk::{DirNode, Disk, FileNode, NameChange, NodeNo, ROOT, apply_name};

/// Atomic unit of the disk, in bytes.
const SECTOR: u64 = 512;

/// The fate of changes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPolicy {
    /// None survives.
    LoseAll,
    /// All survive.
    KeepAll,
    /// Each survives, is lost or is torn, by the seed.
    Random,
}

impl CrashPolicy {
    /// Every policy.
    pub const ALL: [CrashPolicy; 3] =
        [CrashPolicy::LoseAll, CrashPolicy::KeepAll, CrashPolicy::Random];

    /// What a campaign tries at its `nth` point: one of them in turn, or in slow mode each.
    pub fn at(nth: u64) -> impl Iterator<Item = CrashPolicy> {
        let slow = crate::run::slow();
        Self::ALL.into_iter().filter(move |policy| slow || *policy as u64 == nth % 3)
    }
}

/// Probability that a change survives whole, in eighths. It is drawn again for each file, so that
/// some runs lose a single write and others keep a single one.
fn draw_odds(random: &mut fastrand::Rng) -> u8 {
    *random.choice(&[1, 4, 7]).expect("invariant: there are some")
}

/// The disk after a power cut: everything on it is durable, nothing is open.
pub(super) fn after(disk: &Disk, policy: CrashPolicy, random: &mut fastrand::Rng) -> Disk {
    let names = names_after(disk, policy, random);
    let (next, blocks_max, stated) = (disk.next, disk.blocks_max, disk.stated);
    let mut left = Disk { next, blocks_max, stated, ..Disk::default() };
    let mut to_visit = vec![ROOT];
    while let Some(node) = to_visit.pop() {
        let names = names.get(&node).cloned().unwrap_or_default();
        for &child in names.values() {
            if let Some(file) = disk.files.get(&child) {
                // A rename between directories may leave two names.
                if let Some(linked) = left.files.get_mut(&child) {
                    linked.names += 1;
                    continue;
                }
                let content = content_after(file, policy, random);
                left.blocks_used += content.blocks_reserved();
                let durable = content.clone();
                let file = FileNode { current: content, durable, names: 1, ..FileNode::default() };
                left.files.insert(child, file);
            } else {
                to_visit.push(child);
            }
        }
        let directory = DirNode { current: names.clone(), durable: names, pending: Vec::new() };
        left.dirs.insert(node, directory);
    }
    left
}

fn names_after(
    disk: &Disk,
    policy: CrashPolicy,
    random: &mut fastrand::Rng,
) -> BTreeMap<NodeNo, BTreeMap<String, NodeNo>> {
    // Renames between directories whose new name was lost: the old name then stays.
    let mut arrivals_lost = BTreeSet::new();
    let mut kept: BTreeMap<NodeNo, Vec<(bool, &NameChange)>> = BTreeMap::new();
    for (&node, directory) in &disk.dirs {
        let odds = draw_odds(random);
        for change in &directory.pending {
            let keep = match policy {
                CrashPolicy::LoseAll => false,
                CrashPolicy::KeepAll => true,
                CrashPolicy::Random => random.u8(0..8) < odds,
            };
            if let (false, NameChange::MoveIn { rename, .. }) = (keep, change) {
                arrivals_lost.insert(*rename);
            }
            kept.entry(node).or_default().push((keep, change));
        }
    }
    let mut all = BTreeMap::new();
    for (&node, directory) in &disk.dirs {
        let mut names = directory.durable.clone();
        for (keep, change) in kept.get(&node).into_iter().flatten() {
            let stays = matches!(change, NameChange::MoveOut { rename, .. }
                if arrivals_lost.contains(rename));
            if *keep && !stays {
                apply_name(&mut names, change);
            }
        }
        all.insert(node, names);
    }
    all
}

fn content_after(file: &FileNode, policy: CrashPolicy, random: &mut fastrand::Rng) -> Content {
    let mut content = file.durable.clone();
    match policy {
        CrashPolicy::LoseAll => {}
        CrashPolicy::KeepAll => {
            for change in &file.pending {
                content.apply(change);
            }
        }
        CrashPolicy::Random => {
            let odds = draw_odds(random);
            for change in &file.pending {
                if random.u8(0..8) < odds {
                    content.apply(change);
                } else if random.bool() {
                    tear(&mut content, change, random);
                }
            }
        }
    }
    content
}

/// Applies a part of a change.
fn tear(content: &mut Content, change: &Change, random: &mut fastrand::Rng) {
    match change {
        Change::Write { offset, bytes } => {
            let end = offset + bytes.len() as u64;
            let mut at = *offset;
            while at < end {
                let next = ((at / SECTOR + 1) * SECTOR).min(end);
                if random.bool() {
                    content.write(&bytes[(at - offset) as usize..(next - offset) as usize], at);
                }
                at = next;
            }
            // The new length may be durable before the bytes are; they then read as zero.
            if random.bool() {
                content.grow(end);
            }
        }
        Change::Punch(range) => {
            for block in range.start / BLOCK..range.end.div_ceil(BLOCK) {
                if random.bool() {
                    let from = range.start.max(block * BLOCK);
                    content.apply(&Change::Punch(from..range.end.min((block + 1) * BLOCK)));
                }
            }
        }
        // The file system's journal applies these whole or not at all.
        Change::SetLen(_) | Change::Allocate(_) => {}
    }
}
