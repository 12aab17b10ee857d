//! Iterates over the records of a tree past damage, and reports where it was.

use std::sync::Arc;

use format::Corruption;
use store::{Cursor, Error, KeyRange, LostRange, Pinned, TreeId, prefix_end};
use vfs::FsResult;

use crate::error::from_store;
use crate::own_tree::VOLUME;
use crate::record_copies::COPY;

/// Iterates over the keys that start with a prefix, past what cannot be read.
pub struct Scan<'a> {
    pin: &'a dyn Pinned,
    tree: TreeId,
    cursor: Option<Box<dyn Cursor + 'a>>,
    /// The present key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    begun: bool,
    start: Vec<u8>,
    /// What could not be read so far.
    pub lost: Vec<LostRange>,
}

impl<'a> Scan<'a> {
    /// Over the keys of a tree that start with a prefix; before the first one.
    pub fn new(pin: &'a dyn Pinned, tree: TreeId, prefix: &[u8]) -> FsResult<Scan<'a>> {
        let range = KeyRange { from: prefix.to_vec(), to: prefix_end(prefix) };
        let mut lost = Vec::new();
        let cursor = match pin.scan(tree, range) {
            Ok(cursor) => Some(cursor),
            Err(Error::Corrupt(damage)) => {
                // The start of the tree is not known: none of it can be read.
                lost.push(LostRange { from: prefix.to_vec(), to: None, damage });
                None
            }
            // One of the two exists, or the volume would not be open: a repair was interrupted.
            Err(Error::NoTree(tree)) if [VOLUME, COPY].contains(&tree) => {
                let missing = Corruption {
                    file: String::new(),
                    offset: 0,
                    structure: "tree of the volume's records",
                    expected: format!("tree {}", tree.0),
                    found: "none".to_owned(),
                    unread: false,
                };
                let damage = Arc::new(missing);
                lost.push(LostRange { from: prefix.to_vec(), to: None, damage });
                None
            }
            Err(error) => return Err(from_store(error)),
        };
        let (key, value, start) = (Vec::new(), Vec::new(), prefix.to_vec());
        Ok(Scan { pin, tree, cursor, key, value, begun: false, start, lost })
    }

    /// Moves to the next key that can be read; `false` at the end.
    pub fn advance(&mut self) -> FsResult<bool> {
        loop {
            let Some(cursor) = &mut self.cursor else { return Ok(false) };
            match cursor.next() {
                Ok(None) => return Ok(false),
                Ok(Some(item)) => {
                    self.key.clear();
                    self.key.extend_from_slice(item.key);
                    self.value.clear();
                    self.value.extend_from_slice(item.value);
                    self.begun = true;
                    return Ok(true);
                }
                Err(Error::Corrupt(damage)) => self.pass(damage)?,
                Err(error) => return Err(from_store(error)),
            }
        }
    }

    /// Continues behind what cannot be read.
    fn pass(&mut self, damage: Arc<Corruption>) -> FsResult<()> {
        let mut from = self.start.clone();
        if self.begun {
            from.clone_from(&self.key);
            from.push(0);
        }
        let behind = self.lost.last().and_then(|lost| lost.to.clone());
        let from = from.max(behind.unwrap_or_default());
        let lost = match self.pin.lost_from(self.tree, &from) {
            Ok(lost) => lost,
            Err(Error::Corrupt(_)) => None,
            Err(error) => return Err(from_store(error)),
        };
        let lost = lost.filter(|lost| lost.to.as_ref().is_none_or(|to| *to > from));
        let lost = lost.unwrap_or(LostRange { from, to: None, damage });
        match (&lost.to, &mut self.cursor) {
            (Some(to), Some(cursor)) => cursor.seek(to).map_err(from_store)?,
            _ => self.cursor = None,
        }
        self.lost.push(lost);
        Ok(())
    }
}
