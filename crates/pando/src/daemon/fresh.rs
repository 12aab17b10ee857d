//! A fresh volume in memory, for tests of what the daemon does with one.

use std::sync::Arc;

use fs::{Engine, FileSystem, FormatOptions, Fs, OpenOptions, Volume};
use inode::{Caller, FsError, NodeId};
use testing::{MemStore, SimEnv, sim_env};

pub(super) fn volume() -> Volume {
    volume_on(Arc::new(MemStore::new()))
}

/// The same with an engine, on a simulated disk that the test has.
pub(super) fn volume_of(engine: Engine, env: &SimEnv) -> Volume {
    let options = FormatOptions { engine, ..FormatOptions::default() };
    Fs::format(&env.env(), &options).unwrap();
    Fs::open(env.env(), &OpenOptions::default()).unwrap().with_virtual_dirs()
}

/// The same over a store that the test keeps, to have its reads fail.
pub(super) fn volume_on(store: Arc<MemStore>) -> Volume {
    let env = sim_env(3);
    let header = Fs::format_on(&env.env(), &*store, &FormatOptions::default()).unwrap();
    let opened = Fs::open_on(env.env(), store, header, &OpenOptions::default());
    opened.unwrap().with_virtual_dirs()
}

/// Fills the disk of a volume with names, until what the volume has in reserve is used up.
pub(super) fn fill(fs: &Volume, env: &SimEnv) {
    env.device.set_capacity(Some(env.device.used_bytes()));
    for number in 0..100_000_u32 {
        let name = format!("{number:0200}");
        match fs.mkdir(&Caller::root(), NodeId::ROOT, name.as_bytes(), 0o755) {
            Ok(made) => fs.forget(made.node, 1),
            Err(error) => {
                assert!(matches!(error, FsError::NoSpace), "{error}");
                return;
            }
        }
        if number % 256 == 0 && fs.sync().is_err() {
            return;
        }
    }
}
