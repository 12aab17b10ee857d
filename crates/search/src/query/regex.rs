//! Regular expressions that match a whole name or path, in the dialects of GNU find's `-regextype`.
//! They are translated to the syntax of the `regex` crate. Matching takes time linear in the text
//! whatever the expression. Back references, which no such engine supports, are rejected.

mod steps;

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use regex::bytes;
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::syntax;
use serde::{Deserialize, Serialize};

use super::glob::Letters;
use super::work::{NEVER, Work};

/// The syntax of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dialect {
    /// Emacs, where a dot matches a line end too.
    Findutils,
    /// Emacs, where a dot matches no line end: the default of GNU find.
    Emacs,
    /// POSIX basic, with GNU's `\+ \? \|`.
    Basic,
    /// POSIX extended.
    Extended,
    /// As in the `regex` crate; matching a part of the text is enough: for search boxes.
    Native,
}

impl Dialect {
    /// The dialect that `-regextype` names.
    pub fn named(name: &[u8]) -> Option<Dialect> {
        Some(match name {
            b"findutils-default" => Dialect::Findutils,
            b"emacs" => Dialect::Emacs,
            b"ed" | b"sed" | b"posix-basic" => Dialect::Basic,
            b"posix-extended" | b"posix-egrep" | b"egrep" => Dialect::Extended,
            _ => return None,
        })
    }

    /// The names that `-regextype` accepts.
    pub const NAMES: &'static str =
        "findutils-default, emacs, posix-basic, ed, sed, posix-extended, posix-egrep, egrep";
}

/// A regular expression.
///
/// An expression from a message is compiled only after the whole message is known to be within
/// bounds (`Regex::compile`). Compiling takes a thousand times as long as sending.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Source", into = "Source")]
pub struct Regex {
    source: Source,
    compiled: OnceLock<Compiled>,
}

/// An expression in its two compiled forms.
#[derive(Debug, Clone)]
struct Compiled {
    /// Matches fast, and cannot be interrupted.
    fast: bytes::Regex,
    /// Matches in steps, until the caller cancels.
    steps: NFA,
}

/// The error for an invalid expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RegexError(String);

impl RegexError {
    /// The error for too many expressions at once.
    pub(super) fn many(count: usize, bytes: usize) -> RegexError {
        let what = "regular expressions are taken at once";
        RegexError(format!("no more than {count}, of {bytes} bytes together, {what}"))
    }
}

/// Maximum memory of an expression in each of its compiled forms, in bytes.
pub(super) const MEMORY_MAX: usize = 2 << 20;

/// Maximum product of the bytes of an expression in memory and of a text that are matched without
/// interruption. It takes some milliseconds: 4 ns for each state of the automaton, which has some
/// 200 bytes, and each byte of the text.
const UNINTERRUPTED_MAX: usize = 256 << 20;

/// Maximum nesting of an expression.
const NEST_MAX: u32 = 100;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Source {
    pattern: Vec<u8>,
    dialect: Dialect,
    ignore_case: bool,
    letters: Letters,
}

impl PartialEq for Regex {
    fn eq(&self, other: &Regex) -> bool {
        self.source == other.source
    }
}

impl Regex {
    /// Parses an expression.
    pub fn new(
        pattern: &[u8],
        dialect: Dialect,
        ignore_case: bool,
        letters: Letters,
    ) -> Result<Regex, RegexError> {
        let source = Source { pattern: pattern.to_vec(), dialect, ignore_case, letters };
        let mut regex = Regex { source, compiled: OnceLock::new() };
        regex.compile(MEMORY_MAX)?;
        Ok(regex)
    }

    /// Compiles it, in at most so many bytes of memory.
    pub(super) fn compile(&mut self, memory_max: usize) -> Result<(), RegexError> {
        let source = &self.source;
        let Source { pattern, dialect, ignore_case, letters } = source;
        let (dialect, ignore_case, letters) = (*dialect, *ignore_case, *letters);
        let text = if dialect == Dialect::Native {
            std::str::from_utf8(pattern)
                .map_err(|_| RegexError("the expression is not UTF-8".to_owned()))?
                .to_owned()
        } else {
            format!("\\A(?:{})\\z", Translation::new(source).run()?)
        };
        let fast = bytes::RegexBuilder::new(&text)
            .unicode(letters == Letters::Utf8)
            .case_insensitive(ignore_case)
            .dot_matches_new_line(dialect != Dialect::Emacs)
            .size_limit(memory_max)
            .nest_limit(NEST_MAX)
            .build()
            .map_err(|error| short(&error, memory_max))?;
        let syntax = syntax::Config::new()
            .utf8(false)
            .unicode(letters == Letters::Utf8)
            .case_insensitive(ignore_case)
            .dot_matches_new_line(dialect != Dialect::Emacs)
            .nest_limit(NEST_MAX);
        let config = thompson::Config::new()
            .utf8(false)
            .nfa_size_limit(Some(memory_max))
            .which_captures(WhichCaptures::None);
        let steps =
            thompson::Compiler::new().syntax(syntax).configure(config).build(&text).map_err(
                |error| match error.size_limit() {
                    Some(_) => too_large(memory_max),
                    None => RegexError(error.to_string()),
                },
            )?;
        self.compiled = OnceLock::from(Compiled { fast, steps });
        Ok(())
    }

    /// Length of the expression as written, in bytes.
    pub(super) fn length(&self) -> usize {
        self.source.pattern.len()
    }

    /// Whether it matches a short text, such as a name.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.matches_until(text, &NEVER).expect("invariant: nothing cancels it")
    }

    /// Whether it matches, unless the caller cancels.
    pub fn matches_until(&self, text: &[u8], cancel: &AtomicBool) -> crate::Result<bool> {
        let compiled = self.compiled.get().expect("invariant: compiled when it was read");
        let Compiled { fast, steps } = compiled;
        if steps.memory_usage().saturating_mul(text.len()) <= UNINTERRUPTED_MAX {
            return Ok(fast.is_match(text));
        }
        steps::is_match(steps, text, &mut Work::until(cancel))
    }
}

fn short(error: &regex::Error, memory_max: usize) -> RegexError {
    if matches!(error, regex::Error::CompiledTooBig(_)) {
        return too_large(memory_max);
    }
    let text = error.to_string();
    let last = text.lines().last().unwrap_or("not a regular expression");
    RegexError(last.trim_start_matches("error: ").to_owned())
}

fn too_large(memory_max: usize) -> RegexError {
    RegexError(format!(
        "the expression takes more than {memory_max} bytes when compiled, the most that is \
         accepted: repeat less, or smaller classes"
    ))
}

impl From<Regex> for Source {
    fn from(regex: Regex) -> Source {
        regex.source
    }
}

impl From<Source> for Regex {
    fn from(source: Source) -> Regex {
        Regex { source, compiled: OnceLock::new() }
    }
}

/// An expression being translated from one syntax to the other.
struct Translation<'a> {
    rest: &'a [u8],
    dialect: Dialect,
    letters: Letters,
    out: String,
    /// Start positions in `out` of the open groups.
    open: Vec<usize>,
    /// Start position in `out` of the item that can be repeated; `None` if there is none.
    last: Option<usize>,
    /// Whether that item is repeated already.
    repeated: bool,
}

impl<'a> Translation<'a> {
    fn new(source: &'a Source) -> Translation<'a> {
        Translation {
            rest: &source.pattern,
            dialect: source.dialect,
            letters: source.letters,
            out: String::new(),
            open: Vec::new(),
            last: None,
            repeated: false,
        }
    }

    fn run(mut self) -> Result<String, RegexError> {
        let extended = self.dialect == Dialect::Extended;
        let emacs = matches!(self.dialect, Dialect::Emacs | Dialect::Findutils);
        while let Some(letter) = self.next() {
            match letter {
                0x5c => self.escape()?,
                0x5b => self.set()?,
                0x2e => self.atom("."),
                0x2a => self.repeat('*')?,
                0x2b if extended || emacs => self.repeat('+')?,
                0x3f if extended || emacs => self.repeat('?')?,
                0x28 if extended => self.group(),
                0x29 if extended && !self.open.is_empty() => self.close()?,
                0x7c if extended => self.alternative(),
                0x7b if extended => self.interval(b"}")?,
                0x5e if extended || self.last.is_none() => self.anchor("\\A"),
                0x24 if extended || self.ends_here() => self.anchor("\\z"),
                other => self.literal(other),
            }
        }
        if !self.open.is_empty() {
            return Err(RegexError("a group is not closed".to_owned()));
        }
        Ok(self.out)
    }

    fn next(&mut self) -> Option<u32> {
        let (letter, length) = super::glob::letter(self.rest, self.letters)?;
        self.rest = &self.rest[length..];
        Some(letter)
    }

    /// Whether an alternative or a group ends here, so that `$` is an anchor.
    fn ends_here(&self) -> bool {
        self.rest.is_empty() || self.rest.starts_with(b"\\)") || self.rest.starts_with(b"\\|")
    }

    fn atom(&mut self, text: &str) {
        (self.last, self.repeated) = (Some(self.out.len()), false);
        self.out.push_str(text);
    }

    fn anchor(&mut self, text: &str) {
        self.out.push_str(text);
        self.last = None;
    }

    fn literal(&mut self, letter: u32) {
        (self.last, self.repeated) = (Some(self.out.len()), false);
        put(letter, &mut self.out);
    }

    fn group(&mut self) {
        self.open.push(self.out.len());
        self.out.push_str("(?:");
        self.last = None;
    }

    fn close(&mut self) -> Result<(), RegexError> {
        let Some(start) = self.open.pop() else {
            return Err(RegexError("a group is closed that is not open".to_owned()));
        };
        self.out.push(')');
        (self.last, self.repeated) = (Some(start), false);
        Ok(())
    }

    fn alternative(&mut self) {
        self.out.push('|');
        self.last = None;
    }

    /// A repetition sign; a literal if there is nothing to repeat.
    fn repeat(&mut self, sign: char) -> Result<(), RegexError> {
        let Some(start) = self.last else {
            if self.dialect == Dialect::Extended {
                return Err(RegexError(format!("'{sign}' has nothing before it to repeat")));
            }
            self.literal(u32::from(sign));
            return Ok(());
        };
        self.repetition(start, &sign.to_string());
        Ok(())
    }

    fn repetition(&mut self, start: usize, sign: &str) {
        if self.repeated {
            // `a+?` repeats the repetition; in the target syntax it means something else.
            self.out.insert_str(start, "(?:");
            self.out.push(')');
        }
        self.out.push_str(sign);
        self.repeated = true;
    }

    fn interval(&mut self, close: &[u8]) -> Result<(), RegexError> {
        let end = memchr::memmem::find(self.rest, close);
        let Some(inside) = end.map(|end| &self.rest[..end]) else {
            return Err(RegexError("an interval is not closed".to_owned()));
        };
        let shape_known = !inside.is_empty()
            && inside.iter().all(|byte| byte.is_ascii_digit() || *byte == b',')
            && inside.splitn(3, |&byte| byte == b',').count() <= 2
            && inside != b",";
        let Some(start) = self.last.filter(|_| shape_known) else {
            return Err(RegexError("an interval is {n}, {n,}, {,m} or {n,m} after an atom".into()));
        };
        let text = String::from_utf8_lossy(inside);
        let text = if text.starts_with(',') { format!("0{text}") } else { text.into_owned() };
        self.repetition(start, &format!("{{{text}}}"));
        self.rest = &self.rest[inside.len() + close.len()..];
        Ok(())
    }

    fn escape(&mut self) -> Result<(), RegexError> {
        let extended = self.dialect == Dialect::Extended;
        let basic = self.dialect == Dialect::Basic;
        let Some(letter) = self.next() else {
            return Err(RegexError("a backslash at the end quotes nothing".to_owned()));
        };
        match u8::try_from(letter).unwrap_or(0) {
            b'(' if !extended => self.group(),
            b')' if !extended => self.close()?,
            b'|' if !extended => self.alternative(),
            b'{' if basic => self.interval(b"\\}")?,
            b'+' if basic => self.repeat('+')?,
            b'?' if basic => self.repeat('?')?,
            b'1'..=b'9' => {
                return Err(RegexError("back references are not supported".to_owned()));
            }
            b'w' => self.atom(&format!("[_{}]", self.class(b"alnum")?)),
            b'W' => self.atom(&format!("[^_{}]", self.class(b"alnum")?)),
            b's' => self.atom(&format!("[{}]", self.class(b"space")?)),
            b'S' => self.atom(&format!("[^{}]", self.class(b"space")?)),
            b'b' => self.anchor("\\b"),
            b'B' => self.anchor("\\B"),
            b'<' => self.anchor("\\b{start}"),
            b'>' => self.anchor("\\b{end}"),
            b'`' => self.anchor("\\A"),
            b'\'' => self.anchor("\\z"),
            _ => self.literal(letter),
        }
        Ok(())
    }

    /// A set, from after its bracket. Backslash is a letter in it.
    fn set(&mut self) -> Result<(), RegexError> {
        let unclosed = || RegexError("a bracket is not closed".to_owned());
        let negated = self.rest.first() == Some(&b'^');
        if negated {
            self.rest = &self.rest[1..];
        }
        // Emacs takes a class as the letters that it is written with.
        let has_classes = matches!(self.dialect, Dialect::Basic | Dialect::Extended);
        let mut inside = String::new();
        let mut first = true;
        loop {
            if self.rest.first() == Some(&b']') && !first {
                self.rest = &self.rest[1..];
                break;
            }
            first = false;
            if let Some(class) = self.rest.strip_prefix(b"[:").filter(|_| has_classes) {
                let end = memchr::memmem::find(class, b":]").ok_or_else(unclosed)?;
                inside.push_str(self.class(&class[..end])?);
                self.rest = &class[end + 2..];
                continue;
            }
            let low = self.set_letter().ok_or_else(unclosed)?;
            self.put_in_set(low, &mut inside)?;
            let range = self.rest.first() == Some(&b'-')
                && self.rest.get(1).is_some_and(|&next| next != b']');
            if range {
                self.rest = &self.rest[1..];
                let high = self.set_letter().ok_or_else(unclosed)?;
                inside.push('-');
                self.put_in_set(high, &mut inside)?;
            }
        }
        let sign = if negated { "^" } else { "" };
        self.atom(&format!("[{sign}{inside}]"));
        Ok(())
    }

    /// A class of letters, as a part of a set.
    fn class(&self, name: &[u8]) -> Result<&'static str, RegexError> {
        let known = CLASSES.iter().find(|(known, ..)| known.as_bytes() == name);
        let (_, ascii, all) = known.ok_or_else(|| {
            RegexError(format!("there is no class '{}' of letters", String::from_utf8_lossy(name)))
        })?;
        Ok(if self.letters == Letters::Utf8 { all } else { ascii })
    }

    fn put_in_set(&self, letter: u32, inside: &mut String) -> Result<(), RegexError> {
        if char::from_u32(letter).is_some() {
            put(letter, inside);
        } else if self.letters == Letters::Bytes {
            inside.push_str(&hex(letter));
        } else {
            return Err(RegexError("a bracket holds bytes that are not UTF-8".to_owned()));
        }
        Ok(())
    }

    fn set_letter(&mut self) -> Option<u32> {
        for (open, close) in [(&b"[."[..], &b".]"[..]), (b"[=", b"=]")] {
            if let Some(inner) = self.rest.strip_prefix(open)
                && let Some((found, length)) = super::glob::letter(inner, self.letters)
                && let Some(after) = inner[length..].strip_prefix(close)
            {
                self.rest = after;
                return Some(found);
            }
        }
        self.next()
    }
}

/// The classes of letters: among bytes, and among characters.
const CLASSES: [(&str, &str, &str); 12] = [
    ("alnum", "[:alnum:]", r"\p{Alphabetic}\p{N}"),
    ("alpha", "[:alpha:]", r"\p{Alphabetic}"),
    ("blank", "[:blank:]", r"\t\p{Zs}"),
    ("cntrl", "[:cntrl:]", r"\p{Cc}"),
    ("digit", "[:digit:]", "[:digit:]"),
    ("graph", "[:graph:]", r"[^\p{Cc}\s]"),
    ("lower", "[:lower:]", r"\p{Lowercase}"),
    ("print", "[:print:]", r"[^\p{Cc}]"),
    ("punct", "[:punct:]", r"[:punct:][^\p{Alphabetic}\p{N}\p{Cc}\s\x00-\x7f]"),
    ("space", "[:space:]", r"\s"),
    ("upper", "[:upper:]", r"\p{Uppercase}"),
    ("xdigit", "[:xdigit:]", "[:xdigit:]"),
];

/// A byte by its number.
fn hex(letter: u32) -> String {
    format!("\\x{:02x}", letter & 0xff)
}

/// A letter that matches itself.
fn put(letter: u32, out: &mut String) {
    match char::from_u32(letter) {
        Some(character) if character.is_ascii_alphanumeric() || character == '_' => {
            out.push(character);
        }
        Some(character) if character.is_ascii() => out.push_str(&hex(letter)),
        Some(character) => out.push(character),
        // A byte outside any character.
        None => out.extend(["(?-u:", &hex(letter), ")"]),
    }
}

#[cfg(test)]
mod tests;
