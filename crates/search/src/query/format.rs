//! Formats of `-printf`: text, escapes, and directives with flags, width and precision. The caller
//! determines the output of each directive.

/// A parsed format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// Its pieces.
    pub pieces: Vec<Piece>,
}

/// A piece of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// These bytes.
    Text(Vec<u8>),
    /// A field of the row.
    Directive(Directive),
    /// Nothing more of this row is printed (`\c`).
    Stop,
}

/// A field of the row, and its formatting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that a directive may have")]
pub struct Directive {
    /// The letter.
    pub what: u8,
    /// The letter for the format of a time, for `%A`, `%B`, `%C` and `%T`.
    pub time: u8,
    /// `-`: padded on the right.
    pub left: bool,
    /// `0`: numbers are padded with zeros.
    pub zeros: bool,
    /// `+`: numbers have a sign.
    pub plus: bool,
    /// ` `: numbers have a sign, or a space instead.
    pub space: bool,
    /// `#`: octal numbers start with a zero.
    pub alternate: bool,
    /// Minimum length.
    pub width: usize,
    /// Maximum bytes of a text, minimum digits of a number.
    pub precision: Option<usize>,
}

/// Maximum width of a field; together with the digits of a small number, `std::fmt` accepts it.
const WIDTH_MAX: usize = 32_767;

impl Format {
    /// Parses a format. Unknown directives are printed as they are, with a warning, as in GNU find;
    /// unsupported ones are an error.
    pub fn parse(text: &[u8], warnings: &mut Vec<String>) -> Result<Format, String> {
        let mut reader = Reader { rest: text, pieces: Vec::new(), text: Vec::new() };
        while let Some(byte) = reader.next() {
            match byte {
                b'\\' => reader.escape(warnings)?,
                b'%' => reader.directive(warnings)?,
                byte => reader.text.push(byte),
            }
        }
        reader.end_text();
        Ok(Format { pieces: reader.pieces })
    }

    /// Whether it has a directive with one of these letters.
    pub fn uses(&self, letters: &[u8]) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Directive(directive) => letters.contains(&directive.what),
            Piece::Text(_) | Piece::Stop => false,
        })
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    pieces: Vec<Piece>,
    text: Vec<u8>,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            self.pieces.push(Piece::Text(std::mem::take(&mut self.text)));
        }
    }

    fn escape(&mut self, warnings: &mut Vec<String>) -> Result<(), String> {
        let letter = self.next().ok_or("a backslash at the end quotes nothing")?;
        let byte = match letter {
            b'0'..=b'7' => {
                let mut value = u32::from(letter - b'0');
                for _ in 0..2 {
                    let Some(&digit @ b'0'..=b'7') = self.rest.first() else { break };
                    value = value * 8 + u32::from(digit - b'0');
                    self.rest = &self.rest[1..];
                }
                (value & 0xff) as u8
            }
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'\\' => b'\\',
            b'c' => {
                self.end_text();
                self.pieces.push(Piece::Stop);
                // Nothing after it is ever printed.
                self.rest = &[];
                return Ok(());
            }
            other => {
                let shown = other.escape_ascii();
                warnings.push(format!("'\\{shown}' is not an escape, and is printed unchanged"));
                self.text.push(b'\\');
                other
            }
        };
        self.text.push(byte);
        Ok(())
    }

    fn directive(&mut self, warnings: &mut Vec<String>) -> Result<(), String> {
        let start = self.rest;
        let mut directive = Directive {
            what: 0,
            time: 0,
            left: false,
            zeros: false,
            plus: false,
            space: false,
            alternate: false,
            width: 0,
            precision: None,
        };
        loop {
            match self.rest.first() {
                Some(b'-') => directive.left = true,
                Some(b'0') => directive.zeros = true,
                Some(b'+') => directive.plus = true,
                Some(b' ') => directive.space = true,
                Some(b'#') => directive.alternate = true,
                _ => break,
            }
            self.rest = &self.rest[1..];
        }
        directive.width = self.number()?;
        if self.rest.first() == Some(&b'.') {
            self.rest = &self.rest[1..];
            directive.precision = Some(self.number()?);
        }
        let Some(letter) = self.next() else {
            return Err("'%' at the end is not a directive (write %%)".to_owned());
        };
        directive.what = letter;
        match letter {
            b'%' => {
                self.text.push(b'%');
                return Ok(());
            }
            b'Z' => return Err("%Z is not supported: there are no security contexts".to_owned()),
            b'A' | b'B' | b'C' | b'T' => {
                let time = self.next().ok_or("a time needs a letter after it, as in %Tc")?;
                if !b"@HIklMprSTXZ+aAbBcdDFhjmUwWxyY".contains(&time) {
                    let (letter, time) = (letter.escape_ascii(), time.escape_ascii());
                    return Err(format!("%{letter}{time}: there is no such form of a time"));
                }
                directive.time = time;
            }
            _ if b"abcdDfFgGhHiklmMnpPsStuUyYt".contains(&letter) => {}
            other => {
                let shown = other.escape_ascii();
                warnings.push(format!("'%{shown}' is not a directive, and is printed unchanged"));
                self.text.push(b'%');
                self.text.extend_from_slice(&start[..start.len() - self.rest.len()]);
                return Ok(());
            }
        }
        self.end_text();
        self.pieces.push(Piece::Directive(directive));
        Ok(())
    }

    fn number(&mut self) -> Result<usize, String> {
        let mut number = 0;
        while let Some(&digit @ b'0'..=b'9') = self.rest.first() {
            number = number * 10 + usize::from(digit - b'0');
            if number > WIDTH_MAX {
                return Err(format!("a field is wider than {WIDTH_MAX}"));
            }
            self.rest = &self.rest[1..];
        }
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::{Format, Piece};

    fn pieces(text: &str) -> (Vec<Piece>, usize) {
        let mut warnings = Vec::new();
        let format = Format::parse(text.as_bytes(), &mut warnings).unwrap();
        (format.pieces, warnings.len())
    }

    #[test]
    fn a_printf_format_is_parsed() {
        let (found, warned) = pieces("a%%\\n\\0%-10.3p\\061%TY\\cz");
        assert_eq!(warned, 0);
        let [Piece::Text(first), Piece::Directive(path), Piece::Text(one), rest @ ..] = &found[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!((&first[..], &one[..]), (&b"a%\n\0"[..], &b"1"[..]));
        assert_eq!((path.what, path.left, path.width, path.precision), (b'p', true, 10, Some(3)));
        assert!(matches!(rest, [Piece::Directive(time), Piece::Stop] if time.time == b'Y'));
    }

    #[test]
    fn unknown_escapes_are_printed_unchanged() {
        let (found, warned) = pieces("%q\\q");
        assert_eq!((found, warned), (vec![Piece::Text(b"%q\\q".to_vec())], 2));
        for (wrong, why) in [
            ("%", "'%' at the end is not a directive"),
            ("\\", "a backslash at the end quotes nothing"),
            ("%T", "a time needs a letter"),
            ("%T?", "there is no such form of a time"),
            ("%Z", "there are no security contexts"),
            ("%99999999p", "a field is wider than 32767"),
        ] {
            let refused = Format::parse(wrong.as_bytes(), &mut Vec::new()).expect_err(wrong);
            assert!(refused.contains(why), "{wrong}: {refused}");
        }
    }
}
