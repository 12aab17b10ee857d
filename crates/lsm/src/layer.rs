//! Layers and stacks: what a tree is made of below its active in-memory tree.
//!
//! A layer is immutable: a frozen in-memory tree until a checkpoint has written it, and the written
//! run from then on. Cloned trees share layers, and a clone shares the whole stack. A layer hides
//! entries of its keys and ranges in the layers below it.
//!
//! Invariants: the content of a layer does not change when it moves from memory to disk. A tree may
//! take back a layer that only its own stack holds (`tree`).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use device::sync::RwLock;
use store::{Result, TreeId};

use crate::mem::{Known, Mem};
use crate::ranges::Ranges;
use crate::run::{Hashed, Run};

/// The number of a layer; greater ones are younger. Numbers of runs on disk are these.
pub(crate) type LayerId = u64;

/// The trees of a state.
pub(crate) type Catalog = BTreeMap<TreeId, Arc<Stack>>;

/// One layer.
pub(crate) struct Layer {
    pub(crate) id: LayerId,
    /// The layers that it was merged from, newest first, or its own number. Two layers with the
    /// same origin are equivalent (`diff`).
    pub(crate) origin: Arc<[LayerId]>,
    /// The in-memory tree, until there is a run.
    memory: RwLock<Option<Arc<Mem>>>,
    /// Set once, so that look-ups need no reference counting.
    run: OnceLock<Arc<Run>>,
}

/// Where a layer's entries are.
#[derive(Clone)]
pub(crate) enum View {
    Memory(Arc<Mem>),
    Run(Arc<Run>),
}

impl Layer {
    pub(crate) fn memory(id: LayerId, mem: Mem) -> Layer {
        let memory = RwLock::new(Some(Arc::new(mem)));
        Layer { id, origin: Arc::from([id]), memory, run: OnceLock::new() }
    }

    /// The layer equivalent to those that have this origin together.
    pub(crate) fn merged(id: LayerId, origin: Arc<[LayerId]>, mem: Mem) -> Layer {
        Layer { origin, ..Layer::memory(id, mem) }
    }

    pub(crate) fn run(id: LayerId, origin: Arc<[LayerId]>, run: Arc<Run>) -> Layer {
        Layer { id, origin, memory: RwLock::new(None), run: OnceLock::from(run) }
    }

    /// What it knows of a key; `found` receives the value.
    #[inline]
    fn get(&self, key: &mut Hashed<'_>, found: &mut dyn FnMut(&[u8])) -> Result<Known<()>> {
        match self.run.get() {
            Some(run) => run.get(key, found),
            None => self.view().get(key, found),
        }
    }

    /// Where its entries are now.
    #[inline]
    pub(crate) fn view(&self) -> View {
        if let Some(run) = self.run.get() {
            return View::Run(Arc::clone(run));
        }
        match &*self.memory.read() {
            Some(mem) => View::Memory(Arc::clone(mem)),
            None => View::Run(self.as_run().expect("invariant: a layer is somewhere")),
        }
    }

    /// The run, once it is on disk.
    pub(crate) fn as_run(&self) -> Option<Arc<Run>> {
        self.run.get().cloned()
    }

    /// The run of a layer of the catalog.
    pub(crate) fn durable_run(&self) -> &Run {
        self.run.get().expect("invariant: all layers of the catalog are on disk")
    }

    /// Whether its entries are only in memory.
    pub(crate) fn in_memory(&self) -> bool {
        self.run.get().is_none()
    }

    /// The in-memory tree, while it is one.
    pub(crate) fn as_memory(&self) -> Option<Arc<Mem>> {
        self.memory.read().clone()
    }

    /// The in-memory tree, if no other thread is reading it.
    pub(crate) fn memory_mut(&mut self) -> Option<&mut Mem> {
        self.memory.get_mut().as_mut().and_then(Arc::get_mut)
    }

    /// Takes a new number: its content is about to change, which nothing else can see.
    pub(crate) fn renumber(&mut self, id: LayerId) {
        self.id = id;
        self.origin = Arc::from([id]);
    }

    /// Its entries are on disk from now on.
    pub(crate) fn written(&self, run: Arc<Run>) {
        assert!(self.run.set(run).is_ok(), "a layer is written once");
        let memory = self.memory.write().take();
        // Without the lock: freeing a large tree takes too long for other threads to wait.
        drop(memory);
    }
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = match self.view() {
            View::Memory(mem) => format!("{} bytes in memory", mem.bytes()),
            View::Run(run) => format!("run of {} entries", run.entry.entries),
        };
        write!(f, "Layer({}, {place})", self.id)
    }
}

impl View {
    /// What it deletes from the layers below.
    pub(crate) fn ranges(&self) -> Result<&Ranges> {
        match self {
            View::Memory(mem) => Ok(&mem.ranges),
            View::Run(run) => Ok(run.ranges()?),
        }
    }

    /// What it knows of a key; `found` receives the value.
    fn get(&self, key: &mut Hashed<'_>, found: &mut dyn FnMut(&[u8])) -> Result<Known<()>> {
        match self {
            View::Memory(mem) => Ok(match mem.get(key.bytes)? {
                Known::Value(value) => {
                    found(value);
                    Known::Value(())
                }
                Known::Deleted => Known::Deleted,
                Known::Nothing => Known::Nothing,
            }),
            View::Run(run) => run.get(key, found),
        }
    }
}

/// Layers, newest first.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    pub(crate) layers: Vec<Arc<Layer>>,
}

impl Stack {
    /// What the layers know of a key.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<Known<()>> {
        look_up(&self.layers, key, found)
    }

    /// The stack with other layers in place of adjacent ones, if it has those.
    pub(crate) fn replaced(&self, old: &[Arc<Layer>], new: Option<&Arc<Layer>>) -> Option<Stack> {
        let first = old.first()?;
        let at = self.layers.iter().position(|layer| Arc::ptr_eq(layer, first))?;
        let same = self.layers.get(at..at + old.len())?;
        if !same.iter().zip(old).all(|(layer, old)| Arc::ptr_eq(layer, old)) {
            return None;
        }
        let mut layers = self.layers[..at].to_vec();
        layers.extend(new.cloned());
        layers.extend_from_slice(&self.layers[at + old.len()..]);
        Some(Stack { layers })
    }
}

/// What layers, newest first, know of a key.
pub(crate) fn look_up(
    layers: &[Arc<Layer>],
    key: &[u8],
    found: &mut dyn FnMut(&[u8]),
) -> Result<Known<()>> {
    let mut key = Hashed::new(key);
    for layer in layers {
        match layer.get(&mut key, found)? {
            Known::Nothing => {}
            known => return Ok(known),
        }
    }
    Ok(Known::Nothing)
}
