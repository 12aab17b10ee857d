//! fjall. The journal is written by its own buffer and synced every five seconds, as ours is. Half
//! of a quarter of the budget is for the write buffer (fjall keeps a few), the rest for blocks. No
//! compression.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::engine::{Engine, FLUSH_INTERVAL, Result};

const NAP: Duration = Duration::from_millis(20);
const MEMTABLE_BYTES_MAX: usize = 64 << 20;

pub(crate) struct Fjall {
    database: Database,
    entries: Keyspace,
    ending: Arc<AtomicBool>,
    flusher: JoinHandle<()>,
}

impl Fjall {
    pub(crate) fn create(path: &Path, cache_bytes: usize) -> Result<Fjall> {
        let buffers = cache_bytes / 4;
        let database = Database::builder(path.join("fjall"))
            .cache_size((cache_bytes - buffers) as u64)
            .manual_journal_persist(true)
            .open()?;
        let memtable = (buffers / 2).min(MEMTABLE_BYTES_MAX) as u64;
        let entries = database.keyspace("entries", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(memtable)
                .manual_journal_persist(true)
        })?;
        let ending = Arc::new(AtomicBool::new(false));
        let flusher = {
            let (database, ending) = (database.clone(), Arc::clone(&ending));
            std::thread::spawn(move || {
                let mut flushed = Instant::now();
                while !ending.load(Ordering::Relaxed) {
                    std::thread::sleep(NAP);
                    if flushed.elapsed() > FLUSH_INTERVAL {
                        database.persist(PersistMode::SyncData).expect("a journal can be synced");
                        flushed = Instant::now();
                    }
                }
            })
        };
        Ok(Fjall { database, entries, ending, flusher })
    }
}

impl Engine for Fjall {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.entries.insert(key, value)?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.entries.remove(key)?)
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.entries.get(key)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, prefix: &[u8], found: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut count = 0;
        for entry in self.entries.prefix(prefix) {
            let (key, value) = entry.into_inner()?;
            found(&key, &value);
            count += 1;
        }
        Ok(count)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    fn settle(&mut self) -> Result<()> {
        self.entries.rotate_memtable_and_wait()?;
        let mut idle = 0;
        while idle < 5 {
            let busy =
                self.database.outstanding_flushes() > 0 || self.database.active_compactions() > 0;
            idle = if busy { 0 } else { idle + 1 };
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<()> {
        drop(self.database.snapshot());
        Ok(())
    }

    fn copy(&mut self, _number: u64) -> Result<bool> {
        Ok(false)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.ending.store(true, Ordering::Relaxed);
        self.flusher.join().expect("the flusher does not panic");
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}
