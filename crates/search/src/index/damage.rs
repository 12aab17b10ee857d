//! What is logged of damage in the index. Nothing is lost by it: the store has everything.

use crate::Error;

/// Logs that a part of the index was unusable and is rebuilt.
pub(super) fn note_damage(what: &str, error: &Error) {
    tracing::warn!(%error, "{what} of the index is damaged: rebuilding it from the store");
}
