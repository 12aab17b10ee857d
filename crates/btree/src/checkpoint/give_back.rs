//! Giving free room of the file of nodes back to the medium.
//!
//! A hole is punched with the file locked against everybody who reads it past the page cache, and
//! the medium has to find the room anew when it is written again. So what is freed is only listed,
//! and punched when there is much of it, long runs first; when nobody commits, all that is worth
//! it; and at once when the medium has little room left. What is in use again by then is passed
//! over: whether a unit is free is looked up when it is punched, with the state locked.

use std::sync::atomic::Ordering;

use device::File;
use format::node::UNIT_BYTES;
use format::space_map::{GROUP_BYTES, GROUP_UNITS};
use store::Result;

use super::State;
use crate::core::Core;
use crate::nodes::unit_offset;

/// Shortest run that is punched while others work.
const BUSY_BYTES_MIN: u64 = 64 << 10;
/// And while nobody does, or where too many short ones are listed: less than what a leaf leaves.
const REST_BYTES_MIN: u64 = 8 << 10;
/// And where the medium is nearly full: its page.
const TIGHT_BYTES_MIN: u64 = 4 << 10;
/// Freed bytes that may be listed: one in so many of the file, but at least so many, and no more
/// than one in so many of what the medium has left.
const LISTED_SHARE: u64 = 4;
const LISTED_BYTES_MIN: u64 = 16 << 20;
const LISTED_SHARE_OF_FREE: u64 = 16;
/// Starts of runs that are kept listed when they were too short.
const LISTED_MAX: usize = 1 << 16;
/// Starts that are looked at by one checkpoint then, or twice as many as it frees itself.
const BURST_MAX: usize = 4096;
/// Starts that are looked at in one step while nobody commits.
const REST_STEP: usize = 256;

/// What was freed and may not be given back yet.
#[derive(Debug, Default, Clone)]
pub(crate) struct Freed {
    /// First units.
    starts: Vec<u64>,
    /// Units that were added since the last look.
    units: u64,
}

impl Core {
    /// Gives free room back to the medium, or notes that it may be. A failure costs room and
    /// nothing else.
    pub(crate) fn give_back(&self, state: &mut State, groups: u64, free: &[(u64, u16)]) {
        if self.may_be_two_states() {
            return;
        }
        let freed = &mut state.space.freed;
        freed.starts.extend(free.iter().map(|&(unit, _)| unit));
        freed.units += free.iter().map(|&(_, units)| u64::from(units)).sum::<u64>();
        let listed = freed.units * UNIT_BYTES as u64;
        let many = freed.starts.len() > LISTED_MAX;
        let file = self.nodes.file.as_ref();
        let length = groups * GROUP_BYTES as u64;
        let result = file.len().map_err(store::Error::from).and_then(|now| {
            if now > length {
                file.set_len(length)?;
            }
            let mut most = usize::MAX;
            let least = if self.tight.load(Ordering::Relaxed) {
                TIGHT_BYTES_MIN
            } else if many {
                most = BURST_MAX.max(2 * free.len());
                REST_BYTES_MIN
            } else if listed > self.may_be_listed(length) {
                BUSY_BYTES_MIN
            } else {
                return Ok(());
            };
            let mut starts = std::mem::take(&mut state.space.freed).starts;
            starts.sort_unstable();
            let some = starts.split_off(starts.len().saturating_sub(most));
            state.space.freed.starts = starts;
            punch(state, file, &some, least)
        });
        if let Err(error) = result {
            tracing::warn!(%error, "free room could not be given back");
        }
    }

    /// Gives back all that is listed.
    pub(crate) fn give_back_all(&self, state: &mut State) {
        if self.may_be_two_states() {
            return;
        }
        let mut starts = std::mem::take(&mut state.space.freed).starts;
        starts.sort_unstable();
        if let Err(error) = punch(state, self.nodes.file.as_ref(), &starts, REST_BYTES_MIN) {
            tracing::warn!(%error, "free room could not be given back");
        }
    }

    /// After a superblock that could not be written a crash may leave either state, and the map
    /// knows of one. Asked with the state locked.
    fn may_be_two_states(&self) -> bool {
        self.log().check().is_err()
    }

    fn may_be_listed(&self, length: u64) -> u64 {
        let free = self.room_free.load(Ordering::Relaxed);
        (length / LISTED_SHARE).max(LISTED_BYTES_MIN).min(free / LISTED_SHARE_OF_FREE)
    }

    /// Gives a part of what is listed back if nobody has committed since the last call; tells
    /// whether any was listed.
    pub(crate) fn give_back_at_rest(&self) -> bool {
        let last = self.log().last().0;
        if self.rested_at.swap(last, Ordering::Relaxed) != last {
            return false;
        }
        let Some(mut state) = self.checkpoint.try_lock() else { return false };
        if self.may_be_two_states() {
            return false;
        }
        let mut starts = std::mem::take(&mut state.space.freed.starts);
        state.space.freed.units = 0;
        if starts.is_empty() {
            return false;
        }
        // From the end, where they are taken off cheaply.
        starts.sort_unstable();
        let some = starts.split_off(starts.len().saturating_sub(REST_STEP));
        if let Err(error) = punch(&mut state, self.nodes.file.as_ref(), &some, REST_BYTES_MIN) {
            tracing::warn!(%error, "free room could not be given back");
            starts.clear();
        }
        state.space.freed.starts = starts;
        true
    }
}

/// Punches the free runs of at least `least` bytes that sorted units lie in; lists the shorter
/// ones again, but not those that are too short at any time.
fn punch(state: &mut State, file: &dyn File, starts: &[u64], least: u64) -> Result<()> {
    let groups = state.space.groups.len() as u64;
    let mut done = 0;
    for &unit in starts {
        let (group, index) = (unit / GROUP_UNITS as u64, (unit % GROUP_UNITS as u64) as usize);
        if unit < done || group >= groups {
            continue;
        }
        let page = state.space.page_briefly(file, group)?;
        let first = group * GROUP_UNITS as u64;
        let taken = |at: usize| page[at] != 0 || state.space.is_held(first + at as u64);
        if taken(index) {
            continue;
        }
        let begin = (0..index).rev().find(|&at| taken(at)).map_or(0, |at| at + 1);
        let end = (index..page.len()).find(|&at| taken(at)).unwrap_or(page.len());
        done = first + end as u64;
        // Whole pages of the medium only; offsets of units are multiples of a unit.
        let offset = unit_offset(first + begin as u64).next_multiple_of(4096);
        let length = ((end - begin) * UNIT_BYTES) as u64;
        let stop = (unit_offset(first + begin as u64) + length) / 4096 * 4096;
        let bytes = stop.saturating_sub(offset);
        if bytes >= least {
            if !file.punch(offset, bytes)? {
                return Ok(());
            }
        } else if bytes >= REST_BYTES_MIN {
            state.space.freed.starts.push(unit);
        }
    }
    Ok(())
}
