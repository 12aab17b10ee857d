//! Times relative to now (`-mtime`, `-mmin` and their like) and to other files (`-newer`), as GNU
//! find computes them.

use super::numbers::{Compare, LEAST, MOST, sign};
use super::{Parsed, Parser, Reference, error, shown};
use crate::condition::Attribute;
use crate::query::{Expr, Test};

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;

impl Parser<'_> {
    /// `-atime`, `-ctime`, `-mtime`: whole days. A file's age of less than two days is one day.
    pub(super) fn days(&mut self, word: &[u8], attribute: Attribute) -> Parsed<Expr> {
        let text = self.argument(word)?;
        let origin = if self.day_start {
            i128::from(self.around.day_start())
        } else {
            i128::from(self.around.now()) - DAY
        };
        // Fewer days than N means not even N days and a second.
        let origin = if sign(text).0 == Compare::Less { origin + DAY - SECOND } else { origin };
        self.relative(word, text, attribute, origin, DAY)
    }

    /// `-amin`, `-cmin`, `-mmin`: minutes.
    pub(super) fn minutes(&mut self, word: &[u8], attribute: Attribute) -> Parsed<Expr> {
        let text = self.argument(word)?;
        let origin = if self.day_start {
            i128::from(self.around.day_start()) + DAY
        } else {
            i128::from(self.around.now())
        };
        self.relative(word, text, attribute, origin, 60 * SECOND)
    }

    fn relative(
        &mut self,
        word: &[u8],
        text: &[u8],
        attribute: Attribute,
        origin: i128,
        unit: i128,
    ) -> Parsed<Expr> {
        let (compare, digits) = sign(text);
        let count = std::str::from_utf8(digits).ok().and_then(|text| text.parse::<f64>().ok());
        let count =
            count.filter(|count| count.is_finite() && count.abs() < 1e12).ok_or_else(|| {
                let (word, text) = (shown(word), shown(text));
                error(format!("{word} needs a number, '+N' or '-N', not '{text}'"))
            })?;
        let seconds = count * (unit / SECOND) as f64;
        let back = if count > 0.0 {
            seconds.trunc() as i128 * SECOND + (seconds.fract() * 1e9) as i128
        } else {
            0
        };
        let then = origin - back;
        let test = match compare {
            Compare::Less => Test::Within(attribute, then + 1, MOST),
            Compare::Equal => Test::Within(attribute, then + 1, then + unit),
            Compare::More => Test::Within(attribute, LEAST, then - 1),
        };
        Ok(self.test(word, test))
    }

    /// `-newer FILE`, `-newerXY FILE`.
    pub(super) fn newer(&mut self, word: &[u8], own: u8, theirs: u8) -> Parsed<Expr> {
        let text = self.argument(word)?;
        let attribute = match own {
            b'a' => Attribute::Atime,
            b'B' => Attribute::Btime,
            b'c' => Attribute::Ctime,
            _ => Attribute::Mtime,
        };
        let then = if theirs == b't' {
            self.moment(text).ok_or_else(|| {
                let (word, text) = (shown(word), shown(text));
                error(format!("{word}: '{text}' is not a point in time")).hint(TIMES)
            })?
        } else {
            let reference = self.reference(word, text)?;
            match theirs {
                b'a' => reference.atime,
                b'c' => reference.ctime,
                b'B' => reference.btime.ok_or_else(|| {
                    let (word, text) = (shown(word), shown(text));
                    error(format!("{word}: the birth time of '{text}' is not known"))
                })?,
                _ => reference.mtime,
            }
        };
        Ok(self.test(word, Test::Within(attribute, i128::from(then) + 1, MOST)))
    }

    /// A point in time. For days relative to today, GNU find takes the present time of day on that
    /// day, while a search box means the whole day.
    fn moment(&self, text: &[u8]) -> Option<i64> {
        const DAY: i64 = 86_400_000_000_000;
        let now = self.around.now();
        match text.trim_ascii() {
            b"today" => Some(now),
            b"yesterday" => now.checked_sub(DAY),
            b"tomorrow" => now.checked_add(DAY),
            _ => self.around.time(text),
        }
    }

    /// The file that a test compares with.
    pub(super) fn reference(&self, word: &[u8], path: &[u8]) -> Parsed<Reference> {
        self.around.reference(path).map_err(|why| {
            let (word, path) = (shown(word), shown(path));
            error(format!("{word} '{path}': {why}"))
        })
    }
}

/// Forms of points in time.
const TIMES: &str = "write 2024-05-31, '2024-05-31 17:30', 2024-05-31T17:30:00Z, @SECONDS, now, \
                     today, yesterday, or '3 days ago'";
