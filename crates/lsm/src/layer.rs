//! Layers and stacks: what a tree is made of below its active in-memory tree.
//!
//! A layer is immutable: a frozen in-memory tree until a checkpoint has written it, the run that
//! was written from then on. Trees that were cloned share layers, and a clone shares the whole
//! stack. A layer hides what those behind it in a stack know of its keys and ranges.
//!
//! Invariants: what a layer says does not change when it moves from memory to the medium; a layer
//! that only one tree's stack holds, and nobody else, may be taken back by that tree (`tree`).

use std::sync::Arc;

use parking_lot::RwLock;
use store::Result;

use crate::mem::{Known, Mem};
use crate::ranges::Ranges;
use crate::run::{Hashed, Run};

/// The number of a layer; greater ones are younger. Numbers of runs on the medium are these.
pub(crate) type LayerId = u64;

/// One layer.
pub(crate) struct Layer {
    pub(crate) id: LayerId,
    /// The layers that it was merged from, newest first, or its own number. Two layers that have
    /// the same here say the same (`diff`).
    pub(crate) origin: Arc<[LayerId]>,
    place: RwLock<View>,
}

/// Where a layer's entries are.
#[derive(Clone)]
pub(crate) enum View {
    Memory(Arc<Mem>),
    Run(Arc<Run>),
}

impl Layer {
    pub(crate) fn memory(id: LayerId, mem: Mem) -> Layer {
        Layer { id, origin: Arc::from([id]), place: RwLock::new(View::Memory(Arc::new(mem))) }
    }

    pub(crate) fn run(id: LayerId, origin: Arc<[LayerId]>, run: Arc<Run>) -> Layer {
        Layer { id, origin, place: RwLock::new(View::Run(run)) }
    }

    /// Where its entries are now.
    #[inline]
    pub(crate) fn view(&self) -> View {
        self.place.read().clone()
    }

    /// The run, once it is on the medium.
    pub(crate) fn as_run(&self) -> Option<Arc<Run>> {
        match &*self.place.read() {
            View::Run(run) => Some(Arc::clone(run)),
            View::Memory(_) => None,
        }
    }

    /// The in-memory tree, while it is one.
    pub(crate) fn as_memory(&self) -> Option<Arc<Mem>> {
        match &*self.place.read() {
            View::Memory(mem) => Some(Arc::clone(mem)),
            View::Run(_) => None,
        }
    }

    /// The in-memory tree, if nobody else is reading it.
    pub(crate) fn memory_mut(&mut self) -> Option<&mut Mem> {
        match self.place.get_mut() {
            View::Memory(mem) => Arc::get_mut(mem),
            View::Run(_) => None,
        }
    }

    /// Takes on a new number: its content is about to change, which nobody else can see.
    pub(crate) fn renumber(&mut self, id: LayerId) {
        self.id = id;
        self.origin = Arc::from([id]);
    }

    /// Its entries are on the medium from now on.
    pub(crate) fn written(&self, run: Arc<Run>) {
        *self.place.write() = View::Run(run);
    }
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = match &*self.place.read() {
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
            View::Memory(mem) => Ok(&*mem.ranges),
            View::Run(run) => Ok(run.ranges()?),
        }
    }

    /// What it knows of a key; `found` is given the value.
    #[inline]
    fn get(&self, key: &mut Hashed<'_>, found: &mut dyn FnMut(&[u8])) -> Result<Known<()>> {
        match self {
            View::Memory(mem) => Ok(match mem.get(key.bytes) {
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

    /// The stack with other layers in the place of some that follow each other, if it has those.
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
        match layer.view().get(&mut key, found)? {
            Known::Nothing => {}
            known => return Ok(known),
        }
    }
    Ok(Known::Nothing)
}
