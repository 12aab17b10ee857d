//! Points in time: as users write them, and as `-printf` and `-ls` show them (in the C locale).

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

const SECOND: i64 = 1_000_000_000;

fn zoned(nanos: i64, zone: &TimeZone) -> Option<Zoned> {
    Some(Timestamp::from_nanosecond(i128::from(nanos)).ok()?.to_zoned(zone.clone()))
}

fn nanos(time: &Zoned) -> Option<i64> {
    i64::try_from(time.timestamp().as_nanosecond()).ok()
}

/// When the day of a point in time began.
pub(super) fn day_start(now: i64, zone: &TimeZone) -> i64 {
    zoned(now, zone)
        .and_then(|now| now.start_of_day().ok())
        .and_then(|start| nanos(&start))
        .unwrap_or(now - now.rem_euclid(86_400 * SECOND))
}

/// Parses a point in time: a day, a day and a time, RFC 3339, `@SECONDS`, `now`, `today`,
/// `yesterday`, `tomorrow`, or `N UNITS ago`.
pub(crate) fn parse(text: &str, now: i64, zone: &TimeZone) -> Option<i64> {
    let text = text.trim();
    if let Some(seconds) = text.strip_prefix('@') {
        let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let whole: i64 = whole.parse().ok()?;
        if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = format!("{fraction:0<9}");
        let fraction: i64 = digits.get(..9)?.parse().ok()?;
        return whole.checked_mul(SECOND)?.checked_add(fraction);
    }
    match text {
        "now" => return Some(now),
        "today" => return Some(day_start(now, zone)),
        "yesterday" => return Some(day_start(day_start(now, zone) - 1, zone)),
        "tomorrow" => return Some(day_start(day_start(now, zone) + 36 * 3600 * SECOND, zone)),
        _ => {}
    }
    if let Some(ago) = text.strip_suffix(" ago") {
        return before(ago, now, zone);
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return i64::try_from(time.as_nanosecond()).ok();
    }
    let local: DateTime = match text.parse::<DateTime>() {
        Ok(local) => local,
        Err(_) => match DateTime::strptime("%Y-%m-%d %H:%M", text) {
            Ok(local) => local,
            Err(_) => text.parse::<Date>().ok()?.to_datetime(jiff::civil::Time::midnight()),
        },
    };
    nanos(&local.to_zoned(zone.clone()).ok()?)
}

/// A time before now: `3 days`.
fn before(text: &str, now: i64, zone: &TimeZone) -> Option<i64> {
    let (number, unit) = text.split_once(' ')?;
    let number: i64 = number.parse().ok()?;
    let unit = unit.trim().trim_end_matches('s');
    let seconds = match unit {
        "second" | "sec" => 1,
        "minute" | "min" => 60,
        "hour" => 3600,
        "day" => 86_400,
        "week" => 7 * 86_400,
        "month" | "year" => {
            let months = if unit == "month" { Some(number) } else { number.checked_mul(12) };
            return months_before(months?, now, zone);
        }
        _ => return None,
    };
    now.checked_sub(number.checked_mul(seconds)?.checked_mul(SECOND)?)
}

/// The time a given number of months before now, as GNU's tools count. It is at the same clock
/// time, regardless of summer time. The 31st of a shorter month becomes a day of the next month.
fn months_before(months: i64, now: i64, zone: &TimeZone) -> Option<i64> {
    let now = zoned(now, zone)?;
    let clock = now.with_time_zone(TimeZone::fixed(now.offset()));
    let month = i64::from(clock.year()) * 12 + i64::from(clock.month()) - 1;
    let month = month.checked_sub(months)?;
    let year = i16::try_from(month.div_euclid(12)).ok()?;
    let first = Date::new(year, month.rem_euclid(12) as i8 + 1, 1).ok()?;
    let days = jiff::Span::new().try_days(clock.day() - 1).ok()?;
    let day = first.checked_add(days).ok()?;
    nanos(&day.to_datetime(clock.time()).to_zoned(clock.time_zone().clone()).ok()?)
}

/// One form of a time, by the letter that GNU find gives it.
pub(super) fn form(letter: u8, time: i64, zone: &TimeZone) -> String {
    // Seconds have ten digits after the point, of which the last is always zero.
    let fraction = format!(".{:09}0", time.rem_euclid(SECOND));
    let seconds = time.div_euclid(SECOND);
    let Some(at) = zoned(time, zone) else { return seconds.to_string() };
    let pattern = match letter {
        b'@' => return format!("{seconds}{fraction}"),
        b'S' => return at.strftime("%S").to_string() + &fraction,
        b'T' | b'X' => return at.strftime("%H:%M:%S").to_string() + &fraction,
        b'+' => return at.strftime("%Y-%m-%d+%H:%M:%S").to_string() + &fraction,
        // The format of ctime(3), with the fraction.
        0 => {
            let before = at.strftime("%a %b %e %H:%M:%S").to_string();
            return format!("{before}{fraction} {}", at.strftime("%Y"));
        }
        b'H' => "%H",
        b'I' => "%I",
        b'k' => "%k",
        b'l' => "%l",
        b'M' => "%M",
        b'p' => "%p",
        b'r' => "%I:%M:%S %p",
        b'Z' => "%Z",
        b'a' => "%a",
        b'A' => "%A",
        b'b' | b'h' => "%b",
        b'B' => "%B",
        b'c' => "%a %b %e %H:%M:%S %Y",
        b'd' => "%d",
        b'D' | b'x' => "%m/%d/%y",
        b'j' => "%j",
        b'm' => "%m",
        b'U' => "%U",
        b'w' => "%w",
        b'W' => "%W",
        b'y' => "%y",
        b'Y' => "%Y",
        _ => "%Y-%m-%d",
    };
    at.strftime(pattern).to_string()
}

/// A time as `ls -l` shows it: in the last half year with the hour, else with the year.
pub(super) fn listed(time: i64, now: i64, zone: &TimeZone) -> String {
    let Some(at) = zoned(time, zone) else { return time.div_euclid(SECOND).to_string() };
    let (time, now) = (time.div_euclid(SECOND), now.div_euclid(SECOND));
    let recent = now - 180 * 86_400 <= time && time <= now + 3600;
    at.strftime(if recent { "%b %e %H:%M" } else { "%b %e  %Y" }).to_string()
}

#[cfg(test)]
mod tests {
    use super::{SECOND, form, parse};
    use jiff::tz::TimeZone;

    #[test]
    fn points_in_time_are_parsed() {
        let now = 1_700_000_000 * SECOND;
        for (text, seconds) in [
            ("@5", 5),
            ("@-5", -5),
            ("1970-01-02", 86_400),
            ("1970-01-01 00:01", 60),
            ("1970-01-01 00:00:01", 1),
            ("1970-01-01T00:00:02", 2),
            ("1970-01-01T01:00:00+01:00", 0),
            ("1 day ago", 1_700_000_000 - 86_400),
            ("today", 1_699_920_000),
            ("yesterday", 1_699_920_000 - 86_400),
        ] {
            assert_eq!(parse(text, now, &TimeZone::UTC), Some(seconds * SECOND), "{text}");
        }
        assert_eq!(parse("@1.5", now, &TimeZone::UTC), Some(SECOND * 3 / 2));
        for text in ["", "soon", "@x", "1970-13-01", "x days ago", "@1.x"] {
            assert_eq!(parse(text, now, &TimeZone::UTC), None, "{text}");
        }
    }

    /// Like `date --date`, where summer time ended in between, and where a month is shorter.
    #[test]
    fn months_are_computed_as_in_gnu_find() {
        let zone = TimeZone::get("America/New_York").unwrap();
        let nanos = |text: &str| {
            let time: jiff::Zoned = format!("{text}[America/New_York]").parse().unwrap();
            i64::try_from(time.timestamp().as_nanosecond()).unwrap()
        };
        for (now, ago, then) in [
            ("2026-11-25T20:43:29-05:00", "1 month ago", "2026-10-25T21:43:29-04:00"),
            ("2026-11-25T20:43:29-05:00", "1 year ago", "2025-11-25T20:43:29-05:00"),
            ("2026-11-25T20:43:29-05:00", "30 days ago", "2026-10-26T21:43:29-04:00"),
            ("2026-05-31T12:00:00-04:00", "3 months ago", "2026-03-03T11:00:00-05:00"),
            ("2026-03-31T12:00:00-04:00", "1 month ago", "2026-03-03T11:00:00-05:00"),
        ] {
            assert_eq!(parse(ago, nanos(now), &zone), Some(nanos(then)), "{ago} from {now}");
        }
    }

    #[test]
    fn times_are_printed_as_by_gnu_find() {
        let time = 1_654_086_896 * SECOND + 123_456_789;
        let of = |letter| form(letter, time, &TimeZone::UTC);
        assert_eq!(of(b'@'), "1654086896.1234567890");
        assert_eq!(of(0), "Wed Jun  1 12:34:56.1234567890 2022");
        assert_eq!(of(b'+'), "2022-06-01+12:34:56.1234567890");
        assert_eq!(of(b'c'), "Wed Jun  1 12:34:56 2022");
        assert_eq!(of(b'r'), "12:34:56 PM");
        assert_eq!(of(b'j'), "152");
        assert_eq!((of(b'U'), of(b'W'), of(b'w')), ("22".into(), "22".into(), "3".into()));
    }
}
