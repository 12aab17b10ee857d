//! Patterns of names, like fnmatch without flags: `*`, `?`, `[...]` with ranges, classes and
//! negation, and backslash. `*` and `?` also match a slash and a leading dot, as in GNU find.
//!
//! Letters are bytes, or UTF-8 characters; a byte outside any character is a letter of its own.
//! Most patterns are a literal between stars, and are matched as such.

mod linear;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::work::{NEVER, Work};

/// The letters of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Letters {
    /// Bytes, as in the C locale.
    Bytes,
    /// Characters of UTF-8.
    Utf8,
}

/// A pattern.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Source", into = "Source")]
pub struct Glob {
    source: Source,
    shape: Shape,
}

/// The error for a pattern beyond a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// It has too many bytes.
    #[error("the pattern has {0} bytes, and at most {BYTES_MAX} are accepted")]
    Bytes(usize),
    /// It has too many members of `weight`.
    #[error(
        "between its first and its last '*' the pattern has {0} letters, '?' and members of \
         brackets, and at most {WEIGHT_MAX} are accepted (text between two '*' without '?' and \
         brackets does not count)"
    )]
    Weight(usize),
}

/// Maximum bytes of a pattern.
const BYTES_MAX: usize = 64 << 10;

/// Maximum weight of a pattern: the time to match a row is proportional to it.
const WEIGHT_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Source {
    pattern: Vec<u8>,
    ignore_case: bool,
    letters: Letters,
}

/// The compiled form of a pattern. If case is ignored, literals are case-folded.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    /// This, and nothing else.
    Literal(Vec<u8>),
    /// `literal*`.
    Starts(Vec<u8>),
    /// `*literal`.
    Ends(Vec<u8>),
    /// `*literal*`; everything if it is empty.
    Contains(Vec<u8>),
    /// Anything else.
    General(Vec<Term>),
    /// Nothing: a backslash at the end quotes nothing.
    Never,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Term {
    /// This letter.
    Letter(u32),
    /// Any letter.
    One,
    /// Any letters, or none.
    Many,
    /// A letter of a set.
    Set { negated: bool, items: Vec<SetItem> },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum SetItem {
    Range(u32, u32),
    /// A letter given by name, as `[=a=]` or `[.a.]`.
    Named(u32),
    Class(Class),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Class {
    Alnum,
    Alpha,
    Blank,
    Cntrl,
    Digit,
    Graph,
    Lower,
    Print,
    Punct,
    Space,
    Upper,
    Xdigit,
}

/// Steps after which matching restarts in bounded time: so many, plus so many for each byte of the
/// text.
const STEPS_MAX: usize = 4096;
const STEPS_A_BYTE: usize = 16;

/// Maximum length of a class name.
const CLASS_BYTES_MAX: usize = 6;

/// Letters for bytes outside any character, above all characters.
const STRAY: u32 = 0x11_0000;

impl Glob {
    /// Reads a pattern.
    pub fn new(pattern: &[u8], ignore_case: bool, letters: Letters) -> Result<Glob, GlobError> {
        if pattern.len() > BYTES_MAX {
            return Err(GlobError::Bytes(pattern.len()));
        }
        let source = Source { pattern: pattern.to_vec(), ignore_case, letters };
        let shape = shape(&source);
        match &shape {
            Shape::General(parts) if weight(parts) > WEIGHT_MAX => {
                Err(GlobError::Weight(weight(parts)))
            }
            _ => Ok(Glob { source, shape }),
        }
    }

    /// A pattern for exactly these bytes.
    pub fn literal(bytes: &[u8]) -> Result<Glob, GlobError> {
        Glob::new(&quoted(bytes), false, Letters::Bytes)
    }

    /// A pattern for everything that contains these bytes.
    pub fn containing(
        bytes: &[u8],
        ignore_case: bool,
        letters: Letters,
    ) -> Result<Glob, GlobError> {
        let pattern = [b"*", &quoted(bytes)[..], b"*"].concat();
        Glob::new(&pattern, ignore_case, letters)
    }

    /// Whether the pattern matches all of a short text, such as a name.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.matches_until(text, &NEVER).expect("invariant: nothing cancels it")
    }

    /// Whether the pattern matches all of `text`, unless the caller cancels.
    pub fn matches_until(&self, text: &[u8], cancel: &AtomicBool) -> crate::Result<bool> {
        if let Shape::General(parts) = &self.shape {
            return general(parts, text, &self.source, &mut Work::until(cancel));
        }
        let folded;
        let text = if self.source.ignore_case {
            folded = fold(text, self.source.letters);
            &folded
        } else {
            text
        };
        Ok(match &self.shape {
            Shape::Literal(literal) => text == literal,
            Shape::Starts(literal) => text.starts_with(literal),
            Shape::Ends(literal) => text.ends_with(literal),
            Shape::Contains(literal) => memmem::find(text, literal).is_some(),
            Shape::General(_) | Shape::Never => false,
        })
    }

    /// Its compiled form, if case matters; otherwise `None`.
    pub(super) fn exact_shape(&self) -> Option<&Shape> {
        (!self.source.ignore_case).then_some(&self.shape)
    }

    /// Its compiled form; if case is ignored, literals are case-folded.
    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Whether case is ignored, and which letters it has.
    pub(super) fn folds(&self) -> (bool, Letters) {
        (self.source.ignore_case, self.source.letters)
    }

    /// Literals that a pattern of general shape requires: at the start, the longest anywhere, and
    /// at the end. Each may be empty.
    pub(super) fn literals(&self) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let Shape::General(parts) = &self.shape else { return Default::default() };
        let mut runs: Vec<Vec<u8>> = vec![Vec::new()];
        for part in parts {
            match (part, runs.last_mut()) {
                (Term::Letter(letter), Some(run)) => put_raw(*letter, self.source.letters, run),
                _ => runs.push(Vec::new()),
            }
        }
        let longest = runs.iter().max_by_key(|run| run.len()).cloned().unwrap_or_default();
        let last = runs.last().cloned().unwrap_or_default();
        (runs.swap_remove(0), longest, last)
    }

    /// The pattern as it was written.
    pub fn pattern(&self) -> &[u8] {
        &self.source.pattern
    }
}

impl From<Glob> for Source {
    fn from(glob: Glob) -> Source {
        glob.source
    }
}

impl TryFrom<Source> for Glob {
    type Error = GlobError;

    fn try_from(source: Source) -> Result<Glob, GlobError> {
        Glob::new(&source.pattern, source.ignore_case, source.letters)
    }
}

/// A literal as a pattern.
fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        if matches!(byte, b'*' | b'?' | b'[' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out
}

/// The first letter of a text and its length; `None` at the end.
#[inline]
pub(super) fn letter(text: &[u8], letters: Letters) -> Option<(u32, usize)> {
    let &first = text.first()?;
    if first < 0x80 {
        return Some((u32::from(first), 1));
    }
    if letters == Letters::Bytes {
        return Some((STRAY + u32::from(first), 1));
    }
    let length = match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    let character = text.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
    Some(match character.and_then(|text| text.chars().next()) {
        Some(character) => (u32::from(character), length),
        None => (STRAY + u32::from(first), 1),
    })
}

fn put(letter: u32, out: &mut Vec<u8>) {
    match char::from_u32(letter) {
        Some(character) => out.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
        None => out.push((letter - STRAY) as u8),
    }
}

/// Converts to lower case, letter by letter.
fn fold(text: &[u8], letters: Letters) -> Vec<u8> {
    if letters == Letters::Bytes || text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((found, length)) = letter(rest, letters) {
        put(lower(found), &mut out);
        rest = &rest[length..];
    }
    out
}

fn lower(letter: u32) -> u32 {
    let Some(character) = char::from_u32(letter) else { return letter };
    let mut small = character.to_lowercase();
    match (small.next(), small.next()) {
        (Some(one), None) => u32::from(one),
        _ => letter,
    }
}

fn shape(source: &Source) -> Shape {
    let Some(parts) = parts(source) else { return Shape::Never };
    let (first, last) = (parts.first() == Some(&Term::Many), parts.last() == Some(&Term::Many));
    let inner = match (first, last) {
        (true, true) if parts.len() > 1 => &parts[1..parts.len() - 1],
        (true, true) => &[],
        (true, false) => &parts[1..],
        (false, true) => &parts[..parts.len() - 1],
        (false, false) => &parts[..],
    };
    let mut literal = Vec::new();
    for part in inner {
        match part {
            Term::Letter(letter) => put_raw(*letter, source.letters, &mut literal),
            _ => return Shape::General(parts),
        }
    }
    match (first, last) {
        (true, true) => Shape::Contains(literal),
        (true, false) => Shape::Ends(literal),
        (false, true) => Shape::Starts(literal),
        (false, false) => Shape::Literal(literal),
    }
}

fn put_raw(letter: u32, letters: Letters, out: &mut Vec<u8>) {
    match letters {
        Letters::Utf8 => put(letter, out),
        Letters::Bytes if letter >= STRAY => out.push((letter - STRAY) as u8),
        Letters::Bytes => out.push(letter as u8),
    }
}

/// The parsed pattern; `None` if it matches nothing. Consecutive stars become one.
fn parts(source: &Source) -> Option<Vec<Term>> {
    let mut parts = Vec::new();
    let mut sets = Sets::default();
    let mut rest = &source.pattern[..];
    while let Some((found, length)) = letter(rest, source.letters) {
        rest = &rest[length..];
        match found {
            0x2a if parts.last() == Some(&Term::Many) => {}
            0x2a => parts.push(Term::Many),
            0x3f => parts.push(Term::One),
            0x5b => match sets.read(rest, source.letters) {
                Some((part, after)) => {
                    parts.push(part);
                    rest = after;
                }
                // Never closed: an ordinary letter.
                None => parts.push(Term::Letter(found)),
            },
            0x5c => {
                let (quoted, length) = letter(rest, source.letters)?;
                rest = &rest[length..];
                parts.push(folded_letter(quoted, source));
            }
            _ => parts.push(folded_letter(found, source)),
        }
    }
    Some(parts)
}

fn folded_letter(letter: u32, source: &Source) -> Term {
    Term::Letter(folded(letter, source))
}

/// A letter as it is compared.
fn folded(letter: u32, source: &Source) -> u32 {
    let ignore = source.ignore_case && (source.letters == Letters::Utf8 || letter < 0x80);
    if ignore { lower(letter) } else { letter }
}

/// Reads the sets of one pattern, in time linear in its length. The parse after a position in a set
/// depends on the position alone. So if one set is not closed from there, no other set is.
#[derive(Default)]
struct Sets {
    /// Positions from which a set is never closed, as the number of bytes that follow.
    unclosed: BTreeSet<usize>,
    /// Items read.
    #[cfg(test)]
    items: usize,
}

impl Sets {
    /// A set, from after its bracket; what follows it.
    fn read<'a>(&mut self, text: &'a [u8], letters: Letters) -> Option<(Term, &'a [u8])> {
        let mut rest = text;
        let negated = matches!(rest.first(), Some(b'!' | b'^'));
        if negated {
            rest = &rest[1..];
        }
        let (mut items, mut passed) = (Vec::new(), Vec::new());
        let mut next = set_item(rest, letters);
        while let Some((item, after)) = next {
            #[cfg(test)]
            {
                self.items += 1;
            }
            items.push(item);
            rest = after;
            if rest.first() == Some(&b']') {
                return Some((Term::Set { negated, items }, &rest[1..]));
            }
            if self.unclosed.contains(&rest.len()) {
                break;
            }
            passed.push(rest.len());
            next = set_item(rest, letters);
        }
        self.unclosed.extend(passed);
        None
    }
}

/// One item of a set, and what follows it.
fn set_item(text: &[u8], letters: Letters) -> Option<(SetItem, &[u8])> {
    if let Some((class, after)) = class(text) {
        return Some((SetItem::Class(class), after));
    }
    let named = named_letter(text, letters);
    let (low, rest) = named.or_else(|| set_letter(text, letters))?;
    if rest.first() == Some(&b'-') && rest.get(1).is_some_and(|&next| next != b']') {
        let (high, rest) = set_letter(&rest[1..], letters)?;
        return Some((SetItem::Range(low, high), rest));
    }
    Some((if named.is_some() { SetItem::Named(low) } else { SetItem::Range(low, low) }, rest))
}

/// One letter inside a set: plain, quoted, or named.
fn set_letter(text: &[u8], letters: Letters) -> Option<(u32, &[u8])> {
    if let Some(named) = named_letter(text, letters) {
        return Some(named);
    }
    let text = text.strip_prefix(b"\\").unwrap_or(text);
    let (found, length) = letter(text, letters)?;
    Some((found, &text[length..]))
}

/// A letter as `[.x.]` or `[=x=]`.
fn named_letter(text: &[u8], letters: Letters) -> Option<(u32, &[u8])> {
    for (open, close) in [(&b"[."[..], &b".]"[..]), (b"[=", b"=]")] {
        if let Some(inner) = text.strip_prefix(open)
            && let Some((found, length)) = letter(inner, letters)
            && let Some(after) = inner[length..].strip_prefix(close)
        {
            return Some((found, after));
        }
    }
    None
}

fn class(text: &[u8]) -> Option<(Class, &[u8])> {
    let inner = text.strip_prefix(b"[:")?;
    // No name is longer, and a longer search would run to the end at each bracket.
    let end = memmem::find(&inner[..inner.len().min(CLASS_BYTES_MAX + 2)], b":]")?;
    let class = match &inner[..end] {
        b"alnum" => Class::Alnum,
        b"alpha" => Class::Alpha,
        b"blank" => Class::Blank,
        b"cntrl" => Class::Cntrl,
        b"digit" => Class::Digit,
        b"graph" => Class::Graph,
        b"lower" => Class::Lower,
        b"print" => Class::Print,
        b"punct" => Class::Punct,
        b"space" => Class::Space,
        b"upper" => Class::Upper,
        b"xdigit" => Class::Xdigit,
        _ => return None,
    };
    Some((class, &inner[end + 2..]))
}

impl Class {
    fn contains(self, letter: u32) -> bool {
        let Some(character) = char::from_u32(letter) else { return false };
        if let Ok(byte) = u8::try_from(letter)
            && byte < 0x80
        {
            return match self {
                Class::Alnum => byte.is_ascii_alphanumeric(),
                Class::Alpha => byte.is_ascii_alphabetic(),
                Class::Blank => matches!(byte, b' ' | b'\t'),
                Class::Cntrl => byte.is_ascii_control(),
                Class::Digit => byte.is_ascii_digit(),
                Class::Graph => byte.is_ascii_graphic(),
                Class::Lower => byte.is_ascii_lowercase(),
                Class::Print => matches!(byte, b' '..=b'~'),
                Class::Punct => byte.is_ascii_punctuation(),
                Class::Space => matches!(byte, b'\t'..=b'\r' | b' '),
                Class::Upper => byte.is_ascii_uppercase(),
                Class::Xdigit => byte.is_ascii_hexdigit(),
            };
        }
        match self {
            Class::Alnum => character.is_alphanumeric(),
            Class::Alpha => character.is_alphabetic(),
            Class::Blank | Class::Space => character.is_whitespace(),
            Class::Cntrl => character.is_control(),
            Class::Digit | Class::Xdigit => false,
            Class::Lower => character.is_lowercase(),
            Class::Upper => character.is_uppercase(),
            Class::Punct => !character.is_alphanumeric() && !character.is_whitespace(),
            Class::Graph => !character.is_control() && !character.is_whitespace(),
            Class::Print => !character.is_control(),
        }
    }
}

/// What the parts of a pattern cost at each letter of a text. The parts before the first star and
/// after the last one are compared once. A literal between two stars costs the same at any length.
/// Each letter, `?` and member of a set counts in the other parts.
fn weight(parts: &[Term]) -> usize {
    let pieces: Vec<&[Term]> = parts.split(|part| *part == Term::Many).collect();
    let between = pieces.get(1..pieces.len() - 1).unwrap_or_default();
    let is_literal = |piece: &[Term]| piece.iter().all(|part| matches!(part, Term::Letter(_)));
    between.iter().filter(|piece| !is_literal(piece)).flat_map(|piece| *piece).map(Term::cost).sum()
}

/// Matches with one backtracking point, the last star: more are never needed. This is fast for
/// nearly all patterns and texts. If it takes much longer than reading the text, matching restarts
/// with an algorithm of bounded time.
fn general(
    parts: &[Term],
    text: &[u8],
    source: &Source,
    work: &mut Work<'_>,
) -> crate::Result<bool> {
    let mut left = STEPS_MAX + STEPS_A_BYTE * text.len();
    let (mut at, mut rest) = (0, text);
    let mut back: Option<(usize, &[u8])> = None;
    loop {
        let cost = parts.get(at).map_or(1, Term::cost);
        if left < cost {
            return linear::matches(parts, text, source, work);
        }
        left -= cost;
        work.count(cost)?;
        match parts.get(at) {
            Some(Term::Many) => {
                at += 1;
                back = Some((at, rest));
                continue;
            }
            Some(part) => {
                if let Some((found, length)) = letter(rest, source.letters)
                    && part.takes(found, source)
                {
                    at += 1;
                    rest = &rest[length..];
                    continue;
                }
            }
            None if rest.is_empty() => return Ok(true),
            None => {}
        }
        let Some((after, from)) = back else { return Ok(false) };
        let Some((_, length)) = letter(from, source.letters) else { return Ok(false) };
        rest = &from[length..];
        back = Some((after, rest));
        at = after;
    }
}

impl Term {
    /// Steps that a comparison with a letter takes.
    fn cost(&self) -> usize {
        match self {
            Term::Set { items, .. } => items.len().max(1),
            Term::Letter(_) | Term::One | Term::Many => 1,
        }
    }

    fn takes(&self, letter: u32, source: &Source) -> bool {
        match self {
            Term::Letter(wanted) => *wanted == folded(letter, source),
            Term::One | Term::Many => true,
            Term::Set { negated, items } => {
                items.iter().any(|item| item.contains(letter, source)) != *negated
            }
        }
    }
}

impl SetItem {
    /// Like fnmatch with ignored case: case is ignored in ranges, but not in named items.
    fn contains(&self, letter: u32, source: &Source) -> bool {
        match self {
            SetItem::Range(low, high) => {
                (folded(*low, source)..=folded(*high, source)).contains(&folded(letter, source))
            }
            SetItem::Named(named) => *named == letter,
            SetItem::Class(class) => class.contains(letter),
        }
    }
}

#[cfg(test)]
mod tests;
