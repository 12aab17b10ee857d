//! How a suite makes the stores that it tests.

use std::sync::Arc;

use device::Env;
use store::{Durability, Result, Store};

use crate::MemStore;

/// An engine, as a suite sees it.
pub trait EngineUnderTest: 'static {
    /// For messages.
    const NAME: &'static str;

    /// Makes a store on an empty medium, durable on return.
    fn create(env: &Env, durability: Durability) -> Result<Arc<dyn Store>>;

    /// Opens the store that is on the medium.
    fn open(env: &Env, durability: Durability) -> Result<Arc<dyn Store>>;
}

/// The oracle itself, which must pass what needs no medium.
#[derive(Debug, Clone, Copy)]
pub struct MemUnderTest;

impl EngineUnderTest for MemUnderTest {
    const NAME: &'static str = "memory";

    fn create(_env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(MemStore::with_durability(durability)))
    }

    fn open(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        // It keeps nothing, so there is nothing to open.
        MemUnderTest::create(env, durability)
    }
}

/// A store on a medium of its own.
pub(super) fn fresh<E: EngineUnderTest>(seed: u64) -> (crate::SimEnv, Arc<dyn Store>) {
    let sim = crate::sim_env(seed);
    let store = E::create(&sim.env(), Durability::Async).expect("a store is created");
    (sim, store)
}
