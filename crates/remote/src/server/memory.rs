//! Memory that clients make a server keep: pots that all clients of all volumes share.
//!
//! A client may take half as much of a pot of bytes as is left to all others, and no more. So one
//! client has at most a third. Each of `n` that take what they can in turn gets an equal part, with
//! twice as much left for the next one. Those that come one after the other and give nothing back
//! get less and less: a third of what is left. Of what is counted in number, nodes and locks, a
//! client may take as much as it leaves. The sum never exceeds the pot, except for what is taken
//! without a question. These are short answers, which are owed already, and the answers of a
//! session a second time, on a new connection. So are files and locks that a client proves it had
//! before a take-over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use wire::PAYLOAD_BYTES_MAX;
use wire::remote::FsCall;

use super::bounds::Bounds;

/// Longest listing, and longest extended attribute or list of their names.
pub(super) const LIST_BYTES_MAX: usize = 256 << 10;
const XATTR_BYTES_MAX: usize = 64 << 10;
/// Answers that may be longer than this have their space before their calls begin.
const SHORT_BYTES: usize = 4 << 10;

/// What all clients share, in bytes or nodes.
pub(super) struct Pot {
    most: usize,
    /// How many times as much as a client has must be left.
    leaves: usize,
    used: AtomicUsize,
    /// Somebody had to wait since the last look.
    pressed: AtomicBool,
}

impl Pot {
    pub(super) fn new(most: usize, leaves: usize) -> Arc<Pot> {
        let (used, pressed) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Pot { most, leaves, used, pressed })
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether somebody had to wait since the last question.
    pub(super) fn was_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed) && self.pressed.swap(false, Ordering::Relaxed)
    }
}

/// How many times as many bytes as a client has it must leave.
pub(super) const LEAVES_BYTES: usize = 2;
/// The same of what is counted in number.
pub(super) const LEAVES_NUMBER: usize = 1;

/// Whether a client that has `own` of a pot may have `more`. `left` is what is left to all, and
/// must be at least `leaves` times what the client then has.
pub(super) fn is_fair(leaves: usize, own: usize, more: usize, left: usize) -> bool {
    own.saturating_add(more).saturating_mul(leaves) <= left
}

/// The part of a pot that one client has.
pub(super) struct Share {
    pot: Arc<Pot>,
    own: AtomicUsize,
}

impl Share {
    pub(super) fn of(pot: &Arc<Pot>) -> Share {
        Share { pot: Arc::clone(pot), own: AtomicUsize::new(0) }
    }

    pub(super) fn taken(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self, count: usize) {
        self.own.fetch_add(count, Ordering::Relaxed);
        self.pot.used.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn give(&self, count: usize) {
        self.own.fetch_sub(count, Ordering::Relaxed);
        self.pot.used.fetch_sub(count, Ordering::Relaxed);
    }

    /// Whether it may take so much more.
    pub(super) fn has_space(&self, more: usize) -> bool {
        self.is_fair(self.taken(), more)
    }

    /// Whether it may take more, if only a part of what it has counts.
    fn is_fair(&self, part: usize, more: usize) -> bool {
        let left = self.pot.most.saturating_sub(self.pot.used());
        let has = is_fair(self.pot.leaves, part, more, left);
        if !has {
            self.pot.pressed.store(true, Ordering::Relaxed);
        }
        has
    }

    /// Whether somebody had to wait for the pot since the last question.
    pub(super) fn was_pressed(&self) -> bool {
        self.pot.was_pressed()
    }
}

/// The pots of a server.
pub(super) struct Pots {
    /// Bytes of answers: reserved for calls that run, waiting for the log, kept, unread.
    pub(super) answers: Arc<Pot>,
    /// Nodes that are held.
    pub(super) nodes: Arc<Pot>,
}

impl Pots {
    pub(super) fn new(bounds: &Bounds) -> Pots {
        Pots {
            answers: Pot::new(bounds.answer_bytes, LEAVES_BYTES),
            nodes: Pot::new(bounds.nodes, LEAVES_NUMBER),
        }
    }
}

/// What one client uses of a volume, in all its sessions.
pub(super) struct Usage {
    /// Nodes that it holds.
    pub(super) nodes: Share,
    /// Searches under way.
    pub(super) searches: AtomicUsize,
    /// A number of the client's own.
    pub(super) number: u64,
    /// Bytes of all its answers.
    pub(super) answers: Share,
    /// Those of them that it has not acknowledged.
    kept: AtomicUsize,
    /// Those that wait until it reads them.
    unread: AtomicUsize,
    /// Those that wait until the log has what they rest on.
    waiting: AtomicUsize,
}

impl Usage {
    pub(super) fn new(number: u64, pots: &Pots) -> Usage {
        Usage {
            nodes: Share::of(&pots.nodes),
            searches: AtomicUsize::new(0),
            number,
            answers: Share::of(&pots.answers),
            kept: AtomicUsize::new(0),
            unread: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    pub(super) fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    pub(super) fn unread(&self) -> usize {
        self.unread.load(Ordering::Relaxed)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether what it has not read leaves as much to others. (What is kept until it acknowledges
    /// does not count here: acknowledgements come behind requests that would wait.)
    pub(super) fn reads_its_share(&self) -> bool {
        self.answers.is_fair(self.unread(), 0)
    }

    /// Keeps so many bytes; returns how many were kept before.
    pub(super) fn keep(&self, bytes: usize) -> usize {
        self.answers.take(bytes);
        self.kept.fetch_add(bytes, Ordering::Relaxed)
    }

    pub(super) fn keep_no_more(&self, bytes: usize) {
        self.answers.give(bytes);
        self.kept.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn is_to_read(&self, bytes: usize) {
        self.answers.take(bytes);
        self.unread.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn has_read(&self, bytes: usize) {
        self.answers.give(bytes);
        self.unread.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes of an answer that wait until the log has what it rests on.
pub(super) struct Waiting(Arc<Usage>, usize);

impl Waiting {
    pub(super) fn new(usage: &Arc<Usage>, bytes: usize) -> Waiting {
        usage.answers.take(bytes);
        usage.waiting.fetch_add(bytes, Ordering::Relaxed);
        Waiting(Arc::clone(usage), bytes)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.answers.give(self.1);
        self.0.waiting.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// Space for the answer of a call, from its beginning until the answer itself is counted.
pub(super) struct Reserved {
    usage: Arc<Usage>,
    bytes: usize,
    /// Those of them that it has.
    taken: AtomicUsize,
}

impl Reserved {
    /// For a call whose answer may be long.
    pub(super) fn of(usage: &Arc<Usage>, call: &FsCall<'_>) -> Option<Reserved> {
        let bytes = answer_bytes(call);
        let taken = AtomicUsize::new(0);
        (bytes > SHORT_BYTES).then(|| Reserved { usage: Arc::clone(usage), bytes, taken })
    }

    /// Takes the space, if there is so much.
    pub(super) fn take(&self) -> bool {
        let has = self.usage.answers.has_space(self.bytes);
        if has && self.taken.swap(self.bytes, Ordering::Relaxed) == 0 {
            self.usage.answers.take(self.bytes);
        }
        has
    }

    /// The answer has so many bytes. They count again from now on where it waits; until then this
    /// stays, so that nobody else takes the space.
    pub(super) fn shrink(&self, bytes: usize) {
        let taken = self.taken.load(Ordering::Relaxed);
        if bytes < taken {
            self.taken.store(bytes, Ordering::Relaxed);
            self.usage.answers.give(taken - bytes);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.usage.answers.give(*self.taken.get_mut());
    }
}

/// What the answer of a call takes while it is made and passed on. That is what was read, its
/// message, and that of a listing a second time, to be kept.
fn answer_bytes(call: &FsCall<'_>) -> usize {
    match *call {
        FsCall::Read { length, .. } => 2 * (length as usize).min(PAYLOAD_BYTES_MAX),
        FsCall::List { bytes, .. } => 3 * (bytes as usize).min(LIST_BYTES_MAX),
        FsCall::GetXattr { .. } | FsCall::ListXattr { .. } => 2 * XATTR_BYTES_MAX,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_take_what_they_can_get_equal_parts_and_leave_one() {
        for clients in [1, 2, 3, 9, 40] {
            let pot = Pot::new(1 << 20, LEAVES_NUMBER);
            let shares: Vec<Share> = (0..clients).map(|_| Share::of(&pot)).collect();
            while shares.iter().any(|share| share.has_space(1)) {
                for share in shares.iter().filter(|share| share.has_space(1)) {
                    share.take(1);
                }
            }
            let part = (1 << 20) / (clients + 1);
            for share in &shares {
                assert!(share.taken().abs_diff(part) <= clients, "{} of {part}", share.taken());
            }
            assert!(Share::of(&pot).has_space(part - clients), "{clients} clients leave no part");
            assert!(pot.was_pressed() && !pot.was_pressed());
            shares[0].give(shares[0].taken());
            assert!(shares[0].has_space(part));
        }
    }

    #[test]
    fn an_answer_has_its_space_once() {
        let bounds = Bounds { answer_bytes: 4 << 20, ..Bounds::default() };
        let usage = Arc::new(Usage::new(1, &Pots::new(&bounds)));
        let node = wire::remote::Node::ROOT;
        let read = FsCall::Read { node, offset: 0, length: 1 << 20, untimed: false };
        let one = Reserved::of(&usage, &read).unwrap();
        assert!(one.take());
        assert_eq!(usage.answers.taken(), 2 << 20);
        let other = Reserved::of(&usage, &read).unwrap();
        assert!(!other.take(), "more than a half");
        one.shrink(1 << 20);
        usage.is_to_read(1 << 20);
        assert_eq!(usage.answers.taken(), 2 << 20);
        drop(one);
        usage.has_read(1 << 20);
        assert!(other.take());
        drop(other);
        assert_eq!(usage.answers.taken(), 0);
        assert!(Reserved::of(&usage, &FsCall::GetAttr { node }).is_none());
    }
}
