//! Creates copies for a volume without them: it is older than copies, or its copies were abandoned,
//! or a repair was interrupted.
//!
//! Until all exist the counter of the root records none, in either tree, and the existing ones
//! are not used. So a crash leaves a volume without copies, and the next opening continues. No
//! other commit is made meanwhile.

use format::kept_twice::{RootCounter, is_kept_twice};
use store::{Batch, Cursor, Error, KeyRange, Read, Result, Store, TreeId};

use super::noted::Noted;
use super::{COPY, ROOT, root};
use crate::subvol::VOLUME;

/// Bytes of one commit.
const COMMIT_BYTES: usize = 1 << 20;

/// Creates the copies, if there are none.
pub(super) fn complete(engine: &dyn Store, noted: &Noted) -> Result<()> {
    let exist = engine.tree_exists(COPY)?;
    if noted.has_copies() && exist {
        return Ok(());
    }
    // Without one the volume does not open, and the caller that opens it reports that.
    let Some(root) = root(engine, VOLUME)? else { return Ok(()) };
    noted.set_copies(false);
    begin(engine, root, exist)?;
    let mut batch = Batch::new();
    differences(engine, &mut |key, own, _| {
        match own {
            Some(value) => batch.put(COPY, key, value),
            None => batch.delete(COPY, key),
        }
        commit_from(engine, &mut batch, COMMIT_BYTES)
    })?;
    let value = RootCounter { copies: true, ..root }.encode();
    batch.put(VOLUME, &ROOT, &value);
    batch.put(COPY, &ROOT, &value);
    let token = engine.commit(&batch)?;
    // From now on they are in use, so each change is made to both, durable or not.
    noted.set_copies(true);
    engine.sync(token)
}

/// Records in both trees that there are no copies, before any is created.
fn begin(engine: &dyn Store, root: RootCounter, exist: bool) -> Result<()> {
    let none = RootCounter { copies: false, ..root }.encode();
    let mut batch = Batch::new();
    if root.copies {
        batch.put(VOLUME, &ROOT, &none);
    }
    if !exist {
        batch.create_tree(COPY);
    }
    batch.put(COPY, &ROOT, &none);
    match engine.commit(&batch) {
        // An interrupted repair dropped it.
        Err(Error::TreeExists(COPY)) if !exist => {
            free_number(engine)?;
            engine.commit(&batch).map(drop)
        }
        committed => committed.map(drop),
    }
}

/// Frees the number of a dropped tree: a checkpoint forgets it.
pub(super) fn free_number(engine: &dyn Store) -> Result<()> {
    engine.sync(engine.last_commit())?;
    while !engine.checkpoint()? {}
    Ok(())
}

/// Commits a batch once it has reached that many bytes, and empties it.
pub(super) fn commit_from(engine: &dyn Store, batch: &mut Batch, bytes: usize) -> Result<()> {
    if !batch.is_empty() && batch.as_bytes().len() >= bytes {
        engine.commit(batch)?;
        batch.clear();
    }
    Ok(())
}

/// What is called with a key, the record, and its copy.
type Differing<'d> = &'d mut dyn FnMut(&[u8], Option<&[u8]>, Option<&[u8]>) -> Result<()>;

/// Where records that are to have copies, and the copies, are not the same.
pub fn differences(read: &dyn Read, found: Differing<'_>) -> Result<()> {
    let mut own = Records::of(read, VOLUME)?;
    let mut copies = Records::of(read, COPY)?;
    loop {
        match (own.first(), copies.first()) {
            (None, None) => return Ok(()),
            (Some((key, value)), Some((other, copy))) if key == other => {
                if value != copy {
                    found(key, Some(value), Some(copy))?;
                }
                own.advance()?;
                copies.advance()?;
            }
            (Some((key, value)), other) if other.is_none_or(|(other, _)| key < other) => {
                found(key, Some(value), None)?;
                own.advance()?;
            }
            (_, Some((key, copy))) => {
                found(key, None, Some(copy))?;
                copies.advance()?;
            }
            (Some(_), None) => unreachable!("it is less than none"),
        }
    }
}

/// The records of one of the trees, in order: in the volume's own, those that are to have copies.
struct Records<'a> {
    cursor: Box<dyn Cursor + 'a>,
    tree: TreeId,
    key: Vec<u8>,
    value: Vec<u8>,
    ended: bool,
}

impl<'a> Records<'a> {
    fn of(read: &'a dyn Read, tree: TreeId) -> Result<Records<'a>> {
        let cursor = read.scan(tree, KeyRange::all())?;
        let (key, value) = (Vec::new(), Vec::new());
        let mut records = Records { cursor, tree, key, value, ended: false };
        records.advance()?;
        Ok(records)
    }

    fn first(&self) -> Option<(&[u8], &[u8])> {
        (!self.ended).then_some((self.key.as_slice(), self.value.as_slice()))
    }

    fn advance(&mut self) -> Result<()> {
        loop {
            let Some(item) = self.cursor.next()? else {
                self.ended = true;
                return Ok(());
            };
            if self.tree == VOLUME && !is_kept_twice(item.key) {
                continue;
            }
            self.key.clear();
            self.key.extend_from_slice(item.key);
            self.value.clear();
            self.value.extend_from_slice(item.value);
            return Ok(());
        }
    }
}
