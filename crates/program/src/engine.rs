//! The engine that an option names.

use clap::ValueEnum;

/// An engine, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    /// Copy-on-write B-tree: reads and clones in constant time, whatever the history
    Btree,
    /// Log-structured: packed sorted runs, merged in the background
    Lsm,
}

impl From<EngineArg> for fs::Engine {
    fn from(engine: EngineArg) -> fs::Engine {
        match engine {
            EngineArg::Btree => fs::Engine::Btree,
            EngineArg::Lsm => fs::Engine::Lsm,
        }
    }
}
