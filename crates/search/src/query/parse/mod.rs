//! The arguments of GNU find after the paths: tests, options, actions and operators, with GNU's
//! meaning, precedence and implied `-print`.
//!
//! [`Surroundings`] resolves names outside the namespace (users, groups, reference files, dates,
//! the local day) where the command runs.

mod primaries;
pub(super) mod perm;
mod times;
pub(super) mod numbers;

use super::expr::{DEPTH_MAX, Expr, Test};
use super::format::Format;
use super::glob::Letters;
use super::regex::Dialect;

/// Resolves what the arguments refer to.
pub trait Surroundings {
    /// When the command began, in nanoseconds since 1970.
    fn now(&self) -> i64;

    /// Start of the current day in the user's time zone, in nanoseconds since 1970.
    fn day_start(&self) -> i64;

    /// The number of a user.
    fn user(&self, name: &[u8]) -> Option<u32>;

    /// The number of a group.
    fn group(&self, name: &[u8]) -> Option<u32>;

    /// The file that a test compares with; symbolic links are not followed.
    fn reference(&self, path: &[u8]) -> Result<Reference, String>;

    /// A point in time, in nanoseconds since 1970.
    fn time(&self, text: &[u8]) -> Option<i64>;

    /// The letters of names in the user's locale.
    fn letters(&self) -> Letters;
}

/// A file that a test compares with. Times in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// Last access.
    pub atime: i64,
    /// Last change of contents.
    pub mtime: i64,
    /// Last change of attributes.
    pub ctime: i64,
    /// Birth, where that is known.
    pub btime: Option<i64>,
    /// The inode number that users see, if it is in the searched volume.
    pub node: Option<u64>,
}

/// The parsed arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// The test of every row. Its actions are indices into `actions`.
    pub expr: Expr,
    /// The actions on a row.
    pub actions: Vec<Action>,
    /// Rows less deep are skipped.
    pub min_depth: u32,
    /// Rows deeper are skipped.
    pub max_depth: Option<u32>,
    /// A directory follows its contents.
    pub contents_first: bool,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// An action on a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// Its kind.
    pub what: What,
    /// The output file; `None`: standard output.
    pub file: Option<Vec<u8>>,
}

/// A kind of action on a row.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// Its path and a line end.
    Print,
    /// Its path and a NUL.
    Print0,
    /// Prints as a format specifies.
    Printf(Format),
    /// As `ls -dils` would.
    Ls,
    /// Counts it; the number is printed at the end.
    Count,
}

/// A parse error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// The argument, and the error in it.
    pub message: String,
    /// What the user can do.
    pub hint: Option<&'static str>,
}

pub(super) type Parsed<T> = Result<T, ParseError>;

/// Parses the arguments after the paths.
pub fn parse(arguments: &[Vec<u8>], around: &dyn Surroundings) -> Result<Command, ParseError> {
    let mut parser = Parser::new(arguments, around);
    let expr = if arguments.is_empty() { Expr::yes() } else { parser.whole()? };
    parser.command(expr)
}

/// How many arguments a word of an expression takes.
pub fn operands(word: &[u8]) -> usize {
    match word {
        b"-fprintf" => 2,
        b"-name" | b"-iname" | b"-path" | b"-ipath" | b"-wholename" | b"-iwholename"
        | b"-lname" | b"-ilname" | b"-regex" | b"-iregex" | b"-contains" | b"-icontains"
        | b"-xattr" | b"-query" | b"-regextype" | b"-maxdepth" | b"-mindepth" | b"-printf"
        | b"-fprint" | b"-fprint0" | b"-fls" | b"-type" | b"-size" | b"-uid" | b"-gid"
        | b"-user" | b"-group" | b"-links" | b"-inum" | b"-perm" | b"-samefile" | b"-atime"
        | b"-ctime" | b"-mtime" | b"-amin" | b"-cmin" | b"-mmin" | b"-anewer" | b"-cnewer" => 1,
        _ if word.starts_with(b"-newer") => 1,
        _ => 0,
    }
}

/// Fields of rows that actions need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    /// Attributes.
    pub attributes: bool,
    /// Targets of symbolic links.
    pub targets: bool,
}

impl Fields {
    /// The fields that these actions need.
    pub fn of(actions: &[Action]) -> Fields {
        let any = |of: &dyn Fn(&What) -> bool| actions.iter().any(|action| of(&action.what));
        Fields {
            attributes: any(&|what| match what {
                What::Ls => true,
                What::Printf(format) => format.uses(b"abcBCAdgGiklmMnsStTuUyY"),
                What::Print | What::Print0 | What::Count => false,
            }),
            targets: any(&|what| match what {
                What::Ls => true,
                What::Printf(format) => format.uses(b"l"),
                What::Print | What::Print0 | What::Count => false,
            }),
        }
    }
}

impl Command {
    /// Whether the only output is one number.
    pub fn counts_only(&self) -> bool {
        matches!(self.actions[..], [Action { what: What::Count, .. }]) && !self.expr.quits()
    }
}

/// Whether an argument starts the expression, so that the paths end before it.
pub fn begins_expression(argument: &[u8]) -> bool {
    matches!(argument, b"(" | b")" | b"!" | b",")
        || argument.len() > 1 && argument.first() == Some(&b'-')
}

struct Parser<'a> {
    arguments: &'a [Vec<u8>],
    at: usize,
    around: &'a dyn Surroundings,
    actions: Vec<Action>,
    min_depth: u32,
    max_depth: Option<u32>,
    contents_first: bool,
    pruning: bool,
    warnings: Vec<String>,
    /// Whether times are measured from the start of the day.
    day_start: bool,
    dialect: Dialect,
    /// The first test, for warnings about options after it.
    first_test: Option<String>,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(arguments: &'a [Vec<u8>], around: &'a dyn Surroundings) -> Parser<'a> {
        Parser {
            arguments,
            at: 0,
            around,
            actions: Vec::new(),
            min_depth: 0,
            max_depth: None,
            contents_first: false,
            pruning: false,
            warnings: Vec::new(),
            day_start: false,
            dialect: Dialect::Emacs,
            first_test: None,
            depth: 0,
        }
    }

    fn whole(&mut self) -> Parsed<Expr> {
        let expr = self.list()?;
        match self.peek() {
            None => Ok(expr),
            Some(b")") => Err(error("')' closes nothing: no '(' is open before it")),
            Some(other) => {
                let other = shown(other);
                Err(error(format!("'{other}' cannot follow the expression"))
                    .hint("write paths before the expression; quote patterns"))
            }
        }
    }

    fn command(mut self, expr: Expr) -> Parsed<Command> {
        let expr = if self.actions.is_empty() {
            let print = self.action(What::Print, None)?;
            super::combine::all([expr, print])
        } else {
            expr
        };
        if !expr.within_bounds() {
            return Err(error("the expression is too large"));
        }
        if self.contents_first && self.pruning {
            self.warnings.push("-prune has no effect together with -depth".to_owned());
        }
        Ok(Command {
            expr,
            actions: self.actions,
            min_depth: self.min_depth,
            max_depth: self.max_depth,
            contents_first: self.contents_first,
            warnings: self.warnings,
        })
    }

    fn peek(&self) -> Option<&'a [u8]> {
        self.arguments.get(self.at).map(Vec::as_slice)
    }

    fn list(&mut self) -> Parsed<Expr> {
        let mut parts = vec![self.alternatives()?];
        while self.peek() == Some(b",") {
            self.at += 1;
            self.operand(",")?;
            parts.push(self.alternatives()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::List(parts) })
    }

    fn alternatives(&mut self) -> Parsed<Expr> {
        let mut parts = vec![self.conjunction()?];
        while let Some(operator @ (b"-o" | b"-or")) = self.peek() {
            self.at += 1;
            self.operand(&shown(operator))?;
            parts.push(self.conjunction()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::Any(parts) })
    }

    fn conjunction(&mut self) -> Parsed<Expr> {
        let mut parts = vec![self.negation()?];
        loop {
            match self.peek() {
                None | Some(b"-o" | b"-or" | b"," | b")") => break,
                Some(operator @ (b"-a" | b"-and")) => {
                    self.at += 1;
                    self.operand(&shown(operator))?;
                }
                Some(_) => {}
            }
            parts.push(self.negation()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::All(parts) })
    }

    /// Checks that something follows an operator.
    fn operand(&self, operator: &str) -> Parsed<()> {
        match self.peek() {
            None => Err(error(format!("'{operator}' needs an expression after it"))),
            Some(next @ (b")" | b"-o" | b"-or" | b"-a" | b"-and" | b",")) => {
                let next = shown(next);
                Err(error(format!("nothing is between '{operator}' and '{next}'")))
            }
            Some(_) => Ok(()),
        }
    }

    fn negation(&mut self) -> Parsed<Expr> {
        let mut negated = false;
        while let Some(operator @ (b"!" | b"-not")) = self.peek() {
            self.at += 1;
            self.operand(&shown(operator))?;
            negated = !negated;
        }
        let inner = if self.day_starts() { Expr::yes() } else { self.primary()? };
        Ok(if negated { Expr::Not(Box::new(inner)) } else { inner })
    }

    fn primary(&mut self) -> Parsed<Expr> {
        match self.peek() {
            None => Err(error("the expression ends where a test is expected")),
            Some(b"(") => self.group(),
            Some(b")") => Err(error("')' closes nothing, or nothing is before it")),
            Some(operator @ (b"-o" | b"-or" | b"-a" | b"-and" | b",")) => {
                Err(error(format!("'{}' needs an expression before it", shown(operator))))
            }
            Some(word) => {
                self.at += 1;
                self.word(word)
            }
        }
    }

    /// Takes `-daystart`. Like other options, GNU find does not treat it as part of the expression:
    /// `! -daystart -mtime 1` negates the test. `true`: there was nothing else.
    fn day_starts(&mut self) -> bool {
        while self.peek() == Some(b"-daystart") {
            self.day_start = true;
            self.at += 1;
            if matches!(
                self.peek(),
                None | Some(b")" | b"-o" | b"-or" | b"-a" | b"-and" | b"," | b"!" | b"-not")
            ) {
                return true;
            }
        }
        false
    }

    fn group(&mut self) -> Parsed<Expr> {
        self.at += 1;
        self.depth += 1;
        // Each level may have three nested operators.
        if self.depth > DEPTH_MAX / 4 {
            return Err(error(format!("more than {} '(' within one another", DEPTH_MAX / 4)));
        }
        match self.peek() {
            Some(b")") => return Err(error("nothing is between '(' and ')'")),
            None => return Err(error("'(' needs an expression after it")),
            Some(_) => {}
        }
        let inner = self.list()?;
        if self.peek() != Some(b")") {
            return Err(error("'(' is not closed: ')' is missing"));
        }
        self.at += 1;
        self.depth -= 1;
        Ok(inner)
    }

    /// The argument of a test.
    fn argument(&mut self, word: &[u8]) -> Parsed<&'a [u8]> {
        let Some(argument) = self.peek() else {
            return Err(error(format!("{} needs an argument", shown(word))));
        };
        self.at += 1;
        Ok(argument)
    }

    fn action(&mut self, what: What, file: Option<Vec<u8>>) -> Parsed<Expr> {
        let number =
            u16::try_from(self.actions.len()).map_err(|_| error("there are too many actions"))?;
        self.actions.push(Action { what, file });
        Ok(Expr::Action(number))
    }

    fn test(&mut self, word: &[u8], test: Test) -> Expr {
        self.first_test.get_or_insert_with(|| shown(word));
        Expr::Test(test)
    }
}

impl ParseError {
    fn hint(mut self, hint: &'static str) -> ParseError {
        self.hint = Some(hint);
        self
    }
}

pub(super) fn error(message: impl Into<String>) -> ParseError {
    ParseError { message: message.into(), hint: None }
}

/// An argument as a message shows it.
pub(super) fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().flat_map(shown_character).collect(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

fn shown_character(character: char) -> Vec<char> {
    if character.is_control() { character.escape_default().collect() } else { vec![character] }
}

#[cfg(test)]
mod tests;
