//! Damage on disk: flipped bits, short files, missing files. A store returns a correct answer or a
//! typed error that names the file; it never panics and never returns a wrong answer.

use std::collections::BTreeMap;

use store::{Batch, Durability, Error, Lsn, SliceRun, Store, TreeId};

use super::compare::Mismatch;
use super::engine::EngineUnderTest;
use super::history::History;
use super::ingest::Entries;
use super::workload::{Shape, Workload};
use crate::kit::numbered;
use crate::run::{Context, print_line};
use crate::{CrashPolicy, SimDevice, SimEnv, sim_env};

/// A disk with a store on it, and the store's expected contents.
struct Subject {
    device: SimDevice,
    history: History,
    /// The last commit that a checkpoint contains.
    checkpointed: Lsn,
}

fn subject<E: EngineUnderTest>(seed: u64, closed: bool) -> Subject {
    let sim = sim_env(seed);
    let store = E::create(&sim, Durability::Async).expect("a store is created");
    let history = History::new();
    let mut work = Workload::new(seed, Shape::SMALL);
    history.run(&*store, &mut work, 80);
    let chain = chain(&*store, &history, &mut work);
    assert!(store.checkpoint().expect("checkpoint"));
    let checkpointed = store.last_commit().0;
    for number in 0..20 {
        let mut batch = work.batch();
        if number == 10 {
            // A log record drops this tree, which is on disk and partly unshared.
            batch.drop_tree(chain);
        }
        history.push(&batch);
        let token = store.commit(&batch).expect("the batch is valid");
        store.sync(token).expect("sync");
    }
    if closed {
        store.close().expect("close");
    }
    drop(store);
    let device = sim.device.after_crash(CrashPolicy::LoseAll, seed);
    let checkpointed = if closed { history.last() } else { checkpointed };
    history.set_durable(store::CommitToken(history.last()));
    Subject { device, history, checkpointed }
}

/// Adds structures that random batches seldom create. These are a tree of ingested leaves, and a
/// chain of clones of it. Each clone was written to, and one was dropped. Returns the last of them.
fn chain(store: &dyn Store, history: &History, work: &mut Workload) -> TreeId {
    let chain: Vec<TreeId> = (0..4).map(|_| work.new_tree()).collect();
    let push = |fill: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::new();
        fill(&mut batch);
        history.push(&batch);
        store.commit(&batch).expect("the batch is valid");
    };
    push(&|batch| batch.create_tree(chain[0]));
    let run = numbered(0..400, 120);
    let run: Entries = run.into_iter().map(|(key, value)| (ingested(&key), value)).collect();
    let batch = crate::mem::as_batch(history.oracle().pin_state().trees(), chain[0], &run);
    history.push(&batch.expect("the tree is there").expect("invariant: a run of entries"));
    store.ingest(chain[0], &mut SliceRun::new(&run)).expect("the range is empty");
    for (number, two) in (0_u32..).zip(chain.windows(2)) {
        push(&|batch| {
            batch.clone_tree(two[0], two[1]);
            for n in 0..3 {
                let key = ingested(&(130 * n + 7 * number).to_be_bytes());
                batch.put(two[1], &key, &vec![number as u8; if n == 1 { 2500 } else { 40 }]);
            }
            batch.delete(two[1], &ingested(&(390 + number).to_be_bytes()));
        });
    }
    assert!(store.checkpoint().expect("checkpoint"));
    push(&|batch| batch.drop_tree(chain[1]));
    store.reclaim_step(1).expect("reclaim");
    chain[3]
}

/// A key of the ingested entries: no other key is like it.
fn ingested(number: &[u8]) -> Vec<u8> {
    [b"ingested".as_slice(), number].concat()
}

/// Whether an error is one that damage may cause: typed, and naming a file.
fn names_file<E: EngineUnderTest>(error: &Error, files: &[(String, u64)]) -> bool {
    match error {
        Error::Corrupt(bad) => files.iter().any(|(path, _)| E::named(path) == bad.file),
        Error::Missing { file, .. } | Error::NewerFormat { file, .. } => !file.is_empty(),
        _ => false,
    }
}

/// Writes into clones of all trees and drops them: that reads other parts of the disk, and must not
/// harm the trees.
fn write_beside(store: &dyn Store, trees: &[TreeId]) -> Result<(), Error> {
    for (number, &tree) in trees.iter().enumerate() {
        let clone = TreeId(u64::from(u32::MAX) + number as u64);
        let mut batch = Batch::new();
        batch.clone_tree(tree, clone);
        batch.put(clone, b"beside", &[1; 3000]);
        batch.delete_range(clone, b"a", b"q");
        store.commit(&batch)?;
        store.checkpoint()?;
        let mut batch = Batch::new();
        batch.drop_tree(clone);
        store.commit(&batch)?;
    }
    Ok(())
}

/// Opens a damaged disk, reads everything, writes a little and reads again. `true` if the damage
/// was found, in one of the files that existed before it.
fn is_found<E: EngineUnderTest>(
    device: SimDevice,
    files: &[(String, u64)],
    history: &History,
    oldest: Lsn,
) -> bool {
    let sim = SimEnv::on(device, 1);
    let read = |store: &dyn Store| match history.check_from(store, oldest) {
        Ok(found) => Ok(found),
        Err(Mismatch::Failed(error)) => Err(error),
        Err(Mismatch::Wrong(what)) => panic!("wrong data was answered: {what}"),
    };
    let run = || {
        let store = E::open(&sim, Durability::Async)?;
        // First, while nothing is in memory yet.
        let differences = match history.check_differences(&*store) {
            Err(Mismatch::Wrong(what)) => panic!("wrong differences were answered: {what}"),
            Err(Mismatch::Failed(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        let found = read(&*store)?;
        differences?;
        write_beside(&*store, &history.trees_of(found))?;
        store.checkpoint()?;
        store.reclaim_step(20)?;
        store.checkpoint()?;
        Ok((store, found))
    };
    match run() {
        Err(error) => {
            assert!(names_file::<E>(&error, files), "damage was reported as: {error:?}");
            true
        }
        Ok((store, found)) => match history.check_contents(&*store, found) {
            Ok(_) => false,
            Err(Mismatch::Failed(error)) => {
                assert!(names_file::<E>(&error, files), "damage was reported as: {error:?}");
                true
            }
            Err(Mismatch::Wrong(what)) => panic!("wrong data after writing: {what}"),
        },
    }
}

/// A bit of a file, most often near its start and in bytes that are not zero.
fn pick_bit(bytes: &[u8], random: &mut fastrand::Rng) -> u64 {
    let mut byte = 0;
    for _ in 0..20 {
        let most = if random.bool() { bytes.len().min(4096) } else { bytes.len() };
        byte = random.usize(0..most);
        if bytes[byte] != 0 {
            break;
        }
    }
    byte as u64 * 8 + random.u64(0..8)
}

fn flip_bits<E: EngineUnderTest>(subject: &Subject, seed: u64, oldest: Lsn) {
    let mut random = fastrand::Rng::with_seed(seed);
    let files = subject.device.files();
    for (path, length) in files.iter().filter(|(_, length)| *length > 0) {
        let bytes = subject.device.read_file(path);
        let flips = E::places(40, 3000).min(length * 8);
        let mut found = BTreeMap::from([(false, 0), (true, 0)]);
        for _ in 0..flips {
            let bit = pick_bit(&bytes, &mut random);
            let _context = Context::new(format!("bit {bit} of {path} flipped"));
            let device = subject.device.copy();
            device.flip_bit(path, bit);
            let was_found = is_found::<E>(device, &files, &subject.history, oldest);
            *found.entry(was_found).or_default() += 1;
        }
        print_line(&format!("{path}: {} flips found, {} harmless", found[&true], found[&false]));
    }
}

/// After a clean close, checksums guard every bit that matters.
pub fn a_flipped_bit_is_found_or_harmless<E: EngineUnderTest>() {
    E::for_seeds("bit flips", 2, 4, |seed| {
        let subject = subject::<E>(seed, true);
        flip_bits::<E>(&subject, seed, subject.history.last());
    });
}

/// In the log of a crashed store, only the last record may pass for a torn one.
pub fn a_flipped_bit_in_the_log_of_a_crashed_store_is_found<E: EngineUnderTest>() {
    E::for_seeds("bit flips in a log", 2, 4, |seed| {
        let subject = subject::<E>(seed, false);
        flip_bits::<E>(&subject, seed, Lsn(subject.history.last().0 - 1));
    });
}

/// A missing or short file is reported, or was not needed.
pub fn a_missing_or_short_file_is_found<E: EngineUnderTest>() {
    E::for_seeds("missing and short files", 3, 20, |seed| {
        for closed in [true, false] {
            let subject = subject::<E>(seed, closed);
            let mut random = fastrand::Rng::with_seed(seed);
            let files = subject.device.files();
            for (path, length) in &files {
                // A log that was cut cannot be distinguished from one that never was longer.
                let oldest = subject.checkpointed;
                let _context = Context::new(format!("{path}, closed: {closed}"));
                let device = subject.device.copy();
                device.delete(path);
                is_found::<E>(device, &files, &subject.history, oldest);
                let (length, some) = (*length, random.u64(0..(*length).max(1)));
                for short in [0, 1, length / 2, length.saturating_sub(1), some] {
                    let _context = Context::new(format!("cut to {short} of {length} bytes"));
                    let device = subject.device.copy();
                    device.truncate(path, short.min(length));
                    is_found::<E>(device, &files, &subject.history, oldest);
                }
            }
        }
    });
}

/// Aligned pieces that a disk loses or misplaces, in bytes.
const PIECES: [u64; 3] = [512, 1024, 4096];

/// A piece of a file from another position or an earlier time looks intact by itself.
pub fn a_stale_or_misplaced_piece_is_found<E: EngineUnderTest>() {
    E::for_seeds("stale and misplaced pieces", 3, 20, |seed| {
        let sim = sim_env(seed);
        let store = E::create(&sim, Durability::Async).expect("a store is created");
        let history = History::new();
        let mut work = Workload::new(seed, Shape::SMALL);
        let mut earlier = Vec::new();
        for _ in 0..4 {
            history.run(&*store, &mut work, 30);
            assert!(store.checkpoint().expect("checkpoint"));
            earlier.push(sim.device.copy());
        }
        store.close().expect("close");
        drop(store);
        let now = sim.device.after_crash(CrashPolicy::LoseAll, seed);
        let mut random = fastrand::Rng::with_seed(seed);
        let files = now.files();
        for (path, length) in &files {
            let (bytes, length) = (now.read_file(path), *length);
            for _ in 0..E::places(24, 3000) {
                let piece = *random.choice(&PIECES).expect("invariant: there are some");
                let (to, from) = (random.u64(0..=length / piece), random.u64(0..=length / piece));
                let stale = random.bool();
                let old = random.choice(&earlier).filter(|_| stale);
                let (source, from) = match old {
                    Some(old) if old.files().iter().any(|(old, _)| old == path) => {
                        (old.read_file(path), to)
                    }
                    Some(_) => continue,
                    None => (bytes.clone(), from),
                };
                let (to, from) = ((to * piece) as usize, (from * piece) as usize);
                let end = (from + piece as usize).min(source.len());
                if from >= end || to + (end - from) > bytes.len() {
                    continue;
                }
                let what = format!("{path}: {piece} bytes at {to} from {from}, stale: {stale}");
                let _context = Context::new(what);
                let device = now.copy();
                device.overwrite(path, to as u64, &source[from..end]);
                is_found::<E>(device, &files, &history, history.last());
            }
        }
    });
}
