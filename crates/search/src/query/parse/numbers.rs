//! Numbers with a sign for the comparison: `N` exactly, `+N` more, `-N` less.

use super::{Parsed, error, shown};
use crate::condition::Attribute;
use crate::query::Test;

/// The least value of any attribute.
pub(crate) const LEAST: i128 = i64::MIN as i128;
/// The greatest value of any attribute.
pub(crate) const MOST: i128 = u64::MAX as i128;

/// How a number is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    Less,
    Equal,
    More,
}

/// Splits off the sign.
pub(super) fn sign(text: &[u8]) -> (Compare, &[u8]) {
    match text.split_first() {
        Some((b'+', rest)) => (Compare::More, rest),
        Some((b'-', rest)) => (Compare::Less, rest),
        _ => (Compare::Equal, text),
    }
}

/// An unsigned number.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if !text.first()?.is_ascii_digit() {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// `[+-]N` of an attribute.
pub(super) fn compared(word: &[u8], attribute: Attribute, text: &[u8]) -> Parsed<Test> {
    let (compare, digits) = sign(text);
    let value = number(digits).ok_or_else(|| {
        error(format!("{} needs a number, '+N' or '-N', not '{}'", shown(word), shown(text)))
    })?;
    let value = i128::from(value);
    Ok(match compare {
        Compare::Less => Test::Within(attribute, LEAST, value - 1),
        Compare::Equal => Test::Within(attribute, value, value),
        Compare::More => Test::Within(attribute, value + 1, MOST),
    })
}

/// `[+-]N[bcwkMG]`: sizes are rounded up to whole units before they are compared.
pub(super) fn size(word: &[u8], text: &[u8]) -> Parsed<Test> {
    let wrong = || {
        error(format!(
            "{} needs a number with one of the units b (512 bytes), c (bytes), w (2 bytes), k, M, \
             G, not '{}'",
            shown(word),
            shown(text)
        ))
    };
    let (compare, rest) = sign(text);
    let (digits, unit) = match rest.split_last() {
        Some((b'b', digits)) => (digits, 512),
        Some((b'c', digits)) => (digits, 1),
        Some((b'w', digits)) => (digits, 2),
        Some((b'k', digits)) => (digits, 1 << 10),
        Some((b'M', digits)) => (digits, 1 << 20),
        Some((b'G', digits)) => (digits, 1 << 30),
        _ => (rest, 512),
    };
    let count = i128::from(number(digits).ok_or_else(wrong)?);
    Ok(units(Attribute::Size, compare, count, unit))
}

/// Compares a number of units, rounded up.
pub(crate) fn units(attribute: Attribute, compare: Compare, count: i128, unit: i128) -> Test {
    let (low, high) = match compare {
        Compare::Less => (LEAST, (count - 1) * unit),
        Compare::Equal => ((count - 1) * unit + 1, count * unit),
        Compare::More => (count * unit + 1, MOST),
    };
    Test::Within(attribute, low, high)
}
