//! The meaning of each word of an expression.

use format::inode_record::FileKind;
use inode::permissions::{EXECUTE, READ, WRITE};

use super::{Parsed, Parser, What, error, numbers, perm, shown};
use crate::condition::Attribute;
use crate::query::format::Format;
use crate::query::{Dialect, Expr, Glob, Kinds, Regex, Test, search_box};

const PIPE: &str = "pipe the paths to what is to run: pando find ... -print0 | xargs -0 COMMAND";

impl Parser<'_> {
    /// A test, an option or an action by its name.
    pub(super) fn word(&mut self, word: &[u8]) -> Parsed<Expr> {
        if let Some(known) = self.option(word)? {
            return Ok(known);
        }
        if let Some(known) = self.give(word)? {
            return Ok(known);
        }
        if let Some(known) = self.by_name(word)? {
            return Ok(known);
        }
        if let Some(known) = self.by_time(word)? {
            return Ok(known);
        }
        self.by_attribute(word)
    }

    /// Options: true, with an effect on the whole command.
    fn option(&mut self, word: &[u8]) -> Parsed<Option<Expr>> {
        match word {
            b"-maxdepth" => {
                self.warn_late(word);
                self.max_depth = Some(self.depth_argument(word)?);
            }
            b"-mindepth" => {
                self.warn_late(word);
                self.min_depth = self.depth_argument(word)?;
            }
            b"-depth" | b"-d" => {
                self.warn_late(word);
                self.contents_first = true;
            }
            // These could change nothing. A volume is one file system, and file systems mounted
            // over it are not visible here. Link counts are not relied on, warnings are few, and a
            // query sees one state.
            b"-xdev"
            | b"-mount"
            | b"-noleaf"
            | b"-warn"
            | b"-nowarn"
            | b"-ignore_readdir_race"
            | b"-noignore_readdir_race" => {}
            b"-regextype" => {
                let name = self.argument(word)?;
                self.dialect = Dialect::named(name).ok_or_else(|| {
                    let (name, known) = (shown(name), Dialect::NAMES);
                    error(format!("-regextype '{name}' is not supported; supported are {known}"))
                })?;
            }
            _ => return Ok(None),
        }
        Ok(Some(Expr::yes()))
    }

    fn warn_late(&mut self, word: &[u8]) {
        if let Some(test) = &self.first_test {
            let word = shown(word);
            self.warnings
                .push(format!("{word} applies to the whole expression: write it before {test}"));
        }
    }

    fn depth_argument(&mut self, word: &[u8]) -> Parsed<u32> {
        let text = self.argument(word)?;
        numbers::number(text).and_then(|depth| u32::try_from(depth).ok()).ok_or_else(|| {
            error(format!("{} needs a depth from 0, not '{}'", shown(word), shown(text)))
        })
    }

    /// Actions.
    fn give(&mut self, word: &[u8]) -> Parsed<Option<Expr>> {
        let what = match word {
            b"-print" | b"-fprint" => What::Print,
            b"-print0" | b"-fprint0" => What::Print0,
            b"-ls" | b"-fls" => What::Ls,
            b"-count" => What::Count,
            b"-printf" => What::Printf(self.format(word)?),
            b"-fprintf" => {
                let file = self.argument(word)?.to_vec();
                let format = self.format(word)?;
                return self.action(What::Printf(format), Some(file)).map(Some);
            }
            b"-prune" => {
                self.pruning = true;
                // With -depth the contents came first; then it is only true.
                return Ok(Some(Expr::Prune));
            }
            b"-quit" => return Ok(Some(Expr::Quit)),
            b"-delete" => {
                return Err(error("-delete: pando find removes nothing")
                    .hint("pando find ... -depth -print0 | xargs -0 rm -d, or `pando rmr DIR`"));
            }
            b"-exec" | b"-execdir" | b"-ok" | b"-okdir" => {
                let word = shown(word);
                return Err(error(format!("{word}: pando find runs nothing")).hint(PIPE));
            }
            _ => return Ok(None),
        };
        let file = word.starts_with(b"-f").then(|| self.argument(word)).transpose()?;
        self.action(what, file.map(<[u8]>::to_vec)).map(Some)
    }

    fn format(&mut self, word: &[u8]) -> Parsed<Format> {
        let text = self.argument(word)?;
        let format = Format::parse(text, &mut self.warnings);
        format.map_err(|why| error(format!("{} '{}': {why}", shown(word), shown(text))))
    }

    /// Tests of names, paths and targets.
    fn by_name(&mut self, word: &[u8]) -> Parsed<Option<Expr>> {
        let test =
            match word {
                b"-name" | b"-iname" => {
                    let glob = self.glob(word, word == b"-iname")?;
                    if glob.pattern().contains(&b'/') && glob.pattern() != b"/" {
                        let pattern = shown(glob.pattern());
                        self.warnings.push(format!(
                            "{} '{pattern}' matches nothing: no name has a slash; use -path",
                            shown(word)
                        ));
                    }
                    Test::Name(glob)
                }
                b"-path" | b"-wholename" => Test::Path(self.glob(word, false)?),
                b"-ipath" | b"-iwholename" => Test::Path(self.glob(word, true)?),
                b"-lname" => Test::Target(self.glob(word, false)?),
                b"-ilname" => Test::Target(self.glob(word, true)?),
                b"-regex" | b"-iregex" => {
                    let text = self.argument(word)?;
                    let letters = self.around.letters();
                    let regex = Regex::new(text, self.dialect, word == b"-iregex", letters);
                    Test::PathRegex(regex.map_err(|why| {
                        error(format!("{} '{}': {why}", shown(word), shown(text)))
                    })?)
                }
                b"-contains" | b"-icontains" => {
                    let text = self.argument(word)?;
                    let letters = self.around.letters();
                    let glob = Glob::containing(text, word == b"-icontains", letters);
                    Test::Name(glob.map_err(|why| error(format!("{}: {why}", shown(word))))?)
                }
                b"-xattr" => {
                    let text = self.argument(word)?;
                    let equals = text.iter().position(|&byte| byte == b'=');
                    let name = &text[..equals.unwrap_or(text.len())];
                    if name.is_empty() {
                        return Err(error("-xattr needs NAME or NAME=PATTERN"));
                    }
                    let value = equals.map(|equals| self.pattern(word, &text[equals + 1..], false));
                    Test::Xattr(name.to_vec(), value.transpose()?)
                }
                b"-query" => {
                    let text = self.argument(word)?;
                    self.first_test.get_or_insert_with(|| shown(word));
                    return search_box::parse(text, self.around).map(Some);
                }
                _ => return Ok(None),
            };
        Ok(Some(self.test(word, test)))
    }

    fn glob(&mut self, word: &[u8], ignore_case: bool) -> Parsed<Glob> {
        let pattern = self.argument(word)?;
        self.pattern(word, pattern, ignore_case)
    }

    fn pattern(&self, word: &[u8], pattern: &[u8], ignore_case: bool) -> Parsed<Glob> {
        Glob::new(pattern, ignore_case, self.around.letters())
            .map_err(|why| error(format!("{}: {why}", shown(word))))
    }

    /// Tests of times.
    fn by_time(&mut self, word: &[u8]) -> Parsed<Option<Expr>> {
        let expr = match word {
            b"-atime" => self.days(word, Attribute::Atime),
            b"-ctime" => self.days(word, Attribute::Ctime),
            b"-mtime" => self.days(word, Attribute::Mtime),
            b"-amin" => self.minutes(word, Attribute::Atime),
            b"-cmin" => self.minutes(word, Attribute::Ctime),
            b"-mmin" => self.minutes(word, Attribute::Mtime),
            b"-newer" => self.newer(word, b'm', b'm'),
            b"-anewer" => self.newer(word, b'a', b'm'),
            b"-cnewer" => self.newer(word, b'c', b'm'),
            [b'-', b'n', b'e', b'w', b'e', b'r', own, theirs]
                if b"aBcm".contains(own) && b"aBcmt".contains(theirs) =>
            {
                self.newer(word, *own, *theirs)
            }
            _ => return Ok(None),
        };
        expr.map(Some)
    }

    /// Tests of other attributes.
    fn by_attribute(&mut self, word: &[u8]) -> Parsed<Expr> {
        let test = match word {
            b"-true" => return Ok(Expr::yes()),
            b"-false" => return Ok(Expr::no()),
            b"-type" => Test::Kind(kinds(word, self.argument(word)?)?),
            b"-size" => numbers::size(word, self.argument(word)?)?,
            b"-empty" => Test::Empty,
            b"-uid" => numbers::compared(word, Attribute::Uid, self.argument(word)?)?,
            b"-gid" => numbers::compared(word, Attribute::Gid, self.argument(word)?)?,
            b"-links" => numbers::compared(word, Attribute::Links, self.argument(word)?)?,
            b"-inum" => numbers::compared(word, Attribute::Ino, self.argument(word)?)?,
            b"-user" | b"-group" => self.account(word)?,
            b"-nouser" => Test::NoUser,
            b"-nogroup" => Test::NoGroup,
            b"-perm" => perm::perm(word, self.argument(word)?)?,
            b"-readable" => Test::Access(READ),
            b"-writable" => Test::Access(WRITE),
            b"-executable" => Test::Access(EXECUTE),
            b"-samefile" => {
                let path = self.argument(word)?;
                match self.reference(word, path)?.node {
                    Some(node) => Test::Within(Attribute::Ino, i128::from(node), i128::from(node)),
                    None => return Ok(Expr::no()),
                }
            }
            _ => return Err(unknown(word)),
        };
        Ok(self.test(word, test))
    }

    fn account(&mut self, word: &[u8]) -> Parsed<Test> {
        let name = self.argument(word)?;
        let (attribute, found) = if word == b"-user" {
            (Attribute::Uid, self.around.user(name))
        } else {
            (Attribute::Gid, self.around.group(name))
        };
        let number = found
            .or_else(|| numbers::number(name).and_then(|number| u32::try_from(number).ok()))
            .ok_or_else(|| {
                error(format!("{} '{}': there is none of this name", shown(word), shown(name)))
            })?;
        Ok(Test::Within(attribute, i128::from(number), i128::from(number)))
    }
}

/// The kinds of `-type`.
fn kinds(word: &[u8], text: &[u8]) -> Parsed<Kinds> {
    let mut kinds = Kinds::default();
    for letter in text.split(|&byte| byte == b',') {
        let kind = match letter {
            b"f" => FileKind::File,
            b"d" => FileKind::Directory,
            b"l" => FileKind::Symlink,
            b"p" => FileKind::Fifo,
            b"s" => FileKind::Socket,
            b"c" => FileKind::CharDevice,
            b"b" => FileKind::BlockDevice,
            _ => {
                let (word, text) = (shown(word), shown(text));
                return Err(error(format!(
                    "{word} needs some of f,d,l,p,s,b,c with commas between, not '{text}'"
                )));
            }
        };
        if kinds.contains(kind) {
            return Err(error(format!("{} '{}': one kind twice", shown(word), shown(text))));
        }
        kinds = kinds.with(kind);
    }
    Ok(kinds)
}

fn unknown(word: &[u8]) -> super::ParseError {
    let name = shown(word);
    match word {
        b"-xtype" | b"-follow" => error(format!("{name}: symbolic links are not followed"))
            .hint("-type l finds the links themselves; -printf %Y prints what they point to"),
        b"-fstype" | b"-context" | b"-used" | b"-files0-from" | b"-newerXY" => {
            error(format!("{name} is not supported"))
        }
        _ if word.starts_with(b"-") => error(format!("there is no test, option or action {name}"))
            .hint("`pando find --help` lists the options"),
        _ => error(format!("'{name}' is a path, and follows the expression"))
            .hint("write paths before the expression; quote patterns"),
    }
}
