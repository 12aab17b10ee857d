//! The output of `-printf` for a row, as GNU find prints it.

use jiff::tz::TimeZone;
use search::query::{Directive, Format, Piece};

use super::item::{Item, letter};
use super::times;
use crate::names::Names;
use crate::output::printable;
use crate::verbs::attr_text;

/// The value of one directive, before padding.
enum Value {
    Text(Vec<u8>),
    /// Decimal, with a sign if negative.
    Number(i64),
    Octal(u32),
    /// As C prints it with `%g`.
    Float(f64),
}

/// Prints a row by a format.
pub(super) fn render(
    format: &Format,
    item: &Item<'_>,
    names: &mut Names,
    (zone, terminal): (&TimeZone, bool),
    out: &mut Vec<u8>,
) {
    for piece in &format.pieces {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text),
            Piece::Stop => return,
            Piece::Directive(directive) => {
                let value = match value(directive, item, names, zone) {
                    // Names must not control a terminal; the user's own format may.
                    Value::Text(text) if terminal => Value::Text(printable(&text).into_bytes()),
                    value => value,
                };
                fill(directive, &value, out);
            }
        }
    }
}

fn value(directive: &Directive, item: &Item<'_>, names: &mut Names, zone: &TimeZone) -> Value {
    let attr = item.attr;
    let text = |text: &[u8]| Value::Text(text.to_vec());
    let number = |number: u64| Value::Text(number.to_string().into_bytes());
    match directive.what {
        b'p' => text(item.path),
        b'P' => text(item.below()),
        b'H' => text(item.start),
        b'f' => text(file_name(item.path)),
        b'h' => text(directory_name(item.path)),
        b'd' => Value::Number(i64::from(item.depth)),
        b's' => number(attr.size),
        b'b' => number(attr.blocks),
        b'k' => number(attr.blocks.div_ceil(2)),
        b'i' => number(attr.node),
        b'n' => number(u64::from(attr.nlink)),
        b'u' => text(names.user(attr.uid).as_bytes()),
        b'U' => number(u64::from(attr.uid)),
        b'g' => text(names.group(attr.gid).as_bytes()),
        b'G' => number(u64::from(attr.gid)),
        b'm' => Value::Octal(attr.mode),
        b'M' => text(attr_text::mode_letters(attr).as_bytes()),
        b'y' => text(&[letter(attr.kind)]),
        b'Y' => text(&[item.target_letter()]),
        b'l' => text(item.target),
        b'F' => text(item.file_system.as_bytes()),
        b'D' => number(item.device),
        b'S' => Value::Float(match (attr.size, attr.blocks) {
            (0, 0) => 1.0,
            (0, _) => f64::INFINITY,
            (size, blocks) => (blocks * 512) as f64 / size as f64,
        }),
        b'a' | b'A' => time(directive.time, attr.atime, zone),
        b'B' => time(directive.time, attr.btime, zone),
        b'c' | b'C' => time(directive.time, attr.ctime, zone),
        _ => time(directive.time, attr.mtime, zone),
    }
}

fn time(form: u8, time: i64, zone: &TimeZone) -> Value {
    Value::Text(times::form(form, time, zone).into_bytes())
}

/// The last component, including a slash that follows it.
fn file_name(path: &[u8]) -> &[u8] {
    let Some(last) = path.iter().rposition(|&byte| byte != b'/') else {
        return &path[..path.len().min(1)];
    };
    let start = path[..last].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    &path[start..path.len().min(last + 2)]
}

/// The part before the last slash; a dot if there is none. Trailing slashes do not count, unless a
/// single character precedes them: GNU find does the same.
fn directory_name(path: &[u8]) -> &[u8] {
    let path = match path.iter().rposition(|&byte| byte != b'/') {
        Some(last) if last > 0 => &path[..=last],
        _ => path,
    };
    path.iter().rposition(|&byte| byte == b'/').map_or(b".", |slash| &path[..slash])
}

/// Formats a value with width, precision and flags, as printf(3) does.
fn fill(directive: &Directive, value: &Value, out: &mut Vec<u8>) {
    let sign = |negative: bool| match (negative, directive.plus, directive.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    };
    let (sign, body, zeros) = match value {
        Value::Text(text) => {
            let most = directive.precision.unwrap_or(usize::MAX).min(text.len());
            ("", text[..most].to_vec(), false)
        }
        Value::Number(number) => {
            let digits = digits(number.unsigned_abs().to_string(), directive.precision);
            (sign(*number < 0), digits, directive.zeros && directive.precision.is_none())
        }
        Value::Octal(bits) => {
            let mut digits = digits(format!("{bits:o}"), directive.precision);
            if directive.alternate && digits.first() != Some(&b'0') {
                digits.insert(0, b'0');
            }
            ("", digits, directive.zeros && directive.precision.is_none())
        }
        Value::Float(float) => {
            let body = general(*float, directive.precision.unwrap_or(6), directive.alternate);
            (sign(false), body.into_bytes(), directive.zeros && float.is_finite())
        }
    };
    let missing = directive.width.saturating_sub(sign.len() + body.len());
    if !directive.left && !zeros {
        out.resize(out.len() + missing, b' ');
    }
    out.extend_from_slice(sign.as_bytes());
    if !directive.left && zeros {
        out.resize(out.len() + missing, b'0');
    }
    out.extend_from_slice(&body);
    if directive.left {
        out.resize(out.len() + missing, b' ');
    }
}

fn digits(digits: String, least: Option<usize>) -> Vec<u8> {
    match least {
        // Precision 0 prints zero as no digits.
        Some(0) if digits == "0" => Vec::new(),
        Some(least) => format!("{digits:0>least$}").into_bytes(),
        None => digits.into_bytes(),
    }
}

/// A number of at least zero, as `%g` prints it.
fn general(value: f64, precision: usize, keep_zeros: bool) -> String {
    if !value.is_finite() {
        return "inf".to_owned();
    }
    let precision = precision.max(1);
    let scientific = format!("{value:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: String| {
        if keep_zeros || !text.contains('.') {
            text
        } else {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    };
    if exponent < -4 || exponent >= precision as i32 {
        let digits = trimmed(digits.to_owned());
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    } else {
        let places = usize::try_from(precision as i32 - 1 - exponent).unwrap_or(0);
        trimmed(format!("{value:.places$}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{directory_name, file_name, general};

    #[test]
    fn numbers_are_formatted_as_by_printf() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1.6384, "1.6384"),
            (0.00001, "1e-05"),
            (1_234_567.0, "1.23457e+06"),
            (100_000.0, "100000"),
            (0.040_96, "0.04096"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(general(value, 6, false), text);
        }
    }

    #[test]
    fn paths_are_split_as_by_gnu_find() {
        for (path, directory, file) in [
            ("/", "", "/"),
            ("a//", "a/", "a/"),
            ("a//f", "a/", "f"),
            (".", ".", "."),
            ("./a", ".", "a"),
            ("/x/y", "/x", "y"),
        ] {
            assert_eq!(directory_name(path.as_bytes()), directory.as_bytes(), "{path}");
            assert_eq!(file_name(path.as_bytes()), file.as_bytes(), "{path}");
        }
    }
}
