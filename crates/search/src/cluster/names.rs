//! Conditions on names, tested on many names at once: a search of the packed bytes of a block.

use memchr::memmem::Finder;

use crate::Condition;

/// A condition on names as bytes to search for: every name is between zero bytes.
pub(crate) struct NameTest {
    finder: Finder<'static>,
    /// Whether the bytes begin or end with the zero byte around a name.
    anchored: (bool, bool),
}

impl NameTest {
    /// The test for a condition, if it is one on names.
    pub(super) fn new(condition: &Condition) -> Option<NameTest> {
        let (bytes, anchored) = match condition {
            Condition::Name(name) => (name, (true, true)),
            Condition::NameContains(part) => (part, (false, false)),
            Condition::NameStarts(start) => (start, (true, false)),
            Condition::NameEnds(end) => (end, (false, true)),
            Condition::Within(..)
            | Condition::OneOf(..)
            | Condition::Xattr(..)
            | Condition::Near(..) => return None,
        };
        Some(NameTest::of(bytes, anchored))
    }

    /// The test for names with these bytes, which start or end with them if `anchored` is set.
    pub(crate) fn of(bytes: &[u8], anchored: (bool, bool)) -> NameTest {
        let mut pattern = Vec::with_capacity(bytes.len() + 2);
        if anchored.0 {
            pattern.push(0);
        }
        pattern.extend_from_slice(bytes);
        if anchored.1 {
            pattern.push(0);
        }
        NameTest { finder: Finder::new(&pattern).into_owned(), anchored }
    }

    /// Whether one name meets the condition.
    pub(super) fn meets(&self, name: &[u8]) -> bool {
        let pattern = self.finder.needle();
        let start = usize::from(self.anchored.0);
        let wanted = &pattern[start..pattern.len() - usize::from(self.anchored.1)];
        match self.anchored {
            (true, true) => name == wanted,
            (true, false) => name.starts_with(wanted),
            (false, true) => name.ends_with(wanted),
            (false, false) => self.finder.find(name).is_some(),
        }
    }

    /// Calls `found` with the place of every name in `packed` that meets the condition, in
    /// order. `packed` begins and ends with a zero byte.
    pub(super) fn find_all(&self, packed: &[u8], mut found: impl FnMut(usize)) {
        // `row` is the name that starts after the zero byte at `zero`.
        let (mut row, mut zero) = (0, 0);
        while let Some(at) = self.finder.find(&packed[zero..]) {
            let hit = zero + at;
            row += memchr::memchr_iter(0, &packed[zero + 1..=hit]).count();
            found(row);
            // Continue after the name: its other hits are for the same row.
            match memchr::memchr(0, &packed[hit + 1..]) {
                Some(next) => zero = hit + 1 + next,
                None => return,
            }
            row += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_search_equals_matching_single_names() {
        let mut random = fastrand::Rng::with_seed(31);
        for _ in 0..3000 {
            let name = |random: &mut fastrand::Rng, most| -> Vec<u8> {
                (0..random.usize(1..most)).map(|_| random.u8(b'a'..=b'b')).collect()
            };
            let count = random.usize(1..20);
            let names: Vec<Vec<u8>> = (0..count).map(|_| name(&mut random, 7)).collect();
            let mut packed = vec![0];
            for name in &names {
                packed.extend_from_slice(name);
                packed.push(0);
            }
            let part = name(&mut random, 4);
            for condition in [
                Condition::Name(part.clone()),
                Condition::NameContains(part.clone()),
                Condition::NameStarts(part.clone()),
                Condition::NameEnds(part.clone()),
            ] {
                let test = NameTest::new(&condition).unwrap();
                let mut got = Vec::new();
                test.find_all(&packed, |row| got.push(row));
                let meet = |row: &usize| test.meets(&names[*row]);
                let expected: Vec<usize> = (0..names.len()).filter(meet).collect();
                assert_eq!(got, expected, "{condition:?} in {names:?}");
            }
        }
    }
}
