//! The volume's own records, which are stored twice (decision 0079). They are in the volume's own
//! tree, and in a second one with separate nodes, runs and blocks.
//!
//! Everything that reads or changes them - the namespace, data, searches, checks - uses a store. So
//! one layer over the engine's store handles both trees:
//!
//! * `mirrored`: a commit that changes a record that has a copy changes both, in one batch, so that
//!   no crash separates them.
//! * `read`: damage in the volume's own tree is answered from the copy. That is noted, logged and
//!   reported by `status` (`noted`), although nothing was lost.
//! * `complete`: a volume without copies gets them. The counter of the root records that they
//!   exist; without that the second tree is not used.
//! * `renew`: a repair rebuilds the damaged one of both from the other, without following it.

mod mirrored;
mod read;
mod renew;
mod complete;
mod noted;

use std::sync::Arc;

use format::kept_twice::{COPY_TREE, RootCounter};
use format::key::{self, Counter};
use store::{Error, Read, Result, Store, TreeId};

use crate::subvol::VOLUME;

pub use complete::differences;
pub use mirrored::mirrored;
pub use noted::{Noted, UNCOUNTED};
pub use renew::{drop_unknown, renew};

/// The tree of the copies.
pub const COPY: TreeId = TreeId(COPY_TREE);
/// Key of the counter of the root.
const ROOT: [u8; 2] = [b'C', 5];

/// What is known of the records of an open volume, and the engine's own store.
pub struct RecordCopies {
    engine: Arc<dyn Store>,
    noted: Arc<Noted>,
}

impl RecordCopies {
    /// What is known.
    pub fn noted(&self) -> &Noted {
        &self.noted
    }

    /// Notes that there are no copies because they could not be created; this is reported.
    pub(crate) fn no_copies(&self, error: &Error) {
        if is_damage(error) {
            self.noted.gave_up(error);
        } else if self.noted.has_copies() {
            // The store itself reports what it cannot make durable.
            tracing::warn!(%error, "cannot sync the copies of the volume's records yet");
        } else {
            self.noted.not_made(error);
        }
    }

    /// Creates the copies if there are none; see `complete`.
    pub fn complete(&self) -> Result<()> {
        complete::complete(&*self.engine, &self.noted)
    }
}

/// Puts the layer that maintains the copies over an engine's store.
pub fn over(engine: Arc<dyn Store>) -> Result<(Arc<dyn Store>, RecordCopies)> {
    debug_assert_eq!(ROOT, key::counter(Counter::Root));
    let noted = Arc::new(Noted::new(are_there(&*engine)?));
    if let Some(why) = engine.read_only()
        && is_of_volume_tree(&engine.unknown())
    {
        noted.not_replayed(&why, engine.unknown() == [COPY]);
    }
    let mirrored = mirrored::MirroredStore::new(Arc::clone(&engine), Arc::clone(&noted));
    Ok((Arc::new(mirrored), RecordCopies { engine, noted }))
}

/// Whether the trees with unknown parts are one of the two: the other has what it held.
pub fn is_of_volume_tree(unknown: &[TreeId]) -> bool {
    matches!(unknown, [VOLUME | COPY])
}

/// Whether an error is damage of what is on disk, or a missing part of it. A read that the
/// operating system failed is neither: it may succeed the next time.
pub fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Missing { .. } | Error::NoTree(VOLUME | COPY))
}

/// Whether the copies can answer despite an error. The error is damage, or a read that the
/// operating system failed for any reason but a resource shortage of the process. Nothing is
/// abandoned, removed or rebuilt for it, unlike for damage.
///
/// A request to an object store that has no answer, or an error of the service, has no number of
/// the operating system. It proves nothing about what the store has: a volume that opened despite
/// it would take no changes because of an outage of a second.
pub(crate) fn is_unreadable(error: &Error) -> bool {
    match error {
        Error::Device(error) => error.os.is_some() && !error.is_shortage() && !error.is_no_space(),
        error => is_damage(error),
    }
}

/// Whether a volume records that its records are stored twice, by whichever counter can be read. If
/// neither can, a reader of a record gets both errors.
fn are_there(engine: &dyn Read) -> Result<bool> {
    match root(engine, VOLUME) {
        Err(error) if is_unreadable(&error) => match root(engine, COPY) {
            Err(Error::NoTree(_)) => Ok(false),
            Err(error) if is_unreadable(&error) => Ok(true),
            root => Ok(root?.is_some_and(|root| root.copies)),
        },
        root => Ok(root?.is_some_and(|root| root.copies)),
    }
}

/// The counter of the root in one of the trees; none if it does not exist or does not decode.
fn root(engine: &dyn Read, tree: TreeId) -> Result<Option<RootCounter>> {
    Ok(engine.get(tree, &ROOT)?.and_then(|bytes| RootCounter::decode(&bytes).ok()))
}
