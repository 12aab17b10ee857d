//! Names of batches: what was removed in one hour lies in one directory of the trash, named by the
//! hour (UTC), as `2026-11-22T13`. Where a name was removed there before, the next batch of the
//! hour begins, `2026-11-22T13.1`. Batches sort by hour and number as they were begun.

/// Nanoseconds of an hour.
const HOUR: i64 = 3_600_000_000_000;
/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// Days from the first of March of the year 0 to the first of January 1970.
const EPOCH_DAYS: i64 = 719_468;

/// A batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Batch {
    /// Hours since 1970.
    pub(crate) hour: i64,
    /// Which of the hour.
    pub(crate) number: u64,
}

impl Batch {
    /// The first batch of the hour of a time, in nanoseconds since 1970.
    pub(crate) fn of(now: i64) -> Batch {
        Batch { hour: now.div_euclid(HOUR), number: 0 }
    }

    /// The one after it.
    pub(crate) fn next(self) -> Batch {
        Batch { number: self.number + 1, ..self }
    }

    /// When its hour begins.
    pub(crate) fn begin(self) -> i64 {
        self.hour.saturating_mul(HOUR)
    }

    /// When its hour ends: nothing that was removed later is in it, unless the clock was put back.
    pub(crate) fn end(self) -> i64 {
        self.begin().saturating_add(HOUR)
    }

    /// Its name. The days of the calendar are Hinnant's, from March to February.
    pub(crate) fn name(self) -> String {
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

    /// The batch of a name, if it is one's.
    pub(crate) fn parse(name: &[u8]) -> Option<Batch> {
        let text = std::str::from_utf8(name).ok()?;
        let (text, number) = match text.split_once('.') {
            None => (text, 0),
            Some((text, number)) => (text, number.parse().ok()?),
        };
        let (date, hour) = text.split_once('T')?;
        let mut parts = date.split('-').map(str::parse::<i64>);
        let mut part = || parts.next()?.ok();
        let (year, month, day) = (part()?, part()?, part()?);
        let hour: i64 = hour.parse().ok()?;
        let possible = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24;
        if !possible || !(0..10_000).contains(&year) {
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

#[cfg(test)]
mod tests {
    use super::{Batch, HOUR};

    #[test]
    fn names_are_hours_and_come_back() {
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
    fn other_names_are_no_batches() {
        for name in ["", "x", "2023-11-14", "2023-11-14T24", "2023-02-30T00", "2023-11-14T2"] {
            assert_eq!(Batch::parse(name.as_bytes()), None, "{name}");
        }
        for name in ["2023-11-14T22.0", "2023-11-14T22.01", "+2023-11-14T22", "2023-11-14T22."] {
            assert_eq!(Batch::parse(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn batches_sort_as_they_were_begun() {
        let first = Batch::of(5 * HOUR);
        assert!(first < first.next() && first.next() < Batch::of(6 * HOUR));
        assert_eq!((first.begin(), first.end()), (5 * HOUR, 6 * HOUR));
    }
}
