//! The arguments of `pando find`: its own options, paths, and the expression.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use search::query::{begins_expression, is_query, meant_key, operands};
use search::{Sort, SortBy};
use wire::{Failure, FailureKind};

use crate::failure::Result;
use crate::place::{Last, VolumePath, is_dangling};

/// The output of `pando find --help`.
pub(crate) const HELP: &str = include_str!("help.txt");

/// The parsed arguments.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
pub(crate) struct Arguments {
    /// Show the help, and do nothing else.
    pub(crate) help: bool,
    /// Print JSON.
    pub(crate) json: bool,
    /// No remarks.
    pub(crate) quiet: bool,
    /// Symbolic links among the paths are followed.
    pub(crate) follow: bool,
    /// Search all snapshots too.
    pub(crate) all_snapshots: bool,
    /// Print statistics of the search on standard error.
    pub(crate) stats: bool,
    /// Most rows to print.
    pub(crate) limit: Option<u64>,
    /// The order of the rows.
    pub(crate) sort: Option<Sort>,
    /// The file that rows must be similar to, the most similar first.
    pub(crate) like: Option<PathBuf>,
    /// The paths to search.
    pub(crate) paths: Vec<FindPath>,
    /// The expression.
    pub(crate) expression: Vec<Vec<u8>>,
}

/// A path to search from.
#[derive(Debug)]
pub(crate) struct FindPath {
    /// The path as typed.
    pub(crate) typed: PathBuf,
    /// The resolved place, or why there is none. That concerns this path alone.
    pub(crate) place: Result<VolumePath>,
}

impl Arguments {
    /// Parses arguments.
    pub(crate) fn parse(arguments: &[OsString]) -> Result<Arguments> {
        let mut taken = Arguments::default();
        let mut rest = Vec::new();
        let mut arguments = arguments.iter().peekable();
        while let Some(argument) = arguments.next() {
            let bytes = argument.as_bytes();
            match taken.option(bytes, &mut || arguments.next().map(OsString::as_os_str)) {
                Ok(true) => {}
                Ok(false) => {
                    rest.push(bytes.to_vec());
                    // The operand of a test is never an option, whatever it looks like.
                    for _ in 0..operands(bytes) {
                        rest.extend(arguments.next().map(|operand| operand.as_bytes().to_vec()));
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        if taken.help {
            return Ok(taken);
        }
        let split = rest.iter().position(|argument| begins_expression(argument));
        let expression = rest.split_off(split.unwrap_or(rest.len()));
        taken.paths_and_queries(rest, expression)?;
        Ok(taken)
    }

    /// Parses an option of `pando find`. `false`: it is not one.
    fn option<'a>(
        &mut self,
        argument: &[u8],
        next: &mut dyn FnMut() -> Option<&'a OsStr>,
    ) -> Result<bool> {
        let (name, value) = match argument.iter().position(|&byte| byte == b'=') {
            Some(at) if argument.starts_with(b"--") => {
                (&argument[..at], Some(argument[at + 1..].to_vec()))
            }
            _ => (argument, None),
        };
        let mut needed = |name: &str| {
            value
                .clone()
                .or_else(|| next().map(|value| value.as_bytes().to_vec()))
                .ok_or_else(|| wrong(format!("{name} needs an argument")))
        };
        match name {
            b"--limit" => {
                let text = needed("--limit")?;
                let number = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
                self.limit = Some(number.ok_or_else(|| {
                    wrong(format!("--limit needs a number, not '{}'", text.escape_ascii()))
                })?);
                return Ok(true);
            }
            b"--sort" => {
                self.sort = Some(sort(&needed("--sort")?)?);
                return Ok(true);
            }
            b"--like" => {
                self.like = Some(PathBuf::from(OsString::from_vec(needed("--like")?)));
                return Ok(true);
            }
            _ if value.is_some() => return Ok(false),
            b"--help" | b"-help" | b"-h" => self.help = true,
            b"--json" => self.json = true,
            b"--quiet" | b"-q" => self.quiet = true,
            b"--all-snapshots" => self.all_snapshots = true,
            b"--stats" => self.stats = true,
            b"-H" => self.follow = true,
            b"-P" => self.follow = false,
            b"-L" => {
                return Err(wrong("-L: symbolic links are not followed below the paths".into())
                    .hint("-H follows those that are given as paths"));
            }
            // The order of tests has no effect on the results.
            b"--" | b"-O0" | b"-O1" | b"-O2" | b"-O3" => {}
            b"-D" => return Err(wrong("-D is not supported".into()).hint("--stats prints more")),
            _ if name.starts_with(b"--") => {
                let name = name.escape_ascii();
                return Err(wrong(format!("there is no option {name}"))
                    .hint("`pando find --help` lists the options"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Parses what precedes the expression: paths, and queries as in a search box.
    fn paths_and_queries(&mut self, before: Vec<Vec<u8>>, expression: Vec<Vec<u8>>) -> Result<()> {
        let mut queries: Vec<Vec<u8>> = Vec::new();
        let mut paths = Vec::new();
        for argument in before {
            let path = PathBuf::from(OsString::from_vec(argument.clone()));
            if is_query(&argument) && path.symlink_metadata().is_err() && !in_volume(&path) {
                queries.push(argument);
            } else {
                paths.push(path);
            }
        }
        if paths.is_empty() {
            paths.push(PathBuf::from("."));
        }
        for typed in paths {
            let place = place(&typed, !self.paths.is_empty(), self.follow);
            match place {
                Err(failure) if is_wrong_usage(&failure) => return Err(failure),
                place => self.paths.push(FindPath { typed, place }),
            }
        }
        for query in queries {
            self.expression.extend([b"-query".to_vec(), query]);
        }
        if !self.expression.is_empty() && !expression.is_empty() {
            self.expression.push(b"(".to_vec());
            self.expression.extend(expression);
            self.expression.push(b")".to_vec());
        } else {
            self.expression.extend(expression);
        }
        Ok(())
    }
}

/// Whether a path is `VOLDIR:/...`.
fn in_volume(path: &Path) -> bool {
    path.as_os_str().as_bytes().contains(&b':') && VolumePath::split(path).is_some()
}

/// Whether nothing is searched because of a path: the word was not meant as one, or no volume has
/// it. Any other failure leaves the other paths to be searched, as by GNU find.
fn is_wrong_usage(failure: &Failure) -> bool {
    match failure.kind {
        FailureKind::Invalid | FailureKind::NotVolume => true,
        FailureKind::NotFound => !failure.hint.is_empty(),
        _ => false,
    }
}

/// Resolves a path that follows others: a word that does not exist may be meant as a query.
fn place(typed: &Path, others: bool, follow: bool) -> Result<VolumePath> {
    let last = if follow && !is_dangling(typed) { Last::Target } else { Last::Link };
    let found = VolumePath::reading(typed, last);
    if let Err(failure) = &found
        && failure.kind == FailureKind::NotFound
        && let Some(meant) = meant(typed)
    {
        return Err(meant);
    }
    let word = typed.display();
    let plain = || typed.components().count() == 1 && typed.symlink_metadata().is_err();
    match found {
        Err(failure) if others && plain() && failure.kind == FailureKind::NotFound => {
            let message = format!("{word} does not exist; a single word is a path");
            let hint = format!("for names that contain it use name:{word}");
            Err(Failure::new(FailureKind::NotFound, message).hint(hint))
        }
        found => found,
    }
}

/// A hint for a path that does not exist, and looks like a misspelled word of the search box.
fn meant(typed: &Path) -> Option<Failure> {
    let bytes = typed.as_os_str().as_bytes();
    let word = bytes.strip_prefix(b"!").unwrap_or(bytes);
    let colon = word.iter().position(|&byte| byte == b':')?;
    let (key, value) = (&word[..colon], &word[colon..]);
    let meant = meant_key(key).filter(|_| typed.symlink_metadata().is_err())?;
    let message = format!("unknown search field '{}:'", key.escape_ascii());
    let meant = [&bytes[..bytes.len() - word.len()], meant.as_bytes(), value].concat();
    Some(wrong(message).hint(format!("use '{}', if you mean that", meant.escape_ascii())))
}

fn sort(text: &[u8]) -> Result<Sort> {
    let (name, descending) = match text.strip_suffix(b":desc") {
        Some(name) => (name, true),
        None => (text.strip_suffix(b":asc").unwrap_or(text), false),
    };
    let by = match name {
        b"size" => SortBy::Size,
        b"mtime" => SortBy::Mtime,
        b"name" => SortBy::Name,
        b"path" => SortBy::Path,
        _ => {
            let text = text.escape_ascii();
            return Err(wrong(format!(
                "--sort takes size, mtime, name or path, with :desc for the greatest first, not \
                 '{text}'"
            )));
        }
    };
    Ok(Sort { by, descending })
}

fn wrong(message: String) -> Failure {
    Failure::new(FailureKind::Invalid, message).hint("`pando find --help` lists the arguments")
}

#[cfg(test)]
mod tests {
    use super::{Arguments, FailureKind, sort};

    #[test]
    fn options_are_accepted_anywhere_before_a_test() {
        let words = ["--limit=3", "--json", "--help", "-name", "--quiet", "--sort", "size:desc"];
        let words: Vec<_> = words.iter().map(Into::into).collect();
        let taken = Arguments::parse(&words).unwrap();
        assert_eq!(
            (taken.limit, taken.json, taken.help, taken.quiet),
            (Some(3), true, true, false)
        );
        assert!(taken.sort.is_some_and(|sort| sort.descending));
        for (wrong, what) in [
            (&["--limit"][..], "--limit needs an argument"),
            (&["--limit", "x"], "--limit needs a number, not 'x'"),
            (&["--sort", "x"], "not 'x'"),
            (&["-L"], "-L"),
            (&["--foo"], "--foo"),
        ] {
            let words: Vec<_> = wrong.iter().map(Into::into).collect();
            let failure = Arguments::parse(&words).map(drop).expect_err("it is refused");
            assert_eq!(failure.kind, FailureKind::Invalid, "{wrong:?}: {failure:?}");
            assert!(failure.message.contains(what), "{wrong:?}: {failure:?}");
        }
        assert!(sort(b"mtime:asc").is_ok_and(|sort| !sort.descending));
    }
}
