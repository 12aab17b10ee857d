//! Matches a pattern in time linear in the text, whatever either contains. `glob` uses it if
//! backtracking after each letter takes long.
//!
//! The part between two stars has a fixed number of letters, so its first match is the best one. To
//! find it, a bit mask tracks, for all start positions at once, how much of the part each one has
//! matched before the current letter.

use std::collections::BTreeMap;

use super::{Part, Source, letter};

/// Letters for which the mask of matching parts is cached.
const MASKS_MAX: usize = 1024;

/// Whether parts match all of a text.
pub(super) fn matches(parts: &[Part], text: &[u8], source: &Source) -> bool {
    let mut letters = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((found, length)) = letter(rest, source.letters) {
        letters.push(found);
        rest = &rest[length..];
    }
    let mut letters = &letters[..];
    let mut pieces: Vec<&[Part]> = parts.split(|part| *part == Part::Many).collect();
    let here = |piece: &[Part], letters: &[u32]| {
        piece.iter().zip(letters).all(|(part, letter)| part.takes(*letter, source))
    };
    // The part before the first star, and the one after the last, each have a fixed position.
    let first = pieces.remove(0);
    if letters.len() < first.len() || !here(first, letters) {
        return false;
    }
    letters = &letters[first.len()..];
    let Some(last) = pieces.pop() else { return letters.is_empty() };
    let Some(before) = letters.len().checked_sub(last.len()) else { return false };
    if !here(last, &letters[before..]) {
        return false;
    }
    letters = &letters[..before];
    for piece in pieces {
        match find(piece, letters, source) {
            Some(end) => letters = &letters[end..],
            None => return false,
        }
    }
    true
}

/// Where the first match of a piece ends.
fn find(piece: &[Part], letters: &[u32], source: &Source) -> Option<usize> {
    let last = piece.len().checked_sub(1)?;
    let mut state = vec![0_u64; piece.len().div_ceil(64)];
    let mut masks: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (at, &letter) in letters.iter().enumerate() {
        if masks.len() >= MASKS_MAX && !masks.contains_key(&letter) {
            masks.clear();
        }
        let mask = masks.entry(letter).or_insert_with(|| mask(piece, letter, source));
        let mut carry = 1;
        for (word, mask) in state.iter_mut().zip(mask) {
            let next = *word >> 63;
            *word = (*word << 1 | carry) & *mask;
            carry = next;
        }
        if state[last / 64] >> (last % 64) & 1 == 1 {
            return Some(at + 1);
        }
    }
    None
}

/// The parts that take a letter, as bits.
fn mask(piece: &[Part], letter: u32, source: &Source) -> Vec<u64> {
    let mut mask = vec![0_u64; piece.len().div_ceil(64)];
    for (at, part) in piece.iter().enumerate() {
        mask[at / 64] |= u64::from(part.takes(letter, source)) << (at % 64);
    }
    mask
}
