//! Bare stores of either engine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use device::{Clock, Env};
use fs::Engine;
use store::{Durability, EngineOptions, Store};
use wire::{Failure, FailureKind};

use crate::cli::{BenchArgs, DurabilityArg};
use program::failure::Result;

/// The requested engine.
pub(super) fn chosen(args: &BenchArgs) -> Engine {
    args.engine.map(Engine::from).unwrap_or_default()
}

/// The requested durability.
pub(super) fn durability(args: &BenchArgs) -> Durability {
    match args.durability {
        DurabilityArg::Sync => Durability::Sync,
        DurabilityArg::Async => Durability::Async,
    }
}

/// An error of the store under test.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err calls")]
pub(super) fn broken(error: store::Error) -> Failure {
    Failure::new(FailureKind::Other, format!("the store under test: {error}"))
}

/// Default options of a bare store.
pub(super) fn options(args: &BenchArgs) -> EngineOptions {
    EngineOptions { durability: durability(args), ..EngineOptions::default() }
}

fn btree(common: &EngineOptions) -> btree::Options {
    btree::Options { common: common.clone(), ..btree::Options::default() }
}

/// Default options of the log-structured engine in a volume.
pub(super) fn lsm_options() -> lsm::Options {
    let prefix_bytes = format::key::DIRECTORY_PREFIX_BYTES;
    lsm::Options { prefix_bytes, ..lsm::Options::default() }
}

fn lsm(common: &EngineOptions) -> lsm::Options {
    lsm::Options { common: common.clone(), ..lsm_options() }
}

/// Creates an empty store.
pub(super) fn create(engine: Engine, env: &Env, common: &EngineOptions) -> Result<Arc<dyn Store>> {
    Ok(match engine {
        Engine::Btree => btree::BtreeStore::create(env, &btree(common)).map_err(broken)?,
        Engine::Lsm => lsm::LsmStore::create(env, &lsm(common)).map_err(broken)?,
    })
}

/// Opens an existing store.
pub(super) fn open(engine: Engine, env: &Env, common: &EngineOptions) -> Result<Arc<dyn Store>> {
    Ok(match engine {
        Engine::Btree => btree::BtreeStore::open(env, &btree(common)).map_err(broken)?,
        Engine::Lsm => lsm::LsmStore::open(env, &lsm(common)).map_err(broken)?,
    })
}

/// Takes a checkpoint, also when another thread has one under way that began earlier.
pub(super) fn checkpoint(store: &dyn Store, clock: &dyn Clock) -> Result<()> {
    while !store.checkpoint().map_err(broken)? {
        clock.sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The error when a directory has a store of a different engine from the requested one.
pub(super) fn other_engine(path: &Path, held: Engine) -> Failure {
    let message = format!("{} holds a store of the engine {}", path.display(), held.name());
    Failure::new(FailureKind::Invalid, message).hint("name another directory, or that engine")
}
