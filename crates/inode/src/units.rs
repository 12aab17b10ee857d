//! Sizes and times as people write them: one parser of both, for options of commands and mounts,
//! and for search expressions.

use std::time::Duration;

/// Further digits after the decimal point are insignificant.
const FRACTION_DIGITS: usize = 18;

/// Nanoseconds in a second.
const NANOS: u64 = 1_000_000_000;

/// Parses a number of bytes: digits, optionally with a fraction, and optionally `K`, `M`, `G`, `T`
/// or `P`. These are powers of 1024, of either case, which `B` or `iB` may follow.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = measured(text)?;
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        "P" | "PB" | "PIB" => 50,
        _ => return None,
    };
    u64::try_from(number.times(1 << shift)).ok()
}

/// As [`parse_bytes`], for a limit in bytes: a number without a unit must be whole, and a positive
/// limit is at least one byte.
pub fn parse_limit(text: &str) -> Option<u64> {
    let bytes = parse_bytes(text)?;
    let (number, unit) = measured(text)?;
    let is_bytes = matches!(unit.to_ascii_uppercase().as_str(), "" | "B");
    let digits = text.bytes().filter(u8::is_ascii_digit);
    let is_nothing = digits.clone().all(|digit| digit == b'0');
    (!(is_bytes && number.fraction != 0) && (bytes != 0 || is_nothing)).then_some(bytes)
}

/// Parses a time: a number, optionally with a fraction, with `s`, `m` (or `min`), `h`, `d`, `w` or
/// `y` (of 365.25 days). Months vary in length, so they have no unit.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = measured(text)?;
    let seconds = match unit {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        "y" => 31_557_600,
        _ => return None,
    };
    let nanos = number.times(seconds * NANOS);
    let (seconds, nanos) = (nanos / u128::from(NANOS), nanos % u128::from(NANOS));
    Some(Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?))
}

/// A number as written: the digits before the decimal point, and after it.
struct Number {
    whole: u64,
    fraction: u64,
    /// The divisor of `fraction`.
    of: u64,
}

impl Number {
    /// The number times a unit, rounded down.
    fn times(&self, unit: u64) -> u128 {
        let unit = u128::from(unit);
        u128::from(self.whole) * unit + u128::from(self.fraction) * unit / u128::from(self.of)
    }
}

/// Splits a text into its number and the unit after it.
fn measured(text: &str) -> Option<(Number, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if fraction.contains('.') || whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS)];
    let read = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse().ok() };
    let of = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    Some((Number { whole: read(whole)?, fraction: read(fraction)?, of }, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("16k", Some(16 << 10)),
            ("512M", Some(512 << 20)),
            ("10MiB", Some(10 << 20)),
            ("10MB", Some(10 << 20)),
            ("3GiB", Some(3 << 30)),
            ("1TB", Some(1 << 40)),
            ("2p", Some(2 << 50)),
            ("1.5G", Some(3 << 29)),
            (".5K", Some(512)),
            ("2.", Some(2)),
            ("1.0000000000000000000000001", Some(1)),
            ("", None),
            (".", None),
            ("M", None),
            ("-1", None),
            ("1.5.5G", None),
            ("1X", None),
            ("1 G", None),
            ("99999999999T", None),
        ] {
            assert_eq!(parse_bytes(text), bytes, "{text}");
        }
    }

    #[test]
    fn a_limit_counts_whole_bytes() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("0.0", Some(0)),
            ("0K", Some(0)),
            ("4096", Some(4096)),
            ("1.5K", Some(1536)),
            ("1.1G", Some(1_181_116_006)),
            ("0.001K", Some(1)),
            ("0.1", None),
            ("1.5", None),
            ("1.5B", None),
            ("0.0001K", None),
            ("many", None),
        ] {
            assert_eq!(parse_limit(text), bytes, "{text}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        for (text, seconds) in [
            ("0s", 0),
            ("90m", 5400),
            ("90min", 5400),
            ("1.5h", 5400),
            ("3d", 259_200),
            ("2w", 1_209_600),
            ("1y", 31_557_600),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_duration("0.5s"), Some(Duration::from_millis(500)));
        for text in ["", "5", "h", "-1h", "1mo", "1 h", "99999999999999999999d"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
