//! Matches a pattern in time linear in the text, whatever either contains. `glob` uses it if
//! backtracking after each letter takes long.
//!
//! The part between two stars has a fixed number of letters, so its first match is the best one. A
//! literal is found by the algorithm of Knuth, Morris and Pratt. For any other part, a bit mask
//! tracks all start positions at once. It has how much of the part each one has matched before the
//! current letter.

use std::collections::BTreeMap;

use super::{Source, Term, Work, folded, letter};
use crate::Result;

/// Letters for which the mask of matching parts is cached.
const MASKS_MAX: usize = 1024;

/// Whether parts match all of a text.
pub(super) fn matches(
    parts: &[Term],
    text: &[u8],
    source: &Source,
    work: &mut Work<'_>,
) -> Result<bool> {
    let mut letters = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((found, length)) = letter(rest, source.letters) {
        letters.push(found);
        rest = &rest[length..];
        work.count(1)?;
    }
    let mut letters = &letters[..];
    let mut pieces: Vec<&[Term]> = parts.split(|part| *part == Term::Many).collect();
    let here = |piece: &[Term], letters: &[u32]| {
        piece.iter().zip(letters).all(|(part, letter)| part.takes(*letter, source))
    };
    // The part before the first star, and the one after the last, each have a fixed position.
    let first = pieces.remove(0);
    if letters.len() < first.len() || !here(first, letters) {
        return Ok(false);
    }
    letters = &letters[first.len()..];
    let Some(last) = pieces.pop() else { return Ok(letters.is_empty()) };
    let Some(before) = letters.len().checked_sub(last.len()) else { return Ok(false) };
    if !here(last, &letters[before..]) {
        return Ok(false);
    }
    letters = &letters[..before];
    for piece in pieces {
        let found = match literal(piece) {
            Some(literal) => find_literal(&literal, letters, source, work)?,
            None => find(piece, letters, source, work)?,
        };
        match found {
            Some(end) => letters = &letters[end..],
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// The letters of a piece that has nothing else.
fn literal(piece: &[Term]) -> Option<Vec<u32>> {
    let letter = |part: &Term| match part {
        Term::Letter(letter) => Some(*letter),
        _ => None,
    };
    piece.iter().map(letter).collect()
}

/// Where the first match of a literal ends.
fn find_literal(
    literal: &[u32],
    letters: &[u32],
    source: &Source,
    work: &mut Work<'_>,
) -> Result<Option<usize>> {
    // For each beginning of the literal, the length of its longest end that begins it, too.
    let mut again = vec![0; literal.len()];
    let mut matched = 0;
    for at in 1..literal.len() {
        while matched > 0 && literal[at] != literal[matched] {
            matched = again[matched - 1];
        }
        matched += usize::from(literal[at] == literal[matched]);
        again[at] = matched;
        work.count(1)?;
    }
    matched = 0;
    for (at, &letter) in letters.iter().enumerate() {
        let letter = folded(letter, source);
        while matched > 0 && letter != literal[matched] {
            matched = again[matched - 1];
        }
        matched += usize::from(literal.get(matched) == Some(&letter));
        if matched == literal.len() {
            return Ok(Some(at + 1));
        }
        work.count(1)?;
    }
    Ok(None)
}

/// Where the first match of a piece ends.
fn find(
    piece: &[Term],
    letters: &[u32],
    source: &Source,
    work: &mut Work<'_>,
) -> Result<Option<usize>> {
    let Some(last) = piece.len().checked_sub(1) else { return Ok(None) };
    let cost: usize = piece.iter().map(Term::cost).sum();
    let mut state = vec![0_u64; piece.len().div_ceil(64)];
    let mut masks: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (at, &letter) in letters.iter().enumerate() {
        work.count(state.len())?;
        if masks.len() >= MASKS_MAX && !masks.contains_key(&letter) {
            masks.clear();
        }
        if !masks.contains_key(&letter) {
            work.count(cost)?;
        }
        let mask = masks.entry(letter).or_insert_with(|| mask(piece, letter, source));
        let mut carry = 1;
        for (word, mask) in state.iter_mut().zip(mask) {
            let next = *word >> 63;
            *word = (*word << 1 | carry) & *mask;
            carry = next;
        }
        if state[last / 64] >> (last % 64) & 1 == 1 {
            return Ok(Some(at + 1));
        }
    }
    Ok(None)
}

/// The parts that take a letter, as bits.
fn mask(piece: &[Term], letter: u32, source: &Source) -> Vec<u64> {
    let mut mask = vec![0_u64; piece.len().div_ceil(64)];
    for (at, part) in piece.iter().enumerate() {
        mask[at / 64] |= u64::from(part.takes(letter, source)) << (at % 64);
    }
    mask
}
