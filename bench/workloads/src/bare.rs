//! A bare store without a file system above it, in a directory that is removed at the end.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Clock, Env};
use store::{Batch, EngineOptions, Store, TreeId};

use super::Run;
use super::engine::{self, broken, chosen};
use program::failure::{self, Result};

/// The tree that a benchmark uses.
pub(super) const TREE: TreeId = TreeId(32);
/// Bytes of a key: a parent of 8, and a name with its type.
pub(super) const KEY_BYTES: usize = 8 + 13;
/// Bytes of a value.
pub(super) const VALUE_BYTES: usize = 100;
/// Entries with the same parent.
const ENTRIES_A_PARENT: u64 = 1000;
/// Entries per commit while loading.
const LOAD_AT_ONCE: u64 = 100;

/// A bare store.
pub(super) struct Bare {
    path: PathBuf,
    env: Env,
    store: Option<Arc<dyn Store>>,
}

/// The key of an entry: names follow each other within a parent.
pub(super) fn key(entry: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'f'; KEY_BYTES];
    key[..8].copy_from_slice(&(entry / ENTRIES_A_PARENT).to_be_bytes());
    let mut number = entry % ENTRIES_A_PARENT;
    for place in key[9..].iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
    key
}

impl Bare {
    /// Creates one below the given volume path, or below the temporary directory.
    pub(super) fn make(run: &Run<'_>, options: &EngineOptions) -> Result<Bare> {
        let create = |env: &Env| engine::create(chosen(run.args), env, options);
        Bare::make_with(run, Env::system, create)
    }

    /// The same, with the given functions to open the directory and to create the store.
    pub(super) fn make_with(
        run: &Run<'_>,
        reach: impl FnOnce(&Path) -> device::Result<Env>,
        create: impl FnOnce(&Env) -> Result<Arc<dyn Store>>,
    ) -> Result<Bare> {
        let below = run.args.volume.clone().unwrap_or_else(std::env::temp_dir);
        let path = below.join(format!("pando-bench-{}", std::process::id()));
        std::fs::DirBuilder::new()
            .mode(0o711)
            .create(&path)
            .map_err(|error| failure::io("create", &path, &error))?;
        let env = reach(&path).map_err(|error| failure::device(&path, &error))?;
        let mut bare = Bare { path, env, store: None };
        let made = create(&bare.env)?;
        let mut batch = Batch::new();
        batch.create_tree(TREE);
        made.commit(&batch).map_err(broken)?;
        bare.store = Some(made);
        Ok(bare)
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        self.store.as_ref().expect("invariant: a store stays open while it is measured")
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        self.env.clock.as_ref()
    }

    /// Puts a number of entries, in order, and takes a checkpoint.
    pub(super) fn load(&self, run: &Run<'_>, entries: u64) -> Result<()> {
        run.bar.set_message("loading");
        let mut batch = Batch::new();
        for entry in 0..entries {
            batch.put(TREE, &key(entry), &[entry as u8; VALUE_BYTES]);
            if entry % LOAD_AT_ONCE == LOAD_AT_ONCE - 1 || entry == entries - 1 {
                self.store().commit(&batch).map_err(broken)?;
                batch.clear();
                run.check()?;
            }
        }
        run.bar.set_message("");
        self.store().checkpoint().map_err(broken).map(|_| ())
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.store = None;
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "the benchmark's store stays");
        }
    }
}
