//! Lines as `rsync --list-only` prints them: type and permissions, length, time, name.
//!
//! The time is that of the local time zone, and there are no owners and no numbers of inodes or
//! devices. The parser refuses what such a line does not determine: a device, a link without its
//! target or with several arrows, a rounded length.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use wire::Kind;

use super::Entry;

/// How a line is made.
pub(super) const COMMAND: &str = "rsync -rl --list-only";

/// Characters of type and permissions.
const MODE_CHARS: usize = 10;

/// Whether a list that begins so has lines of rsync.
pub(super) fn is_begun(start: &[u8]) -> bool {
    start.first_chunk().is_some_and(|mode| kind_and_mode(mode).is_some())
}

/// Reads a line, without its end.
pub(super) fn parse(line: &[u8]) -> Result<Entry, String> {
    let wrong = |what: &str| format!("{what}; expected what `{COMMAND}` prints");
    let mode = line.first_chunk().and_then(kind_and_mode);
    let (kind, mode) = mode.ok_or_else(|| wrong("no type and permissions"))?;
    let rest = &line[MODE_CHARS..];
    let mut rest = rest.strip_prefix(b" ").ok_or_else(|| wrong("no length"))?.trim_ascii_start();
    let mut field = |what: &str| {
        let end = rest.iter().position(|&byte| byte == b' ').ok_or_else(|| wrong(what))?;
        let (field, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        Ok::<_, String>(field)
    };
    let size = field("no length")?;
    let date = field("no date")?;
    let time = field("no time")?;
    let size = length(size)
        .ok_or_else(|| wrong("a malformed length (-h rounds lengths: leave it out)"))?;
    let mtime = moment(date, time).ok_or_else(|| wrong("a malformed time"))?;
    let (name, target) = match (kind, arrow(rest)) {
        (Kind::Symlink, Arrow::None) => return Err(wrong("a link without its target")),
        (Kind::Symlink, Arrow::Several) => {
            return Err("a link whose name or target has an arrow (` -> `)".to_owned());
        }
        (Kind::Symlink, Arrow::At(at)) => (&rest[..at], &rest[at + ARROW.len()..]),
        (Kind::CharDevice | Kind::BlockDevice, _) => {
            return Err("a device, whose number is not in the list".to_owned());
        }
        _ => (rest, &b""[..]),
    };
    Ok(Entry {
        path: unescaped(name),
        kind,
        mode: Some(mode),
        uid: None,
        gid: None,
        size: if kind == Kind::File { size } else { 0 },
        mtime: Some(mtime),
        atime: None,
        target: unescaped(target),
        rdev: 0,
        file: None,
        xattrs: Vec::new(),
    })
}

const ARROW: &[u8] = b" -> ";

enum Arrow {
    None,
    At(usize),
    Several,
}

fn arrow(text: &[u8]) -> Arrow {
    let is_arrow = |(at, part): (usize, &[u8])| (part == ARROW).then_some(at);
    let mut found = text.windows(ARROW.len()).enumerate().filter_map(is_arrow);
    match (found.next(), found.next()) {
        (None, _) => Arrow::None,
        (Some(at), None) => Arrow::At(at),
        (Some(_), Some(_)) => Arrow::Several,
    }
}

/// `-rwxr-xr-x`, with `s`, `S`, `t` and `T` for the bits above.
fn kind_and_mode(text: &[u8; MODE_CHARS]) -> Option<(Kind, u32)> {
    let [letter, bits @ ..] = text;
    let kind = match letter {
        b'-' => Kind::File,
        b'd' => Kind::Directory,
        b'l' => Kind::Symlink,
        b'p' => Kind::Fifo,
        b's' => Kind::Socket,
        b'c' => Kind::CharDevice,
        b'b' => Kind::BlockDevice,
        _ => return None,
    };
    let mut mode = 0;
    for (at, &bit) in bits.iter().enumerate() {
        let own = 1 << (8 - at);
        // The third of each group has a bit above, too: set-id for user and group, sticky.
        let above = 0o4000 >> (at / 3);
        let special = if at == 8 { b't' } else { b's' };
        mode |= match (at % 3, bit) {
            (_, b'-') => 0,
            (0, b'r') | (1, b'w') | (2, b'x') => own,
            (2, bit) if bit == special => own | above,
            (2, bit) if bit == special.to_ascii_uppercase() => above,
            _ => return None,
        };
    }
    Some((kind, mode))
}

/// A number, with separators between groups of three digits or without.
fn length(text: &[u8]) -> Option<u64> {
    let mut parts = text.split(|byte| matches!(byte, b',' | b'.'));
    let first = parts.next()?;
    let mut digits = first.to_vec();
    let mut is_grouped = false;
    for part in parts {
        is_grouped = true;
        if part.len() != 3 {
            return None;
        }
        digits.extend_from_slice(part);
    }
    if is_grouped && first.len() > 3 {
        return None;
    }
    super::decimal(&digits)
}

/// `2026/11/29` and `15:45:43`, in nanoseconds since 1970.
fn moment(date: &[u8], time: &[u8]) -> Option<i64> {
    let numbers = |text: &[u8], separator: u8| {
        let parts: Option<Vec<u64>> =
            text.split(|&byte| byte == separator).map(super::decimal).collect();
        parts.and_then(|parts| <[u64; 3]>::try_from(parts).ok())
    };
    let [year, month, day] = numbers(date, b'/')?;
    // An exact second, or with a fraction.
    let (seconds, fraction) = match time.iter().position(|&byte| byte == b'.') {
        Some(at) => (&time[..at], &time[at + 1..]),
        None => (time, &b""[..]),
    };
    let [hour, minute, second] = numbers(seconds, b':')?;
    let mut fraction = fraction.to_vec();
    if fraction.len() > 9 {
        return None;
    }
    fraction.resize(9, b'0');
    let at = DateTime::new(
        i16::try_from(year).ok()?,
        i8::try_from(month).ok()?,
        i8::try_from(day).ok()?,
        i8::try_from(hour).ok()?,
        i8::try_from(minute).ok()?,
        i8::try_from(second).ok()?,
        i32::try_from(super::decimal(&fraction)?).ok()?,
    );
    let at = at.ok()?.to_zoned(TimeZone::system()).ok()?;
    i64::try_from(at.timestamp().as_nanosecond()).ok()
}

/// Replaces `\#ooo`, which is a byte by its octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&byte, after)) = rest.split_first() {
        let digits = rest.strip_prefix(b"\\#").and_then(|digits| digits.first_chunk::<3>());
        let octal = digits.and_then(|digits| super::octal(digits));
        if let Some(octal) = octal.and_then(|octal| u8::try_from(octal).ok()) {
            out.push(octal);
            rest = &rest[5..];
        } else {
            out.push(byte);
            rest = after;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_rsync_are_read() {
        let read = parse(b"-rw-r--r--      1,234,567 2026/11/29 15:45:43 a/b c").unwrap();
        assert_eq!((read.path.as_slice(), read.size), (&b"a/b c"[..], 1_234_567));
        assert_eq!((read.kind, read.mode, read.uid), (Kind::File, Some(0o644), None));
        let whole = read.mtime.unwrap();
        let read = parse(b"-rwsr-Sr-T 7 2026/11/29 15:45:43.5  lead\\#012\\#134#1 ").unwrap();
        assert_eq!(read.path, b" lead\n\\#1 ");
        assert_eq!((read.mode, read.mtime), (Some(0o7744), Some(whole + 500_000_000)));
        let read = parse(b"drwxrwxrwt          4,096 1969/12/31 23:59:00 .").unwrap();
        assert_eq!((read.kind, read.mode, read.size), (Kind::Directory, Some(0o1777), 0));
        let read = parse(b"lrwxrwxrwx 1 2026/11/29 15:45:43 l -> ../x y").unwrap();
        assert_eq!((&read.path[..], &read.target[..]), (&b"l"[..], &b"../x y"[..]));
        // An arrow is part of any other name.
        let read = parse(b"-rw-r--r-- 1 2026/11/29 15:45:43 a -> b").unwrap();
        assert_eq!((&read.path[..], &read.target[..]), (&b"a -> b"[..], &b""[..]));
    }

    #[test]
    fn what_a_line_does_not_determine_is_refused() {
        for (line, why) in [
            (&b"lrwxrwxrwx 1 2026/11/29 15:45:43 l"[..], "without its target"),
            (b"lrwxrwxrwx 1 2026/11/29 15:45:43 a -> b -> c", "arrow"),
            (b"crw------- 0 2026/11/29 15:45:43 null", "device"),
            (b"-rw-r--r-- 4.10K 2026/11/29 15:45:43 f", "-h rounds"),
            (b"-rw-r--r-- 1234,567 2026/11/29 15:45:43 f", "length"),
            (b"-rw-r--r-- 99999999999999999999 2026/11/29 15:45:43 f", "length"),
            (b"-rw-r--r-- 1 2026/02/30 15:45:43 f", "time"),
            (b"-rw-r--r-- 1 2026/11/29 25:45:43 f", "time"),
            (b"-rw-r--r-- 1 9999/12/31 15:45:43 f", "time"),
            (b"-rw-r--r-- 1 2026/11/29", "no date"),
            (b"-rw-r--r--1 2026/11/29 15:45:43 f", "length"),
            (b"-rw-r--r-q 1 2026/11/29 15:45:43 f", "permissions"),
            (b"sent 20 bytes  received 1,000 bytes", "permissions"),
            (b"", "permissions"),
        ] {
            let reported = parse(line).unwrap_err();
            assert!(reported.contains(why), "{}: {reported}", line.escape_ascii());
        }
        assert!(is_begun(b"drwxr-xr-x 1") && is_begun(b"-rw-r--r--"));
        assert!(!is_begun(b"d 0755 0 0 1 1") && !is_begun(b"{\"path\"") && !is_begun(b"-rw"));
    }
}
