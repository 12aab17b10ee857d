//! Ranges of keys.

/// Keys from `from` (inclusive) to `to` (exclusive); no `to` means to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// First key of the range.
    pub from: Vec<u8>,
    /// First key after the range.
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> KeyRange {
        KeyRange { from: Vec::new(), to: None }
    }

    /// Keys from `from` (inclusive) to `to` (exclusive).
    pub fn between(from: &[u8], to: &[u8]) -> KeyRange {
        KeyRange { from: from.to_vec(), to: Some(to.to_vec()) }
    }

    /// Keys that start with `prefix`.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        KeyRange { from: prefix.to_vec(), to: prefix_end(prefix) }
    }

    /// Whether a key is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.from.as_slice() && self.to.as_deref().is_none_or(|to| key < to)
    }
}

/// The least key above every key that starts with `prefix`; `None` when there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}
