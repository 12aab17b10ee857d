//! A difference from nothing: every entry of a range, as if it was new.

use store::{Cursor, Diff, DiffCursor};

/// A range of keys, presented as its differences from nothing.
pub(crate) struct All<'a> {
    cursor: Box<dyn Cursor + 'a>,
}

impl<'a> All<'a> {
    /// Everything that a cursor returns.
    pub(crate) fn new(cursor: Box<dyn Cursor + 'a>) -> All<'a> {
        All { cursor }
    }
}

impl DiffCursor for All<'_> {
    fn next(&mut self) -> store::Result<Option<Diff<'_>>> {
        let item = self.cursor.next()?;
        Ok(item.map(|item| Diff { key: item.key, old: None, new: Some(item.value) }))
    }
}
