//! Which calls of a replay must wait for which others.
//!
//! A call claims the names and inodes that it uses, each shared or alone. It waits for every call
//! before it that has one of them alone, and, if it claims one alone itself, for those that share
//! it. So calls on one name, inode or handle run in the order of the trace, and others run at once.
//!
//! [`Order::add`] is called by one thread, in the order of the trace; [`Task::done`] by any.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use device::sync::Mutex;
use format::trace::{Call, Ended, Event};
use siphasher::sip::SipHasher13;

use crate::names::{Names, Touched};

/// How many claims may pile up before those of calls that are done are removed.
const SWEEP_AT: usize = 1 << 16;

/// An inode, or a name in a directory (by a hash: equal hashes make calls wait for no reason).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Node(u64),
    Name(u64, u64),
}

/// What a call uses.
#[derive(Debug, Default, Clone)]
pub struct Claims {
    keys: Vec<(Key, bool)>,
    /// Whether it must run alone: no other call runs at that time.
    pub is_alone: bool,
}

impl Claims {
    fn node(&mut self, node: u64, alone: bool) {
        self.keys.push((Key::Node(node), alone));
    }

    fn name(&mut self, parent: u64, name: &[u8], alone: bool) {
        let mut hasher = SipHasher13::new();
        hasher.write(name);
        self.keys.push((Key::Name(parent, hasher.finish()), alone));
        // The directory must be there.
        self.node(parent, false);
    }

    /// The inode that a call made, if it did.
    fn made(&mut self, event: &Event<'_>) {
        if event.ended == Ended::Done {
            self.node(event.found.node, true);
        }
    }

    /// The claims of an event; `names` are those before it.
    pub fn of(event: &Event<'_>, names: &Names) -> Claims {
        let mut claims = Claims::default();
        let Touched { from, to } = names.touched(event);
        match event.call {
            Call::Lookup => claims.name(event.node, event.name, false),
            Call::Getattr
            | Call::Access
            | Call::Readlink
            | Call::Read
            | Call::Seek
            | Call::Readdir
            | Call::Readdirplus
            | Call::Statfs
            | Call::Getxattr
            | Call::Listxattr => claims.node(event.node, false),
            Call::Setattr
            | Call::Write
            | Call::Fallocate
            | Call::Fsync
            | Call::Setxattr
            | Call::Removexattr
            | Call::Open
            | Call::Release => claims.node(event.node, true),
            Call::Mknod | Call::Mkdir | Call::Symlink => {
                claims.name(event.node, event.name, true);
                claims.made(event);
            }
            Call::Tmpfile => {
                claims.node(event.node, false);
                claims.made(event);
            }
            Call::Link => {
                claims.name(event.node, event.name, true);
                claims.node(event.other, true);
            }
            Call::Unlink | Call::Rmdir => claims.name(event.node, event.name, true),
            Call::Rename => {
                claims.name(event.node, event.name, true);
                claims.name(event.other, event.other_name, true);
            }
            Call::CopyRange => {
                claims.node(event.node, false);
                claims.node(event.other, true);
            }
            Call::Sync => claims.is_alone = true,
        }
        for node in [from, to].into_iter().flatten() {
            claims.node(node, true);
        }
        claims
    }
}

/// A call that was added.
#[derive(Debug)]
pub struct Task<T> {
    /// What to do.
    pub work: T,
    /// How many calls it waits for.
    waits: AtomicUsize,
    done: AtomicBool,
    after: Mutex<Vec<Arc<Task<T>>>>,
}

impl<T> Task<T> {
    /// Ends it, and returns the tasks that waited for it alone.
    pub fn done(&self) -> Vec<Arc<Task<T>>> {
        let mut after = {
            let mut after = self.after.lock();
            self.done.store(true, Ordering::Release);
            std::mem::take(&mut *after)
        };
        after.retain(|task| task.waits.fetch_sub(1, Ordering::AcqRel) == 1);
        after
    }

    /// Makes `next` wait for it, if it is not done.
    fn before(&self, next: &Arc<Task<T>>) {
        let mut after = self.after.lock();
        if !self.done.load(Ordering::Acquire) {
            next.waits.fetch_add(1, Ordering::AcqRel);
            after.push(Arc::clone(next));
        }
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}

/// The calls that have a key.
#[derive(Debug)]
struct Holders<T> {
    last_alone: Option<Arc<Task<T>>>,
    sharing: Vec<Arc<Task<T>>>,
}

/// The order of the calls of a replay.
#[derive(Debug)]
pub struct Order<T> {
    holders: BTreeMap<Key, Holders<T>>,
    sweep_at: usize,
}

impl<T> Default for Order<T> {
    fn default() -> Order<T> {
        Order { holders: BTreeMap::new(), sweep_at: SWEEP_AT }
    }
}

impl<T> Order<T> {
    /// Adds a call. `true`: it can run now; otherwise [`Task::done`] of another returns it.
    pub fn add(&mut self, work: T, claims: &Claims) -> (Arc<Task<T>>, bool) {
        let (waits, done) = (AtomicUsize::new(1), AtomicBool::new(false));
        let task = Arc::new(Task { work, waits, done, after: Mutex::new(Vec::new()) });
        for &(key, alone) in &claims.keys {
            let new = || Holders { last_alone: None, sharing: Vec::new() };
            let holders = self.holders.entry(key).or_insert_with(new);
            let wait = |other: &Arc<Task<T>>| {
                if !Arc::ptr_eq(other, &task) {
                    other.before(&task);
                }
            };
            holders.last_alone.iter().for_each(wait);
            if alone {
                holders.sharing.iter().for_each(wait);
                holders.sharing.clear();
                holders.last_alone = Some(Arc::clone(&task));
            } else {
                if holders.sharing.len() >= 64 {
                    holders.sharing.retain(|other| !other.is_done());
                }
                holders.sharing.push(Arc::clone(&task));
            }
        }
        if self.holders.len() >= self.sweep_at {
            self.sweep();
        }
        let ready = task.waits.fetch_sub(1, Ordering::AcqRel) == 1;
        (task, ready)
    }

    /// Forgets calls that are done.
    fn sweep(&mut self) {
        self.holders.retain(|_, holders| {
            holders.sharing.retain(|task| !task.is_done());
            holders.last_alone.take_if(|task| task.is_done());
            holders.last_alone.is_some() || !holders.sharing.is_empty()
        });
        self.sweep_at = (2 * self.holders.len()).max(SWEEP_AT);
    }
}

#[cfg(test)]
mod tests {
    use device::sync::channel;

    use super::*;

    /// Runs random calls on few names by several threads, and checks that conflicting ones ran in
    /// order.
    #[test]
    fn conflicting_calls_run_in_the_order_of_the_trace() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..20 {
            let all: Vec<Claims> = (0..300)
                .map(|_| {
                    let keys = (0..random.usize(1..4))
                        .map(|_| (Key::Node(random.u64(..6)), random.u8(..3) == 0))
                        .collect();
                    Claims { keys, is_alone: false }
                })
                .collect();
            let ran = run(&all, 3);
            for later in 0..all.len() {
                for earlier in 0..later {
                    if conflict(&all[earlier], &all[later]) {
                        assert!(ran[earlier].1 < ran[later].0, "{later} before {earlier}");
                    }
                }
            }
        }
    }

    fn conflict(one: &Claims, other: &Claims) -> bool {
        one.keys.iter().any(|(key, alone)| {
            other.keys.iter().any(|(also, also_alone)| key == also && (*alone || *also_alone))
        })
    }

    /// When each call began and ended, on a counter.
    fn run(all: &[Claims], threads: usize) -> Vec<(usize, usize)> {
        let counter = AtomicUsize::new(0);
        let ran = Mutex::new(vec![(0, 0); all.len()]);
        let (sender, receiver) = channel::<Arc<Task<usize>>>();
        let receiver = Mutex::new(receiver);
        let left = AtomicUsize::new(all.len());
        device::scope(|scope| {
            for _ in 0..threads {
                let sender = sender.clone();
                let (ran, receiver, left, counter) = (&ran, &receiver, &left, &counter);
                device::spawn_in(scope, "worker", move || {
                    while left.load(Ordering::SeqCst) > 0 {
                        let Ok(task) = receiver.lock().try_recv() else {
                            device::yield_now();
                            continue;
                        };
                        let began = counter.fetch_add(1, Ordering::SeqCst);
                        device::yield_now();
                        let ended = counter.fetch_add(1, Ordering::SeqCst);
                        ran.lock()[task.work] = (began, ended);
                        for next in task.done() {
                            sender.send(next).unwrap();
                        }
                        left.fetch_sub(1, Ordering::SeqCst);
                    }
                })
                .unwrap();
            }
            let mut order = Order::default();
            for (number, claims) in all.iter().enumerate() {
                let (task, ready) = order.add(number, claims);
                if ready {
                    sender.send(task).unwrap();
                }
            }
        });
        ran.into_inner()
    }

    #[test]
    fn calls_that_are_done_are_forgotten() {
        let mut order = Order { sweep_at: 10, ..Order::default() };
        for number in 0..100 {
            let claims = Claims { keys: vec![(Key::Node(number), true)], is_alone: false };
            let (task, ready) = order.add(number, &claims);
            assert!(ready);
            assert!(task.done().is_empty());
        }
        order.sweep();
        assert!(order.holders.is_empty());
    }
}
