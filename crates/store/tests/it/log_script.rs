//! What the log's tests share: a script of appends, syncs and trims, and how a log is judged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::Env;
use store::{Error, Log, LogOptions, LogSpace, Lsn, Recovery, Result};
use testing::{SimDevice, SimEnv};

/// The volume of all these logs.
pub(crate) const VOLUME: [u8; 16] = [0x5a; 16];

/// Segments with space for 4 KiB of records, so that a short script fills several.
pub(crate) fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 8 << 10,
        write_bytes: 600,
        buffer_bytes_max: 3000,
        ..LogOptions::default()
    }
}

/// An environment around a disk.
pub(crate) fn env(device: &SimDevice) -> Env {
    SimEnv::on(device.clone(), 1).env()
}

/// What a record holds: derived from its number and the run of the script that wrote it.
pub(crate) fn payload(run: u8, lsn: u64) -> Vec<u8> {
    let length = if lsn.is_multiple_of(23) { 5000 } else { 10 + lsn * 37 % 190 };
    std::iter::once(run).chain((1..length).map(|at| (at * 5 + lsn) as u8)).collect()
}

/// What the script has been promised so far, for a watcher of the disk.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Last record appended.
    pub(crate) appended: AtomicU64,
    /// Last record that a sync has acknowledged.
    pub(crate) synced: AtomicU64,
    /// The checkpoint from which a replay starts.
    pub(crate) checkpoint: AtomicU64,
}

/// Appends, drives, syncs and trims by a seed; stops at the first error.
pub(crate) fn run(log: &Log, run: u8, seed: u64, steps: u32, promises: &Promises) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..steps {
        match random.u8(..16) {
            0..=9 => {
                let next = log.last().0 + 1;
                // Noted before it happens: the append itself may write.
                promises.appended.store(next, Ordering::SeqCst);
                if let Err(error) = log.append(&payload(run, next), LogSpace::Normal) {
                    promises.appended.store(next - 1, Ordering::SeqCst);
                    return Err(error);
                }
                log.committed(Lsn(next))?;
            }
            10 => {
                // As the log's writer: from then on committers leave ends of segments to it.
                log.flush_if_due()?;
            }
            11..=13 => {
                log.sync(log.last())?;
                promises.synced.store(log.last().0, Ordering::SeqCst);
            }
            _ => {
                // A checkpoint: the log is synced, the engine's superblock written, the log cut.
                let at = log.last();
                log.sync(at)?;
                promises.synced.store(at.0, Ordering::SeqCst);
                promises.checkpoint.store(at.0, Ordering::SeqCst);
                log.trim(at)?;
            }
        }
    }
    Ok(())
}

/// A log on a fresh disk.
pub(crate) fn create(device: &SimDevice) -> Log {
    Log::create(&env(device), "log", VOLUME, &options()).expect("an empty disk takes a log")
}

/// What a log replays.
pub(crate) struct Opened {
    pub(crate) log: Log,
    pub(crate) recovery: Recovery,
    /// Numbers and payloads.
    pub(crate) records: Vec<(u64, Vec<u8>)>,
}

/// Opens a log from a checkpoint.
pub(crate) fn open(device: &SimDevice, from: u64) -> Result<Opened> {
    let mut records = Vec::new();
    let mut replay = |lsn: Lsn, payload: &[u8]| {
        records.push((lsn.0, payload.to_vec()));
        Ok(())
    };
    let (log, recovery) =
        Log::open(&env(device), "log", VOLUME, &options(), Lsn(from), &mut replay)?;
    Ok(Opened { log, recovery, records })
}

/// Checks that records follow each other from `from + 1`, each with the payload of `run_of`,
/// and returns the last number.
pub(crate) fn check_records(
    records: &[(u64, Vec<u8>)],
    from: u64,
    run_of: impl Fn(u64) -> u8,
) -> u64 {
    let mut last = from;
    for (lsn, bytes) in records {
        assert_eq!(*lsn, last + 1, "records come without gaps");
        assert!(*bytes == payload(run_of(*lsn), *lsn), "record {lsn} is another one");
        last = *lsn;
    }
    last
}

/// Whether an error names damage in a file of the log.
pub(crate) fn names_damage(error: &Error) -> bool {
    match error {
        Error::Corrupt(at) => at.file.starts_with("log/"),
        Error::Missing { file, .. } => file.starts_with("log"),
        _ => false,
    }
}

/// Promises behind a shared pointer.
pub(crate) fn promises() -> Arc<Promises> {
    Arc::new(Promises::default())
}
