//! Lines of JSON as programs print them: an object of strings without escapes and of whole numbers.
//!
//! Such a line is read in one pass that copies only the path and the target. Anything else is left
//! to the parser of JSON, which reads it or has the error: what is read here, that one reads the
//! same.

use super::{Entry, Time, kind, nanos, octal};

/// Digits of a number that surely fits into 64 bits.
const DIGITS_MAX: usize = 18;

/// The entry that a line has; `None`: the parser of JSON decides.
pub(super) fn parse(line: &[u8]) -> Option<Entry> {
    let mut line = Line { rest: line };
    let mut found = Fields::default();
    line.expect(b'{')?;
    loop {
        line.skip_spaces();
        line.expect(b'"')?;
        let key = line.text()?;
        line.skip_spaces();
        line.expect(b':')?;
        line.skip_spaces();
        found.field(key, line.value()?)?;
        line.skip_spaces();
        match line.next()? {
            b',' => {}
            b'}' if line.rest.iter().all(|byte| b" \t\r\n".contains(byte)) => return found.entry(),
            _ => return None,
        }
    }
}

/// What is left of a line.
struct Line<'a> {
    rest: &'a [u8],
}

#[derive(Clone, Copy)]
enum Value<'a> {
    Text(&'a str),
    Number { negative: bool, digits: u64 },
}

impl<'a> Line<'a> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn skip_spaces(&mut self) {
        while let [b' ', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// The text up to a quotation mark: printable ASCII without escapes.
    fn text(&mut self) -> Option<&'a str> {
        let plain = |byte: &u8| matches!(byte, 0x20..=0x7e) && !matches!(byte, b'"' | b'\\');
        let length = self.rest.iter().position(|byte| !plain(byte))?;
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.expect(b'"')?;
        std::str::from_utf8(text).ok()
    }

    fn value(&mut self) -> Option<Value<'a>> {
        let negative = match self.rest {
            [b'"', rest @ ..] => {
                self.rest = rest;
                return self.text().map(Value::Text);
            }
            [b'-', rest @ ..] => {
                self.rest = rest;
                true
            }
            _ => false,
        };
        let length = self.rest.iter().position(|byte| !byte.is_ascii_digit())?;
        let (digits, rest) = self.rest.split_at(length);
        // A fraction or an exponent follows, or JSON does not allow it, or it is -0.
        let is_whole = !matches!(rest, [b'.' | b'e' | b'E', ..])
            && (1..=DIGITS_MAX).contains(&length)
            && (digits[0] != b'0' || length == 1 && !negative);
        if !is_whole {
            return None;
        }
        self.rest = rest;
        let digits = digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        Some(Value::Number { negative, digits })
    }
}

impl<'a> Value<'a> {
    fn text(self) -> Option<&'a str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Number { .. } => None,
        }
    }

    fn number(self) -> Option<u64> {
        match self {
            Value::Number { negative: false, digits } => Some(digits),
            _ => None,
        }
    }

    fn id(self) -> Option<u32> {
        self.number().and_then(|number| u32::try_from(number).ok())
    }

    /// A time, in nanoseconds.
    fn time(self) -> Option<i64> {
        let time = match self {
            Value::Text(text) => Time::Text(super::Text(text.into())),
            Value::Number { negative, digits } => {
                let seconds = i64::try_from(digits).ok()?;
                Time::Seconds(if negative { -seconds } else { seconds })
            }
        };
        nanos(time).ok()
    }
}

/// The fields of a line.
#[derive(Default)]
struct Fields<'a> {
    path: Option<&'a str>,
    kind: Option<&'a str>,
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    mtime: Option<i64>,
    atime: Option<i64>,
    target: Option<&'a str>,
    inode: Option<u64>,
    links: Option<u64>,
}

/// Sets a field; `None`: it was there before, or the value is not one of this field.
fn set<T>(field: &mut Option<T>, value: Option<T>) -> Option<()> {
    match field.replace(value?) {
        None => Some(()),
        Some(_) => None,
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self, key: &str, value: Value<'a>) -> Option<()> {
        match key {
            "path" => set(&mut self.path, value.text()),
            "kind" => set(&mut self.kind, value.text()),
            "mode" => set(&mut self.mode, value.text().and_then(|text| octal(text.as_bytes()))),
            "uid" => set(&mut self.uid, value.id()),
            "gid" => set(&mut self.gid, value.id()),
            "size" => set(&mut self.size, value.number()),
            "mtime" => set(&mut self.mtime, value.time()),
            "atime" => set(&mut self.atime, value.time()),
            "target" => set(&mut self.target, value.text()),
            "inode" => set(&mut self.inode, value.number()),
            "links" => set(&mut self.links, value.number()),
            "path_hex" | "target_hex" | "device" | "xattrs" => None,
            // Fields that are ignored.
            _ => Some(()),
        }
    }

    fn entry(self) -> Option<Entry> {
        Some(Entry {
            path: self.path?.into(),
            kind: kind(self.kind?)?,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            size: self.size.unwrap_or_default(),
            mtime: self.mtime,
            atime: self.atime,
            target: self.target.unwrap_or_default().into(),
            rdev: 0,
            file: self.inode.filter(|_| self.links > Some(1)).map(|inode| (0, inode)),
            xattrs: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {

    use super::super::parse_json;
    use super::*;

    #[test]
    fn usual_lines_are_read_here() {
        for line in [
            &br#"{"path":"d1/f-7","kind":"f","mode":"0644","uid":1,"size":81,"mtime":-5}"#[..],
            br#"{"path": "a b", "kind": "l", "target": "c", "blocks": 8, "inode": 5, "links": 2}"#,
            br#"{"path":"","kind":"directory","atime":"2020-01-01T00:00:00.25Z","name":"x"} "#,
        ] {
            let read = parse(line).unwrap_or_else(|| panic!("{}", line.escape_ascii()));
            assert_eq!(Ok(read), parse_json(line));
        }
    }

    /// Both parsers read the same, whatever a line is.
    #[test]
    fn what_is_read_here_is_json() {
        let mut random = fastrand::Rng::with_seed(testing::run::seed());
        let keys = [
            "path", "kind", "mode", "uid", "gid", "size", "mtime", "atime", "target", "inode",
            "links", "path_hex", "device", "depth",
        ];
        let values = [
            "\"f\"",
            "\"d\"",
            "\"a/b\"",
            "\"0644\"",
            "\"7\"",
            "\"1, 2\"",
            "\"6162\"",
            "\"a\\\"\"",
            "\"\u{e9}\"",
            "\"2001-02-03T04:05:06Z\"",
            "\"\"",
            "0",
            "-0",
            "00",
            "7",
            "-7",
            "1.5",
            "1e3",
            "4294967296",
            "18446744073709551616",
            "9223372036854775807",
            "null",
            "true",
            "{}",
        ];
        let (mut here, mut bad) = (0, 0);
        for _ in 0..200_000 {
            let mut line = "{\"path\":\"a\",\"kind\":\"f\"".to_owned();
            if random.bool() {
                line.clear();
                line.push_str("{\"depth\":1");
            }
            for _ in 0..random.usize(..6) {
                let (key, value) = (random.choice(keys).unwrap(), random.choice(values).unwrap());
                let space = if random.u8(..8) == 0 { " " } else { "" };
                line += &[",", space, "\"", key, "\"", space, ":", space, value].concat();
            }
            line.push('}');
            if random.u8(..8) == 0 {
                line.push(random.choice([' ', '\t', '\r', '\x0c']).unwrap());
            }
            let mut line = line.into_bytes();
            if random.u8(..4) == 0 {
                let at = random.usize(..line.len());
                match random.u8(..3) {
                    0 => line[at] = random.u8(..),
                    1 => drop(line.remove(at)),
                    _ => line.insert(at, *random.choice(b"\0\t \n\"{}-9,.\\\x7f".iter()).unwrap()),
                }
            }
            let whole = parse_json(&line);
            bad += usize::from(whole.is_err());
            if let Some(read) = parse(&line) {
                assert_eq!(Ok(read), whole, "{}", line.escape_ascii());
                here += 1;
            }
        }
        assert!(here > 5_000 && bad > 5_000, "{here} and {bad}");
    }
}
