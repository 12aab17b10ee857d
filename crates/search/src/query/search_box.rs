//! Queries for a search box: words that must all hold, `owner:alice size:>1G mtime:<30d *.h5`. The
//! words are documented in `docs/guide/find.md`.
//!
//! A word in lower case matches letters of either case; one with a capital is case-sensitive. A
//! regular expression matches a part of its text, unless it has anchors.

use format::inode_record::FileKind;

use super::expr::{Expr, Kinds, Test};
use super::glob::Glob;
use super::parse::numbers::{Compare, LEAST, MOST, number};
use super::parse::{Parsed, Surroundings, error, perm, shown};
use super::regex::{Dialect, Regex};
use crate::condition::Attribute;

const SECOND: i128 = 1_000_000_000;

const KEYS: &[&str] = &[
    "name", "path", "ext", "type", "size", "mtime", "atime", "ctime", "btime", "owner", "user",
    "uid", "group", "gid", "perm", "links", "inode", "depth", "is", "xattr",
];

/// Parses a query.
pub fn parse(text: &[u8], around: &dyn Surroundings) -> Result<Expr, super::parse::ParseError> {
    let mut ways = vec![Vec::new()];
    for word in words(text)? {
        if word.bytes == b"OR" && !word.quoted {
            ways.push(Vec::new());
            continue;
        }
        let expr = term(&word, around)?;
        if let Some(last) = ways.last_mut() {
            last.push(expr);
        }
    }
    if ways.len() > 1 && ways.iter().any(Vec::is_empty) {
        return Err(error("OR needs words on both sides"));
    }
    Ok(super::combine::any(ways.into_iter().map(super::combine::all)))
}

/// Whether an argument reads as a query rather than as a path.
pub fn is_query(text: &[u8]) -> bool {
    let path = text.starts_with(b"/") || text.starts_with(b"./") || text.starts_with(b"../");
    if path || matches!(text, b"." | b"..") {
        return false;
    }
    let keyed = KEYS.iter().any(|key| {
        let word = text.strip_prefix(b"!").unwrap_or(text);
        word.strip_prefix(key.as_bytes()).is_some_and(|rest| rest.first() == Some(&b':'))
    });
    keyed || text.iter().any(|byte| b" *?[".contains(byte))
}

/// The most likely intended key, for an unknown one before a colon.
pub fn meant_key(key: &[u8]) -> Option<&'static str> {
    let near = |known: &&&str| {
        let most = if known.len() < 5 { 1 } else { 2 };
        !key.is_empty() && differences(key, known.as_bytes()) <= most
    };
    KEYS.iter().filter(near).min_by_key(|known| differences(key, known.as_bytes())).copied()
}

/// Number of letters to insert, delete, change, or swap with the next.
fn differences(one: &[u8], other: &[u8]) -> usize {
    // No word is near to one that long.
    let one = &one[..one.len().min(20)];
    let mut before = vec![0; other.len() + 1];
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut line = vec![row + 1];
        for (column, wanted) in other.iter().enumerate() {
            let changed = last[column] + usize::from(letter != wanted);
            let mut least = changed.min(last[column + 1] + 1).min(line[column] + 1);
            let swaps = row > 0 && column > 0;
            if swaps && one[row - 1] == *wanted && other[column - 1] == *letter {
                least = least.min(before[column - 1] + 1);
            }
            line.push(least);
        }
        before = std::mem::replace(&mut last, line);
    }
    last[other.len()]
}

struct Word {
    bytes: Vec<u8>,
    /// Whether its first letter was in quotes.
    quoted: bool,
}

/// Splits at spaces; double quotes keep spaces, and a backslash in them quotes.
fn words(text: &[u8]) -> Parsed<Vec<Word>> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut inside = false;
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        if !inside && byte.is_ascii_whitespace() {
            words.extend(word.take());
            continue;
        }
        let open = word.get_or_insert_with(|| Word { bytes: Vec::new(), quoted: byte == b'"' });
        match byte {
            b'"' => inside = !inside,
            b'\\' if inside => open.bytes.extend(bytes.next()),
            byte => open.bytes.push(byte),
        }
    }
    if inside {
        return Err(error(format!("'{}': a quote is not closed", shown(text))));
    }
    words.extend(word);
    Ok(words)
}

fn term(word: &Word, around: &dyn Surroundings) -> Parsed<Expr> {
    let text = &word.bytes[..];
    if word.quoted {
        return bare(text, around);
    }
    if let Some(rest) = text.strip_prefix(b"!").filter(|rest| !rest.is_empty()) {
        let inner = Word { bytes: rest.to_vec(), quoted: false };
        return Ok(super::combine::not(term(&inner, around)?));
    }
    let colon = text.iter().position(|&byte| byte == b':');
    let Some(colon) = colon else { return bare(text, around) };
    let (key, value) = (&text[..colon], &text[colon + 1..]);
    let Some(key) = KEYS.iter().find(|known| known.as_bytes() == key) else {
        // A colon is an ordinary letter of names, but what looks like a key is more likely a
        // mistake.
        if !key.is_empty() && key.iter().all(u8::is_ascii_lowercase) {
            let known = KEYS.join(", ");
            let meant = meant_key(key);
            let meant =
                meant.map_or_else(String::new, |meant| format!("; '{meant}:' may be meant"));
            let message = format!("there is no '{}:', but {known}{meant}", shown(key));
            return Err(error(message));
        }
        return bare(text, around);
    };
    if value.is_empty() {
        return Err(error(format!("'{key}:' needs a value, without a space before it")));
    }
    keyed(key, value, around)
}

/// A word alone: a part of the name, or a pattern of it.
fn bare(text: &[u8], around: &dyn Surroundings) -> Parsed<Expr> {
    name(text, around).map(Expr::Test)
}

fn name(text: &[u8], around: &dyn Surroundings) -> Parsed<Test> {
    if let Some(regex) = text.strip_prefix(b"~") {
        return regex_of(regex, around).map(Test::NameRegex);
    }
    glob(text, around).map(Test::Name)
}

fn regex_of(text: &[u8], around: &dyn Surroundings) -> Parsed<Regex> {
    let ignore_case = !has_capital_letter(text);
    Regex::new(text, Dialect::Native, ignore_case, around.letters())
        .map_err(|why| error(format!("'~{}': {why}", shown(text))))
}

/// A pattern of the whole; without pattern signs, of a part.
fn glob(text: &[u8], around: &dyn Surroundings) -> Parsed<Glob> {
    let ignore_case = !has_capital(text);
    let letters = around.letters();
    let glob = if text.iter().any(|byte| b"*?[".contains(byte)) {
        Glob::new(text, ignore_case, letters)
    } else {
        Glob::containing(text, ignore_case, letters)
    };
    glob.map_err(|why| error(format!("'{}': {why}", shown(text))))
}

fn has_capital(text: &[u8]) -> bool {
    String::from_utf8_lossy(text).chars().any(char::is_uppercase)
}

/// Whether an expression has a capital as a literal: the capitals in `\S`, `\pL`, `\x4A` and
/// `(?P<name>` are not.
fn has_capital_letter(regex: &[u8]) -> bool {
    let text = String::from_utf8_lossy(regex);
    let mut rest = text.chars();
    let until = |rest: &mut std::str::Chars<'_>, ends: &[char]| {
        rest.find(|letter| ends.contains(letter));
    };
    while let Some(letter) = rest.next() {
        match letter {
            '\\' => {
                let kind = rest.next();
                let digits = match kind {
                    Some('p' | 'P') => 1,
                    Some('x') => 2,
                    Some('u') => 4,
                    Some('U') => 8,
                    _ => 0,
                };
                if digits > 0 && rest.as_str().starts_with('{') {
                    until(&mut rest, &['}']);
                } else {
                    (0..digits).for_each(|_| {
                        rest.next();
                    });
                }
            }
            '(' if rest.as_str().starts_with('?') => until(&mut rest, &[':', '>', ')']),
            letter if letter.is_uppercase() => return true,
            _ => {}
        }
    }
    false
}

fn keyed(key: &str, value: &[u8], around: &dyn Surroundings) -> Parsed<Expr> {
    let wrong = |what: &str| error(format!("{key}:{}: {what}", shown(value)));
    let test = match key {
        "name" => name(value, around)?,
        "path" => match value.strip_prefix(b"~") {
            Some(regex) => Test::PathRegex(regex_of(regex, around)?),
            None => Test::Path(glob(value, around)?),
        },
        "ext" => {
            return each(value, &|one| {
                let one = one.strip_prefix(b".").unwrap_or(one);
                let ends = Glob::new(&[b"*.", one].concat(), !has_capital(one), around.letters());
                ends.map(Test::Name).map_err(|why| error(why.to_string()))
            });
        }
        "type" => return each(value, &|one| kind(one).ok_or_else(|| wrong(TYPES))),
        "size" => between(value, Attribute::Size, &bytes).ok_or_else(|| wrong(SIZES))?,
        "mtime" => time(value, Attribute::Mtime, around).ok_or_else(|| wrong(AGES))?,
        "atime" => time(value, Attribute::Atime, around).ok_or_else(|| wrong(AGES))?,
        "ctime" => time(value, Attribute::Ctime, around).ok_or_else(|| wrong(AGES))?,
        "btime" => time(value, Attribute::Btime, around).ok_or_else(|| wrong(AGES))?,
        "owner" | "user" => {
            return each(value, &|one| {
                account(Attribute::Uid, around.user(one), one).ok_or_else(|| wrong("no such user"))
            });
        }
        "group" => {
            return each(value, &|one| {
                let found = around.group(one);
                account(Attribute::Gid, found, one).ok_or_else(|| wrong("no such group"))
            });
        }
        "uid" => between(value, Attribute::Uid, &plain).ok_or_else(|| wrong(NUMBERS))?,
        "gid" => between(value, Attribute::Gid, &plain).ok_or_else(|| wrong(NUMBERS))?,
        "links" => between(value, Attribute::Links, &plain).ok_or_else(|| wrong(NUMBERS))?,
        "inode" => between(value, Attribute::Ino, &plain).ok_or_else(|| wrong(NUMBERS))?,
        "depth" => match between(value, Attribute::Links, &plain) {
            Some(Test::Within(_, low, high)) => {
                let bound = |bound: i128| u32::try_from(bound.max(0)).unwrap_or(u32::MAX);
                Test::Depth(bound(low), bound(high))
            }
            _ => return Err(wrong(NUMBERS)),
        },
        "perm" => perm::perm(b"perm:", value)?,
        "is" => is(value).ok_or_else(|| wrong(QUALITIES))?,
        _ => {
            let equals = value.iter().position(|&byte| byte == b'=');
            let name = &value[..equals.unwrap_or(value.len())];
            let value = equals.map(|at| Glob::new(&value[at + 1..], false, around.letters()));
            Test::Xattr(name.to_vec(), value.transpose().map_err(|why| wrong(&why.to_string()))?)
        }
    };
    Ok(Expr::Test(test))
}

const TYPES: &str = "the types are file, dir, link, pipe, socket, block, char (or f d l p s b c)";
const SIZES: &str = "write 10M, >1G, <=4k, or 1M..2M (B, k, M, G, T, P in powers of 1024)";
const AGES: &str =
    "write an age (<30d: younger, >2y: older; m h d w y), or a day (>2024-05-31: later)";
const NUMBERS: &str = "write a number, >N, <N, >=N, <=N, or N..M";
const QUALITIES: &str = "the qualities are empty, readable, writable, executable, orphaned";

/// One of several values, separated by commas.
fn each(value: &[u8], of: &dyn Fn(&[u8]) -> Parsed<Test>) -> Parsed<Expr> {
    let tests = value.split(|&byte| byte == b',').map(|one| of(one).map(Expr::Test));
    Ok(super::combine::any(tests.collect::<Parsed<Vec<Expr>>>()?))
}

fn kind(name: &[u8]) -> Option<Test> {
    let kind = match name {
        b"f" | b"file" => FileKind::File,
        b"d" | b"dir" | b"directory" | b"folder" => FileKind::Directory,
        b"l" | b"link" | b"symlink" => FileKind::Symlink,
        b"p" | b"pipe" | b"fifo" => FileKind::Fifo,
        b"s" | b"socket" => FileKind::Socket,
        b"b" | b"block" => FileKind::BlockDevice,
        b"c" | b"char" => FileKind::CharDevice,
        _ => return None,
    };
    Some(Test::Kind(Kinds::default().with(kind)))
}

fn account(attribute: Attribute, found: Option<u32>, text: &[u8]) -> Option<Test> {
    let id = found.or_else(|| u32::try_from(number(text)?).ok())?;
    Some(Test::Within(attribute, i128::from(id), i128::from(id)))
}

fn is(name: &[u8]) -> Option<Test> {
    use inode::permissions::{EXECUTE, READ, WRITE};
    Some(match name {
        b"empty" => Test::Empty,
        b"readable" => Test::Access(READ),
        b"writable" => Test::Access(WRITE),
        b"executable" => Test::Access(EXECUTE),
        b"orphaned" => Test::NoUser,
        _ => return None,
    })
}

/// The comparison before a value: `>`, `>=`, `<`, `<=`, or nothing.
fn relation(text: &[u8]) -> (Compare, bool, &[u8]) {
    for (sign, compare, or_equal) in [
        (&b">="[..], Compare::More, true),
        (b"<=", Compare::Less, true),
        (b">", Compare::More, false),
        (b"<", Compare::Less, false),
    ] {
        if let Some(rest) = text.strip_prefix(sign) {
            return (compare, or_equal, rest);
        }
    }
    (Compare::Equal, false, text)
}

/// `N`, `>N`, `<=N`, `N..M`, `N..`, `..M`.
fn between(
    text: &[u8],
    attribute: Attribute,
    value: &dyn Fn(&[u8]) -> Option<i128>,
) -> Option<Test> {
    if let Some(dots) = memchr::memmem::find(text, b"..") {
        let (low, high) = (&text[..dots], &text[dots + 2..]);
        let low = if low.is_empty() { LEAST } else { value(low)? };
        let high = if high.is_empty() { MOST } else { value(high)? };
        return Some(Test::Within(attribute, low, high));
    }
    let (compare, or_equal, rest) = relation(text);
    let value = value(rest)?;
    let (low, high) = match (compare, or_equal) {
        (Compare::Equal, _) => (value, value),
        (Compare::More, true) => (value, MOST),
        (Compare::More, false) => (value + 1, MOST),
        (Compare::Less, true) => (LEAST, value),
        (Compare::Less, false) => (LEAST, value - 1),
    };
    Some(Test::Within(attribute, low, high))
}

fn plain(text: &[u8]) -> Option<i128> {
    number(text).map(i128::from)
}

fn bytes(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    // `c` means bytes as in `find -size`.
    let plain =
        text.strip_suffix('c').filter(|digits| digits.ends_with(|c: char| c.is_ascii_digit()));
    inode::parse_bytes(plain.unwrap_or(text)).map(i128::from)
}

/// An age or a day.
fn time(text: &[u8], attribute: Attribute, around: &dyn Surroundings) -> Option<Test> {
    let now = i128::from(around.now());
    let (compare, _, rest) = relation(text);
    if let Some(dots) = memchr::memmem::find(text, b"..") {
        let day = |text: &[u8]| around.time(text).map(i128::from);
        let (low, high) = (&text[..dots], &text[dots + 2..]);
        let low = if low.is_empty() { LEAST } else { day(low)? };
        let high = if high.is_empty() { MOST } else { end_of(high, around)? };
        return Some(Test::Within(attribute, low, high));
    }
    if let Some(age) = age(rest) {
        return Some(match compare {
            // Younger.
            Compare::Less => Test::Within(attribute, now - age, MOST),
            Compare::More => Test::Within(attribute, LEAST, now - age - 1),
            Compare::Equal => return None,
        });
    }
    let (begin, end) = (i128::from(around.time(rest)?), end_of(rest, around)?);
    Some(match relation(text) {
        (Compare::Less, false, _) => Test::Within(attribute, LEAST, begin - 1),
        (Compare::Less, true, _) => Test::Within(attribute, LEAST, end),
        (Compare::More, false, _) => Test::Within(attribute, end + 1, MOST),
        (Compare::More, true, _) => Test::Within(attribute, begin, MOST),
        (Compare::Equal, ..) => Test::Within(attribute, begin, end),
    })
}

/// The last nanosecond of a day or a point in time.
fn end_of(text: &[u8], around: &dyn Surroundings) -> Option<i128> {
    let begin = i128::from(around.time(text)?);
    let whole_day = text.len() == 10 && text.split(|&byte| byte == b'-').count() == 3
        || matches!(text, b"today" | b"yesterday");
    Some(if whole_day { begin + 86_400 * SECOND - 1 } else { begin + SECOND - 1 })
}

/// An age: `90m`, `12h`, `30d`, `2w`, `1y`.
fn age(text: &[u8]) -> Option<i128> {
    let age = inode::parse_duration(std::str::from_utf8(text).ok()?)?;
    i128::try_from(age.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::{is_query, meant_key};

    #[test]
    fn a_misspelt_word_gets_a_suggestion() {
        for (typed, meant) in [
            ("siez", Some("size")),
            ("sizes", Some("size")),
            ("onwer", Some("owner")),
            ("mtim", Some("mtime")),
            ("grp", Some("group")),
            ("vol", None),
            ("", None),
        ] {
            assert_eq!(meant_key(typed.as_bytes()), meant, "{typed}");
        }
    }

    #[test]
    fn queries_are_distinguished_from_paths() {
        for query in ["owner:alice", "a b", "*.h5", "!type:dir", "name:~x"] {
            assert!(is_query(query.as_bytes()), "{query}");
        }
        for path in ["/a b", ".", "./*", "vol:/x", "plain", "../x y"] {
            assert!(!is_query(path.as_bytes()), "{path}");
        }
    }
}
