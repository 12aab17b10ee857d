//! The report of a reader about bytes that cannot be those that were written.

/// Damage found in a file of the volume: never a panic, never a guess.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} is damaged at byte {offset}: {structure}: expected {expected}, found {found}")]
pub struct Corruption {
    /// The file, relative to the volume directory.
    pub file: String,
    /// Offset of the structure in the file, in bytes.
    pub offset: u64,
    /// The structure, as its page in `docs/format/` names it.
    pub structure: &'static str,
    /// The expected content.
    pub expected: String,
    /// The content found.
    pub found: String,
    /// Whether the device returned an error instead of the content, which another read may return.
    /// Nothing may be removed or rebuilt because of it.
    pub unread: bool,
}
