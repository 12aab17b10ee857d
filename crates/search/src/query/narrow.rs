//! Necessary conditions of an expression for every row that it matches, found by descending into
//! the operators. Anything that is not understood here adds no condition.

use format::inode_record::FileKind;
use inode::permissions::{HAS_ACL, MODE_BITS};
use inode::{NodeId, Slot, SubvolId};

use super::expr::{Expr, Kinds, Perm, PermKind, Test};
use super::glob::{Glob, Shape};
use crate::assemble::carried;
use crate::condition::{Attribute, Condition, Narrow};

/// The greatest mode of a row.
const MODE_MAX: i128 = (MODE_BITS | HAS_ACL) as i128;

/// Maximum alternatives that a condition lists.
const ONE_OF_MAX: usize = 64;

impl Expr {
    /// Conditions that every matching row of a subvolume meets.
    pub fn narrow(&self, subvolume: u64) -> Narrow {
        narrow(self, false, SubvolId(subvolume).slot())
    }

    /// Conditions on numbers that exactly the matching rows meet; `None`: there are none, or that
    /// is unknown.
    pub fn exact_narrow(&self) -> Option<Narrow> {
        let mut all = Narrow::new();
        exact(self, false, &mut all).then_some(all)
    }
}

/// Adds conditions that are equivalent to an expression; `false` if that is unknown.
fn exact(expr: &Expr, negated: bool, all: &mut Narrow) -> bool {
    let more = match expr {
        Expr::Not(part) => return exact(part, !negated, all),
        Expr::All(parts) if !negated => {
            return parts.iter().all(|part| exact(part, negated, all));
        }
        Expr::Any(parts) if negated => {
            return parts.iter().all(|part| exact(part, negated, all));
        }
        Expr::All(parts) | Expr::Any(parts) => match &parts[..] {
            [only] => return exact(only, negated, all),
            _ => return false,
        },
        // The number that users see is not the rows' number.
        Expr::Test(Test::Within(Attribute::Ino, ..)) => return false,
        Expr::Test(test @ (Test::Within(..) | Test::Kind(_))) if negated => of_failed(test),
        Expr::Test(test @ (Test::Within(..) | Test::Kind(_))) => of_test(test),
        _ => return false,
    };
    // A failing value may be on either side of a range, which gives no condition.
    let is_known = !more.is_empty();
    for condition in more {
        add(all, condition);
    }
    is_known
}

fn narrow(expr: &Expr, negated: bool, slot: Slot) -> Narrow {
    match expr {
        Expr::All(parts) if negated => either(parts, negated, slot),
        Expr::Any(parts) if !negated => either(parts, negated, slot),
        Expr::All(parts) | Expr::Any(parts) => {
            let mut all = Narrow::new();
            for part in parts {
                for condition in narrow(part, negated, slot) {
                    add(&mut all, condition);
                }
            }
            all
        }
        Expr::List(parts) => {
            parts.last().map_or_else(Narrow::new, |last| narrow(last, negated, slot))
        }
        Expr::Not(part) => narrow(part, !negated, slot),
        Expr::Test(test) if negated => of_failed(test),
        Expr::Test(Test::Within(Attribute::Ino, low, high)) => of_ino(*low, *high, slot),
        Expr::Test(test) => of_test(test),
        Expr::Action(_) | Expr::Prune | Expr::Quit if negated => never(),
        Expr::Action(_) | Expr::Prune | Expr::Quit => Narrow::new(),
    }
}

fn never() -> Narrow {
    vec![Condition::Within(Attribute::Kind, 1, 0)]
}

fn is_never(narrow: &Narrow) -> bool {
    narrow
        .iter()
        .any(|condition| matches!(condition, Condition::Within(_, low, high) if low > high))
}

/// The conditions shared by several alternatives.
fn either(parts: &[Expr], negated: bool, slot: Slot) -> Narrow {
    let mut ways =
        parts.iter().map(|part| narrow(part, negated, slot)).filter(|narrow| !is_never(narrow));
    let Some(first) = ways.next() else { return never() };
    ways.fold(first, |one, other| {
        one.iter().filter_map(|condition| weaken(condition, &other)).collect()
    })
}

/// A condition that holds if this one does or the other alternative's do.
fn weaken(condition: &Condition, other: &Narrow) -> Option<Condition> {
    if other.contains(condition) {
        return Some(condition.clone());
    }
    let attribute = match condition {
        Condition::Within(attribute, ..) | Condition::OneOf(attribute, _) => *attribute,
        _ => return None,
    };
    other.iter().find_map(|second| match (condition, second) {
        (Condition::Within(_, low, high), Condition::Within(second, second_low, second_high))
            if *second == attribute =>
        {
            if low == high && second_low == second_high {
                return one_of(attribute, vec![*low, *second_low]);
            }
            Some(Condition::Within(attribute, *low.min(second_low), *high.max(second_high)))
        }
        (Condition::OneOf(_, values), Condition::OneOf(second, more)) if *second == attribute => {
            one_of(attribute, [&values[..], more].concat())
        }
        (Condition::OneOf(_, values), Condition::Within(second, low, high))
        | (Condition::Within(_, low, high), Condition::OneOf(second, values))
            if *second == attribute && of_attribute(condition, attribute) =>
        {
            if low == high {
                return one_of(attribute, [&values[..], &[*low]].concat());
            }
            let (least, most) = (values.first()?, values.last()?);
            Some(Condition::Within(attribute, *low.min(least), *high.max(most)))
        }
        _ => None,
    })
}

fn of_attribute(condition: &Condition, attribute: Attribute) -> bool {
    matches!(condition, Condition::Within(own, ..) | Condition::OneOf(own, _) if *own == attribute)
}

fn one_of(attribute: Attribute, mut values: Vec<i128>) -> Option<Condition> {
    values.sort_unstable();
    values.dedup();
    match values[..] {
        [] => None,
        [only] => Some(Condition::Within(attribute, only, only)),
        [first, .., last] if values.len() > ONE_OF_MAX => {
            Some(Condition::Within(attribute, first, last))
        }
        _ => Some(Condition::OneOf(attribute, values)),
    }
}

/// Adds a condition; two ranges of one attribute become one.
pub(super) fn add(all: &mut Narrow, condition: Condition) {
    if let Condition::Within(attribute, low, high) = condition {
        for known in all.iter_mut() {
            if let Condition::Within(own, own_low, own_high) = known
                && *own == attribute
            {
                *own_low = low.max(*own_low);
                *own_high = high.min(*own_high);
                return;
            }
        }
    }
    if !all.contains(&condition) {
        all.push(condition);
    }
}

/// The inode that one number shows in the subvolume of a slot.
fn of_ino(low: i128, high: i128, slot: Slot) -> Narrow {
    match u64::try_from(low) {
        Ok(shown) if low == high => {
            let ino = i128::from(NodeId::shown_as(slot, shown).ino().0);
            vec![Condition::Within(Attribute::Ino, ino, ino)]
        }
        _ => Narrow::new(),
    }
}

fn of_test(test: &Test) -> Narrow {
    match test {
        Test::Within(attribute, low, high) if *attribute != Attribute::Ino => {
            vec![Condition::Within(*attribute, *low, *high)]
        }
        Test::Kind(kinds) => of_kinds(*kinds),
        Test::Perm(perm) => of_perm(perm),
        Test::Name(glob) => of_name(glob),
        Test::Path(glob) => of_path(glob),
        // In the index of another file system, a directory has the size that it had there.
        Test::Empty => of_kinds(Kinds::default().with(FileKind::File).with(FileKind::Directory)),
        Test::Target(_) => of_kinds(Kinds::default().with(FileKind::Symlink)),
        Test::Xattr(name, value) => {
            let value = value.as_ref().and_then(|glob| match glob.exact_shape() {
                Some(Shape::Literal(literal)) => Some(carried(literal).to_vec()),
                _ => None,
            });
            vec![Condition::Xattr(name.clone(), value)]
        }
        Test::Within(..)
        | Test::NameRegex(_)
        | Test::PathRegex(_)
        | Test::Access(_)
        | Test::NoUser
        | Test::NoGroup
        | Test::Depth(..) => Narrow::new(),
    }
}

/// Necessary conditions for a row that fails a test.
fn of_failed(test: &Test) -> Narrow {
    match test {
        Test::Within(Attribute::Ino, ..) => Narrow::new(),
        Test::Within(attribute, low, high) => {
            let (least, most) = (i128::from(i64::MIN), i128::from(u64::MAX));
            match (*low <= least, *high >= most) {
                (true, true) => never(),
                (true, false) => vec![Condition::Within(*attribute, high + 1, most)],
                (false, true) => vec![Condition::Within(*attribute, least, low - 1)],
                (false, false) => Narrow::new(),
            }
        }
        Test::Kind(kinds) => {
            let mut others = Kinds::default();
            for byte in 0..8 {
                if let Some(kind) = FileKind::decode(byte)
                    && !kinds.contains(kind)
                {
                    others = others.with(kind);
                }
            }
            of_kinds(others)
        }
        _ => Narrow::new(),
    }
}

pub(super) fn of_kinds(kinds: Kinds) -> Narrow {
    let values: Vec<i128> = kinds.iter().map(|kind| i128::from(kind.byte())).collect();
    one_of(Attribute::Kind, values).map_or_else(never, |condition| vec![condition])
}

fn of_perm(perm: &Perm) -> Narrow {
    let bits = [i128::from(perm.files), i128::from(perm.directories)];
    let least = bits[0].min(bits[1]);
    match perm.kind {
        PermKind::Exact => {
            let listed = bits.map(|bits| bits | i128::from(HAS_ACL));
            one_of(Attribute::Mode, [bits, listed].concat()).into_iter().collect()
        }
        PermKind::All => vec![Condition::Within(Attribute::Mode, least, MODE_MAX)],
        PermKind::Any if least == 0 => Narrow::new(),
        PermKind::Any => {
            let lowest = bits.map(|bits| 1 << bits.trailing_zeros());
            vec![Condition::Within(Attribute::Mode, lowest[0].min(lowest[1]), MODE_MAX)]
        }
    }
}

fn of_name(glob: &Glob) -> Narrow {
    match glob.exact_shape() {
        None | Some(Shape::Never) => Narrow::new(),
        Some(Shape::Literal(literal)) => vec![Condition::Name(literal.clone())],
        Some(Shape::Starts(literal)) => some(Condition::NameStarts, literal),
        Some(Shape::Ends(literal)) => some(Condition::NameEnds, literal),
        Some(Shape::Contains(literal)) => some(Condition::NameContains, literal),
        Some(Shape::General(_)) => {
            let (first, longest, last) = glob.literals();
            let mut all = some(Condition::NameStarts, &first);
            all.extend(some(Condition::NameEnds, &last));
            if longest.len() > first.len().max(last.len()) {
                all.extend(some(Condition::NameContains, &longest));
            }
            all
        }
    }
}

/// The name is the part after the last slash of a path.
fn of_path(glob: &Glob) -> Narrow {
    let last = match glob.exact_shape() {
        Some(Shape::Literal(literal) | Shape::Ends(literal)) => literal.clone(),
        Some(Shape::General(_)) => glob.literals().2,
        _ => return Narrow::new(),
    };
    match last.iter().rposition(|&byte| byte == b'/') {
        // The path of a start that was given with slashes at its end.
        Some(slash) if slash + 1 == last.len() => Narrow::new(),
        Some(slash) => vec![Condition::Name(last[slash + 1..].to_vec())],
        None => some(Condition::NameEnds, &last),
    }
}

fn some(condition: impl Fn(Vec<u8>) -> Condition, literal: &[u8]) -> Narrow {
    if literal.is_empty() { Narrow::new() } else { vec![condition(literal.to_vec())] }
}

#[cfg(test)]
mod tests;
