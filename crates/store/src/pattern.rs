//! Patterns of keys: the selection of a partial snapshot (BabuDB II.C).
//!
//! A key is bytes, so a pattern consists of literal bytes, single wildcard bytes, and runs of any
//! bytes. The common prefix of all keys of a pattern bounds the search; each key found there is
//! then matched.

use std::vec;

use crate::{Cursor, Item, KeyRange, Read, Result, SortedRun, TreeId, prefix_end};

/// One part of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    /// This byte.
    Byte(u8),
    /// Any one byte.
    One,
    /// Any number of bytes, including none.
    Rest,
}

/// A pattern of keys: `Pattern::new().bytes(b"D").any(8).rest()` matches keys that consist of a
/// `D`, eight bytes and any suffix. A pattern without [`Pattern::rest`] matches keys of one length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pattern {
    parts: Vec<Token>,
}

impl Pattern {
    /// The empty key alone.
    pub fn new() -> Pattern {
        Pattern::default()
    }

    /// All keys that begin with a prefix.
    pub fn prefix(prefix: &[u8]) -> Pattern {
        Pattern::new().bytes(prefix).rest()
    }

    /// Appends these bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Pattern {
        self.parts.extend(bytes.iter().map(|&byte| Token::Byte(byte)));
        self
    }

    /// Appends this many wildcard bytes.
    #[must_use]
    pub fn any(mut self, count: usize) -> Pattern {
        self.parts.extend(std::iter::repeat_n(Token::One, count));
        self
    }

    /// Appends any number of wildcard bytes. More parts may follow.
    #[must_use]
    pub fn rest(mut self) -> Pattern {
        // Two in a row match the same keys as one.
        if self.parts.last() != Some(&Token::Rest) {
            self.parts.push(Token::Rest);
        }
        self
    }

    /// Whether a key matches. Takes at most the key's length times the pattern's.
    pub fn matches(&self, key: &[u8]) -> bool {
        let (mut part, mut at) = (0, 0);
        // The part after the last `Rest`, and where in the key the present attempt ends it.
        let mut again: Option<(usize, usize)> = None;
        loop {
            match self.parts.get(part) {
                Some(Token::Rest) if part + 1 == self.parts.len() => return true,
                Some(Token::Rest) => {
                    part += 1;
                    again = Some((part, at));
                    continue;
                }
                Some(Token::One) if at < key.len() => {
                    (part, at) = (part + 1, at + 1);
                    continue;
                }
                Some(Token::Byte(byte)) if key.get(at) == Some(byte) => {
                    (part, at) = (part + 1, at + 1);
                    continue;
                }
                None if at == key.len() => return true,
                _ => {}
            }
            // The last one takes one byte more. It can also take what those before it could.
            match &mut again {
                Some((behind, end)) if *end < key.len() => {
                    *end += 1;
                    (part, at) = (*behind, *end);
                }
                _ => return false,
            }
        }
    }

    /// A range that contains all matching keys.
    fn range(&self) -> KeyRange {
        let start: Vec<u8> = self.parts.iter().map_while(|part| part.byte()).collect();
        if start.len() == self.parts.len() {
            // One key; the next greater has a zero appended.
            let behind = [start.as_slice(), &[0]].concat();
            return KeyRange::between(&start, &behind);
        }
        KeyRange { to: prefix_end(&start), from: start }
    }
}

impl Token {
    fn byte(self) -> Option<u8> {
        match self {
            Token::Byte(byte) => Some(byte),
            Token::One | Token::Rest => None,
        }
    }
}

/// A set of patterns: a key matches when it matches any of them. The empty set matches no key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns {
    patterns: Vec<Pattern>,
}

impl Patterns {
    /// A set of these patterns.
    pub fn new(patterns: impl IntoIterator<Item = Pattern>) -> Patterns {
        Patterns { patterns: patterns.into_iter().collect() }
    }

    /// Whether a key matches.
    pub fn matches(&self, key: &[u8]) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(key))
    }

    /// The ranges outside of which no key matches: ascending, without overlap.
    pub fn ranges(&self) -> Vec<KeyRange> {
        let mut all: Vec<KeyRange> = self.patterns.iter().map(Pattern::range).collect();
        all.sort_by(|a, b| a.from.cmp(&b.from));
        let mut ranges: Vec<KeyRange> = Vec::new();
        for next in all {
            match ranges.last_mut() {
                Some(last) if last.to.as_ref().is_none_or(|to| next.from < *to) => {
                    let further = match (&last.to, &next.to) {
                        (Some(to), Some(other)) => other > to,
                        (Some(_), None) => true,
                        (None, _) => false,
                    };
                    if further {
                        last.to = next.to;
                    }
                }
                _ => ranges.push(next),
            }
        }
        ranges
    }
}

/// The entries of a tree whose keys match a set of patterns, as a run.
pub struct Matching<'a> {
    read: &'a dyn Read,
    tree: TreeId,
    patterns: &'a Patterns,
    ranges: vec::IntoIter<KeyRange>,
    cursor: Option<Box<dyn Cursor + 'a>>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Matching<'a> {
    /// The matching entries of a tree, which must exist.
    pub fn new(read: &'a dyn Read, tree: TreeId, patterns: &'a Patterns) -> Result<Matching<'a>> {
        let ranges = patterns.ranges();
        // Checks that the tree exists, even if no range of it will be read.
        drop(read.scan(tree, KeyRange::between(&[], &[]))?);
        let (key, value) = (Vec::new(), Vec::new());
        Ok(Matching { read, tree, patterns, ranges: ranges.into_iter(), cursor: None, key, value })
    }

    /// Finds the next match.
    fn find(&mut self) -> Result<bool> {
        loop {
            let cursor = match &mut self.cursor {
                Some(cursor) => cursor,
                None => match self.ranges.next() {
                    Some(range) => self.cursor.insert(self.read.scan(self.tree, range)?),
                    None => return Ok(false),
                },
            };
            while let Some(item) = cursor.next()? {
                if self.patterns.matches(item.key) {
                    self.key.clear();
                    self.key.extend_from_slice(item.key);
                    self.value.clear();
                    self.value.extend_from_slice(item.value);
                    return Ok(true);
                }
            }
            self.cursor = None;
        }
    }
}

impl SortedRun for Matching<'_> {
    fn next_entry(&mut self) -> Result<Option<Item<'_>>> {
        Ok(self.find()?.then_some(Item { key: &self.key, value: &self.value }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a pattern is, by its definition alone.
    fn is(parts: &[Token], key: &[u8]) -> bool {
        match (parts.split_first(), key.split_first()) {
            (None, None) => true,
            (Some((Token::Rest, more)), _) => (0..=key.len()).any(|at| is(more, &key[at..])),
            (Some((Token::One, more)), Some((_, rest))) => is(more, rest),
            (Some((Token::Byte(byte), more)), Some((first, rest))) => {
                byte == first && is(more, rest)
            }
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    #[test]
    fn a_pattern_matches_by_its_definition() {
        let typed = Pattern::new().bytes(b"D").any(2).bytes(&[1]);
        for (key, right) in [
            (&b"Dxy\x01"[..], true),
            (b"D\0\0\x01", true),
            (b"Dxy\x02", false),
            (b"Dxy\x01z", false),
            (b"Dxy", false),
            (b"Exy\x01", false),
        ] {
            assert_eq!(typed.matches(key), right, "{key:?}");
        }
        let ending = Pattern::new().rest().bytes(b".rs");
        assert!(ending.matches(b".rs") && ending.matches(b"a.rs.rs") && !ending.matches(b".r"));
        assert!(Pattern::new().matches(b"") && !Pattern::new().matches(b"a"));
        assert!(Pattern::prefix(b"").matches(b"") && Pattern::prefix(b"").matches(&[0xff; 512]));
        assert_eq!(Pattern::new().rest().rest(), Pattern::new().rest());
        assert!(!Patterns::default().matches(b""));
    }

    #[test]
    fn ranges_are_disjoint_and_contain_all_matches() {
        let range = |patterns: Vec<Pattern>| Patterns::new(patterns).ranges();
        assert_eq!(range(vec![]), []);
        assert_eq!(range(vec![Pattern::new().any(3)]), [KeyRange::all()]);
        assert_eq!(range(vec![Pattern::new().bytes(b"k")]), [KeyRange::between(b"k", b"k\0")]);
        let nested = vec![Pattern::prefix(b"ab"), Pattern::prefix(b"a"), Pattern::prefix(b"c")];
        assert_eq!(range(nested), [KeyRange::prefix(b"a"), KeyRange::prefix(b"c")]);
        let last = vec![Pattern::prefix(&[0xff]), Pattern::prefix(&[0xff, 3])];
        assert_eq!(range(last), [KeyRange { from: vec![0xff], to: None }]);
    }

    /// All keys of up to five bytes of two, against patterns of the same by chance.
    #[test]
    fn random_patterns_match_by_their_definition() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
        for at in 0.. {
            let Some(key) = keys.get(at).filter(|key| key.len() < 5).cloned() else { break };
            keys.extend([0, 0xff].map(|byte| [key.as_slice(), &[byte]].concat()));
        }
        for round in 0..3000 {
            let one = |random: &mut fastrand::Rng| {
                (0..random.usize(0..7)).fold(Pattern::new(), |pattern, _| match random.u8(0..4) {
                    0 => pattern.any(1),
                    1 => pattern.rest(),
                    _ => pattern.bytes(&[if random.bool() { 0 } else { 0xff }]),
                })
            };
            let set: Vec<Pattern> = (0..random.usize(0..4)).map(|_| one(&mut random)).collect();
            let patterns = Patterns::new(set.clone());
            let ranges = patterns.ranges();
            for pair in ranges.windows(2) {
                let end = pair[0].to.as_ref().expect("another range is behind it");
                assert!(*end <= pair[1].from, "round {round}: {set:?}");
            }
            for key in &keys {
                let right = set.iter().any(|pattern| is(&pattern.parts, key));
                assert_eq!(patterns.matches(key), right, "round {round}: {key:?}, {set:?}");
                let inside = ranges.iter().any(|range| range.contains(key));
                assert!(inside || !right, "round {round}: {key:?} is outside, {set:?}");
            }
        }
    }
}
