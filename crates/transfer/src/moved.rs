//! Where a path of an old state is in a new one whose directories moved.

use std::collections::BTreeMap;

/// The path of a directory of the old state in the new one; `None` if it is gone.
pub(crate) fn translate(
    moved: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    path: &[u8],
) -> Option<Vec<u8>> {
    let mut end = path.len();
    loop {
        if let Some(now) = moved.get(&path[..end]) {
            let mut now = now.clone()?;
            now.extend_from_slice(&path[end..]);
            return Some(now);
        }
        match path[..end].iter().rposition(|byte| *byte == b'/') {
            Some(slash) => end = slash,
            None => return Some(path.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::translate;

    #[test]
    fn a_path_follows_the_nearest_directory_that_moved() {
        let moved = BTreeMap::from([
            (b"a".to_vec(), Some(b"x/a".to_vec())),
            (b"a/b".to_vec(), Some(b"b".to_vec())),
            (b"gone".to_vec(), None),
        ]);
        for (old, new) in [
            (&b"a/b/c"[..], Some(&b"b/c"[..])),
            (b"a/c", Some(b"x/a/c")),
            (b"a", Some(b"x/a")),
            (b"ab/c", Some(b"ab/c")),
            (b"", Some(b"")),
            (b"gone", None),
            (b"gone/c", None),
        ] {
            assert_eq!(translate(&moved, old).as_deref(), new, "{}", old.escape_ascii());
        }
    }
}
