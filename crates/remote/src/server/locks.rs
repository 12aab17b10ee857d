//! Locks of files, of all clients of a volume: those of fcntl(2), on ranges, and those of flock(2),
//! on files. The two kinds do not see each other, as on Linux.
//!
//! A lock belongs to a session and to a number that its client chose. It ends with the session. One
//! that waits is granted in turn, and takes no thread meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use device::sync::Mutex;
use inode::NodeId;
use wire::remote::{LockKind, LockRange};

use super::memory::{LEAVES_NUMBER, is_fair};

/// Most locks on one file, and most that wait for it. Whatever would leave more is refused: the
/// end of a part of a lock, too, which leaves two.
const LOCKS_OF_FILE_MAX: usize = 4096;
/// Most locks of one client, in all its sessions, those that wait among them.
const LOCKS_OF_CLIENT_MAX: usize = 65_536;
/// How many locks are looked at in search of those that would wait for each other; Linux looks at
/// ten.
const DEADLOCK_STEPS_MAX: usize = 20_000;

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiter {
    pub(super) session: u64,
    pub(super) request: u64,
}

/// The caller of a lock: a session, and the number of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(super) client: u64,
    pub(super) session: u64,
}

/// What is asked of what clients share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// A lock.
    Lock,
    /// The end of a lock, or of a part of it, which can leave two.
    End,
    /// A lock that was granted by the process before.
    Again,
}

/// The outcome of a request for a lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Locking {
    /// It is held, or ended. Those that waited and now have theirs.
    Done(Vec<Waiter>),
    /// Another one conflicts.
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
    by: Holder,
    range: LockRange,
}

impl Held {
    fn owner(&self) -> (u64, u64) {
        (self.by.session, self.range.owner)
    }

    fn blocks(&self, session: u64, range: &LockRange) -> bool {
        let kinds = (self.range.kind, range.kind);
        self.range.whole == range.whole
            && self.owner() != (session, range.owner)
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

#[derive(Default)]
struct Table {
    files: BTreeMap<NodeId, File>,
    /// What each of those that wait waits for.
    waiters: BTreeMap<Waiter, NodeId>,
    of_client: Counts,
}

/// The locks.
#[derive(Default)]
pub(crate) struct Locks {
    table: Mutex<Table>,
    /// Most of all clients; 0: no bound.
    most: usize,
}

impl Locks {
    /// At most so many of all clients, of which one takes no more than it leaves.
    pub(super) fn at_most(most: usize) -> Locks {
        Locks { most, ..Locks::default() }
    }

    /// Whether a client may have more, by what it and all have.
    fn is_full(&self, table: &Table, of_client: usize, more: usize, asks: Asks) -> bool {
        let left = self.most.saturating_sub(table.of_client.all);
        let is_fair = || is_fair(LEAVES_NUMBER, of_client, more, left);
        // A client that was within its share when it took a lock can end a part of it, whatever
        // others took since.
        let can_end = || of_client + more <= self.most / 2 && left >= more + self.most / 8;
        let has_share = match asks {
            Asks::Lock => self.most == 0 || is_fair(),
            Asks::End => self.most == 0 || is_fair() || can_end(),
            Asks::Again => true,
        };
        of_client + more > LOCKS_OF_CLIENT_MAX || !has_share
    }

    /// Sets a lock that its session had before this process served the volume: what all clients
    /// share is not asked.
    pub(super) fn set_again(&self, node: NodeId, by: Holder, range: LockRange) -> Locking {
        self.set_as(node, by, range, (None, Asks::Again))
    }

    /// Takes or ends a lock; one that must wait does if `waiter` is given.
    pub(super) fn set(
        &self,
        node: NodeId,
        by: Holder,
        range: LockRange,
        waiter: Option<u64>,
    ) -> Locking {
        let asks = if range.kind == LockKind::None { Asks::End } else { Asks::Lock };
        self.set_as(node, by, range, (waiter, asks))
    }

    fn set_as(
        &self,
        node: NodeId,
        by: Holder,
        range: LockRange,
        (waiter, asks): (Option<u64>, Asks),
    ) -> Locking {
        let mut table = self.table.lock();
        let wanted = Held { by, range };
        let no_file = File::default();
        let file = table.files.get(&node).unwrap_or(&no_file);
        let of_client = table.of_client.of(by.client);
        let blocked = range.kind != LockKind::None
            && file.held.iter().any(|held| held.blocks(by.session, &range));
        if blocked {
            let Some(request) = waiter else { return Locking::Refused };
            if file.waiting.len() >= LOCKS_OF_FILE_MAX || self.is_full(&table, of_client, 1, asks) {
                return Locking::TooMany;
            }
            if table.would_deadlock(node, &wanted) {
                return Locking::Deadlock;
            }
            let waiter = Waiter { session: by.session, request };
            table.waiters.insert(waiter, node);
            table.change(node, |file, counts| {
                file.waiting.push((waiter, wanted));
                counts.change(by.client, 0, 1);
                Vec::new()
            });
            return Locking::Waits;
        }
        let placed = file.with(&wanted);
        let more = placed.len().saturating_sub(file.held.len());
        if more > 0
            && (placed.len() > LOCKS_OF_FILE_MAX || self.is_full(&table, of_client, more, asks))
        {
            return Locking::TooMany;
        }
        Locking::Done(table.change(node, |file, counts| {
            counts.change(by.client, file.held.len(), placed.len());
            file.held = placed;
            file.grant(counts)
        }))
    }

    /// How many are held, and how many are waited for.
    pub(super) fn counts(&self) -> (usize, usize) {
        let table = self.table.lock();
        (table.files.values().map(|file| file.held.len()).sum(), table.waiters.len())
    }

    /// Notes a lock that somebody else granted, or ended: what a client knows of its own.
    pub(crate) fn note(&self, node: NodeId, range: LockRange) {
        let mut table = self.table.lock();
        let wanted = Held { by: Holder { client: 0, session: 0 }, range };
        let placed = table.files.get(&node).unwrap_or(&File::default()).with(&wanted);
        table.change(node, |file, counts| {
            counts.change(0, file.held.len(), placed.len());
            file.held = placed;
            Vec::new()
        });
    }

    /// Those of a file, one of each owner and kind.
    pub(crate) fn of(&self, node: NodeId) -> Vec<LockRange> {
        let table = self.table.lock();
        let held = table.files.get(&node).map_or(&[][..], |file| &file.held);
        let ranges = held.iter().map(|held| ((held.range.owner, held.range.whole), held.range));
        ranges.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// All that are held.
    pub(crate) fn all(&self) -> Vec<(NodeId, LockRange)> {
        let table = self.table.lock();
        let files = table.files.iter();
        files.flat_map(|(node, file)| file.held.iter().map(|held| (*node, held.range))).collect()
    }

    /// The first lock of another that conflicts.
    pub(super) fn test(&self, node: NodeId, session: u64, range: &LockRange) -> Option<LockRange> {
        let table = self.table.lock();
        let mut held = table.files.get(&node)?.held.iter();
        let found = held.find(|held| held.blocks(session, range))?;
        // The process of another machine means nothing here.
        let pid = if found.by.session == session { found.range.pid } else { 0 };
        Some(LockRange { pid, owner: 0, ..found.range })
    }

    /// Gives up waiting; `false` if it does not wait.
    pub(super) fn give_up(&self, waiter: Waiter) -> bool {
        let mut table = self.table.lock();
        let Some(node) = table.waiters.remove(&waiter) else { return false };
        table.change(node, |file, counts| {
            file.waiting.retain(|(other, held)| {
                let stays = *other != waiter;
                counts.change(held.by.client, 1, usize::from(stays));
                stays
            });
            Vec::new()
        });
        true
    }

    /// Ends all locks of a session on a file; returns those that waited and now have theirs.
    pub(super) fn end_file(&self, session: u64, node: NodeId) -> Vec<Waiter> {
        let mut table = self.table.lock();
        if !table.files.contains_key(&node) {
            return Vec::new();
        }
        table.change(node, |file, counts| {
            file.end_held(session, counts);
            file.grant(counts)
        })
    }

    /// Ends all locks of a session; returns those that waited and now have theirs.
    pub(super) fn end_session(&self, session: u64) -> Vec<Waiter> {
        let mut table = self.table.lock();
        table.waiters.retain(|waiter, _| waiter.session != session);
        let nodes: Vec<NodeId> = table.files.keys().copied().collect();
        let mut granted = Vec::new();
        for node in nodes {
            granted.extend(table.change(node, |file, counts| {
                file.waiting.retain(|(waiter, held)| {
                    let stays = waiter.session != session;
                    counts.change(held.by.client, 1, usize::from(stays));
                    stays
                });
                file.end_held(session, counts);
                file.grant(counts)
            }));
        }
        granted
    }
}

/// How many locks each client has, those that wait among them.
#[derive(Default)]
struct Counts {
    clients: BTreeMap<u64, usize>,
    all: usize,
}

impl Counts {
    fn of(&self, client: u64) -> usize {
        self.clients.get(&client).copied().unwrap_or(0)
    }

    /// Counts those of a client that were `before` and are `after`.
    fn change(&mut self, client: u64, before: usize, after: usize) {
        let count = self.clients.entry(client).or_default();
        self.all = (self.all + after).saturating_sub(before);
        *count = (*count + after).saturating_sub(before);
        if *count == 0 {
            self.clients.remove(&client);
        }
    }
}

impl Table {
    /// Changes the locks of a file; the change returns those that waited and now have theirs.
    fn change(
        &mut self,
        node: NodeId,
        change: impl FnOnce(&mut File, &mut Counts) -> Vec<Waiter>,
    ) -> Vec<Waiter> {
        let Table { files, waiters, of_client } = self;
        let file = files.entry(node).or_default();
        let granted = change(file, of_client);
        if file.held.is_empty() && file.waiting.is_empty() {
            files.remove(&node);
        }
        for waiter in &granted {
            waiters.remove(waiter);
        }
        granted
    }

    /// Whether an owner that blocks it waits, directly or through others, for this one. Locks
    /// of flock(2) are not looked at, as on Linux; nor is more than a bounded number of locks.
    fn would_deadlock(&self, node: NodeId, wanted: &Held) -> bool {
        if wanted.range.whole || self.waiters.is_empty() {
            return false;
        }
        let mut waiting: BTreeMap<(u64, u64), Vec<(NodeId, &Held)>> = BTreeMap::new();
        let mut steps = DEADLOCK_STEPS_MAX;
        let nodes: BTreeSet<NodeId> = self.waiters.values().copied().take(steps).collect();
        for at in nodes {
            let file = self.files.get(&at).map(|file| &file.waiting[..]).unwrap_or_default();
            for (_, other) in file.iter().filter(|(_, other)| !other.range.whole).take(steps) {
                waiting.entry(other.owner()).or_default().push((at, other));
            }
            steps = steps.saturating_sub(file.len());
        }
        let asks = wanted.owner();
        let mut seen: BTreeSet<(u64, u64)> = BTreeSet::new();
        let mut next = vec![(node, wanted)];
        let mut steps = DEADLOCK_STEPS_MAX;
        while let Some((node, wanted)) = next.pop() {
            let held = self.files.get(&node).map(|file| &file.held[..]).unwrap_or_default();
            for held in held {
                let Some(left) = steps.checked_sub(1) else { return false };
                steps = left;
                if !held.blocks(wanted.by.session, &wanted.range) {
                    continue;
                }
                if held.owner() == asks {
                    return true;
                }
                if seen.insert(held.owner()) {
                    next.extend(waiting.get(&held.owner()).into_iter().flatten());
                }
            }
        }
        false
    }
}

impl File {
    /// Ends the locks of a session.
    fn end_held(&mut self, session: u64, counts: &mut Counts) {
        self.held.retain(|held| {
            let stays = held.by.session != session;
            counts.change(held.by.client, 1, usize::from(stays));
            stays
        });
    }

    /// The locks after one was put over those of its owner.
    fn with(&self, new: &Held) -> Vec<Held> {
        let range = new.range;
        let mut kept = Vec::with_capacity(self.held.len() + 2);
        for held in &self.held {
            let own = held.owner() == new.owner() && held.range.whole == range.whole;
            if !own || held.range.end < range.start || range.end < held.range.start {
                kept.push(*held);
                continue;
            }
            if held.range.start < range.start {
                let part = LockRange { end: range.start - 1, ..held.range };
                kept.push(Held { range: part, ..*held });
            }
            if held.range.end > range.end {
                let part = LockRange { start: range.end + 1, ..held.range };
                kept.push(Held { range: part, ..*held });
            }
        }
        if range.kind != LockKind::None {
            kept.push(*new);
        }
        kept
    }

    /// Grants what waits and is no longer blocked, in turn, while the file may have more locks.
    fn grant(&mut self, counts: &mut Counts) -> Vec<Waiter> {
        let mut granted = Vec::new();
        let mut at = 0;
        while let Some((waiter, wanted)) = self.waiting.get(at).copied() {
            let blocked =
                self.held.iter().any(|held| held.blocks(wanted.by.session, &wanted.range));
            if blocked || self.held.len() >= LOCKS_OF_FILE_MAX {
                at += 1;
                continue;
            }
            self.waiting.remove(at);
            let placed = self.with(&wanted);
            counts.change(wanted.by.client, 1 + self.held.len(), placed.len());
            self.held = placed;
            granted.push(waiter);
        }
        granted
    }
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

    fn by(session: u64) -> Holder {
        Holder { client: 70 + session, session }
    }

    const NONE: Locking = Locking::Done(Vec::new());

    #[test]
    fn ranges_are_split_and_others_wait_in_turn() {
        use LockKind::{Exclusive, None as Free, Shared};
        let locks = Locks::default();
        assert_eq!(locks.set(file(5), by(1), range(1, Exclusive, 0, 99), None), NONE);
        assert_eq!(locks.set(file(5), by(2), range(1, Shared, 50, 60), None), Locking::Refused);
        assert_eq!(locks.set(file(5), by(1), range(1, Free, 40, 69), None), NONE);
        assert_eq!(locks.set(file(5), by(2), range(1, Shared, 50, 60), None), NONE);
        assert_eq!(locks.set(file(5), by(2), range(1, Shared, 60, 70), Some(9)), Locking::Waits);
        let conflicting = locks.test(file(5), 2, &range(1, Shared, 0, 10)).unwrap();
        assert_eq!((conflicting.start, conflicting.end, conflicting.pid), (0, 39, 0));
        let granted = locks.set(file(5), by(1), range(1, Free, 0, u64::MAX), None);
        assert_eq!(granted, Locking::Done(vec![Waiter { session: 2, request: 9 }]));
        assert_eq!(locks.set(file(5), by(1), range(1, Exclusive, 70, 80), Some(3)), Locking::Waits);
        assert_eq!(locks.end_session(2), [Waiter { session: 1, request: 3 }]);
        assert!(locks.end_session(1).is_empty());
        let table = locks.table.lock();
        assert!(
            table.files.is_empty()
                && table.waiters.is_empty()
                && table.of_client.clients.is_empty()
        );
    }

    #[test]
    fn two_that_wait_for_each_other_are_found_and_one_gives_up() {
        use LockKind::Exclusive;
        let locks = Locks::default();
        assert_eq!(locks.set(file(5), by(1), range(1, Exclusive, 0, 9), None), NONE);
        assert_eq!(locks.set(file(6), by(2), range(1, Exclusive, 0, 9), None), NONE);
        assert_eq!(locks.set(file(6), by(1), range(1, Exclusive, 0, 9), Some(1)), Locking::Waits);
        assert_eq!(
            locks.set(file(5), by(2), range(1, Exclusive, 5, 5), Some(2)),
            Locking::Deadlock
        );
        assert!(locks.give_up(Waiter { session: 1, request: 1 }));
        assert!(!locks.give_up(Waiter { session: 1, request: 1 }));
        assert_eq!(locks.set(file(5), by(2), range(1, Exclusive, 5, 5), Some(2)), Locking::Waits);
        let whole = LockRange { whole: true, ..range(1, Exclusive, 0, u64::MAX) };
        assert_eq!(locks.set(file(5), by(2), whole, None), NONE, "the other kind does not see it");
    }

    #[test]
    fn a_client_has_no_more_than_its_locks_however_it_makes_them() {
        use LockKind::{Exclusive, None as Free, Shared};
        let locks = Locks::default();
        assert_eq!(locks.set(file(5), by(1), range(1, Exclusive, 0, u64::MAX), None), NONE);
        let holes = (0..10_000).map(|hole| range(1, Free, 2 * hole + 1, 2 * hole + 1));
        let refused = holes.filter(|hole| locks.set(file(5), by(1), *hole, None) != NONE).count();
        assert_eq!(refused, 10_000 - (LOCKS_OF_FILE_MAX - 1));
        let all = range(1, Free, 0, u64::MAX);
        assert_eq!(locks.set(file(5), by(1), all, None), NONE, "all of them can end");
        let table = locks.table.lock();
        assert!(table.files.is_empty() && table.of_client.clients.is_empty());
        drop(table);
        // Many sessions of one client share its number.
        let of = |session| Holder { client: 1, session };
        let mut taken = 0;
        for number in 0..20 {
            for owner in 0..LOCKS_OF_FILE_MAX as u64 {
                let lock = range(owner, Shared, owner, owner);
                taken += usize::from(locks.set(file(number + 1), of(number), lock, None) == NONE);
            }
        }
        assert_eq!(taken, LOCKS_OF_CLIENT_MAX);
        let other = Holder { client: 2, session: 99 };
        assert_eq!(locks.set(file(20), other, range(1, Shared, 0, 9), None), NONE);
        assert!(locks.end_file(0, file(1)).is_empty());
        assert_eq!(locks.set(file(20), of(19), range(1, Shared, 0, 9), None), NONE);
    }

    #[test]
    fn clients_share_the_locks_of_all() {
        let locks = Locks::at_most(300);
        let take = |client| {
            let by = Holder { client, session: client };
            let taken = (0..300).filter(|number| {
                let lock = range(*number, LockKind::Shared, 0, 9);
                locks.set(file(client), by, lock, None) == NONE
            });
            taken.count()
        };
        assert_eq!([take(1), take(2), take(3)], [150, 75, 38]);
        locks.end_session(1);
        assert_eq!(take(4), 94);
    }

    #[test]
    fn what_others_take_refuses_neither_the_end_of_a_part_nor_what_was_held_before() {
        use LockKind::{Exclusive, None as Free, Shared};
        let locks = Locks::at_most(100);
        let of = |client| Holder { client, session: client };
        for number in 0..45 {
            let lock = range(number, Exclusive, 0, 9);
            assert_eq!(locks.set(file(number + 1), of(1), lock, None), NONE);
        }
        for number in 0..27 {
            assert_eq!(locks.set(file(99), of(2), range(number, Shared, 0, 9), None), NONE);
        }
        let more = range(50, Exclusive, 0, 9);
        assert_eq!(locks.set(file(50), of(1), more, None), Locking::TooMany);
        for number in 0..5 {
            let part = range(number, Free, 4, 5);
            assert_eq!(locks.set(file(number + 1), of(1), part, None), NONE);
        }
        // Not a way to what is left to others.
        let part = range(6, Free, 4, 5);
        assert_eq!(locks.set(file(7), of(1), part, None), Locking::TooMany);
        // In another process, where others come first.
        let next = Locks::at_most(100);
        for number in 0..50 {
            assert_eq!(next.set(file(99), of(2), range(number, Shared, 0, 9), None), NONE);
        }
        for number in 0..50 {
            let lock = range(number, Exclusive, 0, 9);
            assert_eq!(next.set_again(file(number + 1), of(1), lock), NONE);
        }
        assert_eq!(next.set(file(50), of(3), more, None), Locking::Refused);
        assert_eq!(next.set(file(60), of(3), more, None), Locking::TooMany);
    }

    #[test]
    fn a_deadlock_through_others_is_found() {
        use LockKind::Exclusive;
        let locks = Locks::default();
        for session in 1..=50 {
            let lock = range(1, Exclusive, 0, 9);
            assert_eq!(locks.set(file(session), by(session), lock, None), NONE);
        }
        for session in 1..50 {
            let lock = range(1, Exclusive, 3, 3);
            let outcome = locks.set(file(session + 1), by(session), lock, Some(1));
            assert_eq!(outcome, Locking::Waits);
        }
        let last = range(1, Exclusive, 9, 9);
        assert_eq!(locks.set(file(1), by(50), last, Some(1)), Locking::Deadlock);
        assert_eq!(locks.set(file(1), by(51), last, Some(1)), Locking::Waits);
    }
}
