//! The query expression: tests, joined by short-circuit operators, and actions, which are tests
//! that are true and record that they were reached.
//!
//! An expression is a value. It crosses the socket (`code`), and yields the conditions for skipping
//! clusters (`narrow`) and the rows that reach an action (`reaching_action`). It is at most
//! [`DEPTH_MAX`] deep, so that no function here runs out of stack.

use std::sync::atomic::AtomicBool;

use format::acl::{ACCESS, Acl};
use format::inode_record::FileKind;
use inode::{Caller, Kind, Owned};
use serde::{Deserialize, Serialize};

use super::glob::Glob;
use super::regex::Regex;
use crate::cluster::Fields;
use crate::condition::Attribute;
use crate::error::Result;
use crate::matches::{Details, Match};
use crate::row::Row;

/// Maximum nesting of operators.
pub const DEPTH_MAX: usize = 128;
/// Maximum actions of an expression.
pub(super) const ACTIONS_MAX: usize = 128;
/// Maximum tests and operators of an expression.
pub const NODES_MAX: usize = 65536;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// All of these, evaluated from the left; true when empty.
    All(Vec<Expr>),
    /// One of these, evaluated from the left; false when empty.
    Any(Vec<Expr>),
    /// Each of these is evaluated; the last gives the result. Never empty.
    List(Vec<Expr>),
    /// The opposite.
    Not(Box<Expr>),
    /// A test.
    Test(Test),
    /// An action by its number: true.
    Action(u16),
    /// True; a directory is not descended into.
    Prune,
    /// True; the query ends.
    Quit,
}

/// A test of one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Test {
    /// The attribute is within both bounds, inclusive. [`Attribute::Ino`] is the number that users
    /// see.
    Within(Attribute, i128, i128),
    /// It is of one of these kinds.
    Kind(Kinds),
    /// Permission bits.
    Perm(Perm),
    /// The name as a whole.
    Name(Glob),
    /// The path as a whole, as shown.
    Path(Glob),
    /// The name as a whole.
    NameRegex(Regex),
    /// The path as a whole, as shown.
    PathRegex(Regex),
    /// A file of no bytes, or a directory without entries.
    Empty,
    /// Permission bits grant the caller all of these (`inode::permissions`).
    Access(u32),
    /// A symbolic link with this target.
    Target(Glob),
    /// An extended attribute of this name that, if given, has this value.
    Xattr(Vec<u8>, Option<Glob>),
    /// No user has the owner's number.
    NoUser,
    /// No group has the group's number.
    NoGroup,
    /// Number of directories between the start and the row, inclusive bounds.
    Depth(u32, u32),
}

/// A set of kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kinds(u8);

impl Kinds {
    /// This set and one more kind.
    #[must_use]
    pub fn with(self, kind: FileKind) -> Kinds {
        Kinds(self.0 | 1 << kind.byte())
    }

    /// Whether it is one of them.
    #[inline]
    pub fn contains(self, kind: FileKind) -> bool {
        self.0 & 1 << kind.byte() != 0
    }

    /// All of them, in ascending order of their bytes.
    pub fn iter(self) -> impl Iterator<Item = FileKind> {
        (0..8).filter(move |byte| self.0 & 1 << byte != 0).filter_map(FileKind::decode)
    }
}

/// How permission bits are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PermKind {
    /// They are these.
    Exact,
    /// All of these are set.
    All,
    /// One of these is set; true if there are none.
    Any,
}

/// Permission bits, which may differ for directories (`X` in a symbolic mode).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Perm {
    /// How they are compared.
    pub kind: PermKind,
    /// Bits for anything but directories.
    pub files: u32,
    /// Bits for directories.
    pub directories: u32,
}

impl Perm {
    fn holds(&self, kind: FileKind, mode: u32) -> bool {
        let bits = if kind == FileKind::Directory { self.directories } else { self.files };
        match self.kind {
            PermKind::Exact => mode & 0o7777 == bits,
            PermKind::All => mode & bits == bits,
            PermKind::Any => bits == 0 || mode & bits != 0,
        }
    }
}

/// Looks up users and groups where the query runs.
pub trait Accounts: Sync {
    /// Whether some user has this number.
    fn has_user(&self, uid: u32) -> bool;

    /// Whether some group has this number.
    fn has_group(&self, gid: u32) -> bool;
}

/// One row with everything that an expression may test.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The row.
    pub row: &'a Row<'a>,
    /// Its path, as shown. May be empty if [`Expr::asks_path`] reports that no test needs it.
    pub path: &'a [u8],
    /// Its depth.
    pub depth: u32,
    /// The subvolume that its inode is in.
    pub subvolume: u64,
    /// Data that the row does not contain.
    pub details: &'a dyn Details,
    /// The user whose permissions apply.
    pub caller: &'a Caller,
    /// Looks up users and groups.
    pub accounts: &'a dyn Accounts,
    /// Set when the caller cancels: the match of a long path then ends.
    pub cancel: &'a AtomicBool,
}

/// Which actions a row reached, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fired {
    /// Actions by their numbers; one may occur twice.
    pub actions: Vec<u16>,
    /// Whether everything below is skipped.
    pub prune: bool,
    /// Whether the query ends here.
    pub quit: bool,
}

impl Fired {
    /// Clears everything.
    pub fn clear(&mut self) {
        self.actions.clear();
        (self.prune, self.quit) = (false, false);
    }
}

impl Expr {
    /// True of every row.
    pub fn yes() -> Expr {
        Expr::All(Vec::new())
    }

    /// True of no row.
    pub fn no() -> Expr {
        Expr::Any(Vec::new())
    }

    /// Whether a row matches. The expression has no actions, or their record is not needed.
    #[inline]
    pub fn matches(&self, context: &Context<'_>) -> Result<bool> {
        self.eval(context, &mut Fired::default())
    }

    /// Evaluates it, and records the actions that are reached.
    pub fn eval(&self, context: &Context<'_>, fired: &mut Fired) -> Result<bool> {
        match self {
            Expr::Test(test) => test.holds(context),
            Expr::All(parts) => {
                for part in parts {
                    if !part.eval(context, fired)? {
                        return Ok(false);
                    }
                    if fired.quit {
                        return Ok(true);
                    }
                }
                Ok(true)
            }
            Expr::Any(parts) => {
                for part in parts {
                    if part.eval(context, fired)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expr::List(parts) => {
                let mut last = true;
                for part in parts {
                    last = part.eval(context, fired)?;
                    if fired.quit {
                        return Ok(last);
                    }
                }
                Ok(last)
            }
            Expr::Not(part) => {
                let outcome = part.eval(context, fired)?;
                Ok(fired.quit || !outcome)
            }
            Expr::Action(number) => {
                fired.actions.push(*number);
                Ok(true)
            }
            Expr::Prune => {
                fired.prune = true;
                Ok(true)
            }
            Expr::Quit => {
                fired.quit = true;
                Ok(true)
            }
        }
    }

    /// Whether a test needs the path.
    pub fn asks_path(&self) -> bool {
        self.any_test(&|test| matches!(test, Test::Path(_) | Test::PathRegex(_)))
    }

    /// The fields of rows that its tests use.
    pub fn fields(&self) -> Fields {
        match self {
            Expr::Test(test) => test.fields(),
            Expr::All(parts) | Expr::Any(parts) | Expr::List(parts) => {
                parts.iter().fold(Fields::NONE, |fields, part| fields.and(part.fields()))
            }
            Expr::Not(part) => part.fields(),
            Expr::Action(_) | Expr::Prune | Expr::Quit => Fields::NONE,
        }
    }

    /// Whether it can end the query.
    pub fn quits(&self) -> bool {
        match self {
            Expr::All(parts) | Expr::Any(parts) | Expr::List(parts) => {
                parts.iter().any(Expr::quits)
            }
            Expr::Not(part) => part.quits(),
            Expr::Quit => true,
            Expr::Test(_) | Expr::Action(_) | Expr::Prune => false,
        }
    }

    /// Whether some test meets a predicate.
    pub fn any_test(&self, such: &dyn Fn(&Test) -> bool) -> bool {
        match self {
            Expr::Test(test) => such(test),
            Expr::All(parts) | Expr::Any(parts) | Expr::List(parts) => {
                parts.iter().any(|part| part.any_test(such))
            }
            Expr::Not(part) => part.any_test(such),
            Expr::Action(_) | Expr::Prune | Expr::Quit => false,
        }
    }
}

impl<'a> Context<'a> {
    /// The context of a match.
    pub fn of(
        found: &Match<'a>,
        caller: &'a Caller,
        accounts: &'a dyn Accounts,
        cancel: &'a AtomicBool,
    ) -> Context<'a> {
        let Match { row, path, depth, subvolume, details } = *found;
        Context { row, path, depth, subvolume, details, caller, accounts, cancel }
    }
}

impl Test {
    /// The fields of rows that it uses.
    fn fields(&self) -> Fields {
        let all = |attributes: &[Attribute]| {
            let each = attributes.iter().map(|attribute| Fields::of(*attribute));
            each.fold(Fields::NONE, Fields::and)
        };
        match self {
            Test::Within(attribute, ..) => Fields::of(*attribute),
            Test::Kind(_) => Fields::of(Attribute::Kind),
            Test::Perm(_) => all(&[Attribute::Kind, Attribute::Mode]),
            Test::Name(_) | Test::NameRegex(_) => Fields::NAME,
            Test::Empty => all(&[Attribute::Kind, Attribute::Size]).and(Fields::ENTRIES),
            // Looking up its target takes the row's whole identity.
            Test::Target(_) => Fields::IDENTITY,
            Test::Access(_) | Test::Xattr(..) => {
                let permissions =
                    [Attribute::Kind, Attribute::Mode, Attribute::Uid, Attribute::Gid];
                all(&permissions).and(Fields::IDENTITY)
            }
            Test::NoUser => Fields::of(Attribute::Uid),
            Test::NoGroup => Fields::of(Attribute::Gid),
            Test::Path(_) | Test::PathRegex(_) | Test::Depth(..) => Fields::NONE,
        }
    }

    fn holds(&self, context: &Context<'_>) -> Result<bool> {
        let row = context.row;
        Ok(match self {
            Test::Within(Attribute::Ino, low, high) => {
                let shown = crate::matches::shown(context.subvolume, row.ino).shown();
                (*low..=*high).contains(&i128::from(shown))
            }
            Test::Within(attribute, low, high) => {
                let value = attribute.of(row);
                *low <= value && value <= *high
            }
            Test::Kind(kinds) => kinds.contains(row.kind),
            Test::Perm(perm) => perm.holds(row.kind, row.mode),
            Test::Name(glob) => glob.matches_until(row.name, context.cancel)?,
            Test::Path(glob) => glob.matches_until(context.path, context.cancel)?,
            Test::NameRegex(regex) => regex.matches_until(row.name, context.cancel)?,
            Test::PathRegex(regex) => regex.matches_until(context.path, context.cancel)?,
            Test::Empty => match row.kind {
                FileKind::File => row.size == 0,
                FileKind::Directory => row.entries == 0,
                _ => false,
            },
            Test::Access(mask) => {
                let owned =
                    Owned { kind: kind(row.kind), uid: row.uid, gid: row.gid, mode: row.mode };
                owned.allows(context.caller, *mask, || access_list(context))?
            }
            Test::Target(glob) => {
                row.kind == FileKind::Symlink
                    && glob.matches_until(&context.details.target(row)?, context.cancel)?
            }
            Test::Xattr(name, _) if !may_read(context, name)? => false,
            Test::Xattr(name, value) => match (context.details.xattr(row, name)?, value) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(found), Some(glob)) => glob.matches_until(&found, context.cancel)?,
            },
            Test::NoUser => !context.accounts.has_user(row.uid),
            Test::NoGroup => !context.accounts.has_group(row.gid),
            Test::Depth(low, high) => (*low..=*high).contains(&context.depth),
        })
    }
}

/// Whether the caller may read an extended attribute, as if requesting it by name.
fn may_read(context: &Context<'_>, name: &[u8]) -> Result<bool> {
    let Row { kind: of, uid, gid, mode, .. } = *context.row;
    if name.starts_with(b"user.") {
        let owned = Owned { kind: kind(of), uid, gid, mode };
        owned.allows(context.caller, inode::permissions::READ, || access_list(context))
    } else {
        Ok(context.caller.is_root() || !name.starts_with(b"trusted."))
    }
}

/// The access control list of a row that has one. A missing or damaged one grants no access.
fn access_list(context: &Context<'_>) -> Result<Acl> {
    let bytes = context.details.xattr(context.row, ACCESS)?;
    let acl = bytes.and_then(|bytes| Acl::decode(&bytes).ok().flatten());
    Ok(acl.unwrap_or_else(|| Acl::of_mode(0)))
}

fn kind(kind: FileKind) -> Kind {
    match kind {
        FileKind::File => Kind::File,
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharDevice => Kind::CharDevice,
        FileKind::BlockDevice => Kind::BlockDevice,
    }
}
