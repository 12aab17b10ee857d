//! The base tree: created once, stored with its facts, cloned for every run.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Device, DirectDevice, Env, Lock, SystemClock, SystemRandom, Thread};
use fs::Engine;
use serde::{Deserialize, Serialize};
use store::{Batch, EngineOptions, KeyRange, Store, TreeId};
use wire::{Failure, FailureKind};

use super::Run;
use crate::engine::{self, broken, checkpoint};
use program::failure::{self, Result};

/// The base tree.
const BASE: TreeId = TreeId(32);
/// The facts of the base tree, under one key.
const FACTS: TreeId = TreeId(33);
const FACTS_KEY: &[u8] = b"rodeh-base";
const FIRST_CLONE: u64 = 34;
/// Operations per commit while the base tree is created.
const A_BATCH: usize = 1000;
/// Cache size while it is created, and when all of it must be in memory.
const AMPLE_BYTES: usize = 4 << 30;
const NAP: Duration = Duration::from_millis(5);
const RECLAIM_NODES: usize = 1000;
const LOCK: &str = "rodeh.lock";

/// The facts of a base tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Facts {
    pub(super) entries: u64,
    pub(super) seed: u64,
    pub(super) leaves: u64,
    pub(super) interiors: u64,
    /// Bytes on disk.
    pub(super) disk_bytes: u64,
    /// Bytes in memory, when all of it is loaded.
    pub(super) memory_bytes: u64,
    /// The next clone's number.
    next: u64,
}

/// An open store with a base tree.
pub(super) struct Base {
    pub(super) facts: Facts,
    pub(super) path: PathBuf,
    pub(super) engine: Engine,
    pub(super) cache_bytes: usize,
    temporary: bool,
    device: Arc<DirectDevice>,
    store: Option<Arc<dyn Store>>,
    background: Option<Background>,
    lock: Option<Box<dyn Lock>>,
}

impl Base {
    /// Opens or creates a base tree with the requested entries and seed, and a cache for this
    /// percentage of it.
    pub(super) fn open(run: &Run<'_>, percent: u64) -> Result<Base> {
        let args = run.args;
        let temporary = args.volume.is_none();
        let path = args.volume.clone().unwrap_or_else(|| {
            std::env::temp_dir().join(format!("pando-rodeh-{}", std::process::id()))
        });
        std::fs::create_dir_all(&path).map_err(|error| failure::io("create", &path, &error))?;
        if path.join(format::volume::FILE).exists() {
            let message = format!("{} is a volume; name a directory of its own", path.display());
            return Err(Failure::new(FailureKind::Invalid, message));
        }
        let device = DirectDevice::open(&path).map_err(|error| failure::device(&path, &error))?;
        let mut base = Base {
            facts: Facts {
                entries: args.files,
                seed: args.rodeh.seed(),
                leaves: 0,
                interiors: 0,
                disk_bytes: 0,
                memory_bytes: 0,
                next: FIRST_CLONE,
            },
            engine: engine_of(&path, run)?,
            path,
            cache_bytes: AMPLE_BYTES,
            temporary,
            device: Arc::new(device),
            store: None,
            background: None,
            lock: None,
        };
        let lock = base.device.try_lock(LOCK);
        base.lock = lock.map_err(|error| failure::device(&base.path, &error))?;
        if base.lock.is_none() {
            // Not created here, so not removed.
            base.temporary = false;
            let message = format!("{} is in use by another process", base.path.display());
            return Err(Failure::new(FailureKind::Busy, message));
        }
        let fresh = !base.path.join(base.engine.name()).exists();
        base.start(run, fresh)?;
        if fresh {
            base.fill(run)?;
            // Nodes that grew in memory have slack; the size of loaded nodes counts.
            base.stop()?;
            base.start(run, false)?;
            base.learn()?;
        } else {
            base.recall(run)?;
        }
        base.stop()?;
        if percent < 100 {
            base.cache_bytes = (base.facts.memory_bytes / 100 * percent) as usize;
        }
        base.start(run, false)?;
        Ok(base)
    }

    fn start(&mut self, run: &Run<'_>, fresh: bool) -> Result<()> {
        let env = Env {
            device: Arc::clone(&self.device) as Arc<dyn Device>,
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom),
            objects: None,
        };
        let options = EngineOptions { cache_bytes: self.cache_bytes, ..engine::options(run.args) };
        let store = if fresh {
            engine::create(self.engine, &env, &options)?
        } else {
            engine::open(self.engine, &env, &options)?
        };
        self.background = Some(Background::start(&store)?);
        self.store = Some(store);
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        if let Some(background) = self.background.take() {
            background.end()?;
        }
        if let Some(store) = self.store.take() {
            store.close().map_err(broken)?;
        }
        Ok(())
    }

    pub(super) fn close(mut self) -> Result<()> {
        self.save()?;
        self.stop()
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.store.as_deref().expect("invariant: it is closed only between two openings")
    }

    /// Disk reads since it was opened.
    pub(super) fn reads(&self) -> u64 {
        self.device.reads()
    }

    /// Inserts the requested number of keys out of twice as many; then removes a quarter and
    /// inserts as many others.
    fn fill(&self, run: &Run<'_>) -> Result<()> {
        run.bar.set_message("making the base tree");
        let entries = self.facts.entries as usize;
        let mut order: Vec<u64> = (0..2 * self.facts.entries).collect();
        fastrand::Rng::with_seed(self.facts.seed).shuffle(&mut order);
        let mut batch = Batch::new();
        batch.create_tree(BASE);
        batch.create_tree(FACTS);
        for (at, number) in order[..entries + entries / 4].iter().enumerate() {
            batch.put(BASE, &number.to_be_bytes(), &number.to_le_bytes());
            if at >= entries {
                batch.delete(BASE, &order[at - entries].to_be_bytes());
            }
            if batch.len() >= A_BATCH {
                self.commit(&batch)?;
                batch.clear();
                run.check()?;
            }
        }
        self.commit(&batch)?;
        checkpoint(self.store(), &SystemClock::new())?;
        run.bar.set_message("");
        Ok(())
    }

    /// Measures its size, and stores the result.
    fn learn(&mut self) -> Result<()> {
        let mut proceed = |_, _| ControlFlow::Continue(());
        let report = self.store().check(&mut proceed).map_err(broken)?;
        if !report.is_clean() {
            let message = format!("the base tree is damaged: {:?}", report.findings);
            return Err(Failure::new(FailureKind::Damaged, message));
        }
        self.load(BASE)?;
        self.facts.leaves = report.leaves;
        self.facts.interiors = report.interiors;
        self.facts.disk_bytes = match self.engine {
            Engine::Btree => report.units * format::node::UNIT_BYTES as u64,
            Engine::Lsm => self.store().stats().disk_bytes,
        };
        self.facts.memory_bytes = self.store().stats().cache_bytes;
        self.save()
    }

    /// Loads the stored facts, and removes clones that an interrupted run left.
    fn recall(&mut self, run: &Run<'_>) -> Result<()> {
        let text = self.store().get(FACTS, FACTS_KEY).map_err(broken)?;
        let found: Option<Facts> = text.and_then(|text| serde_json::from_slice(&text).ok());
        let (entries, seed) = (run.args.files, run.args.rodeh.seed());
        let Some(found) = found else {
            let message = format!("{} holds an unfinished base tree", self.path.display());
            return Err(Failure::new(FailureKind::Invalid, message).hint("remove it"));
        };
        if (found.entries, found.seed) != (entries, seed) {
            let message = format!(
                "{} holds a base tree of {} entries with seed {}",
                self.path.display(),
                found.entries,
                found.seed
            );
            return Err(Failure::new(FailureKind::Invalid, message)
                .hint("name another directory, or the same numbers"));
        }
        for clone in (FIRST_CLONE..found.next).map(TreeId) {
            if self.store().tree_exists(clone).map_err(broken)? {
                self.drop_clones(&[clone])?;
            }
        }
        self.facts = found;
        Ok(())
    }

    fn save(&self) -> Result<()> {
        let text = serde_json::to_vec(&self.facts).expect("invariant: numbers can be written");
        let mut batch = Batch::new();
        batch.put(FACTS, FACTS_KEY, &text);
        self.commit(&batch)
    }

    /// Loads a whole tree into memory, as far as it fits.
    pub(super) fn load(&self, tree: TreeId) -> Result<()> {
        let scanned = self.store().scan(tree, KeyRange::all()).and_then(|mut cursor| {
            while cursor.next()?.is_some() {}
            Ok(())
        });
        scanned.map_err(broken)
    }

    pub(super) fn clone_base(&mut self, count: u64) -> Result<Vec<TreeId>> {
        let first = self.facts.next;
        self.facts.next += count;
        // Before the clones: a number is never used twice.
        self.save()?;
        let mut batch = Batch::new();
        let clones: Vec<TreeId> = (first..first + count).map(TreeId).collect();
        for clone in &clones {
            batch.clone_tree(BASE, *clone);
        }
        self.commit(&batch)?;
        Ok(clones)
    }

    pub(super) fn drop_clones(&self, clones: &[TreeId]) -> Result<()> {
        let mut batch = Batch::new();
        for clone in clones {
            batch.drop_tree(*clone);
        }
        self.commit(&batch)?;
        let store = self.store();
        while store.reclaim_step(RECLAIM_NODES).map_err(broken)? {}
        checkpoint(store, &SystemClock::new())
    }

    fn commit(&self, batch: &Batch) -> Result<()> {
        self.store().commit(batch).map_err(broken)?;
        Ok(())
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        if let Some(background) = self.background.take()
            && let Err(failure) = background.end()
        {
            tracing::warn!(%failure, "background work ended badly");
        }
        self.store = None;
        if self.temporary {
            remove(&self.path);
        }
    }
}

/// The engine of the base tree in a directory, or else the requested one.
fn engine_of(path: &Path, run: &Run<'_>) -> Result<Engine> {
    let asked = run.args.engine.map(Engine::from);
    let held = Engine::ALL.into_iter().find(|engine| path.join(engine.name()).exists());
    match (held, asked) {
        (Some(held), Some(asked)) if held != asked => Err(engine::other_engine(path, held)),
        (Some(held), _) => Ok(held),
        (None, _) => Ok(engine::chosen(run.args)),
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_dir_all(path) {
        tracing::warn!(%error, path = %path.display(), "the base tree stays");
    }
}

/// The work of a volume's daemon: one thread keeps the log's interval, another takes checkpoints.
struct Background {
    ending: Arc<AtomicBool>,
    threads: Vec<Thread<store::Result<()>>>,
}

impl Background {
    fn start(store: &Arc<dyn Store>) -> Result<Background> {
        let ending = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (name, work) in [("log", flush as fn(&dyn Store) -> _), ("checkpoint", write)] {
            let (store, ending) = (Arc::clone(store), Arc::clone(&ending));
            let thread = device::spawn(name, move || {
                while !ending.load(Ordering::Relaxed) {
                    work(&*store)?;
                    #[expect(clippy::disallowed_methods, reason = "the store wakes it")]
                    std::thread::park_timeout(NAP);
                }
                Ok(())
            });
            threads.push(thread.map_err(|error| {
                Failure::new(FailureKind::Other, format!("cannot start a thread: {error}"))
            })?);
        }
        let checkpoints = threads.last().map(|thread| thread.thread().clone());
        store.set_waker(Arc::new(move || checkpoints.iter().for_each(std::thread::Thread::unpark)));
        Ok(Background { ending, threads })
    }

    fn end(self) -> Result<()> {
        self.ending.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended.map_err(broken)?;
        }
        Ok(())
    }
}

fn flush(store: &dyn Store) -> store::Result<()> {
    store.flush_if_due().map(|_| ())
}

fn write(store: &dyn Store) -> store::Result<()> {
    if store.checkpoint_due() {
        store.checkpoint()?;
    }
    Ok(())
}
