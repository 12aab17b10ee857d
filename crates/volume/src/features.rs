//! Features that an opening records in the counter of the root, so that programs that do not know
//! them refuse the volume. Later, only the ledger of subvolumes writes that counter.

use format::answer_record::ANSWER_TREE;
use format::kept_twice::{Features, RootCounter};
use format::key::{self, Counter};
use store::{Batch, Store, TreeId};
use vfs::FsResult;

use crate::error::from_store;
use crate::numbers::read_root;
use crate::subvol::VOLUME;

/// Records features, in one batch with what `also` adds; nothing if they are there.
pub(crate) fn require(
    store: &dyn Store,
    more: Features,
    also: impl FnOnce(&mut Batch),
) -> FsResult<()> {
    let RootCounter { subvolume, features, .. } = read_root(store)?;
    if features.with(more) == features {
        return Ok(());
    }
    let root = RootCounter { subvolume, copies: false, features: features.with(more) };
    let mut batch = Batch::new();
    also(&mut batch);
    batch.put(VOLUME, &key::counter(Counter::Root), &root.encode());
    store.commit(&batch).map(drop).map_err(from_store)
}

/// Makes the tree of sessions and answers, if there is none.
pub(crate) fn require_answers(store: &dyn Store) -> FsResult<()> {
    let answers = Features { answers: true, ..Features::NONE };
    require(store, answers, |batch| batch.create_tree(TreeId(ANSWER_TREE)))
}
