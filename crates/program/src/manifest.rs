//! Lists of names with attributes: JSON lines as `pando find --json` prints them, what GNU
//! `find -printf` prints with [`PRINTF`], and what `rsync --list-only` prints. The beginning of a
//! list shows which it is, or that it is no list ([`FORMATS`]).
//!
//! The input may be hostile: an entry ends with a value or a reason, and memory is bounded by
//! [`ENTRY_BYTES_MAX`].

mod found;
mod plain;
mod rsync;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Chain, Cursor, Read};

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use wire::Kind;

pub use found::FORMATS;
use found::quoted;

/// The format of `find -printf` that is read; a NUL ends a path and a target.
pub const PRINTF: &str = r"%y %#m %U %G %s %T@ %A@ %n %D:%i %P\0%l\0";

/// Longest entry.
pub const ENTRY_BYTES_MAX: u64 = 1 << 20;

/// One name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path.
    pub path: Vec<u8>,
    /// Its type.
    pub kind: Kind,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size: u64,
    /// Last change of contents, in nanoseconds since 1970.
    pub mtime: Option<i64>,
    /// Last read, in nanoseconds since 1970.
    pub atime: Option<i64>,
    /// The target of a symbolic link.
    pub target: Vec<u8>,
    /// Device number.
    pub rdev: u32,
    /// The file, if it has several names: all entries with this value are the same file.
    pub file: Option<(u64, u64)>,
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Read1 {
    /// An entry.
    Entry(Box<Entry>),
    /// Not an entry, and why. The next one can be read.
    Bad(String),
}

/// What a list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Find,
    Rsync,
    /// None of them: no line is an entry.
    Unknown,
}

/// Bytes that show what a list has.
const START_BYTES: u64 = 64;

/// A list that is read.
pub struct Manifest<R> {
    /// Its beginning, which was looked at, and the rest.
    input: Chain<Cursor<Vec<u8>>, R>,
    buffer: Vec<u8>,
    /// The number of the line or record that was read last, from 1.
    number: u64,
    format: Option<Format>,
}

impl<R: BufRead> Manifest<R> {
    /// Reads a list.
    pub fn new(input: R) -> Manifest<R> {
        let input = Cursor::new(Vec::new()).chain(input);
        Manifest { input, buffer: Vec::new(), number: 0, format: None }
    }

    /// The number of what was read last: a line, or a record of `find -printf`.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the beginning, which was read, is that of a list: otherwise no part is an entry.
    pub fn is_list(&self) -> bool {
        self.format != Some(Format::Unknown)
    }

    /// The word for that.
    pub fn unit(&self) -> &'static str {
        if self.format == Some(Format::Find) { "record" } else { "line" }
    }

    /// The next entry; `None` at the end. Empty lines are ignored.
    pub fn read_next(&mut self) -> io::Result<Option<Read1>> {
        loop {
            let format = match self.format {
                Some(format) => format,
                None => self.begin()?,
            };
            let lines = format != Format::Find;
            self.buffer.clear();
            self.number += 1;
            if !self.until(if lines { b'\n' } else { 0 })? {
                let cut = || bad("it is cut short: no NUL ends its path", &self.buffer);
                return Ok((!self.buffer.is_empty()).then(cut));
            }
            if lines && self.buffer.trim_ascii().is_empty() {
                continue;
            }
            if format == Format::Unknown {
                return Ok(Some(bad("it is not in a known format of a list", &self.buffer)));
            }
            if self.buffer.len() as u64 > ENTRY_BYTES_MAX {
                return Ok(Some(bad("longer than 1 MiB", &self.buffer)));
            }
            if lines {
                let parsed = match format {
                    Format::Rsync => rsync::parse(&self.buffer),
                    _ => plain::parse(&self.buffer).map_or_else(|| parse_json(&self.buffer), Ok),
                };
                return Ok(Some(read(parsed, &self.buffer)));
            }
            let first = std::mem::take(&mut self.buffer);
            if !self.until(0)? {
                return Ok(Some(bad("it is cut short: no NUL ends its target", &first)));
            }
            return Ok(Some(read(parse_printf(&first, &self.buffer), &first)));
        }
    }

    /// Looks at the beginning of the list.
    fn begin(&mut self) -> io::Result<Format> {
        let (begun, rest) = self.input.get_mut();
        let mut start = Vec::new();
        rest.by_ref().take(START_BYTES).read_to_end(&mut start)?;
        let text = start.trim_ascii_start();
        // JSON begins with a brace, and nothing of the other formats does.
        let format = match text.first() {
            None | Some(b'{') => Format::Json,
            Some(_) if rsync::is_begun(text) => Format::Rsync,
            Some(_) if found::is_printf(text) => Format::Find,
            Some(_) => Format::Unknown,
        };
        *begun = Cursor::new(start);
        self.format = Some(format);
        Ok(format)
    }

    /// Reads up to a separator, which is not kept. A part that is too long is skipped, except for
    /// its beginning. `false`: nothing is left, or the last part has no separator.
    fn until(&mut self, separator: u8) -> io::Result<bool> {
        let mut part = self.input.by_ref().take(ENTRY_BYTES_MAX + 2);
        part.read_until(separator, &mut self.buffer)?;
        if self.buffer.last() == Some(&separator) {
            self.buffer.pop();
            return Ok(true);
        }
        if self.buffer.len() as u64 > ENTRY_BYTES_MAX + 1 {
            skip_until(&mut self.input, separator)?;
            return Ok(true);
        }
        // The last line of a text may have no newline.
        Ok(separator == b'\n' && !self.buffer.is_empty())
    }
}

fn skip_until(input: &mut impl BufRead, separator: u8) -> io::Result<()> {
    loop {
        let bytes = input.fill_buf()?;
        let (found, length) = match bytes.iter().position(|&byte| byte == separator) {
            Some(at) => (true, at + 1),
            None => (bytes.is_empty(), bytes.len()),
        };
        input.consume(length);
        if found {
            return Ok(());
        }
    }
}

fn read(parsed: Result<Entry, String>, found: &[u8]) -> Read1 {
    parsed.map_or_else(|why| bad(&why, found), |entry| Read1::Entry(Box::new(entry)))
}

/// Why something is no entry, and what was found instead.
fn bad(why: &str, found: &[u8]) -> Read1 {
    Read1::Bad(format!("{why}; found {}", quoted(found)))
}

/// A line of JSON. Other fields are ignored.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    path: Text<'a>,
    path_hex: Option<Text<'a>>,
    kind: Text<'a>,
    mode: Option<Text<'a>>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    mtime: Option<Time<'a>>,
    atime: Option<Time<'a>>,
    target: Option<Text<'a>>,
    target_hex: Option<Text<'a>>,
    device: Option<Text<'a>>,
    inode: Option<u64>,
    links: Option<u64>,
    xattrs: Option<BTreeMap<Text<'a>, Text<'a>>>,
}

/// Text, which is copied only if it has escapes: where a `Cow` is within another type, serde copies
/// it always.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<'a>, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Text<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Visit)
    }
}

/// A time: RFC 3339, or seconds since 1970.
enum Time<'a> {
    Text(Text<'a>),
    Seconds(i64),
    Fraction(f64),
}

impl<'de: 'a, 'a> Deserialize<'de> for Time<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time<'a>, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Time<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a time: RFC 3339, or seconds since 1970")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Time<'de>, E> {
                Ok(Time::Text(Text(Cow::Borrowed(text))))
            }

            fn visit_str<E>(self, text: &str) -> Result<Time<'de>, E> {
                Ok(Time::Text(Text(Cow::Owned(text.to_owned()))))
            }

            fn visit_i64<E>(self, seconds: i64) -> Result<Time<'de>, E> {
                Ok(Time::Seconds(seconds))
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Time<'de>, E> {
                let kept = i64::try_from(seconds).map(Time::Seconds);
                kept.map_err(|_| E::custom("a time that a volume does not keep"))
            }

            fn visit_f64<E>(self, seconds: f64) -> Result<Time<'de>, E> {
                Ok(Time::Fraction(seconds))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

fn parse_json(line: &[u8]) -> Result<Entry, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| {
        // tidy: compares words: serde_json prints the line with every message.
        let text = error.to_string();
        // It counts lines of its own, of which there is one.
        text.split(" at line ").next().unwrap_or(&text).to_owned()
    })?;
    let kind = kind(&line.kind.0).ok_or_else(|| format!("an unknown kind, {:?}", line.kind.0))?;
    let bytes = |text: Option<Text<'_>>, hex: Option<Text<'_>>| match hex {
        Some(hex) => unhex(&hex.0).ok_or("malformed hexadecimal digits"),
        None => Ok(text.unwrap_or_default().0.into_owned().into_bytes()),
    };
    let mode =
        line.mode.map(|mode| octal(mode.0.as_bytes()).ok_or("a malformed mode")).transpose()?;
    let device = line.device.map(|device| device_number(&device.0).ok_or("a malformed device"));
    let xattrs = line.xattrs.unwrap_or_default().into_iter();
    Ok(Entry {
        path: bytes(Some(line.path), line.path_hex)?,
        kind,
        mode,
        uid: line.uid,
        gid: line.gid,
        size: line.size.unwrap_or_default(),
        mtime: line.mtime.map(nanos).transpose()?,
        atime: line.atime.map(nanos).transpose()?,
        target: bytes(line.target, line.target_hex)?,
        rdev: device.transpose()?.unwrap_or_default(),
        file: line.inode.filter(|_| line.links > Some(1)).map(|inode| (0, inode)),
        xattrs: xattrs
            .map(|(name, value)| (name.0.as_bytes().to_vec(), value.0.as_bytes().to_vec()))
            .collect(),
    })
}

/// The two parts of a record of `find -printf`.
fn parse_printf(record: &[u8], target: &[u8]) -> Result<Entry, String> {
    let wrong = |what: &str| format!("{what}; expected what find prints with -printf '{PRINTF}'");
    let mut fields = record.splitn(10, |&byte| byte == b' ');
    let mut field = |what: &str| fields.next().ok_or_else(|| wrong(&format!("no {what}")));
    let letter = field("type")?;
    let known = std::str::from_utf8(letter).ok().filter(|text| text.len() == 1).and_then(kind);
    let kind = known.ok_or_else(|| wrong("an unknown type"))?;
    let mode = octal(field("mode")?).ok_or_else(|| wrong("a malformed mode"))?;
    let mut number = |what: &str| -> Result<u64, String> {
        let text = field(what)?;
        decimal(text).ok_or_else(|| wrong(&format!("a malformed {what}")))
    };
    let (uid, gid) = (number("user")?, number("group")?);
    let size = number("size")?;
    let id = |id: u64| u32::try_from(id).map_err(|_| wrong("an owner of more than 32 bits"));
    let mut time = |what: &str| -> Result<i64, String> {
        let text = field(what)?;
        seconds(text).ok_or_else(|| wrong(&format!("a malformed {what}")))
    };
    let (mtime, atime) = (time("time")?, time("time of last read")?);
    let links = decimal(field("link count")?).ok_or_else(|| wrong("a malformed link count"))?;
    let file = field("inode")?;
    let mut numbers = file.splitn(2, |&byte| byte == b':').map(decimal);
    let file = match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(device), Some(inode)) => (device, inode),
        _ => return Err(wrong("a malformed inode number")),
    };
    let path = field("path")?.to_vec();
    Ok(Entry {
        path,
        kind,
        mode: Some(mode),
        uid: Some(id(uid)?),
        gid: Some(id(gid)?),
        size,
        mtime: Some(mtime),
        atime: Some(atime),
        target: target.to_vec(),
        rdev: 0,
        file: (links > 1 && kind != Kind::Directory).then_some(file),
        xattrs: Vec::new(),
    })
}

/// A type by the name that `pando find --json` prints, or the letter of `find -printf %y`.
fn kind(name: &str) -> Option<Kind> {
    const KINDS: [(Kind, &str); 7] = [
        (Kind::File, "f"),
        (Kind::Directory, "d"),
        (Kind::Symlink, "l"),
        (Kind::Fifo, "p"),
        (Kind::Socket, "s"),
        (Kind::CharDevice, "c"),
        (Kind::BlockDevice, "b"),
    ];
    let found = KINDS.iter().find(|(kind, letter)| *letter == name || kind.name() == name);
    found.map(|(kind, _)| *kind)
}

fn octal(text: &[u8]) -> Option<u32> {
    let mut mode = 0_u32;
    if text.is_empty() || text.len() > 8 {
        return None;
    }
    for &digit in text {
        match digit {
            b'0'..=b'7' => mode = mode << 3 | u32::from(digit - b'0'),
            _ => return None,
        }
    }
    (mode <= 0o7777).then_some(mode)
}

fn decimal(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()
}

/// Seconds with a fraction, in nanoseconds. Of a time before 1970 find prints the seconds rounded
/// down with the fraction from there, as `-2.5` for a second and a half before.
fn seconds(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut halves = digits.splitn(2, |&byte| byte == b'.');
    let whole = i128::from(decimal(halves.next()?)?);
    let mut fraction = halves.next().unwrap_or_default().to_vec();
    fraction.resize(9, b'0');
    let fraction = i128::from(decimal(&fraction)?);
    let whole = if negative { -whole } else { whole };
    i64::try_from(whole * 1_000_000_000 + fraction).ok()
}

fn nanos(time: Time<'_>) -> Result<i64, String> {
    let nanos = match time {
        Time::Seconds(seconds) => i128::from(seconds) * 1_000_000_000,
        Time::Fraction(seconds) => (seconds * 1e9) as i128,
        Time::Text(Text(text)) => {
            let parsed: Result<jiff::Timestamp, _> = text.parse();
            parsed.map_err(|_| format!("a malformed time, {text:?}"))?.as_nanosecond()
        }
    };
    i64::try_from(nanos).map_err(|_| "a time that a volume does not keep".to_owned())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    digits
        .chunks_exact(2)
        .map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8))
        .collect()
}

/// `MAJOR, MINOR` in 32 bits, as Linux packs them.
fn device_number(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once(',')?;
    let (major, minor): (u32, u32) = (major.trim().parse().ok()?, minor.trim().parse().ok()?);
    let fits = major < 1 << 12 && minor < 1 << 20;
    fits.then_some((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
}

#[cfg(test)]
mod tests {

    use super::*;

    fn all(input: &[u8]) -> Vec<Read1> {
        let mut manifest = Manifest::new(input);
        std::iter::from_fn(|| manifest.read_next().unwrap()).collect()
    }

    fn entry(input: &[u8]) -> Entry {
        match all(input).pop() {
            Some(Read1::Entry(entry)) => *entry,
            other => panic!("{other:?}"),
        }
    }

    fn bad(input: &[u8]) -> String {
        match all(input).pop() {
            Some(Read1::Bad(why)) => why,
            other => panic!("{}: {other:?}", input.escape_ascii()),
        }
    }

    #[test]
    fn json_lines_are_read() {
        let read = entry(
            br#"{"path":"a/b","kind":"file","mode":"4755","uid":1,"gid":2,"size":3,"links":2,
                "inode":7,"mtime":"1970-01-01T00:00:01.5Z","atime":-2,"xattrs":{"user.k":"v"},
                "depth":1}"#
                .iter()
                .copied()
                .filter(|&byte| byte != b'\n')
                .collect::<Vec<_>>()
                .as_slice(),
        );
        let want = Entry {
            path: b"a/b".to_vec(),
            kind: Kind::File,
            mode: Some(0o4755),
            uid: Some(1),
            gid: Some(2),
            size: 3,
            mtime: Some(1_500_000_000),
            atime: Some(-2_000_000_000),
            target: Vec::new(),
            rdev: 0,
            file: Some((0, 7)),
            xattrs: vec![(b"user.k".to_vec(), b"v".to_vec())],
        };
        assert_eq!(read, want);
        let read = entry(br#"{"path":"?","path_hex":"ff00","kind":"c","device":"10, 300"}"#);
        assert_eq!((read.path, read.rdev), (vec![0xff, 0], 0x10_0a2c));
        let read = all(b"\n{\"path\":\"a\",\"kind\":\"d\"}\r\n\n{\"path\":\"b\",\"kind\":\"d\"}");
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn records_of_find_are_read() {
        let read = entry(b"f 0644 0 5 12 -2.5000000000 1.0000000000 2 3:44 a b\nc\0\0");
        assert_eq!(read.path, b"a b\nc");
        assert_eq!((read.mtime, read.atime), (Some(-1_500_000_000), Some(1_000_000_000)));
        assert_eq!((read.file, read.size, read.gid), (Some((3, 44)), 12, Some(5)));
        let read = all(b"d 0755 0 0 1 1 1 2 3:4 \0\0l 0777 0 0 1 1 1 1 3:5 l\0to it\0");
        let [Read1::Entry(top), Read1::Entry(link)] = &read[..] else { panic!("{read:?}") };
        assert_eq!((top.path.as_slice(), top.file), (&b""[..], None));
        assert_eq!((link.target.as_slice(), link.kind), (&b"to it"[..], Kind::Symlink));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, why) in [
            (&b"{}"[..], "missing field `path`"),
            (br#"{"path":"a"}"#, "missing field `kind`"),
            (br#"{"path":"a","kind":"what"}"#, "unknown kind"),
            (br#"{"path":"a","kind":"f","mode":"9"}"#, "mode"),
            (br#"{"path":"a","kind":"f","mode":"77777"}"#, "mode"),
            (br#"{"path":"a","kind":"f","uid":-1}"#, "invalid value"),
            (br#"{"path":"a","kind":"f","uid":4294967296}"#, "invalid value"),
            (br#"{"path":"a","kind":"f","mtime":"yesterday"}"#, "time"),
            (br#"{"path":"a","kind":"f","mtime":1e30}"#, "time"),
            (br#"{"path":"a","kind":"f","path_hex":"f"}"#, "hexadecimal"),
            (br#"{"path":"a","kind":"c","device":"1"}"#, "device"),
            (br#"{"path":"a","kind":"f"} x"#, "trailing"),
            (b"{\"path\":\"\xff\",\"kind\":\"f\"}", "invalid unicode"),
            (b"f 0644\0\0", "no user"),
            (b"no list", "not in a known format of a list; found `no list`"),
            (b"f 0644 0 0 0 1 1 1 1:1 path", "cut short: no NUL ends its path; found `f 0644 0"),
            (b"f 0644 0 0 0 1 1 1 1:1 path\0", "cut short: no NUL ends its target"),
            (b"{}\nsize,name", "expected value; found `size,name`"),
            (b"f 0644 0 0 0 1 1 1 1 path\0\0", "inode"),
            (b"D 0644 0 0 0 1 1 1 1:1 path\0\0", "type"),
            (b"f 0644 0 0 x 1 1 1 1:1 path\0\0", "size"),
            (b"f 0644 0 0 0 99999999999999999999 1 1 1:1 path\0\0", "time"),
        ] {
            let reported = bad(line);
            assert!(reported.contains(why), "{}: {reported}", line.escape_ascii());
        }
        // The rest can be read.
        let long = [b"{\"path\":\"", &vec![b'x'; 3 << 20][..], b"\",\"kind\":\"f\"}\n"].concat();
        let read = all(&[&long[..], b"{\"path\":\"a\",\"kind\":\"f\"}\n"].concat());
        assert!(matches!(&read[..], [Read1::Bad(_), Read1::Entry(_)]));
    }

    /// Any bytes end with a result for each part.
    #[test]
    fn damaged_lists_do_no_harm() {
        let mut random = fastrand::Rng::with_seed(testing::run::seed());
        let json = br#"{"path":"a\u00e9","kind":"file","mode":"4755","uid":1,"size":30,"mtime":1.5}
{"path":"b","kind":"symlink","target":"c","target_hex":"63","inode":5,"links":2}
{"path":"c","kind":"directory","atime":"2020-01-01T00:00:00Z"}
"#;
        let rsync =
            b"-rwsr-xr-t  1,234,567 2026/11/29 15:45:43.25 a\\#012 b\nlrwxrwxrwx 1 2026/11/29 \
            15:45:43 l -> to\ndrwxr-xr-x 4,096 2026/11/29 15:45:43 .\n";
        let find = b"f 0644 0 5 12 2.5000000000 1.0 2 3:44 a b\0\0l 0777 0 0 1 1 1 1 3:5 l\0to\0";
        let (mut good, mut wrong) = (0, 0);
        for turn in 0..20_000 {
            let lists: [&[u8]; 3] = [json, find, rsync];
            let mut input = lists[turn % 3].to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..input.len());
                match random.u8(..3) {
                    0 => input[at] = random.u8(..),
                    1 => drop(input.remove(at)),
                    _ => input.insert(at, *random.choice(b"\0\n\"{}-9,.".iter()).unwrap_or(&0)),
                }
            }
            let read = all(&input);
            assert!(read.len() < 20, "{}", input.escape_ascii());
            let entries = read.iter().filter(|one| matches!(one, Read1::Entry(_))).count();
            good += entries;
            wrong += read.len() - entries;
        }
        assert!(good > 1000 && wrong > 1000, "{good} and {wrong}");
    }
}
