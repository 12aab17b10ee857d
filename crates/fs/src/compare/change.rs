//! What a comparison reports.

use inode::{Attr, ChangeKind, Field};

/// A set of fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fields(u16);

impl Fields {
    /// Adds a field if it differs.
    pub fn add_if(&mut self, field: Field, differs: bool) {
        self.0 |= u16::from(differs) << field as u16;
    }

    /// Whether a field is among them.
    pub fn has(self, field: Field) -> bool {
        self.0 >> field as u16 & 1 != 0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The fields, in the order of [`Field::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(move |field| self.has(*field))
    }
}

/// One change of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What happened.
    pub kind: ChangeKind,
    /// Path in the old state, relative to its directory, which is the empty path itself, and the
    /// attributes there. `None` for a name that was created.
    pub old: Option<(Vec<u8>, Attr)>,
    /// The same of the new state. `None` for a name that was removed.
    pub new: Option<(Vec<u8>, Attr)>,
    /// What differs, where there are both.
    pub fields: Fields,
    /// For a name that was created or removed: whether the inode is in both states under other
    /// names.
    pub is_link: bool,
}

impl Difference {
    /// The path that it is listed under: the new one, if there is one.
    pub fn path(&self) -> &[u8] {
        match (&self.new, &self.old) {
            (Some((path, _)), _) | (None, Some((path, _))) => path,
            (None, None) => b"",
        }
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let paths = [&self.old, &self.new].into_iter().flatten().map(|(path, _)| path.len());
        size_of::<Difference>() + paths.sum::<usize>()
    }
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compared {
    /// How many changes were reported.
    pub changes: u64,
    /// Whether the receiver of the changes ended it.
    pub is_cut: bool,
    /// Directories that are, or may be, the root of a subvolume in one of the states alone, as by a
    /// rollback. One file with a name in the directory and one outside may then be two files, or
    /// the reverse. No change names that.
    pub separated: u64,
}
