//! Assigned numbers of manifests and blobs, if requests may arrive late.
//!
//! A request of a process may be carried out after the process is gone. So a number that it
//! assigned must never be assigned again, even if nothing is found under it. A note on the volume's
//! own device records an upper bound of all assigned numbers. It is durable before one of them is
//! used, and an opening starts there. An opening also starts far above what it finds. Without a
//! note there is nothing else to go by, and the numbers show which opening made what.

use std::sync::Arc;

use device::{Device, Env, File, STAGED};
use format::Corruption;
use format::numbers::{Decoded, NUMBERS_BYTES, Numbers, PLACES, VERSION};
use store::{Error, Result};

use crate::files::{DIRECTORY, Files, path};
use crate::names::NUMBER_MAX;

/// The name of the note's file.
const NAME: &str = "numbers";
/// Numbers that are reserved at a time: more than most processes use.
const AT_ONCE: u64 = 1 << 20;

/// Starting points of an opening without a note: they are this many numbers apart.
const CHANCES: u64 = 1 << 20;

/// The note; only this process writes it.
pub(crate) struct IdAllocator {
    file: Arc<dyn File>,
    volume: [u8; 16],
    /// The recorded bound.
    below: u64,
    /// The place that is written next: the other holds the valid bound.
    next: usize,
}

/// The first number of an opening.
pub(crate) struct Begin {
    pub(crate) manifest: u64,
    pub(crate) blob: u64,
    /// Where numbers are recorded. None if requests arrive in time, or there is no note.
    pub(crate) allocator: Option<IdAllocator>,
}

/// The content of the note when a store is opened.
struct Noted {
    file: Option<Arc<dyn File>>,
    below: [u64; 2],
    /// Whether each of the two places is valid.
    whole: [bool; 2],
}

/// Computes and records where an opening starts that found all numbers of manifests and of blobs to
/// be below these. If that cannot be recorded, the opening's manifest must contain it.
pub(crate) fn begin(env: &Env, files: &Files, manifest: u64, blob: u64) -> Result<Begin> {
    if !files.blobs.answers_may_be_lost() {
        return Ok(Begin { manifest, blob, allocator: None });
    }
    let noted = match read(&*env.device, files.volume) {
        Ok(noted) => Some(noted),
        Err(error @ Error::Device(_)) => {
            // Treated as damage; and nothing is created in its place.
            tracing::warn!(%error, "cannot read which numbers were assigned");
            None
        }
        Err(error) => return Err(error),
    };
    let is_whole = noted.as_ref().is_some_and(|noted| noted.whole == [true; 2]);
    // What a damaged place contained: at most one reservation above the other's value, or above
    // where that opening started.
    let mut further = if is_whole { 0 } else { 2 * AT_ONCE };
    let least = noted.iter().flat_map(|noted| noted.below).max().unwrap_or_default();
    if least == 0 {
        // No record of assigned numbers exists, and two openings may both find nothing of each
        // other.
        further += AT_ONCE * (env.random.next_u64() % CHANCES);
    }
    let above = |found: u64| (found + AT_ONCE).max(least) + further;
    let (manifest, blob) = (above(manifest), above(blob));
    let below = manifest.max(blob) + AT_ONCE;
    refuse_too_great(below)?;
    let allocator = noted.map(|noted| note(&*env.device, files.volume, noted, below)).transpose();
    let allocator = match allocator {
        Ok(allocator) => allocator,
        Err(error) => {
            tracing::warn!(%error, "cannot record which numbers were assigned");
            None
        }
    };
    Ok(Begin { manifest, blob, allocator })
}

/// Where a new store starts. In its place there may have been an unfinished one.
pub(crate) fn begin_new(env: &Env, files: &Files) -> Result<Begin> {
    let far = files.blobs.answers_may_be_lost();
    if !far || env.device.metadata(&path(NAME))?.is_some() {
        return begin(env, files, 1, 1);
    }
    let allocator = Some(make(&*env.device, files.volume, 1 + AT_ONCE)?);
    Ok(Begin { manifest: 1, blob: 1, allocator })
}

/// Refuses to record a bound that a reader would reject.
fn refuse_too_great(below: u64) -> Result<()> {
    if below <= NUMBER_MAX {
        return Ok(());
    }
    Err(Error::from(Corruption {
        file: DIRECTORY.to_owned(),
        offset: 0,
        structure: "numbers of manifests and blobs",
        expected: format!("at most {NUMBER_MAX}, with those to come"),
        found: format!("{below}"),
        unread: false,
    }))
}

fn read(device: &dyn Device, volume: [u8; 16]) -> Result<Noted> {
    let mut noted = Noted { file: None, below: [0; 2], whole: [false; 2] };
    if device.metadata(&path(NAME))?.is_none() {
        return Ok(noted);
    }
    let file = device.open(&path(NAME))?;
    for (at, place) in PLACES.into_iter().enumerate() {
        let mut bytes = [0; NUMBERS_BYTES];
        let read = file.read_at(&mut bytes, place).unwrap_or_else(|error| {
            // Treated as damage: the other place is enough.
            tracing::warn!(%error, "cannot read which numbers were assigned");
            0
        });
        match Numbers::decode(&bytes[..read]) {
            Ok(Decoded::Numbers(numbers))
                if numbers.volume == volume && numbers.below <= NUMBER_MAX =>
            {
                (noted.below[at], noted.whole[at]) = (numbers.below, true);
            }
            Ok(Decoded::Newer(found)) => {
                return Err(Error::NewerFormat { file: path(NAME), found, known: VERSION });
            }
            Ok(Decoded::Numbers(_)) | Err(_) => {
                tracing::warn!(place, "one of two records of assigned numbers is damaged");
            }
        }
    }
    noted.file = Some(file);
    Ok(noted)
}

/// Records that all numbers are below this one.
fn note(device: &dyn Device, volume: [u8; 16], noted: Noted, below: u64) -> Result<IdAllocator> {
    let Noted { file, below: before, whole } = noted;
    let Some(file) = file else { return make(device, volume, below) };
    // What was read may come from a process that was killed before its sync. A power cut could lose
    // it while the other place is overwritten.
    file.sync_data()?;
    // A damaged place first, then the one with the lower bound.
    let next = match whole {
        [true, false] => 1,
        [true, true] if before[1] < before[0] => 1,
        _ => 0,
    };
    let mut allocator = IdAllocator { file, volume, below: before[1 - next], next };
    allocator.write(below)?;
    if whole != [true; 2] {
        allocator.write(below)?;
    }
    Ok(allocator)
}

/// Creates the file; it is complete before it gets its name.
fn make(device: &dyn Device, volume: [u8; 16], below: u64) -> Result<IdAllocator> {
    let staged = path(&format!("{NAME}{STAGED}"));
    if device.metadata(&staged)?.is_some() {
        // Left by a crash.
        device.remove(&staged)?;
    }
    let made = fill(device, &staged, volume, below);
    if made.is_err() {
        // Otherwise the next opening does it.
        device.remove(&staged).ok();
    }
    made
}

fn fill(device: &dyn Device, staged: &str, volume: [u8; 16], below: u64) -> Result<IdAllocator> {
    let file = device.create(staged)?;
    let bytes = Numbers { volume, below }.encode();
    for place in PLACES {
        file.write_at(&bytes, place)?;
    }
    file.sync_data()?;
    device.rename(staged, &path(NAME))?;
    device.sync_dir(DIRECTORY)?;
    let file = device.open(&path(NAME))?;
    Ok(IdAllocator { file, volume, below, next: 0 })
}

impl IdAllocator {
    /// Makes sure that the numbers up to this one are recorded before they are used.
    pub(crate) fn reserve(&mut self, last: u64) -> Result<()> {
        if last < self.below {
            return Ok(());
        }
        refuse_too_great(last + AT_ONCE)?;
        self.write(last + AT_ONCE)
    }

    /// Durable on return. If it fails, the same place is tried again: the other is whole.
    fn write(&mut self, below: u64) -> Result<()> {
        let bytes = Numbers { volume: self.volume, below }.encode();
        self.file.write_at(&bytes, PLACES[self.next])?;
        self.file.sync_data()?;
        (self.below, self.next) = (below, 1 - self.next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::Blobs;
    use testing::{CrashPolicy, FarBlobs, Fault, FaultOn, Op, SimEnv, fails, sim_env};

    const VOLUME: [u8; 16] = [7; 16];

    /// The numbers of an opening that finds nothing above `found`.
    fn opened(sim: &SimEnv, found: u64) -> (u64, IdAllocator) {
        let files = Files::new(FarBlobs::new() as Arc<dyn Blobs>, VOLUME, 1 << 20);
        let begin = begin(&sim.env(), &files, found, found).expect("there is a device");
        assert_eq!(begin.manifest, begin.blob);
        (begin.manifest, begin.allocator.expect("it is noted"))
    }

    fn new() -> SimEnv {
        let sim = sim_env(1);
        sim.device.create_dir(DIRECTORY).expect("create");
        sim.device.sync_dir("").expect("sync");
        sim
    }

    /// Covers processes that leave no trace but the note: no two openings assign the same number,
    /// and none assigns more than it recorded.
    #[test]
    fn no_two_openings_assign_the_same_number() {
        let (mut sim, mut least) = (new(), 1);
        for round in 0..20 {
            let (begin, mut allocator) = opened(&sim, 1);
            assert!(begin >= least, "{round}: {begin} is below {least}");
            // At least as many as were reserved.
            let last = begin + if round % 3 == 0 { 10 } else { 3 * AT_ONCE };
            for number in [begin, begin + 1, last / 2 + begin / 2, last] {
                allocator.reserve(number).expect("there is a device");
            }
            least = last + 1;
            let policy = CrashPolicy::ALL[round as usize % CrashPolicy::ALL.len()];
            sim = SimEnv::on(sim.device.after_crash(policy, round), round);
        }
    }

    /// Holds for any damage of one of the two places, however often, and for a note that is being
    /// written.
    #[test]
    fn one_valid_place_suffices() {
        let file = path(NAME);
        for place in PLACES {
            let (sim, mut least) = (new(), 1);
            for round in 0..12 {
                let (begin, mut allocator) = opened(&sim, 1);
                assert!(begin >= least, "{place}, {round}: {begin} is below {least}");
                let mut last = begin;
                for _ in 0..round % 3 {
                    last += AT_ONCE + 3;
                    allocator.reserve(last).expect("there is a device");
                }
                least = last + 1;
                if round % 4 != 3 {
                    sim.device.overwrite(&file, place, &[0; NUMBERS_BYTES]);
                }
            }
            sim.device.truncate(&file, 4096);
            assert!(opened(&sim, 1).0 >= least);
        }
    }

    /// If the note is another volume's, or claims an impossible bound, it counts as damaged.
    #[test]
    fn a_foreign_or_impossible_note_counts_as_damaged() {
        for bad in [
            Numbers { volume: [8; 16], below: 1 << 40 },
            Numbers { volume: VOLUME, below: NUMBER_MAX + 1 },
        ] {
            let sim = new();
            drop(opened(&sim, 1));
            for place in PLACES {
                sim.device.overwrite(&path(NAME), place, &bad.encode());
            }
            let (first, _) = opened(&sim, 5);
            assert!(first >= 5 + 3 * AT_ONCE && first % AT_ONCE == 5, "{first}");
            assert_eq!(opened(&sim, 5).0, first + AT_ONCE, "it is its own again");
        }
    }

    /// The next process reads what a process wrote and did not sync. It must not rely on that
    /// before it is durable: the place that it overwrites may be the only durable one.
    #[test]
    fn the_read_place_is_synced_before_the_other_is_overwritten() {
        for seed in 0..64 {
            let sim = new();
            let (first, mut allocator) = opened(&sim, 1);
            let last = first + 10 * AT_ONCE;
            allocator.reserve(last).expect("there is a device");
            let durable = PLACES[1 - allocator.next];
            let place = |sim: &SimEnv| {
                let bytes = sim.device.read_file(&path(NAME));
                bytes[durable as usize..][..NUMBERS_BYTES].to_vec()
            };
            let before = place(&sim);
            // The process is killed in the middle of writing the next one.
            let bytes = Numbers { volume: VOLUME, below: 2 * last }.encode();
            allocator.file.write_at(&bytes, PLACES[allocator.next]).expect("there is a device");
            // And a power cut hits the next process in the middle of its write.
            sim.device.crash_at(sim.device.ops() + seed % 4);
            let files = Files::new(FarBlobs::new() as Arc<dyn Blobs>, VOLUME, 1 << 20);
            begin(&sim.env(), &files, 1, 1).map(drop).ok();
            let sim = SimEnv::on(sim.device.after_crash(CrashPolicy::Random, seed), seed);
            if place(&sim) != before {
                // Not even one sector is whole.
                sim.device.overwrite(&path(NAME), durable, &[0; NUMBERS_BYTES]);
            }
            let (third, _) = opened(&sim, 1);
            assert!(third > last, "{seed}: {third} is not above {last}");
        }
    }

    /// Nothing is created in its place, and an opening that cannot record its numbers must have a
    /// manifest.
    #[test]
    fn a_note_that_cannot_be_opened_is_as_damaged() {
        for op in [Op::Look, Op::Open] {
            let sim = new();
            let (first, _) = opened(&sim, 1);
            let before = sim.device.read_file(&path(NAME));
            sim.device.inject(Fault::io(FaultOn::Only(op), 0).below(&path(NAME)));
            let files = Files::new(FarBlobs::new() as Arc<dyn Blobs>, VOLUME, 1 << 20);
            let next = begin(&sim.env(), &files, first, 1).expect("it opens");
            assert!(next.allocator.is_none() && next.manifest >= first + 3 * AT_ONCE, "{op:?}");
            assert!(sim.device.read_file(&path(NAME)) == before, "{op:?}");
        }
    }

    /// If a note is lost with all traces of the numbers that it reserved, only the random offset
    /// remains.
    #[test]
    fn two_openings_without_a_note_start_at_different_numbers() {
        let begins: Vec<u64> = (1..9)
            .map(|seed| {
                let sim = SimEnv::on(new().device.clone(), seed);
                opened(&sim, 1).0
            })
            .collect();
        let mut apart = begins.clone();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), begins.len(), "{begins:?}");
    }

    #[test]
    fn numbers_beyond_the_readable_maximum_are_not_assigned() {
        let sim = new();
        let files = Files::new(FarBlobs::new() as Arc<dyn Blobs>, VOLUME, 1 << 20);
        for found in [(NUMBER_MAX, 1), (1, NUMBER_MAX), (NUMBER_MAX - 2 * AT_ONCE, 1)] {
            fails(begin(&sim.env(), &files, found.0, found.1), "numbers of manifests and blobs");
        }
        assert!(sim.device.files().is_empty(), "nothing is made");
        let (first, mut allocator) = opened(&sim, 1);
        let noted = sim.device.read_file(&path(NAME));
        allocator.reserve(first).expect("it is noted");
        fails(allocator.reserve(NUMBER_MAX - 5), "numbers of manifests and blobs");
        assert!(sim.device.read_file(&path(NAME)) == noted);
    }
}
