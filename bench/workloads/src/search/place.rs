//! The volume of a search benchmark: a permanent one at the given path, else one in a temporary
//! directory. Without background work, so that nothing runs beside a query.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::sync::Mutex;
use device::{Env, Lock};
use fs::{Fs, OpenOptions};
use rustix::fs::{Advice, Mode, OFlags};
use search::index::{ClusterLimits, IndexOptions, IndexStats};
use store::Durability;
use wire::{Failure, FailureKind};

use super::timed::failed;
use crate::cli::BenchArgs;
use crate::volume::{broken, format_where_absent};
use program::cache_size;
use program::failure::{self, Result};

/// Index cache of the paper: 80 MB at 8 million files.
const INDEX_BYTES_A_FILE: u64 = 10;

/// An open volume.
pub(super) struct BenchVolume {
    path: PathBuf,
    temporary: bool,
    fresh: bool,
    options: OpenOptions,
    budget: u64,
    fs: Mutex<Option<Arc<Fs>>>,
    lock: Option<Box<dyn Lock>>,
}

impl BenchVolume {
    pub(super) fn open(args: &BenchArgs) -> Result<BenchVolume> {
        let name = format!("pando-search-{}", std::process::id());
        let path = args.volume.clone().unwrap_or_else(|| std::env::temp_dir().join(name));
        let budget = args.index_cache.unwrap_or(args.files * INDEX_BYTES_A_FILE);
        let fresh = format_where_absent(&path, args)?;
        let mut index = IndexOptions { cache_bytes: budget as usize, ..IndexOptions::default() };
        if let Some(rows) = args.search.cluster_rows {
            index.limits = ClusterLimits { directories: rows / 10, rows };
        }
        let options = OpenOptions {
            durability: Durability::Async,
            cache_bytes: args.cache_size.unwrap_or_else(cache_size::default_bytes),
            index: Some(index),
            ..OpenOptions::default()
        };
        let temporary = args.volume.is_none() && fresh;
        let mut place = BenchVolume {
            path,
            temporary,
            fresh,
            options,
            budget,
            fs: Mutex::new(None),
            lock: None,
        };
        let lock = place.env()?.device.try_lock("owner.lock");
        place.lock = lock.map_err(|error| failure::device(&place.path, &error))?;
        if place.lock.is_none() {
            let message = format!("{} is in use by another process", place.path.display());
            return Err(Failure::new(FailureKind::Busy, message));
        }
        place.reopen()?;
        Ok(place)
    }

    fn env(&self) -> Result<Env> {
        Env::system(&self.path).map_err(|error| failure::device(&self.path, &error))
    }

    fn reopen(&self) -> Result<()> {
        let opened = Fs::open(self.env()?, &self.options);
        let opened = opened.map_err(|error| failure::open(&self.path, &error))?;
        *self.fs.lock() = Some(opened);
        Ok(())
    }

    /// The directory of the volume.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it was created in this run, and is empty.
    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Memory that the index may take.
    pub(super) fn index_budget(&self) -> u64 {
        self.budget
    }

    /// The file system.
    pub(super) fn fs(&self) -> Arc<Fs> {
        Arc::clone(self.fs.lock().as_ref().expect("invariant: it is closed only at the end"))
    }

    /// Closes it, drops the operating system's caches of its files, and opens it.
    pub(super) fn reopen_cold(&self) -> Result<()> {
        if let Some(fs) = self.fs.lock().take() {
            fs.close().map_err(broken)?;
        }
        for entry in walkdir::WalkDir::new(&self.path) {
            let entry = entry.map_err(|error| failed("cannot list the volume", error))?;
            if entry.file_type().is_file() {
                let file = rustix::fs::open(entry.path(), OFlags::RDONLY, Mode::empty());
                let dropped =
                    file.and_then(|file| rustix::fs::fadvise(&file, 0, None, Advice::DontNeed));
                dropped.map_err(|error| failed("cannot drop cached pages", error))?;
            }
        }
        self.reopen()
    }

    /// The size of the index.
    pub(super) fn index_stats(&self) -> Result<IndexStats> {
        Ok(self.fs().index_stats().map_err(broken)?.unwrap_or_default())
    }

    /// Closes it; a later run finds everything in it.
    pub(super) fn close(&self) -> Result<()> {
        match self.fs.lock().take() {
            Some(fs) => fs.close().map_err(broken),
            None => Ok(()),
        }
    }
}

impl Drop for BenchVolume {
    fn drop(&mut self) {
        if !self.temporary {
            return;
        }
        *self.fs.lock() = None;
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, "the volume of the benchmark stays");
        }
    }
}
