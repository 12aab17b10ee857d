//! The description of a structure against which its page in `docs/format/` is checked.

/// One field of an on-disk structure, as the table of its page shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The name in the table.
    pub name: &'static str,
    /// The type in the table: `u64 LE`, `varint`, `bytes`.
    pub kind: &'static str,
    /// Its size in bytes; 0 if the size varies.
    pub size: usize,
}

impl Field {
    /// A field of a fixed size.
    pub const fn fixed(name: &'static str, kind: &'static str, size: usize) -> Field {
        Field { name, kind, size }
    }

    /// A field whose size varies.
    pub const fn variable(name: &'static str, kind: &'static str) -> Field {
        Field { name, kind, size: 0 }
    }
}

/// The size of a structure whose fields are all fixed.
pub const fn size_of(mut fields: &[Field]) -> usize {
    let mut size = 0_usize;
    while let Some((first, rest)) = fields.split_first() {
        size = size.saturating_add(first.size);
        fields = rest;
    }
    size
}
