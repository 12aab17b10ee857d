//! Modes: octal, or symbolic as in chmod (`u=rw,g+r`), starting from no bits.

use super::{Parsed, error, shown};
use crate::query::{Perm, PermKind, Test};

const ALL: u32 = 0o7777;

/// The argument of `-perm`: a mode, `-MODE` or `/MODE`.
pub(crate) fn perm(word: &[u8], text: &[u8]) -> Parsed<Test> {
    let (kind, mode) = match text.split_first() {
        Some((b'-', rest)) => (PermKind::All, rest),
        Some((b'/', rest)) => (PermKind::Any, rest),
        Some((b'+', rest)) if rest.first().is_some_and(u8::is_ascii_digit) => {
            return Err(error(format!("{} '{}': +MODE is old", shown(word), shown(text)))
                .hint("write /MODE for any of these bits"));
        }
        _ => (PermKind::Exact, text),
    };
    let wrong = || error(format!("{} needs a mode, not '{}'", shown(word), shown(text)));
    let (files, directories) = if mode.first().is_some_and(u8::is_ascii_digit) {
        let text = std::str::from_utf8(mode).map_err(|_| wrong())?;
        let bits = u32::from_str_radix(text, 8).ok().filter(|&bits| bits <= ALL);
        let bits = bits.ok_or_else(wrong)?;
        (bits, bits)
    } else {
        let files = symbolic(mode, false).ok_or_else(wrong)?;
        (files, symbolic(mode, true).ok_or_else(wrong)?)
    };
    Ok(Test::Perm(Perm { kind, files, directories }))
}

/// The bits of a symbolic mode.
fn symbolic(text: &[u8], directory: bool) -> Option<u32> {
    let mut mode = 0;
    for clause in text.split(|&byte| byte == b',') {
        let who = clause.iter().take_while(|byte| b"ugoa".contains(byte)).count();
        let affected = clause[..who].iter().fold(0, |affected, who| {
            affected
                | match who {
                    b'u' => 0o4700,
                    b'g' => 0o2070,
                    b'o' => 0o1007,
                    _ => ALL,
                }
        });
        let affected = if affected == 0 { ALL } else { affected };
        let mut rest = &clause[who..];
        if rest.is_empty() {
            return None;
        }
        while let Some((operator, after)) = rest.split_first() {
            let length = after.iter().take_while(|byte| !b"+-=".contains(byte)).count();
            let value = value(&after[..length], mode, directory)? & affected;
            mode = match operator {
                b'+' => mode | value,
                b'-' => mode & !value,
                b'=' => mode & !affected | value,
                _ => return None,
            };
            rest = &after[length..];
        }
    }
    Some(mode)
}

fn value(letters: &[u8], mode: u32, directory: bool) -> Option<u32> {
    if let [who @ (b'u' | b'g' | b'o')] = letters {
        let shift = match who {
            b'u' => 6,
            b'g' => 3,
            _ => 0,
        };
        return Some((mode >> shift & 7) * 0o111);
    }
    let mut value = 0;
    for letter in letters {
        value |= match letter {
            b'r' => 0o444,
            b'w' => 0o222,
            b'x' => 0o111,
            b'X' if directory || mode & 0o111 != 0 => 0o111,
            b'X' => 0,
            b's' => 0o6000,
            b't' => 0o1000,
            _ => return None,
        };
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::symbolic;

    #[test]
    fn symbolic_modes_are_those_of_chmod() {
        for (text, files, directories) in [
            ("u=rw,g=r", 0o640, 0o640),
            ("u+w,g+w", 0o220, 0o220),
            ("+x", 0o111, 0o111),
            ("a=rwX", 0o666, 0o777),
            ("u=x,a+X", 0o111, 0o111),
            ("u+s,g+s", 0o6000, 0o6000),
            ("+t", 0o1000, 0o1000),
            ("u=rwx,g=u-w", 0o750, 0o750),
            ("g=", 0, 0),
        ] {
            let of = |directory| symbolic(text.as_bytes(), directory);
            assert_eq!((of(false), of(true)), (Some(files), Some(directories)), "{text}");
        }
        for text in ["", "u", "q+x", "u+q", "u=rw,", "ug"] {
            assert_eq!(symbolic(text.as_bytes(), false), None, "{text}");
        }
    }
}
