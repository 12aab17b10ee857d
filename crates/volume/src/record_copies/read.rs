//! Reads the volume's own records: damage is answered from the copies.
//!
//! A look-up is answered from either. A scan that meets damage continues in the copies, from its
//! present position, if all records of its range have copies. If not, it ends with the error.

use format::kept_twice::{is_all_kept_twice, is_kept_twice};
use store::{Cursor, Error, Item, KeyRange, Read, Result, TreeId};

use super::noted::{Noted, both};
use super::{COPY, is_unreadable};
use crate::subvol::VOLUME;

/// A look-up.
#[inline]
pub(super) fn get_with(
    engine: &dyn Read,
    noted: &Noted,
    (tree, key): (TreeId, &[u8]),
    found: &mut dyn FnMut(&[u8]),
) -> Result<bool> {
    match engine.get_with(tree, key, found) {
        Err(error)
            if tree == VOLUME
                && is_unreadable(&error)
                && noted.has_copies()
                && is_kept_twice(key) =>
        {
            let copy = instead(&error, engine.get(COPY, key))?;
            if !noted.are_believed() {
                return Err(error);
            }
            noted.answered(&error);
            if let Some(value) = &copy {
                found(value);
            }
            Ok(copy.is_some())
        }
        answer => answer,
    }
}

/// The answer of the copy, or the error that neither has one.
fn instead<T>(error: &Error, answer: Result<T>) -> Result<T> {
    answer.map_err(|copy| if is_unreadable(&copy) { both(error.clone(), &copy) } else { copy })
}

/// A scan.
pub(super) fn scan<'a>(
    engine: &'a dyn Read,
    noted: &'a Noted,
    tree: TreeId,
    range: KeyRange,
) -> Result<Box<dyn Cursor + 'a>> {
    let has_copies =
        tree == VOLUME && noted.has_copies() && is_all_kept_twice(&range.from, range.to.as_deref());
    if !has_copies {
        return engine.scan(tree, range);
    }
    let mut scan = Scan {
        engine,
        noted,
        cursor: None,
        range,
        instead_of: None,
        at: At::Start,
        wanted: None,
        key: Vec::new(),
        value: Vec::new(),
    };
    match scan.engine.scan(VOLUME, scan.range.clone()) {
        Ok(cursor) => scan.cursor = Some(cursor),
        Err(error) => scan.continue_in_copies(error)?,
    }
    Ok(Box::new(scan))
}

/// The position of a scan.
enum At {
    Start,
    /// Just before the first key that is not less.
    Before(Vec<u8>),
    /// On the key that was returned last.
    On,
    End,
}

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Next,
    Prev,
}

/// A scan of records that all have copies.
struct Scan<'a> {
    engine: &'a dyn Read,
    noted: &'a Noted,
    cursor: Option<Box<dyn Cursor + 'a>>,
    range: KeyRange,
    /// The error that was met, when it continues in the copies.
    instead_of: Option<Error>,
    at: At,
    wanted: Option<fn(&[u8]) -> bool>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Scan<'_> {
    /// Opens the copies at the position of the scan. `error` is what was met.
    #[cold]
    fn continue_in_copies(&mut self, error: Error) -> Result<()> {
        if self.instead_of.is_some() || !is_unreadable(&error) {
            return Err(error);
        }
        let mut cursor = instead(&error, self.engine.scan(COPY, self.range.clone()))?;
        if let Some(wanted) = self.wanted {
            cursor.want_values(wanted);
        }
        let placed = match &self.at {
            At::Start => Ok(()),
            At::Before(key) => cursor.seek(key),
            At::On => place_on(&mut *cursor, &self.key),
            At::End => loop {
                match cursor.next() {
                    Ok(Some(_)) => {}
                    ended => break ended.map(drop),
                }
            },
        };
        instead(&error, placed)?;
        if !self.noted.are_believed() {
            return Err(error);
        }
        self.noted.answered(&error);
        self.cursor = Some(cursor);
        self.instead_of = Some(error);
        Ok(())
    }

    /// Moves once; returns whether there is a key.
    fn try_move(&mut self, way: Way) -> Result<bool> {
        let Some(cursor) = &mut self.cursor else { return Ok(false) };
        let item = match way {
            Way::Next => cursor.next()?,
            Way::Prev => cursor.prev()?,
        };
        let Some(Item { key, value }) = item else {
            self.at = if way == Way::Next { At::End } else { At::Start };
            return Ok(false);
        };
        self.key.clear();
        self.key.extend_from_slice(key);
        self.value.clear();
        self.value.extend_from_slice(value);
        self.at = At::On;
        Ok(true)
    }

    fn step(&mut self, way: Way) -> Result<Option<Item<'_>>> {
        let moved = match self.try_move(way) {
            Err(error) if self.instead_of.is_none() => {
                self.continue_in_copies(error.clone())?;
                instead(&error, self.try_move(way))?
            }
            moved => moved?,
        };
        if let Some(error) = &self.instead_of
            && !self.noted.are_believed()
        {
            return Err(error.clone());
        }
        Ok(moved.then_some(Item { key: &self.key, value: &self.value }))
    }
}

/// Places a cursor on a key as if it had just returned it.
fn place_on(cursor: &mut dyn Cursor, key: &[u8]) -> Result<()> {
    cursor.seek(key)?;
    match cursor.next()? {
        Some(item) if item.key == key => Ok(()),
        // It was removed meanwhile: before the one behind it.
        Some(_) | None => cursor.seek(key),
    }
}

impl Cursor for Scan<'_> {
    fn next(&mut self) -> Result<Option<Item<'_>>> {
        self.step(Way::Next)
    }

    fn prev(&mut self) -> Result<Option<Item<'_>>> {
        self.step(Way::Prev)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.at = At::Before(key.to_vec());
        let sought = match &mut self.cursor {
            Some(cursor) => cursor.seek(key),
            None => Ok(()),
        };
        match sought {
            Err(error) if self.instead_of.is_none() => self.continue_in_copies(error),
            sought => sought,
        }
    }

    fn want_values(&mut self, of: fn(&[u8]) -> bool) {
        self.wanted = Some(of);
        if let Some(cursor) = &mut self.cursor {
            cursor.want_values(of);
        }
    }
}
