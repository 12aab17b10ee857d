//! Names of batches: what was removed in one hour is in one directory of the trash, named by the
//! hour (UTC), as `2026-11-22T13`. If the same name was removed there before, the next batch of the
//! hour begins, `2026-11-22T13.1`. Batches sort by hour and number in the order they were begun.

/// Nanoseconds of an hour.
const HOUR: i64 = 3_600_000_000_000;
/// Batches of an hour from which on the owners of its batches are counted before one begins.
const CROWDED: u64 = 1000;
/// The greatest number of a batch: its name has no more digits.
const NUMBER_MAX: u64 = 999_999_999;
/// Hours that a batch may be ahead of the clock and still be the present one. A larger difference
/// is not explained by a clock that was set back.
const AHEAD_MAX: i64 = 1;
/// Digits of a number that a name may have: more than any hour's.
const DIGITS_MAX: usize = 9;
/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// Days from the first of March of the year 0 to the first of January 1970.
const EPOCH_DAYS: i64 = 719_468;

/// A batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Batch {
    /// Hours since 1970.
    pub hour: i64,
    /// Which of the hour.
    pub number: u64,
}

impl Batch {
    /// The first batch of the hour of a time, in nanoseconds since 1970.
    pub fn of(now: i64) -> Batch {
        Batch { hour: now.div_euclid(HOUR), number: 0 }
    }

    /// The one after it.
    pub fn next(self) -> Batch {
        Batch { number: self.number.saturating_add(1), ..self }
    }

    /// Whether its hour has so many batches that a user's share of them may be used up.
    pub(crate) fn is_crowded(self) -> bool {
        self.number >= CROWDED - 1
    }

    /// Whether its hour can have no other.
    pub fn is_last(self) -> bool {
        self.number >= NUMBER_MAX
    }

    /// Whether it can be the present one at the time of another.
    pub(crate) fn may_follow(self, now: Batch) -> bool {
        self.hour <= now.hour.saturating_add(AHEAD_MAX)
    }

    /// When its hour begins.
    pub fn begin(self) -> i64 {
        self.hour.saturating_mul(HOUR)
    }

    /// When its hour ends: nothing that was removed later is in it, unless the clock was put back.
    pub fn end(self) -> i64 {
        self.begin().saturating_add(HOUR)
    }

    /// Its name. The days of the calendar are Hinnant's, from March to February.
    pub fn name(self) -> String {
        let days = self.hour.div_euclid(24) + EPOCH_DAYS;
        let (era, day) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let of_year = day - (365 * year + year / 4 - year / 100);
        let march = (5 * of_year + 2) / 153;
        let date = of_year - (153 * march + 2) / 5 + 1;
        let month = if march < 10 { march + 3 } else { march - 9 };
        let year = year + era * 400 + i64::from(month <= 2);
        let hour = self.hour.rem_euclid(24);
        let name = format!("{year:04}-{month:02}-{date:02}T{hour:02}");
        if self.number == 0 { name } else { format!("{name}.{}", self.number) }
    }

    /// The batch of a name, if it is one's. Any user who may write the directory may create names.
    pub fn parse(name: &[u8]) -> Option<Batch> {
        let (text, number) = match name.split_at_checked("2026-11-22T13".len())? {
            (text, []) => (text, 0),
            (text, [b'.', digits @ ..]) if digits.len() <= DIGITS_MAX => (text, decimal(digits)?),
            _ => return None,
        };
        let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T', h0, h1] = *text else {
            return None;
        };
        let year = i64::try_from(decimal(&[y0, y1, y2, y3])?).ok()?;
        let month = i64::try_from(decimal(&[m0, m1])?).ok()?;
        let day = i64::try_from(decimal(&[d0, d1])?).ok()?;
        let hour = i64::try_from(decimal(&[h0, h1])?).ok()?;
        let possible = (1..=12).contains(&month) && (1..=31).contains(&day);
        if !possible || !(0..24).contains(&hour) {
            return None;
        }
        let year = year - i64::from(month <= 2);
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let march = if month > 2 { month - 3 } else { month + 9 };
        let of_year = (153 * march + 2) / 5 + day - 1;
        let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year + era * ERA_DAYS;
        let batch = Batch { hour: (days - EPOCH_DAYS) * 24 + hour, number };
        // One name a batch: no other spelling is taken for it.
        (batch.name().as_bytes() == name).then_some(batch)
    }
}

/// The number that digits, and nothing else, are.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::{Batch, HOUR};

    #[test]
    fn hostile_names_are_not_batches_and_stop_nothing() {
        for name in [
            "1969-01-01T-9223372036854775808",
            "1969-01-01T-1",
            "2026-11-22T23.18446744073709551615",
            "2026-11-22T23.18446744073709551616",
            "2026-11-22T23.9999999999",
            "2026-11-22T23.+1",
            "2026-11-22T23.1.1",
            "2026-11-22T23.",
            "2026-11-22T23x1",
            "2026-11-22T+3",
            "2026-11-22T 3",
            "-026-11-22T03",
            "99999-11-22T03",
            "2026-00-22T03",
            "2026-13-22T03",
            "2026-11-00T03",
            "2026-11-31T03",
            "2026-11-22t03",
            "2026-11-22T03\u{0660}",
            "9223372036854775807-01-01T00",
        ] {
            assert_eq!(Batch::parse(name.as_bytes()), None, "{name}");
        }
        assert_eq!(Batch::parse(b"2026-11-22T\xff3"), None);
        for name in ["0000-01-01T00", "9999-12-31T23.999999999"] {
            let batch = Batch::parse(name.as_bytes()).expect(name);
            assert!(batch.begin() < batch.end() || batch.end() == i64::MAX, "{name}");
            assert_eq!(batch.next().number, batch.number + 1);
        }
        let last = Batch { hour: i64::MAX, number: u64::MAX };
        assert_eq!(last.next(), last);
    }

    #[test]
    fn names_encode_hours_and_round_trip() {
        assert_eq!(Batch::of(0).name(), "1970-01-01T00");
        assert_eq!(Batch::of(1_700_000_000_000_000_000).name(), "2023-11-14T22");
        let leap = Batch::of(951_782_400_000_000_000 + 23 * HOUR);
        assert_eq!(leap.name(), "2000-02-29T23");
        assert_eq!(leap.next().name(), "2000-02-29T23.1");
        for hour in (-100_000..1_000_000).step_by(997) {
            for number in [0, 1, 77] {
                let batch = Batch { hour, number };
                assert_eq!(Batch::parse(batch.name().as_bytes()), Some(batch));
            }
        }
    }

    #[test]
    fn other_names_are_not_batches() {
        for name in ["", "x", "2023-11-14", "2023-11-14T24", "2023-02-30T00", "2023-11-14T2"] {
            assert_eq!(Batch::parse(name.as_bytes()), None, "{name}");
        }
        for name in ["2023-11-14T22.0", "2023-11-14T22.01", "+2023-11-14T22", "2023-11-14T22."] {
            assert_eq!(Batch::parse(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn batch_names_sort_by_time() {
        let first = Batch::of(5 * HOUR);
        assert!(first < first.next() && first.next() < Batch::of(6 * HOUR));
        assert_eq!((first.begin(), first.end()), (5 * HOUR, 6 * HOUR));
    }
}
