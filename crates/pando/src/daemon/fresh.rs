//! A fresh volume in memory, for tests of what the daemon does with one.

use std::sync::Arc;

use fs::{FormatOptions, Fs, OpenOptions, Volume};
use testing::{MemStore, sim_env};

pub(super) fn volume() -> Volume {
    volume_on(Arc::new(MemStore::new()))
}

/// The same over a store that the test keeps, to have its reads fail.
pub(super) fn volume_on(store: Arc<MemStore>) -> Volume {
    let env = sim_env(3);
    let header = Fs::format_on(&env.env(), &*store, &FormatOptions::default()).unwrap();
    let opened = Fs::open_on(env.env(), store, header, &OpenOptions::default());
    opened.unwrap().with_virtual_dirs()
}
