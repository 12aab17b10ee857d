//! Retention of snapshots: when one is due, what it is called, and which are no longer kept.
//!
//! Everything here is calendar arithmetic: no clock is read, and nothing is deleted.

use std::collections::BTreeSet;
use std::fmt::Write;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use wire::{Failure, FailureKind, Keep};

use crate::failure::Result;

/// How the names of a schedule's snapshots begin, if nothing else is requested.
pub(crate) const PREFIX: &str = "auto";

/// The time in a snapshot's name, in UTC: it sorts, and no clock change repeats it.
const TIME: &str = "%Y-%m-%dT%H%M%SZ";

/// Parses a cron expression of five fields, or `@hourly`, `@daily`, `@weekly`, `@monthly`,
/// `@yearly`.
pub(crate) fn cron(text: &str) -> Result<Cron> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(text).map_err(|error| {
        Failure::new(FailureKind::Invalid, format!("'{text}' is not a schedule: {error}")).hint(
            "five fields: minute hour day month weekday; '0 * * * *' is every hour; or @daily",
        )
    })
}

/// The last time at or before `now` at which a schedule is due.
pub(crate) fn last_due(cron: &Cron, now: &Zoned) -> Option<Timestamp> {
    cron.find_previous_occurrence(now, true).ok().map(|due| due.timestamp())
}

/// The next time after `now` at which a schedule is due.
pub(crate) fn next_due(cron: &Cron, now: &Zoned) -> Option<Timestamp> {
    cron.find_next_occurrence(now, false).ok().map(|due| due.timestamp())
}

/// The name of a schedule's snapshot that is taken at a time.
pub(crate) fn name(prefix: &[u8], at: Timestamp) -> Vec<u8> {
    let time = at.to_zoned(TimeZone::UTC).strftime(TIME).to_string();
    [prefix, b"-", time.as_bytes()].concat()
}

/// The time in the name of a snapshot, if a schedule of this prefix gave it.
pub(crate) fn time_of(prefix: &[u8], name: &[u8]) -> Option<Timestamp> {
    let time = name.strip_prefix(prefix)?.strip_prefix(b"-")?;
    let time = DateTime::strptime(TIME, std::str::from_utf8(time).ok()?).ok()?;
    let time = time.to_zoned(TimeZone::UTC).ok()?.timestamp();
    // Nothing else has that name: `strptime` accepts more than `strftime` writes.
    (self::name(prefix, time) == name).then_some(time)
}

/// Parses what a schedule keeps: as [`keep`], or `all`.
pub(crate) fn keep_or_all(text: &str) -> std::result::Result<Keep, String> {
    if text == "all" { Ok(Keep::default()) } else { keep(text) }
}

/// Parses what is kept, such as `24h7d4w12m`.
pub(crate) fn keep(text: &str) -> std::result::Result<Keep, String> {
    let wrong = || {
        format!(
            "'{text}' is not a retention rule: expected numbers with h, d, w, m or y, such as \
             24h7d4w12m"
        )
    };
    let (mut keep, mut seen, mut rest) = (Keep::default(), BTreeSet::new(), text);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let count: u16 = rest[..end].parse().map_err(|_| wrong())?;
        let unit = rest[end..].chars().next().ok_or_else(wrong)?;
        let field = match unit {
            'h' => &mut keep.hours,
            'd' => &mut keep.days,
            'w' => &mut keep.weeks,
            'm' => &mut keep.months,
            'y' => &mut keep.years,
            _ => return Err(wrong()),
        };
        if !seen.insert(unit) || count == 0 {
            return Err(wrong());
        }
        *field = count;
        rest = &rest[end + 1..];
    }
    if seen.is_empty() { Err(wrong()) } else { Ok(keep) }
}

/// What is kept, as [`keep`] parses it; `everything` if nothing is deleted.
pub(crate) fn shown(keep: &Keep) -> String {
    let Keep { hours, days, weeks, months, years } = *keep;
    let mut text = String::new();
    for (count, unit) in [(hours, 'h'), (days, 'd'), (weeks, 'w'), (months, 'm'), (years, 'y')] {
        if count > 0 {
            write!(text, "{count}{unit}").unwrap_or_default();
        }
    }
    if text.is_empty() { "everything".to_owned() } else { text }
}

/// Which of the snapshots of these times are kept. Of each of the last so many hours, days, weeks,
/// months and years *that have a snapshot*, the newest is. The rules do not affect each other. So a
/// machine that was off keeps as many as one that was on. One that is later than now, of a clock
/// that was wrong, is kept, and takes the place of none.
pub(crate) fn kept(
    times: &[Timestamp],
    keep: &Keep,
    (now, zone): (Timestamp, &TimeZone),
) -> Vec<bool> {
    let Keep { hours, days, weeks, months, years } = *keep;
    if *keep == Keep::default() {
        return vec![true; times.len()];
    }
    let mut newest_first: Vec<usize> = (0..times.len()).collect();
    newest_first.sort_by_key(|&at| std::cmp::Reverse(times[at]));
    let mut is_kept: Vec<bool> = times.iter().map(|time| *time > now).collect();
    newest_first.retain(|&at| times[at] <= now);
    // The period of a time by each rule, and how many of those are kept.
    type Period = fn(&Zoned) -> (i64, i32);
    let rules: [(u16, Period); 5] = [
        (hours, |time| {
            // An hour that the clock repeats has another offset, and counts as another hour.
            let offset = time.offset().seconds();
            ((time.timestamp().as_second() + i64::from(offset)).div_euclid(3600), offset)
        }),
        (days, |time| (i64::from(time.year()), i32::from(time.day_of_year()))),
        (weeks, |time| {
            let week = time.date().iso_week_date();
            (i64::from(week.year()), i32::from(week.week()))
        }),
        (months, |time| (i64::from(time.year()), i32::from(time.month()))),
        (years, |time| (i64::from(time.year()), 0)),
    ];
    for (count, period) in rules {
        let mut periods = BTreeSet::new();
        for &at in &newest_first {
            if periods.len() >= usize::from(count) {
                break;
            }
            if periods.insert(period(&times[at].to_zoned(zone.clone()))) {
                is_kept[at] = true;
            }
        }
    }
    is_kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn names_sort_by_time_and_only_those_of_a_schedule_have_a_time() {
        let (early, late) = (at("2026-11-28T23:00:00Z"), at("2026-11-29T00:15:30Z"));
        let (first, second) = (name(b"auto", early), name(b"auto", late));
        assert_eq!(first, b"auto-2026-11-28T230000Z");
        assert!(first < second);
        assert_eq!(time_of(b"auto", &second), Some(late));
        for other in
            ["auto", "auto-", "auto-monday", "auto-2026-11-28T2300Z", "b-2026-11-28T230000Z"]
        {
            assert_eq!(time_of(b"auto", other.as_bytes()), None, "{other}");
        }
        assert_eq!(time_of(b"au", &first), None, "another prefix");
    }

    #[test]
    fn what_is_kept_is_parsed_and_shown() {
        let all = keep("24h7d4w12m2y").unwrap();
        assert_eq!(all, Keep { hours: 24, days: 7, weeks: 4, months: 12, years: 2 });
        assert_eq!(shown(&all), "24h7d4w12m2y");
        assert_eq!(shown(&Keep::default()), "everything");
        for wrong in ["", "7", "d", "0d", "7d7d", "7x", "-1d", "70000d", "7 d", "7d "] {
            assert!(keep(wrong).unwrap_err().contains("24h7d4w12m"), "{wrong}");
        }
    }

    #[test]
    fn expressions_of_five_fields_and_their_short_forms_are_schedules() {
        let now: Zoned = "2026-11-28T22:50:10[UTC]".parse().unwrap();
        for (text, last, next) in [
            ("*/15 * * * *", "2026-11-28T22:45:00Z", "2026-11-28T23:00:00Z"),
            ("@daily", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"),
            ("30 2 * * MON", "2026-11-23T02:30:00Z", "2026-11-30T02:30:00Z"),
        ] {
            let cron = cron(text).unwrap();
            assert_eq!(last_due(&cron, &now), Some(at(last)), "{text}");
            assert_eq!(next_due(&cron, &now), Some(at(next)), "{text}");
        }
        for wrong in ["", "x", "* * * *", "* * * * * *", "61 * * * *", "0 0 * * * 2027"] {
            let failure = cron(wrong).unwrap_err();
            assert!(failure.message.contains("is not a schedule"), "{wrong}: {}", failure.message);
        }
        // It never comes.
        assert_eq!(next_due(&cron("0 0 30 2 *").unwrap(), &now), None);
    }

    /// Every quarter of an hour for 60 days: what stays after each snapshot, as a schedule prunes.
    #[test]
    fn a_schedule_keeps_the_newest_of_each_period_that_has_one() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let keep = keep("4h3d2w2m").unwrap();
        // Over the end of summer time, so that an hour is there twice.
        let start = at("2026-09-20T00:07:00Z").as_second();
        let mut present: Vec<Timestamp> = Vec::new();
        for quarter in 0..60 * 96 {
            present.push(Timestamp::from_second(start + quarter * 900).unwrap());
            let now = *present.last().unwrap();
            let is_kept = kept(&present, &keep, (now, &zone));
            let mut flags = is_kept.into_iter();
            present.retain(|_| flags.next().unwrap());
            assert!(present.len() <= 4 + 3 + 2 + 2, "{present:?}");
        }
        let local =
            |time: &Timestamp| time.to_zoned(zone.clone()).strftime("%m-%d %H:%M").to_string();
        let shown: Vec<String> = present.iter().map(local).collect();
        assert_eq!(
            shown,
            [
                "10-31 23:52",
                "11-15 23:52",
                "11-17 23:52",
                "11-18 21:52",
                "11-18 22:52",
                "11-18 23:52",
                "11-19 00:52"
            ]
        );
    }

    #[test]
    fn an_hour_that_the_clock_repeats_counts_twice() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        // 02:30 in summer time, and 02:30 again.
        let times = [at("2026-10-25T00:30:00Z"), at("2026-10-25T01:30:00Z")];
        assert_eq!(kept(&times, &keep("2h").unwrap(), (times[1], &zone)), [true, true]);
        assert_eq!(kept(&times, &keep("1h").unwrap(), (times[1], &zone)), [false, true]);
        assert_eq!(kept(&times, &Keep::default(), (times[1], &zone)), [true, true]);
    }

    /// A machine that was off for a month keeps its last days.
    #[test]
    fn periods_without_a_snapshot_do_not_count() {
        let times =
            [at("2026-01-01T12:00:00Z"), at("2026-01-02T12:00:00Z"), at("2026-11-28T12:00:00Z")];
        assert_eq!(kept(&times, &keep("3d").unwrap(), (times[2], &TimeZone::UTC)), [true; 3]);
        assert_eq!(
            kept(&times, &keep("2d").unwrap(), (times[2], &TimeZone::UTC)),
            [false, true, true]
        );
    }

    /// A host whose clock was in 2030 for a moment.
    #[test]
    fn a_time_in_the_future_takes_no_other_ones_place() {
        let now = at("2026-11-28T12:00:00Z");
        let times = [at("2026-11-27T12:00:00Z"), now, at("2030-01-01T00:00:00Z")];
        let kept = kept(&times, &keep("1d").unwrap(), (now, &TimeZone::UTC));
        assert_eq!(kept, [false, true, true]);
    }
}
