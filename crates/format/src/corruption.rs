//! What a reader says of bytes that cannot be what was written.

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
    /// What should have been there.
    pub expected: String,
    /// What was there.
    pub found: String,
}
