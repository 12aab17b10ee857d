//! Contents of new files that are gathered, beside ordinary writes, collections, faults and
//! crashes.

use std::sync::Arc;

use data::{FileRef, Freed, Gathered};
use store::{Batch, TreeId};
use testing::run::for_seeds;
use testing::{CrashPolicy, Fault, FaultOn, Op, SimEnv};

use crate::support::{Contents, Volume, open_data, pattern, put_size, verify};

const TREE: u64 = 32;

/// New files that are not committed yet.
#[derive(Default)]
struct New {
    gathered: Gathered,
    batch: Batch,
    freed: Freed,
    files: Vec<(u64, Vec<u8>)>,
}

impl New {
    /// Gathers a file, in one write or several.
    fn add(&mut self, volume: &Volume, ino: u64, random: &mut fastrand::Rng) -> store::Result<()> {
        let longest = [100, 5000, 20_000, 300_000][random.usize(..4)];
        let bytes = pattern(ino, random.usize(1..longest));
        let file = FileRef { tree: TreeId(TREE), ino };
        let (mut at, mut rest, mut freed) = (0, &bytes[..], Freed::default());
        let mut batch = Batch::new();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(random.usize(1..=rest.len()));
            let owner = volume.owner(TREE);
            let done = volume.data.gather(&mut self.gathered, (file, at, now), owner, &mut batch);
            match done {
                Ok(more) => freed.merge(more),
                // Parts of it that are gathered stay unnamed.
                Err(error) => {
                    volume.data.abandon(freed);
                    return Err(error);
                }
            }
            at += now.len() as u64;
            rest = later;
        }
        self.freed.merge(freed);
        put_size(&mut batch, file, bytes.len() as u64);
        append(&mut self.batch, &batch);
        self.files.push((ino, bytes));
        Ok(())
    }

    fn commit(&mut self, volume: &mut Volume) -> store::Result<()> {
        let written = volume.data.write_gathered(&mut self.gathered)?;
        let New { batch, mut freed, files, .. } = std::mem::take(self);
        freed.merge(written);
        let mut next: Contents = volume.now.clone();
        next.extend(files.into_iter().map(|(ino, bytes)| ((TREE, ino), Arc::new(bytes))));
        volume.commit(&batch, freed, next)
    }

    fn abandon(mut self, volume: &Volume) {
        volume.data.abandon_gathered(&mut self.gathered);
        volume.data.abandon(std::mem::take(&mut self.freed));
    }
}

/// What a write plans, put into a batch with others.
fn append(to: &mut Batch, from: &Batch) {
    for op in from.ops() {
        match op.unwrap() {
            format::batch::Op::Put { tree, key, value } => to.put(TreeId(tree), key, value),
            format::batch::Op::Merge { tree, key, lanes } => {
                let lanes: Vec<_> = lanes.iter().collect();
                to.merge(TreeId(tree), key, &lanes);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn gathered_files_are_as_written_whatever_happens_beside() {
    for_seeds("gather", 30, 400, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut volume = Volume::new(seed);
        let (mut new, mut next) = (New::default(), 1000);
        for _ in 0..random.usize(20..150) {
            match random.u32(..100) {
                0..60 => {
                    new.add(&volume, next, &mut random).unwrap();
                    next += 1;
                }
                60..70 => {
                    let (ino, length) = (random.u64(1..20), random.usize(1..50_000));
                    let at = random.u64(..60_000);
                    volume.write(TREE, ino, at, &pattern(next, length)).unwrap();
                }
                70..76 => volume.clean(random.bool()).unwrap(),
                76..80 => drop(volume.collect().unwrap()),
                80..84 => volume.sync().unwrap(),
                84..88 => std::mem::take(&mut new).abandon(&volume),
                _ => new.commit(&mut volume).unwrap(),
            }
        }
        new.commit(&mut volume).unwrap();
        volume.verify();
        volume.collect().unwrap();
        volume.clean(true).unwrap();
        volume.verify();
        volume.reopen().unwrap();
        volume.verify();
    });
}

#[test]
fn what_is_committed_and_synced_survives_a_crash_without_what_is_gathered() {
    for_seeds("gather, crash", 20, 200, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut volume = Volume::new(seed);
        let mut new = New::default();
        for ino in 1000..1000 + random.u64(1..60) {
            new.add(&volume, ino, &mut random).unwrap();
        }
        new.commit(&mut volume).unwrap();
        volume.sync().unwrap();
        let durable = volume.now.clone();
        for ino in 2000..2000 + random.u64(1..60) {
            new.add(&volume, ino, &mut random).unwrap();
        }
        for policy in CrashPolicy::ALL {
            let sim = SimEnv::on(volume.sim.device.after_crash(policy, seed), seed);
            let store = volume.store.after_crash();
            let data = open_data(&sim, &store, &volume.options, true, None).unwrap();
            verify(&store, &data, &durable);
        }
        new.abandon(&volume);
    });
}

/// A write of many files fails: it concerns all of them, and may be tried again.
#[test]
fn a_block_that_cannot_be_written_is_written_later() {
    let mut failed = 0;
    for after in 0..30 {
        let mut random = fastrand::Rng::with_seed(after);
        let mut volume = Volume::new(after);
        let fault = Fault::no_space(FaultOn::Only(Op::Write), after).below("data/").forever();
        volume.sim.device.inject(fault);
        let mut new = New::default();
        for ino in 1000..1100 {
            if let Err(error) = new.add(&volume, ino, &mut random) {
                assert!(error.is_no_space(), "{error}");
                failed += 1;
            }
        }
        if let Err(error) = volume.data.write_gathered(&mut new.gathered) {
            assert!(error.is_no_space(), "{error}");
        }
        volume.sim.device.clear_faults();
        for ino in 2000..2020 {
            new.add(&volume, ino, &mut random).unwrap();
        }
        new.commit(&mut volume).unwrap();
        volume.verify();
        volume.clean(true).unwrap();
        volume.collect().unwrap();
        volume.reopen().unwrap();
        volume.verify();
    }
    assert!(failed > 100, "{failed} failed");
}

/// Regression: what was reserved and not written yet counted as free. Two threads took the space
/// that the disk has for metadata.
#[test]
fn gathered_contents_of_two_threads_leave_the_space_of_metadata() {
    const SPACE: u64 = 400 << 10;
    let volume = Volume::new(1);
    let device = &volume.sim.device;
    let file = |ino| FileRef { tree: TreeId(TREE), ino };
    let owner = volume.owner(TREE);
    let mut batch = Batch::new();
    let mut both = [Gathered::default(), Gathered::default()];
    // A sixteenth stays free. Above that there is space for more than one segment, not for two.
    let total = (device.used_bytes() + SPACE) / 15 * 16;
    device.set_capacity(Some(total));
    let mut freed = Freed::default();
    let mut full = None;
    for ino in 0..1000_u64 {
        let gathered = &mut both[ino as usize % 2];
        let bytes = pattern(ino, 5000);
        match volume.data.gather(gathered, (file(1000 + ino), 0, &bytes), owner, &mut batch) {
            Ok(more) => freed.merge(more),
            Err(error) => {
                full = Some(error);
                break;
            }
        }
    }
    assert!(full.is_some_and(|error| error.is_no_space()), "it is not full");
    for gathered in &mut both {
        freed.merge(volume.data.write_gathered(gathered).unwrap());
    }
    let free = total - device.used_bytes();
    // But for the headers of segments.
    assert!(free + 4 * 4096 >= total / 16, "{free} of {total} bytes are free");
    volume.data.abandon(freed);
}
