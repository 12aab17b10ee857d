//! `LoggedStore`: the oracle on top of the log that engines share, so that it survives power cuts.
//!
//! It shows that the suites demand nothing impossible, and that the log keeps its guarantees
//! without an engine's help. Commits go to the log and then to the oracle, under one lock. A
//! checkpoint writes all trees into one file beside the old one, renames it, and trims the log.

use std::sync::Arc;
use std::time::Duration;

use device::Env;
use device::sync::Mutex;
use format::batch::Ops;
use format::{Corruption, Reader, Writer};
use store::{
    Barrier, Batch, CheckProgress, CheckReport, Commit, CommitToken, Cursor, DiffCursor,
    Durability, Durable, Error, KeyRange, Log, LogOptions, LogSpace, Lsn, Maintain, Pinned, Read,
    Result, Snapshot, SortedRun, Stats, TreeId,
};

use crate::{MemPinned, MemStore};

const LOG: &str = "log";
const DUMP: &str = "dump";
const NEW_DUMP: &str = "dump-new";
const STRUCTURE: &str = "dump of a test's store";
const VOLUME: [u8; 16] = *b"a store of tests";

/// Length of a log segment: short, so that opening costs little.
const SEGMENT_BYTES: u64 = 256 << 10;

/// A store in memory that is written to the disk whole.
pub struct LoggedStore {
    env: Env,
    memory: MemStore,
    log: Log,
    durability: Durability,
    commits: Mutex<()>,
    checkpoints: Mutex<u64>,
    closed: Mutex<bool>,
    replayed: u64,
}

fn options(durability: Durability) -> LogOptions {
    LogOptions { durability, segment_bytes: SEGMENT_BYTES, ..LogOptions::default() }
}

impl LoggedStore {
    /// Creates a store on an empty disk.
    pub fn create(env: &Env, durability: Durability) -> Result<LoggedStore> {
        let log = Log::create(env, LOG, VOLUME, &options(durability))?;
        let store = LoggedStore::with(env, MemStore::new(), log, durability, 0);
        store.checkpoint()?;
        Ok(store)
    }

    /// Opens the store that is on disk.
    pub fn open(env: &Env, durability: Durability) -> Result<LoggedStore> {
        let memory = MemStore::new();
        let from = read_dump(env, &memory)?;
        let mut replay = |lsn, payload: &[u8]| {
            let bad = Ops::new(payload).find_map(|op| op.err());
            match bad {
                Some(malformed) => Err(malformed.located("", 0).into()),
                None => memory.replay(lsn, Ops::new(payload)),
            }
        };
        let (log, recovery) = Log::open(env, LOG, VOLUME, &options(durability), from, &mut replay)?;
        Ok(LoggedStore::with(env, memory, log, durability, recovery.replayed))
    }

    fn with(
        env: &Env,
        memory: MemStore,
        log: Log,
        durability: Durability,
        replayed: u64,
    ) -> LoggedStore {
        LoggedStore {
            env: env.clone(),
            memory,
            log,
            durability,
            commits: Mutex::default(),
            checkpoints: Mutex::default(),
            closed: Mutex::new(false),
            replayed,
        }
    }

    /// Writes a dump beside the old one and renames it over it. A power cut leaves one or the
    /// other.
    fn write_dump(&self, pinned: &MemPinned) -> device::Result<()> {
        let bytes = encode_dump(pinned);
        let device = &self.env.device;
        if device.metadata(NEW_DUMP)?.is_some() {
            device.remove(NEW_DUMP)?;
        }
        let file = device.create(NEW_DUMP)?;
        let written = file.write_at(&bytes, 0).and_then(|()| file.sync_data());
        if let Err(error) = written {
            device.remove(NEW_DUMP)?;
            return Err(error);
        }
        device.rename(NEW_DUMP, DUMP)?;
        device.sync_dir("")
    }
}

/// All trees as one batch, after the number of the commit and a checksum.
fn encode_dump(pinned: &MemPinned) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_u64(pinned.commit().0.0);
    for (tree, keys) in pinned.trees() {
        format::batch::create_tree(&mut payload, tree.0);
        for (key, value) in keys.iter() {
            format::batch::put(&mut payload, tree.0, key, value);
        }
    }
    let mut bytes = Vec::new();
    bytes.put_u32(format::log_record::sum_payload(0, &payload));
    bytes.raw(&payload);
    bytes
}

/// Reads the dump into an empty store; returns the number of its commit.
fn read_dump(env: &Env, memory: &MemStore) -> Result<Lsn> {
    let file = match env.device.open(DUMP) {
        Err(error) if error.is_not_found() => {
            return Err(Error::Missing { file: DUMP.to_owned(), record: None });
        }
        opened => opened?,
    };
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(&mut bytes, 0)?;
    let mut reader = Reader::new(STRUCTURE, &bytes);
    let located = |malformed: format::Malformed| Error::from(malformed.located(DUMP, 0));
    let sum = reader.u32().map_err(located)?;
    let payload = &bytes[reader.position()..];
    let found = format::log_record::sum_payload(0, payload);
    if sum != found {
        return Err(Error::from(Corruption {
            file: DUMP.to_owned(),
            offset: 0,
            structure: STRUCTURE,
            expected: format!("checksum {sum:08x}"),
            found: format!("{found:08x}"),
            unread: false,
        }));
    }
    let lsn = Lsn(reader.u64().map_err(located)?);
    memory.replay(lsn, Ops::new(&bytes[reader.position()..]))?;
    Ok(lsn)
}

impl Read for LoggedStore {
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.memory.get_with(tree, key, found)
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        self.memory.scan(tree, range)
    }
}

impl Commit for LoggedStore {
    fn commit(&self, batch: &Batch) -> Result<CommitToken> {
        if batch.is_empty() {
            return Ok(self.last_commit());
        }
        let token = {
            let _in_order = self.commits.lock();
            if *self.closed.lock() {
                return Err(Error::ReadOnly(Arc::from("the store was closed")));
            }
            self.memory.check(batch)?;
            let lsn = self.log.append(batch.as_bytes(), LogSpace::Normal)?;
            let token = self.memory.commit(batch)?;
            assert_eq!(token.0, lsn, "log and oracle count alike");
            token
        };
        self.log.committed(token.0)?;
        Ok(token)
    }

    fn ingest(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken> {
        let entries = crate::mem::entries(run)?;
        let batch = crate::mem::as_batch(self.memory.pin_state().trees(), tree, &entries)?;
        self.commit(&batch.unwrap_or_default())
    }

    fn ingest_new(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken> {
        self.commit(&crate::mem::as_new_tree(tree, &crate::mem::entries(run)?)?)
    }
}

impl Snapshot for LoggedStore {
    fn pin(&self) -> Result<Box<dyn Pinned>> {
        self.memory.pin()
    }

    fn diff(&self, old: TreeId, new: TreeId) -> Result<Box<dyn DiffCursor + '_>> {
        self.memory.diff(old, new)
    }

    fn tree_exists(&self, tree: TreeId) -> Result<bool> {
        self.memory.tree_exists(tree)
    }
}

impl Durable for LoggedStore {
    fn sync(&self, up_to: CommitToken) -> Result<()> {
        self.log.sync(up_to.0)
    }

    fn last_commit(&self) -> CommitToken {
        self.memory.last_commit()
    }

    fn durable(&self) -> CommitToken {
        CommitToken(self.log.durable())
    }

    fn flush_if_due(&self) -> Result<Duration> {
        self.log.flush_if_due()
    }

    fn set_barrier(&self, barrier: Arc<dyn Barrier>) {
        self.log.set_barrier(barrier);
    }

    fn close(&self) -> Result<()> {
        *self.closed.lock() = true;
        self.log.close()?;
        self.checkpoint()?;
        Ok(())
    }
}

impl Maintain for LoggedStore {
    fn checkpoint(&self) -> Result<bool> {
        let Some(mut checkpoints) = self.checkpoints.try_lock() else { return Ok(false) };
        self.log.check()?;
        let pinned = self.memory.pin_state();
        self.log.sync(pinned.commit().0)?;
        match self.write_dump(&pinned) {
            Err(error) if error.is_no_space() => return Err(Error::NoSpace("the dump")),
            written => written?,
        }
        self.log.trim(pinned.commit().0)?;
        *checkpoints += 1;
        Ok(true)
    }

    fn checkpoint_due(&self) -> bool {
        self.log.stats().segments > 2
    }

    fn reclaim_step(&self, nodes: usize) -> Result<bool> {
        self.memory.reclaim_step(nodes)
    }

    fn check(&self, progress: CheckProgress<'_>) -> Result<CheckReport> {
        // The disk has one file, which opening verifies; the running store is the oracle.
        Maintain::check(&self.memory, progress)
    }

    fn stats(&self) -> Stats {
        let log = self.log.stats();
        let dump = self.env.device.metadata(DUMP).ok().flatten();
        Stats {
            engine: "logged memory",
            durability: self.durability,
            disk_bytes: dump.map_or(0, |found| found.disk_bytes),
            log_bytes: log.disk_bytes,
            written_bytes: log.written_bytes,
            writes: log.writes,
            syncs: log.syncs,
            checkpoints: *self.checkpoints.lock(),
            replayed: self.replayed,
            ..self.memory.stats()
        }
    }
}
