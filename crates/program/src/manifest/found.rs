//! What is no entry of a list: how it is quoted in a message, and what a list looks like.
//!
//! What was found may be anything, of any length: a quotation is short, on one line, and has no
//! control characters.

/// Most characters of what was found that a message quotes.
const QUOTED_CHARS: usize = 40;

/// The formats of a list, each with the command that prints it.
pub const FORMATS: &str = "a list has lines of JSON such as \
{\"path\":\"a/b\",\"kind\":\"file\",\"size\":5} (`pando find --json DIR`), or what \
`find DIR -printf '%y %#m %U %G %s %T@ %A@ %n %D:%i %P\\0%l\\0'` prints, or what \
`rsync -rl --list-only DIR/` prints";

/// What was found, short and in quotes.
pub(super) fn quoted(found: &[u8]) -> String {
    // A character has at most four bytes.
    let start = &found[..found.len().min(4 * (QUOTED_CHARS + 1))];
    let text = String::from_utf8_lossy(start);
    let text = text.trim();
    let short: String = text.chars().take(QUOTED_CHARS).flat_map(char::escape_debug).collect();
    let more = if text.chars().nth(QUOTED_CHARS).is_some() { "..." } else { "" };
    format!("`{short}{more}`")
}

/// Whether a list that begins so has records of `find -printf`: the letter of a type, a space, and
/// the digits of a mode.
pub(super) fn is_printf(start: &[u8]) -> bool {
    matches!(start, [letter, b' ', digit, ..]
        if (letter.is_ascii_alphabetic() || *letter == b'?') && digit.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::super::PRINTF;
    use super::*;

    #[test]
    fn a_quotation_is_short_and_has_no_control_characters() {
        assert_eq!(quoted(b"\x1b[2Jname\n"), "`\\u{1b}[2Jname`");
        assert_eq!(quoted("\u{e9}".repeat(41).as_bytes()), format!("`{}...`", "\u{e9}".repeat(40)));
        assert_eq!(quoted("\u{e9}".repeat(40).as_bytes()), format!("`{}`", "\u{e9}".repeat(40)));
        assert!(quoted(&vec![0xff; 1 << 20]).len() < 200);
    }

    #[test]
    fn the_formats_are_those_that_are_read() {
        assert!(FORMATS.contains(PRINTF));
        assert!(FORMATS.contains(super::super::rsync::COMMAND));
    }
}
