//! Whether sessions of clients outlive the servers that they began at.
//!
//! A single one may end. Its client, its server or the store may have been out of reach for longer
//! than a server waits for earlier sessions. Most do not, so they are counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::World;

/// Sessions of all clients of a run.
#[derive(Default)]
pub(crate) struct Survivals {
    kept: AtomicU64,
    ended: AtomicU64,
}

impl Survivals {
    /// What is wrong with them: one that ends is possible, but not that most do.
    pub(crate) fn fault(&self) -> Option<String> {
        let (kept, ended) = self.counts();
        (ended > 2 && ended > kept)
            .then(|| format!("servers continue {kept} sessions of others, and {ended} not"))
    }

    /// How many were continued at another server, and how many were not.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.kept.load(Ordering::Relaxed), self.ended.load(Ordering::Relaxed))
    }
}

/// The sessions of one client.
pub(crate) struct Sessions<'a> {
    /// `None`: it has none, and calls the volume itself.
    world: Option<&'a World>,
    all: &'a Survivals,
    /// How many times a server had begun to serve when one last answered.
    seen: u64,
}

impl<'a> Sessions<'a> {
    pub(crate) fn new(world: Option<&'a World>, all: &'a Survivals) -> Sessions<'a> {
        Sessions { world, all, seen: world.map_or(0, World::openings) }
    }

    /// How many times a server began to serve.
    pub(crate) fn openings(&self) -> u64 {
        self.world.map_or(0, World::openings)
    }

    fn outlive_servers(&self) -> bool {
        self.world.is_some_and(|world| world.lasting)
    }

    /// A call was answered in the session of the call before it. `openings` were before it.
    pub(crate) fn answered(&mut self, openings: u64) {
        if openings > self.seen && openings == self.openings() {
            self.seen = openings;
            self.all.kept.fetch_add(u64::from(self.outlive_servers()), Ordering::Relaxed);
        }
    }

    /// The session has ended, and another one begun.
    pub(crate) fn ended(&mut self) {
        self.seen = self.openings();
        self.all.ended.fetch_add(u64::from(self.outlive_servers()), Ordering::Relaxed);
    }
}
