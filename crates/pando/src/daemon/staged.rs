//! What work under way has staged and will remove. That is the hidden directories that imports
//! fill, one import each, the snapshots of dumps, and the holds of streams.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use device::Clock;
use device::sync::Mutex;
use inode::{NodeId, SubvolId};
use wire::{Failure, FailureKind};

use super::shares::Shares;

/// How long an import or a stream waits for one to the same place whose command has ended.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// How often it looks.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// What imports, dumps and streams that are under way have staged, and what imports and exports
/// remember.
pub(super) struct Staged {
    claimed: Mutex<Vec<Destination>>,
    dumps: Mutex<BTreeSet<u64>>,
    holds: Mutex<Vec<StreamHold>>,
    cut: Mutex<Vec<CutStream>>,
    links: Shares,
    held: Shares,
}

/// A hold that streams under way rely on.
pub(super) struct StreamHold {
    pub(super) snapshot: SubvolId,
    pub(super) name: Vec<u8>,
    /// How many streams do.
    pub(super) streams: usize,
    /// Whether one of them set it, and none needs it any longer than that: the last one releases
    /// it.
    pub(super) release: bool,
}

/// An increment that was cut, and whose snapshot a stream holds so that it can continue.
#[derive(PartialEq, Eq)]
pub(super) struct CutStream {
    pub(super) base: SubvolId,
    pub(super) snapshot: SubvolId,
    pub(super) name: Vec<u8>,
}

/// A directory that an import fills, with an empty name; or the directory and the name of what a
/// stream makes.
type Destination = (NodeId, Vec<u8>);

/// A place that no other import or stream fills; dropping it ends that.
pub(super) struct Claim {
    staged: Arc<Staged>,
    destination: Destination,
}

impl Default for Staged {
    fn default() -> Staged {
        Staged {
            claimed: Mutex::default(),
            dumps: Mutex::default(),
            holds: Mutex::default(),
            cut: Mutex::default(),
            links: Shares::of_exports(),
            held: Shares::of_imports(),
        }
    }
}

impl Staged {
    /// Claims the place at a path for an import or a stream.
    pub(super) fn claim_for(
        self: &Arc<Staged>,
        (what, path): (&str, &[u8]),
        place: (NodeId, &[u8]),
        clock: &dyn Clock,
    ) -> Result<Claim, Failure> {
        self.claim_patiently(place, clock).ok_or_else(|| {
            let message = format!("another {what} to this destination is under way");
            let hint = "wait until it ends; `pando session list VOLUME` shows it";
            Failure::new(FailureKind::Busy, message).at(path).hint(hint)
        })
    }

    /// Claims a place; `None`: another import or stream has it. One whose command has ended is
    /// awaited: its connection may not be closed yet here, and the next command is right to begin.
    fn claim_patiently(
        self: &Arc<Staged>,
        place: (NodeId, &[u8]),
        clock: &dyn Clock,
    ) -> Option<Claim> {
        let until = clock.monotonic() + ENDS_WITHIN;
        loop {
            let claim = self.claim(place);
            if claim.is_some() || clock.monotonic() >= until {
                return claim;
            }
            clock.sleep(ASK_AGAIN);
        }
    }

    fn claim(self: &Arc<Staged>, (node, name): (NodeId, &[u8])) -> Option<Claim> {
        let mut claimed = self.claimed.lock();
        let place = (node, name.to_vec());
        if claimed.contains(&place) {
            return None;
        }
        claimed.push(place.clone());
        Some(Claim { staged: Arc::clone(self), destination: place })
    }

    /// The numbers in the names of the snapshots of dumps that are under way.
    pub(super) fn dumps(&self) -> &Mutex<BTreeSet<u64>> {
        &self.dumps
    }

    /// What exports under way remember of files with several names.
    pub(super) fn links(&self) -> &Shares {
        &self.links
    }

    /// The files that imports under way hold because more names of them may follow.
    pub(super) fn held(&self) -> &Shares {
        &self.held
    }

    /// The holds of the streams that are under way.
    pub(super) fn holds(&self) -> &Mutex<Vec<StreamHold>> {
        &self.holds
    }

    /// The increments that were cut since the daemon began. Locked after [`holds`](Self::holds).
    pub(super) fn cut(&self) -> &Mutex<Vec<CutStream>> {
        &self.cut
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.staged.claimed.lock().retain(|place| *place != self.destination);
    }
}

#[cfg(test)]
mod tests {
    use device::Timestamp;
    use testing::SimClock;

    use super::*;

    /// A clock on which the import before ends while the next one sleeps.
    #[derive(Default)]
    struct EndsMeanwhile(SimClock, Mutex<Option<Claim>>);

    impl Clock for EndsMeanwhile {
        fn now(&self) -> Timestamp {
            self.0.now()
        }

        fn monotonic(&self) -> Duration {
            self.0.monotonic()
        }

        fn sleep(&self, duration: Duration) {
            drop(self.1.lock().take());
            self.0.sleep(duration);
        }
    }

    /// Regression: an import that followed one that had failed was refused, because the connection
    /// of that one was not closed yet. A stream used the stage of the one before.
    #[test]
    fn an_import_that_is_ending_is_awaited() {
        let (staged, clock) = (Arc::new(Staged::default()), EndsMeanwhile::default());
        let place = (NodeId::ROOT, &b"d"[..]);
        let first = staged.claim_patiently(place, &clock).expect("nobody has it");
        let refused = staged.claim_for(("import", b"/d"), place, &clock).err().expect("it has not");
        assert_eq!((refused.kind, &refused.path.0[..]), (FailureKind::Busy, &b"/d"[..]));
        assert_eq!(refused.message, "another import to this destination is under way");
        *clock.1.lock() = Some(first);
        assert!(staged.claim_patiently(place, &clock).is_some(), "it has ended");
    }
}
