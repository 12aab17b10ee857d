//! The output of a verb: lines for people, or JSON, one object per line; progress on a terminal
//! only.
//!
//! Results go to standard output, errors and progress to standard error. When the reader goes away
//! (`pando ls | head`), the program ends quietly.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Stderr, Stdout, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};
use wire::{Bytes, Failure, FailureKind, FoundOutcome, os_words};

use crate::failure::Result;

/// The streams and the format of a verb's output.
pub struct Output {
    json: bool,
    quiet: bool,
    terminal: bool,
    out: BufWriter<Stdout>,
    err: Stderr,
}

impl Output {
    /// JSON or lines for people; quiet shows no progress.
    #[must_use]
    pub fn new(json: bool, quiet: bool) -> Output {
        let out = io::stdout();
        let terminal = out.is_terminal();
        let out = BufWriter::with_capacity(64 << 10, out);
        Output { json, quiet, terminal, out, err: io::stderr() }
    }

    /// Sets JSON and quiet, for a verb that parses its arguments itself.
    pub fn set(&mut self, json: bool, quiet: bool) {
        self.json |= json;
        self.quiet |= quiet;
    }

    /// Prints statistics of a search on standard error.
    pub fn stats(&mut self, outcome: &FoundOutcome) {
        let FoundOutcome { matched, clusters, clusters_read, walked, rows_tested, .. } = *outcome;
        let unreadable = outcome.unreadable;
        let text = if self.json {
            let stats = json!({
                "matched": matched,
                "clusters": clusters,
                "clusters_read": clusters_read,
                "walked": walked,
                "rows_tested": rows_tested,
                "unreadable_directories": unreadable,
            });
            format!("{}\n", json!({ "stats": stats }))
        } else {
            format!(
                "{matched} matched; {} tested; {clusters_read} of {} read; {}; {} not readable\n",
                count(rows_tested, "row", "rows"),
                count(clusters, "cluster", "clusters"),
                count(walked, "walk", "walks"),
                count(unreadable, "directory", "directories"),
            )
        };
        self.err.write_all(text.as_bytes()).unwrap_or_default();
    }

    /// Whether results are JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Writes a line for people; prints nothing with `--json`.
    pub fn line(&mut self, line: &str) -> Result<()> {
        if self.json {
            return Ok(());
        }
        let line = if self.terminal { harmless(line) } else { Cow::Borrowed(line) };
        self.raw(line.as_bytes()).and_then(|()| self.raw(b"\n"))
    }

    /// Writes an object and a newline; prints nothing without `--json`.
    pub fn object(&mut self, object: &Value) -> Result<()> {
        self.record(object)
    }

    /// The same for a large record, or one with numbers of more than 64 bits, which a [`Value`]
    /// cannot hold.
    pub fn record(&mut self, record: &impl Serialize) -> Result<()> {
        if !self.json {
            return Ok(());
        }
        if self.terminal {
            let text = serde_json::to_string(record);
            let text = text.map_err(|error| Self::broken(&error.into()))?;
            self.raw(harmless_json(&text).as_bytes())?;
        } else {
            let wrote = serde_json::to_writer(&mut self.out, record);
            wrote.map_err(|error| Self::broken(&error.into()))?;
        }
        self.raw(b"\n")
    }

    /// Writes bytes unchanged.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        let wrote = self.out.write_all(bytes);
        wrote.map_err(|error| Self::broken(&error))
    }

    /// Writes the contents of files for people to read: for a terminal, without what controls it.
    pub fn contents(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.terminal {
            return self.raw(bytes);
        }
        for chunk in bytes.utf8_chunks() {
            self.raw(harmless(chunk.valid()).as_bytes())?;
            self.raw(chunk.invalid().escape_ascii().to_string().as_bytes())?;
        }
        Ok(())
    }

    /// Flushes standard output.
    pub fn flush(&mut self) -> Result<()> {
        let flushed = self.out.flush();
        flushed.map_err(|error| Self::broken(&error))
    }

    fn broken(error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            // The reader closed the pipe, as `head` does: that is not a failure.
            std::process::exit(0);
        }
        Failure::new(FailureKind::Other, format!("standard output: {error}"))
            .hint("check the file or the program that reads standard output")
    }

    /// A name with control characters escaped for a terminal; unchanged when the output is not a
    /// terminal.
    pub fn name(&self, name: &[u8]) -> Vec<u8> {
        if self.terminal { printable(name).into_bytes() } else { name.to_vec() }
    }

    /// Writes a failure to standard error.
    pub fn failure(&mut self, failure: &Failure) {
        let text = if self.json {
            let mut error = json!({
                "kind": failure.kind.name(),
                "message": failure.message,
            });
            if !failure.path.0.is_empty() {
                put_bytes(&mut error, "path", &failure.path.0);
            }
            if !failure.hint.is_empty() {
                error["hint"] = json!(failure.hint);
            }
            format!("{}\n", harmless_json(&json!({ "error": error }).to_string()))
        } else {
            // The message may come from a daemon that another user runs.
            harmless(&failure_text(failure)).into_owned()
        };
        // There is nowhere to report that standard error is closed.
        self.err.write_all(text.as_bytes()).unwrap_or_default();
    }

    /// Writes how a command was used wrongly, in the words of its parser, to standard error.
    pub fn usage(&mut self, text: &str) {
        self.err.write_all(harmless(text).as_bytes()).unwrap_or_default();
    }

    /// Writes a result to standard error, for a verb whose standard output is the data itself: an
    /// object with `--json`, otherwise a line, unless quiet.
    pub fn beside(&mut self, object: &Value, line: &str) {
        if self.json {
            let text = format!("{}\n", harmless_json(&object.to_string()));
            self.err.write_all(text.as_bytes()).unwrap_or_default();
        } else {
            self.remark(line);
        }
    }

    /// A remark for people on standard error; prints nothing with `--json` or `--quiet`.
    pub fn remark(&mut self, text: &str) {
        if !self.json && !self.quiet {
            let text = os_words(format!("{text}\n"));
            self.err.write_all(harmless(&text).as_bytes()).unwrap_or_default();
        }
    }

    /// A progress bar, drawn when standard error is a terminal.
    pub fn progress(&self, unit: &str) -> ProgressBar {
        let shown = !self.quiet && self.err.is_terminal();
        let target =
            if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let at = if unit == BYTES { "{at}".to_owned() } else { format!("{{at}} {unit}") };
        bar.set_style(style(&format!("{{spinner}} {at}  {{rate}}  {{elapsed}}  {{msg}}"), unit));
        if shown {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        bar
    }

    /// Sets the total of a progress bar, once it is known.
    pub fn progress_total(bar: &ProgressBar, unit: &str, total: u64) {
        bar.set_length(total);
        let at = if unit == BYTES { "{at}/{of}".into() } else { format!("{{at}}/{{of}} {unit}") };
        bar.set_style(style(&format!("{{wide_bar}} {at}  {{rate}}  ETA {{eta}}  {{msg}}"), unit));
    }
}

/// The unit of progress that is shown in human-readable sizes.
const BYTES: &str = "bytes";

/// The format of progress: `at` is the current count, `of` the total, `rate` the count per second.
/// `at` never exceeds the total.
fn style(template: &str, unit: &str) -> ProgressStyle {
    let bytes = unit == BYTES;
    let shown = move |count: u64| if bytes { size(count) } else { number(count) };
    let style = ProgressStyle::with_template(template);
    style
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("at", move |state: &ProgressState, to: &mut dyn fmt::Write| {
            let at = state.len().map_or(state.pos(), |all| state.pos().min(all));
            to.write_str(&shown(at)).unwrap_or_default();
        })
        .with_key("of", move |state: &ProgressState, to: &mut dyn fmt::Write| {
            to.write_str(&shown(state.len().unwrap_or_default())).unwrap_or_default();
        })
        .with_key("rate", move |state: &ProgressState, to: &mut dyn fmt::Write| {
            to.write_str(&format!("{}/s", shown(state.per_sec() as u64))).unwrap_or_default();
        })
}

fn failure_text(failure: &Failure) -> String {
    let mut text = String::from("pando: ");
    if !failure.path.0.is_empty() {
        text.push_str(&printable(&failure.path.0));
        text.push_str(": ");
    }
    text.push_str(&failure.message);
    text.push('\n');
    if !failure.hint.is_empty() {
        text.push_str("       ");
        text.push_str(&failure.hint);
        text.push('\n');
    }
    text
}

/// Bytes in a form safe for a terminal: control characters and invalid UTF-8 are escaped.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&escaped(chunk.valid(), &[], |letter| letter.escape_default().to_string()));
        text.push_str(&chunk.invalid().escape_ascii().to_string());
    }
    text
}

/// Escapes terminal control characters in a text, except newlines and tabs.
fn harmless(text: &str) -> Cow<'_, str> {
    escaped(text, &['\n', '\t'], |letter| letter.escape_default().to_string())
}

/// The same for JSON, which has such characters in strings only; the program that parses it gets
/// them back.
fn harmless_json(text: &str) -> Cow<'_, str> {
    escaped(text, &[], |letter| format!("\\u{:04x}", u32::from(letter)))
}

/// Escapes control characters in a text, except those that are kept. What is between them is
/// copied in one piece: lists of long paths are mostly that.
fn escaped<'a>(text: &'a str, kept: &[char], escape: fn(char) -> String) -> Cow<'a, str> {
    let mut shown = String::new();
    // What is in `shown` already, and what was looked at.
    let (mut done, mut at) = (0, 0);
    while let Some(length) = before_control(&text.as_bytes()[at..]) {
        let here = at + length;
        let letter = text[here..].chars().next().expect("invariant: a letter begins here");
        at = here + letter.len_utf8();
        if letter.is_control() && !kept.contains(&letter) {
            shown.push_str(&text[done..here]);
            shown.push_str(&escape(letter));
            done = at;
        }
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    shown.push_str(&text[done..]);
    Cow::Owned(shown)
}

/// How many bytes of UTF-8 come before the first that may begin a control character. That is one of
/// ASCII, or the first byte of those from U+0080 on. Eight bytes at a time.
fn before_control(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGHEST: u64 = ONES << 7;
    // Whether a byte of a word is less than a number up to 128.
    let has_less = |word: u64, than: u64| word.wrapping_sub(ONES * than) & !word & HIGHEST != 0;
    let may_begin = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        has_less(word, 0x20)
            || has_less(word ^ (ONES * 0x7f), 1)
            || has_less(word ^ (ONES * 0xc2), 1)
    };
    let (words, _) = bytes.as_chunks();
    let from = 8 * words.iter().position(may_begin).unwrap_or(words.len());
    let begins = |byte: &u8| matches!(byte, ..0x20 | 0x7f | 0xc2);
    bytes[from..].iter().position(begins).map(|at| from + at)
}

/// Sets a key of an object to bytes: as a string, and also in hexadecimal under `KEY_hex` if they
/// are not UTF-8.
pub fn put_bytes(object: &mut Value, key: &str, bytes: &[u8]) {
    object[key] = json!(String::from_utf8_lossy(bytes));
    if let Some(hex) = hex(bytes) {
        object[format!("{key}_hex")] = json!(hex);
    }
}

/// Bytes in hexadecimal when they are not UTF-8.
pub fn hex(bytes: &[u8]) -> Option<String> {
    let hex = || bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    std::str::from_utf8(bytes).is_err().then(hex)
}

/// Bytes that may be absent, as a JSON value.
pub fn optional(bytes: Option<&Bytes>) -> Value {
    bytes.map_or(Value::Null, |bytes| json!(bytes.lossy()))
}

/// A point in time as RFC 3339, in UTC.
pub fn time_rfc3339(nanos: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(nanos))
        .map_or_else(|_| nanos.to_string(), |time| time.to_string())
}

/// A point in time in a human-readable form, in local time.
pub fn time_local(nanos: i64) -> String {
    let Ok(time) = jiff::Timestamp::from_nanosecond(i128::from(nanos)) else {
        return nanos.to_string();
    };
    time.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// A duration in whole seconds, rounded up: half a second must not become zero.
pub fn seconds_up(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// A human-readable size.
pub fn size(bytes: impl Into<u128>) -> String {
    let bytes = bytes.into();
    match u64::try_from(bytes) {
        Ok(bytes @ ..1024) => format!("{bytes} B"),
        Ok(bytes) => indicatif::BinaryBytes(bytes).to_string(),
        // Sizes of sparse files can add up to any number of these.
        Err(_) => format!("{:.2} EiB", bytes as f64 / (1_u64 << 60) as f64),
    }
}

/// A size as `du -h` prints it, for `sort -h` to read: rounded up, to tenths below ten.
pub fn short_size(bytes: u128) -> String {
    for (power, unit) in "KMGTPEZY".chars().enumerate() {
        let one = 1_u128 << (10 * (power + 1));
        if bytes < 1024 {
            return bytes.to_string();
        }
        let (tenths, whole) = (bytes.saturating_mul(10).div_ceil(one), bytes.div_ceil(one));
        if tenths < 100 {
            return format!("{}.{}{unit}", tenths / 10, tenths % 10);
        }
        if whole < 1024 {
            return format!("{whole}{unit}");
        }
    }
    format!("{}Y", bytes.div_ceil(1 << 80))
}

/// A count with its unit in the singular or plural.
pub fn count(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { many })
}

/// A number with thousands separators.
pub fn number(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_control_a_terminal() {
        assert_eq!(printable(b"a\x1b[2Jb\nc\xff"), "a\\u{1b}[2Jb\\nc\\xff");
        assert_eq!(printable("\u{e9}".as_bytes()), "\u{e9}");
    }

    /// Each letter at each place of a word, and beside each other one.
    #[test]
    fn control_characters_are_found_wherever_they_are() {
        let letters = ['a', '\n', '\x1f', ' ', '~', '\x7f', '\u{80}', '\u{9f}', '\u{a0}', '\u{bf}'];
        let letters = letters.into_iter().chain(['\0', '\u{c2}', '\u{7ff}', '\u{10ffff}']);
        let letters: Vec<char> = letters.collect();
        for (&first, &second) in letters.iter().flat_map(|a| letters.iter().map(move |b| (a, b))) {
            for before in 0..18 {
                let text = format!("{}{first}{second}{}", "b".repeat(before), "e".repeat(9));
                let shown = |letter: char| {
                    let escaped = letter.escape_default().to_string();
                    if letter.is_control() { escaped } else { letter.to_string() }
                };
                let wanted = text.chars().map(shown);
                assert_eq!(printable(text.as_bytes()), wanted.collect::<String>(), "{text:?}");
            }
        }
    }

    #[test]
    fn messages_cannot_control_a_terminal() {
        let failure = Failure::new(FailureKind::Other, "a\x1b]0;x\x07 \u{9b}2J").hint("b\x1b[1m");
        let shown = harmless(&failure_text(&failure)).into_owned();
        assert_eq!(shown, "pando: a\\u{1b}]0;x\\u{7} \\u{9b}2J\n       b\\u{1b}[1m\n");
        assert_eq!(harmless("two\nlines\tand a tab"), "two\nlines\tand a tab");
        let json = json!({ "name": "\u{9b}2J\x1b\x7f" }).to_string();
        let shown = harmless_json(&json);
        assert_eq!(shown, "{\"name\":\"\\u009b2J\\u001b\\u007f\"}");
        assert_eq!(serde_json::from_str::<Value>(&shown).ok(), serde_json::from_str(&json).ok());
    }

    #[test]
    fn sizes_have_units_however_large() {
        assert_eq!(size(1023_u64), "1023 B");
        assert_eq!(size(1_u64 << 60), "1.00 EiB");
        assert_eq!(size(u64::MAX), "16.00 EiB");
        assert_eq!(size(5_u128 << 63), "40.00 EiB");
    }

    #[test]
    fn short_sizes_are_those_of_du() {
        let formatted =
            [0, 1023, 1024, 1025, 9 << 10, 10_189, 10_190, 10_241, (1 << 20) - 1, 1 << 20]
                .map(short_size);
        let want = ["0", "1023", "1.0K", "1.1K", "9.0K", "10K", "10K", "11K", "1.0M", "1.0M"];
        assert_eq!(formatted, want);
        assert_eq!(short_size(5 << 63), "40E");
        let hours = [1, 2000].map(|hours| count(hours, "hour", "hours"));
        assert_eq!(hours, ["1 hour", "2,000 hours"]);
    }

    #[test]
    fn a_failure_names_cause_place_and_remedy() {
        let failure = Failure::new(FailureKind::Exists, "file exists").at(b"/a").hint("remove it");
        assert_eq!(failure_text(&failure), "pando: /a: file exists\n       remove it\n");
    }
}
