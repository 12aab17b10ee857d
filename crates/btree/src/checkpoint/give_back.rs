//! Returns free space of the node file to the disk by punching holes.
//!
//! Punching locks the file against all readers that bypass the page cache, and the disk has to
//! allocate the space again when it is reused. So freed units are only listed. When many are
//! listed, long runs alone are punched; when the store is idle, all runs that are worth it. All are
//! punched at once when the disk has little space left. Units that are in use again by then are
//! skipped. Whether a unit is free is looked up when it is punched, with the state locked. The
//! groups of the list (`space::Freed`) are visited in turn, a bounded number in one step.

use std::sync::atomic::Ordering;

use device::File;
use format::node::UNIT_BYTES;
use format::space_map::{GROUP_BYTES, GROUP_UNITS};
use store::Result;

use super::state::CheckpointState;
use crate::core::Core;
use crate::space::{Freed, Space, blocks};
use crate::units::unit_offset;

/// Shortest run that is punched while the store is busy.
const BUSY_BYTES_MIN: u64 = 64 << 10;
/// And while it is idle: less than the space that a leaf leaves.
const REST_BYTES_MIN: u64 = 8 << 10;
/// And when the disk is nearly full: the page size of the disk.
const TIGHT_BYTES_MIN: u64 = 4 << 10;
/// Freed bytes that may be listed: one in so many of the file, but at least so many. They are no
/// more than one in so many of the free bytes of the disk.
const LISTED_SHARE: u64 = 4;
const LISTED_BYTES_MIN: u64 = 16 << 20;
const LISTED_SHARE_OF_FREE: u64 = 16;
/// Runs that one checkpoint punches while the store is busy, or twice as many as it may have freed
/// itself. Those of the last group are all punched.
const BUSY_PUNCHES: usize = 256;
/// Groups that it visits, each a page of the map, or one in so many of the file's.
const BUSY_LOOKS: usize = 256;
const BUSY_LOOKS_SHARE: usize = 64;
/// Runs that are punched, and groups that are visited, in one step while the store is idle.
const REST_PUNCHES: usize = 256;
const REST_LOOKS: usize = 64;

/// The limits of one step.
#[derive(Debug, Clone, Copy)]
struct StepLimits {
    /// Length in bytes of the shortest runs that are punched.
    least: u64,
    punches: usize,
    looks: usize,
}

impl Core {
    /// Punches free space, or lists it to be punched later. A failure costs space and nothing else.
    pub(crate) fn give_back(&self, state: &mut CheckpointState, groups: u64, free: &[(u64, u16)]) {
        if self.may_be_two_states() {
            return;
        }
        let space = &mut state.space;
        for &(unit, units) in free {
            space.freed.note(unit, units);
        }
        let file = self.nodes.file.as_ref();
        let length = groups * GROUP_BYTES as u64;
        let result = file.len().map_err(store::Error::from).and_then(|now| {
            if now > length {
                file.set_len(length)?;
            }
            if self.journal.is_tight() {
                // All at once: a caller that finds no space retries once after this, and then gives
                // up.
                return punch_round(space, file, StepLimits::all(TIGHT_BYTES_MIN));
            }
            let listed = space.freed.units * UNIT_BYTES as u64;
            if space.freed.left == 0 && listed > self.may_be_listed(length) {
                space.freed.begin_round();
            }
            let units: u64 = free.iter().map(|&(_, units)| u64::from(units)).sum();
            let part = StepLimits::while_busy(units * UNIT_BYTES as u64, groups as usize);
            punch(space, file, part)
        });
        if let Err(error) = result {
            tracing::warn!(%error, "cannot free space yet");
        }
    }

    /// Punches the space that a failed checkpoint has written, down to one page: it is needed now.
    pub(super) fn give_back_attempt(&self, state: &mut CheckpointState, free: &[(u64, u16)]) {
        if self.may_be_two_states() {
            return;
        }
        let length = state.space.groups.len() as u64 * GROUP_BYTES as u64;
        for &(unit, units) in free {
            state.space.freed.note(unit, units);
        }
        let file = self.nodes.file.as_ref();
        let result = file.len().map_err(store::Error::from).and_then(|now| {
            if now > length {
                file.set_len(length)?;
            }
            punch_round(&mut state.space, file, StepLimits::all(TIGHT_BYTES_MIN))
        });
        if let Err(error) = result {
            tracing::warn!(%error, "cannot free space yet");
        }
    }

    /// Punches everything that is listed.
    pub(crate) fn give_back_all(&self, state: &mut CheckpointState) {
        if self.may_be_two_states() {
            return;
        }
        let file = self.nodes.file.as_ref();
        if let Err(error) = punch_round(&mut state.space, file, StepLimits::all(REST_BYTES_MIN)) {
            tracing::warn!(%error, "cannot free space yet");
        }
    }

    /// Punches everything that is listed, down to one page, because the disk is full. Waits for a
    /// running checkpoint, which frees space too.
    pub(crate) fn give_back_now(&self) -> Result<()> {
        let mut state = self.checkpoint.lock();
        if self.may_be_two_states() {
            return Ok(());
        }
        let file = self.nodes.file.as_ref();
        punch_round(&mut state.space, file, StepLimits::all(TIGHT_BYTES_MIN))
    }

    /// After a superblock write failed a crash may leave either state, and the map covers only one.
    /// Called with the state locked.
    fn may_be_two_states(&self) -> bool {
        self.journal.check_log().is_err()
    }

    fn may_be_listed(&self, length: u64) -> u64 {
        let free = self.space_free.load(Ordering::Relaxed);
        (length / LISTED_SHARE).max(LISTED_BYTES_MIN).min(free / LISTED_SHARE_OF_FREE)
    }

    /// Punches a part of the list if there was no commit since the last call; returns whether
    /// anything was listed.
    pub(crate) fn give_back_idle(&self) -> bool {
        let last = self.log().last().0;
        if self.rested_at.swap(last, Ordering::Relaxed) != last {
            return false;
        }
        let Some(mut state) = self.checkpoint.try_lock() else { return false };
        if self.may_be_two_states() || state.space.freed.groups.is_empty() {
            return false;
        }
        let part = StepLimits { least: REST_BYTES_MIN, punches: REST_PUNCHES, looks: REST_LOOKS };
        if let Err(error) = punch_round(&mut state.space, self.nodes.file.as_ref(), part) {
            // It is listed again: a caller that gets `true` would call again and again.
            tracing::warn!(%error, "cannot free space yet");
            return false;
        }
        true
    }
}

impl StepLimits {
    fn all(least: u64) -> StepLimits {
        StepLimits { least, punches: usize::MAX, looks: usize::MAX }
    }

    /// The limits of a checkpoint that has freed so much: it never punches less than it frees.
    fn while_busy(freed: u64, groups: usize) -> StepLimits {
        let own = (2 * freed / BUSY_BYTES_MIN) as usize;
        StepLimits {
            least: BUSY_BYTES_MIN,
            punches: BUSY_PUNCHES.max(own),
            looks: BUSY_LOOKS.max(groups / BUSY_LOOKS_SHARE),
        }
    }
}

/// Punches a part, as a round of its own.
fn punch_round(space: &mut Space, file: &dyn File, part: StepLimits) -> Result<()> {
    space.freed.begin_round();
    let done = punch(space, file, part);
    space.freed.left = 0;
    done
}

/// Punches the free runs of at least `least` bytes in the listed blocks, as far as this part and
/// the round go. Lists the shorter ones again, except those that are always too short.
fn punch(space: &mut Space, file: &dyn File, part: StepLimits) -> Result<()> {
    let least_units = if part.least > REST_BYTES_MIN { part.least / UNIT_BYTES as u64 } else { 0 };
    let (mut punches, mut looks) = (part.punches, part.looks);
    while punches > 0 && looks > 0 {
        // If less was freed than the shortest run, there is hardly a new one.
        let Some((group, listed)) = space.freed.take(least_units) else { break };
        looks -= 1;
        // The file may be shorter by now; and a page that cannot be read is reported by its next
        // user.
        if group >= space.groups.len() as u64 {
            continue;
        }
        let Ok(taken) = space.taken(file, group) else { continue };
        let (first, mut kept, mut at) = (group * GROUP_UNITS as u64, 0, 0);
        while let Some(begin) = (at..taken.len()).find(|&at| !taken[at]) {
            let end = (begin..taken.len()).find(|&at| taken[at]).unwrap_or(taken.len());
            at = end;
            let meets = listed.blocks & blocks(begin, end);
            if meets == 0 {
                continue;
            }
            // Whole pages of the disk only; offsets of units are multiples of a unit.
            let offset = unit_offset(first + begin as u64).next_multiple_of(4096);
            let length = ((end - begin) * UNIT_BYTES) as u64;
            let stop = (unit_offset(first + begin as u64) + length) / 4096 * 4096;
            let bytes = stop.saturating_sub(offset);
            if bytes >= part.least {
                punches = punches.saturating_sub(1);
                match file.punch(offset, bytes) {
                    Ok(true) => {}
                    Ok(false) => {
                        // The file system does not support it.
                        space.freed = Freed::default();
                        return Ok(());
                    }
                    Err(error) => {
                        // On a full disk punching may need space itself. A later retry is as good.
                        space.freed.put_back(group, listed);
                        return Err(error.into());
                    }
                }
            } else if bytes >= REST_BYTES_MIN {
                kept |= meets;
            }
        }
        space.freed.keep(group, kept);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use format::map_directory::Entry;
    use format::space_map::{GROUP_BYTES, GROUP_UNITS};
    use testing::{Fault, FaultOn, Op, SimEnv};

    use super::BUSY_PUNCHES;
    use crate::checkpoint::CheckpointState;
    use crate::core::Core;
    use crate::space::{Space, blocks};
    use crate::{BtreeStore, Options};

    /// A store whose map describes, falsely, a file with `groups` groups with free runs of `hole`
    /// units between 16 that are in use.
    fn holes(groups: u64, hole: usize) -> (SimEnv, Arc<BtreeStore>, Vec<(u64, u16)>) {
        let sim = testing::sim_env(1);
        let store = BtreeStore::create(&sim.env(), &Options::with_cache(8 << 20)).unwrap();
        store.engine().nodes.file.set_len(groups * GROUP_BYTES as u64).unwrap();
        store.engine().space_free.store(u64::MAX, Ordering::Relaxed);
        store.engine().journal.set_tight(false);
        let mut state = store.engine().checkpoint.lock();
        state.space = Space::empty();
        let mut free = Vec::new();
        for group in 0..groups {
            state.space.groups.push(Entry::empty());
            for at in (0..GROUP_UNITS).step_by(hole + 16) {
                let unit = group * GROUP_UNITS as u64 + at as u64;
                let used = (GROUP_UNITS - at).min(16);
                state.space.held.insert(unit, (used as u16, u64::MAX));
                if at + 16 + hole <= GROUP_UNITS {
                    free.push((unit + 16, hole as u16));
                }
            }
        }
        drop(state);
        (sim, store, free)
    }

    fn give(core: &Core, state: &mut CheckpointState, free: &[(u64, u16)]) {
        let groups = state.space.groups.len() as u64;
        core.give_back(state, groups, free);
    }

    #[test]
    fn a_part_reads_only_the_blocks_it_touches() {
        assert_eq!(blocks(0, 1), 1);
        assert_eq!(blocks(63, 65), 3);
        assert_eq!(blocks(64, 128), 2);
        assert_eq!(blocks(0, GROUP_UNITS), u64::MAX);
        assert_eq!(blocks(GROUP_UNITS - 1, GROUP_UNITS), 1 << 63);
    }

    #[test]
    fn short_runs_are_not_punched_beside_writers_however_many_there_are() {
        let (sim, store, free) = holes(500, 14);
        assert!(free.len() > 1 << 16);
        let mut state = store.engine().checkpoint.lock();
        let length = 500 * GROUP_BYTES as u64;
        for _ in 0..6 {
            for free in free.chunks(9000) {
                give(store.engine(), &mut state, free);
            }
        }
        assert!(free.len() as u64 * 6 * (14 << 10) > 2 * length, "all of it is listed, and again");
        assert_eq!(sim.device.counts().of(Op::Punch), 0);
        assert_eq!(state.space.freed.groups.len(), 500, "however often it was freed");
        drop(state);
        while store.engine().give_back_idle() {}
        while store.engine().give_back_idle() {}
        assert_eq!(sim.device.counts().of(Op::Punch), free.len() as u64);
    }

    #[test]
    fn much_space_is_freed_by_several_checkpoints() {
        let (sim, store, free) = holes(64, 80);
        let mut state = store.engine().checkpoint.lock();
        let punches = || sim.device.counts().of(Op::Punch);
        // Less than a quarter of the file.
        let (some, rest) = free.split_at(free.len() / 64 * 17);
        give(store.engine(), &mut state, some);
        assert_eq!(punches(), 0);
        let (one, rest) = rest.split_at(10);
        for &(unit, units) in rest {
            state.space.freed.note(unit, units);
        }
        let mut before = 0;
        give(store.engine(), &mut state, one);
        while punches() > before {
            assert!(punches() - before <= BUSY_PUNCHES as u64 + 64, "{} at once", punches());
            before = punches();
            give(store.engine(), &mut state, &[]);
        }
        assert_eq!(before, free.len() as u64);
        assert_eq!((state.space.freed.units, state.space.freed.groups.len()), (0, 0));
    }

    #[test]
    fn failed_punches_are_retried() {
        let (sim, store, free) = holes(8, 80);
        let mut state = store.engine().checkpoint.lock();
        for &(unit, units) in &free {
            state.space.freed.note(unit, units);
        }
        drop(state);
        sim.device.inject(Fault::io(FaultOn::Only(Op::Punch), 20));
        let failed = store.engine().give_back_now();
        assert!(matches!(failed, Err(store::Error::Device(_))), "{failed:?}");
        // A caller that repeats the call while it returns true must not get true forever.
        sim.device.inject(Fault::io(FaultOn::Only(Op::Punch), 0));
        assert!(!store.engine().give_back_idle() && !store.engine().give_back_idle());
        let before = sim.device.counts().of(Op::Punch);
        assert!(before < free.len() as u64);
        store.engine().give_back_now().unwrap();
        let punched = sim.device.counts().of(Op::Punch);
        assert!(punched >= free.len() as u64, "{punched} of {}", free.len());
        assert!(store.engine().checkpoint.lock().space.freed.groups.is_empty());
    }

    #[test]
    fn low_free_space_is_returned_while_higher_space_is_reused() {
        let (_sim, store, free) = holes(16, 16);
        let of =
            |group: u64| free.iter().filter(move |(unit, _)| unit / GROUP_UNITS as u64 == group);
        let core = store.engine();
        give(core, &mut core.checkpoint.lock(), &of(0).copied().collect::<Vec<_>>());
        core.give_back_idle();
        let there = || core.checkpoint.lock().space.freed.groups.contains_key(&0);
        let high: Vec<_> = (8..16).flat_map(of).copied().collect();
        for _ in 0..20 {
            give(core, &mut core.checkpoint.lock(), &high);
            core.give_back_idle();
        }
        assert!(!there(), "it waits for ever");
    }
}
