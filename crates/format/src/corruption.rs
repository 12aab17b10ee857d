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
}
