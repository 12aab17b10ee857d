//! Trees that were replaced, and that readers may still be in: they stay for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use policy::Governed;

/// How long a replaced tree stays for readers that were about to read it.
const GRACE: Duration = Duration::from_secs(2);

/// Trees that readers may still be in, and until when.
#[derive(Default)]
pub(super) struct Leaving(BTreeMap<u64, Duration>);

impl Leaving {
    /// Keeps a tree for readers for a while.
    pub(super) fn leave(&mut self, fs: &Governed, tree: u64) {
        self.0.insert(tree, fs.env.clock.monotonic() + GRACE);
    }

    /// Whether readers have had the time to leave a tree.
    pub(super) fn is_left(&self, tree: u64, now: Duration) -> bool {
        self.0.get(&tree).is_none_or(|&until| now >= until)
    }

    /// A tree is removed.
    pub(super) fn forget(&mut self, tree: u64) {
        self.0.remove(&tree);
    }
}
