//! RocksDB. The log is buffered in the process and synced every five seconds, as ours is. A
//! quarter of the budget is for write buffers, the rest for blocks, indexes and filters. Bloom
//! filters of 10 bits, no compression, two background threads; otherwise defaults.
//!
//! Only functions are used that RocksDB 7.8 has too, so that a distribution's library will do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{BlockBasedOptions, Cache, DB, DBCompressionType, Options, PrefixRange, ReadOptions};

use crate::engine::{Engine, FLUSH_INTERVAL, Result};

const NAP: Duration = Duration::from_millis(20);
const WRITE_BUFFER_BYTES_MAX: usize = 64 << 20;
const WORK: [&str; 3] = [
    "rocksdb.num-running-flushes",
    "rocksdb.num-running-compactions",
    "rocksdb.compaction-pending",
];
const FILTER_BITS: f64 = 10.0;

pub(crate) struct Rocks {
    db: Arc<DB>,
    path: PathBuf,
    ending: Arc<AtomicBool>,
    flusher: JoinHandle<()>,
}

impl Rocks {
    pub(crate) fn create(path: &Path, cache_bytes: usize) -> Result<Rocks> {
        let buffers = cache_bytes / 4;
        let cache = Cache::new_lru_cache(cache_bytes - buffers);
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_bloom_filter(FILTER_BITS, false);
        table.set_cache_index_and_filter_blocks(true);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        options.set_compression_type(DBCompressionType::None);
        options.increase_parallelism(2);
        options.set_write_buffer_size((buffers / 2).min(WRITE_BUFFER_BYTES_MAX));
        options.set_db_write_buffer_size(buffers);
        options.set_manual_wal_flush(true);
        let db = Arc::new(DB::open(&options, path.join("rocksdb"))?);
        let ending = Arc::new(AtomicBool::new(false));
        let flusher = {
            let (db, ending) = (Arc::clone(&db), Arc::clone(&ending));
            std::thread::spawn(move || {
                let mut flushed = Instant::now();
                while !ending.load(Ordering::Relaxed) {
                    std::thread::sleep(NAP);
                    if flushed.elapsed() > FLUSH_INTERVAL {
                        db.flush_wal(true).expect("a log can be synced");
                        flushed = Instant::now();
                    }
                }
            })
        };
        Ok(Rocks { db, path: path.to_owned(), ending, flusher })
    }
}

impl Engine for Rocks {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete(key)?)
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned(key)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, prefix: &[u8], found: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut range = ReadOptions::default();
        range.set_iterate_range(PrefixRange(prefix));
        let mut cursor = self.db.raw_iterator_opt(range);
        cursor.seek_to_first();
        let mut count = 0;
        while let Some((key, value)) = cursor.item() {
            found(key, value);
            count += 1;
            cursor.next();
        }
        cursor.status()?;
        Ok(count)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.db.flush_wal(true)?)
    }

    fn settle(&mut self) -> Result<()> {
        self.db.flush()?;
        let mut idle = 0;
        while idle < 5 {
            let mut busy = 0;
            for property in WORK {
                busy += self.db.property_int_value(property)?.unwrap_or(0);
            }
            idle = if busy > 0 { 0 } else { idle + 1 };
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<()> {
        drop(self.db.snapshot());
        Ok(())
    }

    fn copy(&mut self, number: u64) -> Result<bool> {
        // A directory of hard links, which can be opened as a store of its own.
        let path = self.path.join(format!("copy-{number}"));
        Checkpoint::new(&*self.db)?.create_checkpoint(path)?;
        Ok(true)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.ending.store(true, Ordering::Relaxed);
        self.flusher.join().expect("the flusher does not panic");
        self.db.flush_wal(true)?;
        Ok(())
    }
}
