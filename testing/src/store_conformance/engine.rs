//! How a suite makes the stores that it tests.

use std::sync::Arc;

use device::Env;
use store::{Durability, EngineOptions, Result, Store};

use crate::{CrashPolicy, MemStore, SimDevice};

/// An engine, as a suite sees it.
pub trait EngineUnderTest: 'static {
    /// For messages.
    const NAME: &'static str;

    /// Makes a store on an empty medium, durable on return.
    fn create(env: &Env, durability: Durability) -> Result<Arc<dyn Store>>;

    /// Opens the store that is on the medium.
    fn open(env: &Env, durability: Durability) -> Result<Arc<dyn Store>>;

    /// As [`EngineUnderTest::create`], with log segments of so many bytes, where a suite's engine
    /// lets that be said.
    fn create_with_segments(
        env: &Env,
        durability: Durability,
        _log_segment_bytes: u64,
    ) -> Result<Arc<dyn Store>> {
        Self::create(env, durability)
    }

    /// As [`EngineUnderTest::open`], in the same way.
    fn open_with_segments(
        env: &Env,
        durability: Durability,
        _log_segment_bytes: u64,
    ) -> Result<Arc<dyn Store>> {
        Self::open(env, durability)
    }

    /// What a power cut now leaves of a medium, while the store goes on being written. An engine
    /// that has a part of its state elsewhere keeps that part as it is at the same moment.
    fn cut(device: &SimDevice, policy: CrashPolicy, seed: u64) -> SimDevice {
        device.after_crash(policy, seed)
    }
}

/// Options of an engine so small that cache, log and checkpoints all come into play.
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

/// Declares how a suite makes stores of a type that has `create` and `open`, with the options that
/// a function of the durability answers.
#[macro_export]
macro_rules! engine_under_test {
    ($name:ident, $what:literal, $store:ty, $options:path) => {
        struct $name;

        impl $crate::store_conformance::EngineUnderTest for $name {
            const NAME: &'static str = $what;

            fn create(
                env: &::device::Env,
                durability: ::store::Durability,
            ) -> ::store::Result<::std::sync::Arc<dyn ::store::Store>> {
                Ok(<$store>::create(env, &$options(durability))?)
            }

            fn open(
                env: &::device::Env,
                durability: ::store::Durability,
            ) -> ::store::Result<::std::sync::Arc<dyn ::store::Store>> {
                Ok(<$store>::open(env, &$options(durability))?)
            }

            fn create_with_segments(
                env: &::device::Env,
                durability: ::store::Durability,
                log_segment_bytes: u64,
            ) -> ::store::Result<::std::sync::Arc<dyn ::store::Store>> {
                let mut options = $options(durability);
                options.common.log_segment_bytes = log_segment_bytes;
                Ok(<$store>::create(env, &options)?)
            }

            fn open_with_segments(
                env: &::device::Env,
                durability: ::store::Durability,
                log_segment_bytes: u64,
            ) -> ::store::Result<::std::sync::Arc<dyn ::store::Store>> {
                let mut options = $options(durability);
                options.common.log_segment_bytes = log_segment_bytes;
                Ok(<$store>::open(env, &options)?)
            }
        }
    };
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
