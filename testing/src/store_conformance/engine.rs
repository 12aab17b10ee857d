//! How a suite creates the stores that it tests.

use std::borrow::Cow;
use std::sync::Arc;

use store::{Durability, EngineOptions, Result, Store};

use crate::{MemStore, SimEnv, run};

/// How a suite gets a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// It creates one on an empty disk.
    Create,
    /// It opens the one that is on disk.
    Open,
}

/// An engine under test.
pub trait EngineUnderTest: 'static {
    /// For messages.
    const NAME: &'static str;

    /// Creates or opens a store, with log segments of so many bytes if the suite gives a number and
    /// the engine supports that.
    fn begin(
        sim: &SimEnv,
        durability: Durability,
        how: Begin,
        log_segment_bytes: Option<u64>,
    ) -> Result<Arc<dyn Store>>;

    /// Creates a store on an empty disk, durable on return.
    fn create(sim: &SimEnv, durability: Durability) -> Result<Arc<dyn Store>> {
        Self::begin(sim, durability, Begin::Create, None)
    }

    /// Opens the store that is on disk.
    fn open(sim: &SimEnv, durability: Durability) -> Result<Arc<dyn Store>> {
        Self::begin(sim, durability, Begin::Open, None)
    }

    /// Divisor for the length of runs, and factor for the distance between checked places: 1,
    /// except for an engine where each read is a request.
    const SPARED: u64 = 1;

    /// The same in the short form alone, for seeds and places: 1, except for an engine of which
    /// another layout has the suite already. With `PANDO_SLOW` every layout has the whole suite.
    const SPARED_SHORT: u64 = 1;

    /// The divisor of seeds and places.
    fn spared() -> u64 {
        if run::slow() { Self::SPARED } else { Self::SPARED * Self::SPARED_SHORT }
    }

    /// How errors name a file of the disk.
    fn named(path: &str) -> Cow<'_, str> {
        Cow::Borrowed(path)
    }

    /// Like [`run::rounds`], with fewer of them if the engine is spared.
    fn rounds(quick: u64, thorough: u64) -> u64 {
        (run::rounds(quick, thorough) / Self::SPARED).max(1)
    }

    /// The same for places, or for what is as long as all of a run.
    fn places(quick: u64, thorough: u64) -> u64 {
        (run::rounds(quick, thorough) / Self::spared()).max(1)
    }

    /// The distance between checked places.
    fn stride(quick: u64, thorough: u64) -> u64 {
        run::rounds(quick, thorough) * Self::spared()
    }

    /// Like [`run::for_seeds`], with fewer of them if the engine is spared.
    fn for_seeds(name: &str, quick: u64, thorough: u64, body: impl Fn(u64)) {
        let seeds = |count: u64| (count / Self::spared()).max(1);
        run::for_seeds(name, seeds(quick), seeds(thorough), body);
    }

    /// Like [`EngineUnderTest::create`], with log segments of so many bytes, if the suite's engine
    /// supports that.
    fn create_with_segments(
        sim: &SimEnv,
        durability: Durability,
        log_segment_bytes: u64,
    ) -> Result<Arc<dyn Store>> {
        Self::begin(sim, durability, Begin::Create, Some(log_segment_bytes))
    }

    /// Like [`EngineUnderTest::open`], in the same way.
    fn open_with_segments(
        sim: &SimEnv,
        durability: Durability,
        log_segment_bytes: u64,
    ) -> Result<Arc<dyn Store>> {
        Self::begin(sim, durability, Begin::Open, Some(log_segment_bytes))
    }
}

/// Options of an engine so small that cache, log and checkpoints are all exercised.
pub fn small(durability: Durability) -> EngineOptions {
    EngineOptions {
        volume: [7; 16],
        cache_bytes: 4 << 20,
        durability,
        log_segment_bytes: 256 << 10,
        checkpoint_bytes: 1 << 20,
        ..EngineOptions::default()
    }
}

/// Declares how a suite creates stores of a type that has `create` and `open`. The options come
/// from a function of the durability; the type may have its `SPARED_SHORT`.
#[macro_export]
macro_rules! engine_under_test {
    ($name:ident, $what:literal, $store:ty, $options:path) => {
        $crate::engine_under_test!($name, $what, $store, $options, spared: 1);
    };
    ($name:ident, $what:literal, $store:ty, $options:path, spared: $spared:literal) => {
        struct $name;

        impl $crate::store_conformance::EngineUnderTest for $name {
            const NAME: &'static str = $what;
            const SPARED_SHORT: u64 = $spared;

            $crate::engine_begins!($store, |_: &$crate::SimEnv, durability| $options(durability));
        }
    };
}

/// The function `begin` of an engine that has `create` and `open`, with the options from a function
/// of the environment and the durability.
#[macro_export]
macro_rules! engine_begins {
    ($store:ty, $options:expr) => {
        fn begin(
            sim: &$crate::SimEnv,
            durability: ::store::Durability,
            how: $crate::store_conformance::Begin,
            log_segment_bytes: Option<u64>,
        ) -> ::store::Result<::std::sync::Arc<dyn ::store::Store>> {
            let mut options = $options(sim, durability);
            if let Some(bytes) = log_segment_bytes {
                options.common.log_segment_bytes = bytes;
            }
            match how {
                $crate::store_conformance::Begin::Create => {
                    Ok(<$store>::create(&sim.env(), &options)?)
                }
                $crate::store_conformance::Begin::Open => Ok(<$store>::open(&sim.env(), &options)?),
            }
        }
    };
}

/// The oracle itself, which must pass the tests without a disk.
#[derive(Debug, Clone, Copy)]
pub struct MemUnderTest;

impl EngineUnderTest for MemUnderTest {
    const NAME: &'static str = "memory";

    /// It keeps nothing, so there is nothing to open.
    fn begin(
        _sim: &SimEnv,
        durability: Durability,
        _how: Begin,
        _log_segment_bytes: Option<u64>,
    ) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(MemStore::with_durability(durability)))
    }
}

/// A store on its own disk.
pub(super) fn fresh<E: EngineUnderTest>(seed: u64) -> (SimEnv, Arc<dyn Store>) {
    let sim = crate::sim_env(seed);
    let store = E::create(&sim, Durability::Async).expect("a store is created");
    (sim, store)
}
