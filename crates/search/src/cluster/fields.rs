//! Fields of rows that a query requests: other columns are not read.

use format::cluster::ColumnId;

use super::values::column_of;
use crate::Attribute;

/// A set of fields of [`Row`](crate::Row). Other fields read as 0, or as empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields(u32);

impl Fields {
    /// None.
    pub const NONE: Fields = Fields(0);
    /// All. Name tags are not row fields, and extended attributes are read from the store if a
    /// query requests them.
    pub const ATTRIBUTES: Fields = Fields(
        !(1 << ColumnId::NameTags as u32
            | 1 << ColumnId::Xattrs as u32
            | 1 << ColumnId::XattrLengths as u32),
    );
    /// The name.
    pub const NAME: Fields = Fields(1 << ColumnId::Names as u32);
    /// The cookie.
    pub const COOKIE: Fields = Fields(Fields::NAME.0 | 1 << ColumnId::Cookie as u32);
    /// Identity of a row, directory and cookie, which scope and paths need.
    pub const IDENTITY: Fields = Fields(
        Fields::COOKIE.0
            | 1 << ColumnId::Directory as u32
            | 1 << ColumnId::Ino as u32
            | 1 << ColumnId::Kind as u32
            | 1 << ColumnId::Subvolume as u32,
    );
    /// Device number.
    pub const RDEV: Fields = Fields(1 << ColumnId::Rdev as u32);
    /// Entries of directories.
    pub const ENTRIES: Fields = Fields(1 << ColumnId::Entries as u32);

    /// An attribute.
    pub fn of(attribute: Attribute) -> Fields {
        Fields(1 << column_of(attribute) as u32)
    }

    pub(super) const fn column(column: ColumnId) -> Fields {
        Fields(1 << column as u32)
    }

    /// These and those.
    #[must_use]
    pub const fn and(self, other: Fields) -> Fields {
        Fields(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    pub const fn contains(self, other: Fields) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn has(self, column: ColumnId) -> bool {
        self.0 & 1 << column as u32 != 0
    }
}
