//! Locks of files, of all clients of a volume: those of fcntl(2), on ranges, and those of flock(2),
//! on files. The two kinds do not see each other, as on Linux.
//!
//! A lock belongs to a session and to a number that its client chose. It ends with the session. One
//! that waits is granted in turn, and takes no thread meanwhile.

use std::collections::BTreeMap;

use device::sync::Mutex;
use inode::NodeId;
use wire::remote::{LockKind, LockRange};

/// Most locks on one file, and most that wait.
const LOCKS_OF_FILE_MAX: usize = 4096;
/// Most locks of one session.
const LOCKS_OF_SESSION_MAX: usize = 65_536;

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) session: u64,
    pub(super) request: u64,
}

/// The outcome of a request for a lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Locking {
    /// It is held, or ended. Those that waited and now have theirs.
    Done(Vec<Waiter>),
    /// Another is in the way.
    Refused,
    /// It waits.
    Waits,
    /// There are too many.
    TooMany,
    /// Each would wait for the other.
    Deadlock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    session: u64,
    range: LockRange,
}

impl Held {
    fn is_of(&self, session: u64, range: &LockRange) -> bool {
        self.session == session && self.range.owner == range.owner
    }

    fn blocks(&self, session: u64, range: &LockRange) -> bool {
        let kinds = (self.range.kind, range.kind);
        self.range.whole == range.whole
            && !self.is_of(session, range)
            && (kinds.0 == LockKind::Exclusive || kinds.1 == LockKind::Exclusive)
            && self.range.start <= range.end
            && range.start <= self.range.end
    }
}

#[derive(Default)]
struct File {
    held: Vec<Held>,
    waiting: Vec<(Waiter, Held)>,
}

/// The locks.
#[derive(Default)]
pub(super) struct Locks {
    files: Mutex<BTreeMap<NodeId, File>>,
}

impl Locks {
    /// Takes or ends a lock; one that must wait does if `waiter` is given.
    pub(super) fn set(
        &self,
        node: NodeId,
        session: u64,
        range: LockRange,
        waiter: Option<u64>,
    ) -> Locking {
        let mut files = self.files.lock();
        if range.kind != LockKind::None {
            let of_session = files
                .values()
                .map(|file| file.held.iter().filter(|held| held.session == session).count())
                .sum::<usize>();
            if of_session >= LOCKS_OF_SESSION_MAX {
                return Locking::TooMany;
            }
        }
        let deadlock = waiter.is_some() && would_deadlock(&files, node, session, &range);
        let file = files.entry(node).or_default();
        let blocked = range.kind != LockKind::None
            && file.held.iter().any(|held| held.blocks(session, &range));
        let outcome = if blocked {
            match waiter {
                None => Locking::Refused,
                Some(_) if deadlock => Locking::Deadlock,
                Some(_) if file.waiting.len() >= LOCKS_OF_FILE_MAX => Locking::TooMany,
                Some(request) => {
                    file.waiting.push((Waiter { session, request }, Held { session, range }));
                    Locking::Waits
                }
            }
        } else if file.held.len() >= LOCKS_OF_FILE_MAX && range.kind != LockKind::None {
            Locking::TooMany
        } else {
            file.place(session, range);
            Locking::Done(file.grant())
        };
        if file.held.is_empty() && file.waiting.is_empty() {
            files.remove(&node);
        }
        outcome
    }

    /// The first lock of another that is in the way.
    pub(super) fn test(&self, node: NodeId, session: u64, range: &LockRange) -> Option<LockRange> {
        let files = self.files.lock();
        let mut held = files.get(&node)?.held.iter();
        let found = held.find(|held| held.blocks(session, range))?;
        // The process of another machine means nothing here.
        let pid = if found.session == session { found.range.pid } else { 0 };
        Some(LockRange { pid, owner: 0, ..found.range })
    }

    /// Gives up waiting; `false` if it does not wait.
    pub(super) fn give_up(&self, waiter: Waiter) -> bool {
        let mut files = self.files.lock();
        let mut gave_up = false;
        for file in files.values_mut() {
            let before = file.waiting.len();
            file.waiting.retain(|(other, _)| *other != waiter);
            gave_up |= file.waiting.len() < before;
        }
        files.retain(|_, file| !file.held.is_empty() || !file.waiting.is_empty());
        gave_up
    }

    /// Ends all locks of a session; returns those that waited and now have theirs.
    pub(super) fn end_session(&self, session: u64) -> Vec<Waiter> {
        let mut files = self.files.lock();
        let mut granted = Vec::new();
        for file in files.values_mut() {
            file.waiting.retain(|(waiter, _)| waiter.session != session);
            file.held.retain(|held| held.session != session);
            granted.extend(file.grant());
        }
        files.retain(|_, file| !file.held.is_empty() || !file.waiting.is_empty());
        granted
    }
}

impl File {
    /// Puts a lock over those of its owner.
    fn place(&mut self, session: u64, range: LockRange) {
        let mut kept = Vec::with_capacity(self.held.len() + 2);
        for held in self.held.drain(..) {
            let own = held.is_of(session, &range) && held.range.whole == range.whole;
            if !own || held.range.end < range.start || range.end < held.range.start {
                kept.push(held);
                continue;
            }
            if held.range.start < range.start {
                let part = LockRange { end: range.start - 1, ..held.range };
                kept.push(Held { session, range: part });
            }
            if held.range.end > range.end {
                let part = LockRange { start: range.end + 1, ..held.range };
                kept.push(Held { session, range: part });
            }
        }
        if range.kind != LockKind::None {
            kept.push(Held { session, range });
        }
        self.held = kept;
    }

    /// Grants what waits and is no longer blocked, in turn.
    fn grant(&mut self) -> Vec<Waiter> {
        let mut granted = Vec::new();
        let mut at = 0;
        while let Some((waiter, wanted)) = self.waiting.get(at).copied() {
            if self.held.iter().any(|held| held.blocks(wanted.session, &wanted.range)) {
                at += 1;
                continue;
            }
            self.waiting.remove(at);
            self.place(wanted.session, wanted.range);
            granted.push(waiter);
        }
        granted
    }
}

/// Whether an owner that is in the way waits, directly or through others, for this one. Locks of
/// flock(2) are not looked at, as on Linux.
fn would_deadlock(
    files: &BTreeMap<NodeId, File>,
    node: NodeId,
    session: u64,
    range: &LockRange,
) -> bool {
    if range.whole {
        return false;
    }
    let blockers = |node: NodeId, session: u64, range: &LockRange| -> Vec<(u64, u64)> {
        let held = files.get(&node).map(|file| &file.held[..]).unwrap_or_default();
        let blocking = held.iter().filter(|held| held.blocks(session, range));
        blocking.map(|held| (held.session, held.range.owner)).collect()
    };
    let mut seen: Vec<(u64, u64)> = Vec::new();
    let mut next = blockers(node, session, range);
    while let Some(owner) = next.pop() {
        if owner == (session, range.owner) {
            return true;
        }
        if seen.contains(&owner) {
            continue;
        }
        seen.push(owner);
        for (other, file) in files {
            for (_, wanted) in &file.waiting {
                if (wanted.session, wanted.range.owner) == owner && !wanted.range.whole {
                    next.extend(blockers(*other, wanted.session, &wanted.range));
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64) -> NodeId {
        NodeId::of(inode::Slot(0), inode::Ino(number))
    }

    fn range(owner: u64, kind: LockKind, start: u64, end: u64) -> LockRange {
        LockRange { owner, pid: 7, kind, start, end, whole: false }
    }

    const NONE: Locking = Locking::Done(Vec::new());

    #[test]
    fn ranges_are_split_and_others_wait_in_turn() {
        use LockKind::{Exclusive, None as Free, Shared};
        let locks = Locks::default();
        assert_eq!(locks.set(file(5), 1, range(1, Exclusive, 0, 99), None), NONE);
        assert_eq!(locks.set(file(5), 2, range(1, Shared, 50, 60), None), Locking::Refused);
        assert_eq!(locks.set(file(5), 1, range(1, Free, 40, 69), None), NONE);
        assert_eq!(locks.set(file(5), 2, range(1, Shared, 50, 60), None), NONE);
        assert_eq!(locks.set(file(5), 2, range(1, Shared, 60, 70), Some(9)), Locking::Waits);
        let in_the_way = locks.test(file(5), 2, &range(1, Shared, 0, 10)).unwrap();
        assert_eq!((in_the_way.start, in_the_way.end, in_the_way.pid), (0, 39, 0));
        let granted = locks.set(file(5), 1, range(1, Free, 0, u64::MAX), None);
        assert_eq!(granted, Locking::Done(vec![Waiter { session: 2, request: 9 }]));
        assert_eq!(locks.set(file(5), 1, range(1, Exclusive, 70, 80), Some(3)), Locking::Waits);
        assert_eq!(locks.end_session(2), [Waiter { session: 1, request: 3 }]);
        assert!(locks.end_session(1).is_empty());
        assert!(locks.files.lock().is_empty());
    }

    #[test]
    fn two_that_wait_for_each_other_are_found_and_one_gives_up() {
        use LockKind::Exclusive;
        let locks = Locks::default();
        assert_eq!(locks.set(file(5), 1, range(1, Exclusive, 0, 9), None), NONE);
        assert_eq!(locks.set(file(6), 2, range(1, Exclusive, 0, 9), None), NONE);
        assert_eq!(locks.set(file(6), 1, range(1, Exclusive, 0, 9), Some(1)), Locking::Waits);
        assert_eq!(locks.set(file(5), 2, range(1, Exclusive, 5, 5), Some(2)), Locking::Deadlock);
        assert!(locks.give_up(Waiter { session: 1, request: 1 }));
        assert!(!locks.give_up(Waiter { session: 1, request: 1 }));
        assert_eq!(locks.set(file(5), 2, range(1, Exclusive, 5, 5), Some(2)), Locking::Waits);
        let whole = LockRange { whole: true, ..range(1, Exclusive, 0, u64::MAX) };
        assert_eq!(locks.set(file(5), 2, whole, None), NONE, "the other kind does not see it");
    }
}
