//! The part of an expression that the columns of clusters decide alone. These are all tests on a
//! row's own numbers and on its name, in any combination. There are no columns for paths, depths,
//! inode numbers as users see them, link targets, extended attributes and access lists.

use format::inode_record::FileKind;
use inode::permissions::MODE_BITS;

use super::expr::{Accounts, Expr, Kinds, Perm, PermKind, Test};
use super::glob::{Glob, Letters, Shape};
use super::narrow::{add, of_kinds};
use crate::cluster::{NameSieve, NameTest, Sieve};
use crate::condition::{Attribute, Condition, Narrow};

/// An expression as columns decide it: rows match if they meet all conditions and pass the sieve.
pub(crate) struct ByColumns<'a> {
    /// Conditions that all matches meet.
    pub(crate) narrow: Narrow,
    /// What the conditions leave open; `None`: nothing.
    pub(crate) sieve: Option<Sieve<'a>>,
}

impl Expr {
    /// The same by columns, in a subvolume; `None`: columns do not decide it.
    pub(crate) fn by_columns<'a>(
        &'a self,
        subvolume: u64,
        accounts: &'a dyn Accounts,
    ) -> Option<ByColumns<'a>> {
        let parts = match self {
            Expr::All(parts) => &parts[..],
            one => std::slice::from_ref(one),
        };
        let mut narrow = self.narrow(subvolume);
        let mut left = Vec::new();
        for part in parts {
            match part.exact_narrow() {
                Some(exact) => exact.into_iter().for_each(|condition| add(&mut narrow, condition)),
                None => left.push(sieve(part, accounts)?),
            }
        }
        let sieve = (!left.is_empty()).then(|| all(left));
        Some(ByColumns { narrow, sieve })
    }
}

/// The cheapest first: none of them has side effects.
fn all(mut parts: Vec<Sieve<'_>>) -> Sieve<'_> {
    parts.sort_by_key(Sieve::cost);
    Sieve::All(parts)
}

fn sieve<'a>(expr: &'a Expr, accounts: &'a dyn Accounts) -> Option<Sieve<'a>> {
    let each = |parts: &'a [Expr]| -> Option<Vec<Sieve<'a>>> {
        parts.iter().map(|part| sieve(part, accounts)).collect()
    };
    Some(match expr {
        Expr::All(parts) => all(each(parts)?),
        Expr::Any(parts) => {
            let mut parts = each(parts)?;
            parts.sort_by_key(Sieve::cost);
            Sieve::Any(parts)
        }
        // If nothing ends the query, the others do not affect the result.
        Expr::List(parts) => each(parts)?.pop()?,
        Expr::Not(part) => Sieve::Not(Box::new(sieve(part, accounts)?)),
        Expr::Test(test) => of_test(test, accounts)?,
        Expr::Action(_) | Expr::Prune => Sieve::yes(),
        Expr::Quit => return None,
    })
}

fn of_test<'a>(test: &'a Test, accounts: &'a dyn Accounts) -> Option<Sieve<'a>> {
    Some(match test {
        // The inode number that users see includes the subvolume.
        Test::Within(Attribute::Ino, ..)
        | Test::Path(_)
        | Test::PathRegex(_)
        | Test::Access(_)
        | Test::Target(_)
        | Test::Xattr(..)
        | Test::Depth(..) => return None,
        Test::Within(attribute, low, high) => {
            Sieve::condition(&Condition::Within(*attribute, *low, *high))
        }
        Test::Kind(kinds) => of_kind(*kinds),
        Test::Perm(perm) => of_perm(perm),
        Test::Name(glob) => of_glob(glob),
        Test::NameRegex(regex) => Sieve::Name(Box::new(NameSieve {
            bytes: None,
            folded: false,
            ascii_only: false,
            exact: false,
            matches: Box::new(|name| regex.matches(name)),
        })),
        Test::Empty => {
            let kind = |kind| of_kind(Kinds::default().with(kind));
            let no_bytes = Sieve::condition(&Condition::Within(Attribute::Size, 0, 0));
            Sieve::Any(vec![
                all(vec![kind(FileKind::File), no_bytes]),
                all(vec![kind(FileKind::Directory), Sieve::no_entries()]),
            ])
        }
        Test::NoUser => {
            let asked = |uid| !accounts.has_user(u32::try_from(uid).unwrap_or(u32::MAX));
            Sieve::Lookup(Attribute::Uid, Box::new(asked))
        }
        Test::NoGroup => {
            let asked = |gid| !accounts.has_group(u32::try_from(gid).unwrap_or(u32::MAX));
            Sieve::Lookup(Attribute::Gid, Box::new(asked))
        }
    })
}

fn of_kind<'a>(kinds: Kinds) -> Sieve<'a> {
    all(of_kinds(kinds).iter().map(Sieve::condition).collect())
}

fn of_perm<'a>(perm: &Perm) -> Sieve<'a> {
    let of = |bits: u32| match perm.kind {
        PermKind::Exact => Sieve::mode(MODE_BITS, bits),
        PermKind::All => Sieve::mode(bits, bits),
        PermKind::Any if bits == 0 => Sieve::yes(),
        PermKind::Any => Sieve::some_mode(bits),
    };
    if perm.files == perm.directories {
        return of(perm.files);
    }
    let directory = || of_kind(Kinds::default().with(FileKind::Directory));
    Sieve::Any(vec![
        all(vec![directory(), of(perm.directories)]),
        all(vec![Sieve::Not(Box::new(directory())), of(perm.files)]),
    ])
}

fn of_glob(glob: &Glob) -> Sieve<'_> {
    let (bytes, anchored, exact) = match glob.shape() {
        Shape::Contains(literal) if literal.is_empty() => return Sieve::yes(),
        Shape::Never => return Sieve::Any(Vec::new()),
        Shape::Literal(literal) => (literal.clone(), (true, true), true),
        Shape::Starts(literal) => (literal.clone(), (true, false), true),
        Shape::Ends(literal) => (literal.clone(), (false, true), true),
        Shape::Contains(literal) => (literal.clone(), (false, false), true),
        Shape::General(_) => {
            let (first, longest, last) = glob.literals();
            if longest.len() > first.len().max(last.len()) {
                (longest, (false, false), false)
            } else if first.len() > last.len() {
                (first, (true, false), false)
            } else {
                (last, (false, true), false)
            }
        }
    };
    // Names have no zero byte, which separates them.
    let searched = !bytes.is_empty() && !bytes.contains(&0);
    let bytes = searched.then(|| NameTest::of(&bytes, anchored));
    let (folded, letters) = glob.folds();
    let ascii_only = folded && letters == Letters::Utf8;
    let exact = exact && bytes.is_some();
    let matches = Box::new(|name: &[u8]| glob.matches(name));
    Sieve::Name(Box::new(NameSieve { bytes, folded, ascii_only, exact, matches }))
}

#[cfg(test)]
mod tests;
