//! Stores that are wholly in an object store, which several processes open. At every request of one
//! of them, another one opens the store, or continues. Whatever any of them acknowledged is found
//! by the next opening, and a process that was replaced acknowledges nothing.
//!
//! Each process has a host and a clock of its own; nothing of a host outlives it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::Mutex;
use device::{Blobs, Device, OverBlobs};
use lsm::{LsmStore, Options, inspect};
use store::{Batch, Commit, Durable, Error, Maintain, Read, SliceRun};
use testing::{Call, FarBlobs, Mishap, fails, numbered, sim_env};

use crate::fenced_suite::in_objects;
use crate::util::{TREE, options, settle};

/// Seeds of hosts: no two processes have the same random numbers.
static HOSTS: AtomicU64 = AtomicU64::new(1);

fn on(blobs: &Arc<dyn Blobs>) -> Options {
    in_objects(options(), blobs)
}

fn create(blobs: &Arc<dyn Blobs>) -> store::Result<Arc<LsmStore>> {
    let host = sim_env(HOSTS.fetch_add(1, Ordering::Relaxed));
    LsmStore::create(&host.env(), &on(blobs))
}

fn open(blobs: &Arc<dyn Blobs>) -> store::Result<Arc<LsmStore>> {
    let host = sim_env(HOSTS.fetch_add(1, Ordering::Relaxed));
    LsmStore::open(&host.env(), &on(blobs))
}

/// Objects of a store with a tree, closed.
fn far_store() -> (Arc<FarBlobs>, Arc<dyn Blobs>) {
    let far = FarBlobs::new();
    let blobs: Arc<dyn Blobs> = Arc::<FarBlobs>::clone(&far);
    let store = create(&blobs).expect("create");
    let mut batch = Batch::new();
    batch.create_tree(TREE);
    store.commit(&batch).expect("commit");
    store.close().expect("close");
    (far, blobs)
}

/// What was acknowledged, by any process.
#[derive(Clone, Default)]
struct Acknowledged(Arc<Mutex<Vec<u32>>>);

impl Acknowledged {
    /// Puts a key and makes it durable.
    fn put(&self, store: &LsmStore, key: u32) -> store::Result<()> {
        let mut batch = Batch::new();
        batch.put(TREE, &key.to_be_bytes(), &[7; 100]);
        let token = store.commit(&batch)?;
        store.sync(token)?;
        self.0.lock().push(key);
        Ok(())
    }

    /// A number of keys.
    fn put_all(&self, store: &LsmStore, keys: std::ops::Range<u32>) -> store::Result<()> {
        keys.into_iter().try_for_each(|key| self.put(store, key))
    }

    /// Opens the store once more, and finds all of it; the store is without defects.
    #[track_caller]
    fn are_found(&self, blobs: &Arc<dyn Blobs>, place: &str) {
        let host = sim_env(HOSTS.fetch_add(1, Ordering::Relaxed));
        let mut proceed = |_, _| ControlFlow::Continue(());
        let report = inspect(&host.env(), &on(blobs), &mut proceed).expect("inspect");
        assert!(report.is_clean(), "{place}: {:#?}", report.findings);
        let store = open(blobs).unwrap_or_else(|error| panic!("{place}: {error}"));
        for &key in &*self.0.lock() {
            let found = store.get(TREE, &key.to_be_bytes()).expect("read");
            assert!(found.is_some(), "{place}: key {key} was acknowledged, and is lost");
        }
        let more = Acknowledged::default().put(&store, u32::MAX);
        more.unwrap_or_else(|error| panic!("{place}: {error}"));
        let report = lsm::check(&store).expect("check");
        assert!(report.is_clean(), "{place}: {:#?}", report.findings);
    }
}

/// An object store that calls a function before one of its requests, whatever it is.
struct Stepped {
    blobs: Arc<dyn Blobs>,
    calls: AtomicU64,
    at: u64,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Stepped {
    /// Calls `act` before request number `at`.
    fn new(blobs: &Arc<dyn Blobs>, at: u64, act: impl FnOnce() + Send + 'static) -> Arc<Stepped> {
        let act: Box<dyn FnOnce() + Send> = Box::new(act);
        let blobs = Arc::clone(blobs);
        Arc::new(Stepped { blobs, calls: AtomicU64::new(0), at, act: Mutex::new(Some(act)) })
    }

    fn step(&self) -> &dyn Blobs {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.at {
            let act = self.act.lock().take();
            if let Some(act) = act {
                act();
            }
        }
        &*self.blobs
    }

    /// Whether the request was sent.
    fn has_acted(&self) -> bool {
        self.act.lock().is_none()
    }
}

impl Blobs for Stepped {
    fn create(&self, name: &str, bytes: &[u8]) -> device::Result<bool> {
        self.step().create(name, bytes)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> device::Result<bool> {
        self.step().adopt(name, device, path)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> device::Result<usize> {
        self.step().read_at(name, buffer, offset)
    }

    fn length(&self, name: &str) -> device::Result<Option<u64>> {
        self.step().length(name)
    }

    fn list(&self, prefix: &str) -> device::Result<Vec<String>> {
        self.step().list(prefix)
    }

    fn delete(&self, name: &str) -> device::Result<()> {
        self.step().delete(name)
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> device::Result<bool> {
        self.step().punch(name, offset, length)
    }

    fn disk_bytes(&self, name: &str) -> device::Result<u64> {
        self.step().disk_bytes(name)
    }

    fn answers_may_be_lost(&self) -> bool {
        true
    }
}

/// Runs `race` with a process that pauses before each of its requests in turn. Returns how many
/// requests there are.
fn at_every_request(mut race: impl FnMut(u64) -> bool) -> u64 {
    (0..10_000).find(|&at| !race(at)).expect("it ends")
}

/// Checks a process that was replaced: it acknowledges nothing, and reports why.
#[track_caller]
fn assert_replaced(result: store::Result<()>, place: &str) {
    let error = result.expect_err("it was replaced");
    assert!(matches!(error, Error::Replaced(_)), "{place}: {error}");
}

/// A process opens the store and pauses before some request. Another one opens it, commits, writes
/// checkpoints that delete what was before, and stays. Then the first continues.
#[test]
fn an_opening_pauses_while_another_one_opens() {
    let mut refused = 0;
    let requests = at_every_request(|at| {
        let place = format!("before request {at}");
        let (_, blobs) = far_store();
        let acknowledged = Acknowledged::default();
        acknowledged.put_all(&open(&blobs).expect("open"), 0..3).expect("put");
        let other: Arc<Mutex<Option<Arc<LsmStore>>>> = Arc::default();
        let (theirs, kept, direct) = (acknowledged.clone(), Arc::clone(&other), Arc::clone(&blobs));
        let stepped = Stepped::new(&blobs, at, move || {
            let store = open(&direct).expect("nothing is in its way");
            theirs.put_all(&store, 10..12).expect("put");
            assert!(store.checkpoint().expect("checkpoint"));
            theirs.put_all(&store, 12..14).expect("put");
            assert!(store.checkpoint().expect("checkpoint"));
            theirs.put_all(&store, 14..16).expect("put");
            *kept.lock() = Some(store);
        });
        let paused = open(&(Arc::<Stepped>::clone(&stepped) as Arc<dyn Blobs>));
        if !stepped.has_acted() {
            return false;
        }
        let other = other.lock().take().expect("it is open");
        match paused {
            // It opened the store after the other one.
            Ok(store) => match acknowledged.put(&store, 20) {
                Ok(()) => assert_replaced(acknowledged.put(&other, 30), &place),
                refused => assert_replaced(refused, &place),
            },
            Err(error) => {
                refused += 1;
                assert!(
                    matches!(error, Error::Replaced(_) | Error::Device(_) | Error::Missing { .. }),
                    "{place}: {error}"
                );
                acknowledged.put(&other, 30).unwrap_or_else(|error| panic!("{place}: {error}"));
                assert!(other.checkpoint().expect("checkpoint"), "{place}");
            }
        }
        acknowledged.are_found(&blobs, &place);
        true
    });
    println!("{requests} requests; in {refused} cases the paused process was refused");
    assert!(requests > 15 && refused > 5, "{requests} requests, {refused} refused");
}

/// The owner pauses before some request of a commit, a checkpoint, a merge, or a close. Another
/// process opens the store and commits. The owner then acknowledges nothing, and deletes nothing
/// that the others need.
#[test]
fn an_owner_pauses_while_another_process_opens() {
    let mut replaced = 0;
    let requests = at_every_request(|at| {
        let place = format!("before request {at}");
        let (_, blobs) = far_store();
        let acknowledged = Acknowledged::default();
        let other: Arc<Mutex<Option<Arc<LsmStore>>>> = Arc::default();
        let (theirs, kept, direct) = (acknowledged.clone(), Arc::clone(&other), Arc::clone(&blobs));
        let stepped = Stepped::new(&blobs, at, move || {
            let store = open(&direct).expect("nothing is in its way");
            theirs.put_all(&store, 1000..1003).expect("put");
            for round in 0..3 {
                assert!(store.checkpoint().expect("checkpoint"));
                theirs.put(&store, 1010 + round).expect("put");
            }
            *kept.lock() = Some(store);
        });
        let live = || {
            let store = open(&(Arc::<Stepped>::clone(&stepped) as Arc<dyn Blobs>))?;
            for round in 0..6_u32 {
                acknowledged.put_all(&store, round * 10..round * 10 + 3)?;
                store.ingest(
                    TREE,
                    &mut SliceRun::new(&numbered(5000 + round * 10..5009 + round * 10, 20)),
                )?;
                store.checkpoint()?;
            }
            while store.reclaim_step(100)? {}
            acknowledged.put_all(&store, 100..102)?;
            store.close()
        };
        let lived = live();
        if !stepped.has_acted() {
            return false;
        }
        let other = other.lock().take().expect("it is open");
        // Where the last request only deleted something, it may not have noticed.
        if let Err(error) = lived {
            replaced += 1;
            assert!(
                matches!(error, Error::Replaced(_) | Error::Device(_) | Error::Missing { .. }),
                "{place}: {error}"
            );
        }
        match acknowledged.put(&other, 1030) {
            // If the owner paused before its claim, it replaced the other one.
            Err(Error::Replaced(_)) => {}
            put => put.unwrap_or_else(|error| panic!("{place}: {error}")),
        }
        acknowledged.are_found(&blobs, &place);
        true
    });
    println!("{requests} requests; in {replaced} cases the owner was replaced");
    assert!(requests > 60 && replaced > 40, "{requests} requests, {replaced} replaced");
}

/// A process opens a store whose owner is alive, and the owner commits and writes a checkpoint at
/// some moment of that.
#[test]
fn an_owner_continues_while_another_process_opens() {
    let requests = at_every_request(|at| {
        for checkpoint in [false, true] {
            let place = format!("before request {at}, checkpoint: {checkpoint}");
            let (_, blobs) = far_store();
            let acknowledged = Acknowledged::default();
            let owner = open(&blobs).expect("open");
            acknowledged.put_all(&owner, 0..3).expect("put");
            let (theirs, store) = (acknowledged.clone(), Arc::clone(&owner));
            let stepped = Stepped::new(&blobs, at, move || {
                theirs.put_all(&store, 10..12).ok();
                if checkpoint {
                    store.checkpoint().ok();
                }
                theirs.put_all(&store, 12..14).ok();
            });
            let opened = open(&(Arc::<Stepped>::clone(&stepped) as Arc<dyn Blobs>));
            if !stepped.has_acted() {
                return false;
            }
            let store = opened.unwrap_or_else(|error| panic!("{place}: {error}"));
            acknowledged.put(&store, 20).unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_replaced(acknowledged.put(&owner, 30), &place);
            assert_replaced(owner.checkpoint().map(drop), &place);
            assert_replaced(owner.close(), &place);
            acknowledged.put(&store, 21).unwrap_or_else(|error| panic!("{place}: {error}"));
            drop(owner);
            acknowledged.are_found(&blobs, &place);
        }
        true
    });
    println!("{requests} requests");
    assert!(requests > 15, "{requests}");
}

/// A process ends at each of its requests. The next one, on another host, finds what it
/// acknowledged.
#[test]
fn a_process_may_end_at_every_request() {
    let far = FarBlobs::new();
    let blobs: Arc<dyn Blobs> = Arc::<FarBlobs>::clone(&far);
    let acknowledged = Acknowledged::default();
    let points = Arc::new(AtomicU64::new(0));
    let store = create(&blobs).expect("create");
    let mut batch = Batch::new();
    batch.create_tree(TREE);
    store.sync(store.commit(&batch).expect("commit")).expect("sync");
    let (theirs, seen) = (acknowledged.clone(), Arc::clone(&points));
    far.watch(move |far, change| {
        seen.fetch_add(1, Ordering::Relaxed);
        let copy: Arc<dyn Blobs> = far.copy();
        let copied = Acknowledged(Arc::new(Mutex::new(theirs.0.lock().clone())));
        copied.are_found(&copy, &format!("before change {change}"));
    });
    for round in 0..3_u32 {
        acknowledged.put_all(&store, round * 100..round * 100 + 5).expect("put");
        let run = numbered(5000 + round * 100..5100 + round * 100, 20);
        store.ingest(TREE, &mut SliceRun::new(&run)).expect("ingest");
        assert!(store.checkpoint().expect("checkpoint"));
        settle(&store);
    }
    // Also at the requests of openings, of one that follows a close and one that does not.
    acknowledged.put_all(&store, 900..903).expect("put");
    let store = open(&blobs).expect("open");
    acknowledged.put_all(&store, 910..913).expect("put");
    store.close().expect("close");
    drop(store);
    acknowledged.put(&open(&blobs).expect("open"), 920).expect("put");
    far.unwatch();
    let points = points.load(Ordering::Relaxed);
    println!("{points} requests");
    assert!(points > 80, "{points}");
    acknowledged.are_found(&blobs, "at the end");
}

/// Whatever becomes of a request, and whenever it is carried out, a later one has its effect.
#[test]
fn no_outcome_of_a_request_loses_data() {
    let mishaps = [Mishap::LostRequest, Mishap::LostAnswer, Mishap::Late, Mishap::Repeated];
    for prefix in ["manifest/", "copy/", "run/", "log/"] {
        for (mishap, early) in mishaps.into_iter().flat_map(|m| [(m, false), (m, true)]) {
            let place = format!("{prefix} {mishap:?} {early}");
            let (far, blobs) = far_store();
            let acknowledged = Acknowledged::default();
            let store = open(&blobs).expect("open");
            acknowledged.put_all(&store, 0..3).expect("put");
            far.order(Call::Make, prefix, mishap);
            store.checkpoint().ok();
            acknowledged.put_all(&store, 10..13).unwrap_or_else(|e| panic!("{place}: {e}"));
            assert_eq!(far.take_back(), 0, "{place}");
            acknowledged.are_found(&(far.copy() as Arc<dyn Blobs>), &place);
            if early {
                far.deliver();
                acknowledged.are_found(&(far.copy() as Arc<dyn Blobs>), &place);
            }
            assert!(store.checkpoint().unwrap_or_else(|error| panic!("{place}: {error}")));
            acknowledged.put_all(&store, 20..23).expect("put");
            far.deliver();
            acknowledged.are_found(&(far.copy() as Arc<dyn Blobs>), &place);
            assert!(store.checkpoint().unwrap_or_else(|error| panic!("{place}: {error}")));
            store.close().expect("close");
            acknowledged.are_found(&blobs, &place);
        }
    }
}

/// The last requests of a process that ended are carried out at some moment of the next one's life.
#[test]
fn late_requests_of_an_ended_process_change_nothing() {
    for prefix in ["manifest/", "copy/", "run/", "log/"] {
        for moment in 0..4 {
            let place = format!("{prefix} at moment {moment}");
            let (far, blobs) = far_store();
            let acknowledged = Acknowledged::default();
            let store = open(&blobs).expect("open");
            acknowledged.put_all(&store, 0..3).expect("put");
            far.order(Call::Make, prefix, Mishap::Late);
            let mut batch = Batch::new();
            batch.put(TREE, b"late", b"not acknowledged");
            store.commit(&batch).ok();
            store.checkpoint().ok();
            far.take_nothing(Some(std::io::ErrorKind::ConnectionRefused));
            drop(store);
            far.take_nothing(None);
            let deliver = |now: u32| {
                if moment == now {
                    far.deliver();
                }
            };
            deliver(0);
            let next = open(&blobs).unwrap_or_else(|error| panic!("{place}: {error}"));
            deliver(1);
            acknowledged.put_all(&next, 10..13).unwrap_or_else(|e| panic!("{place}: {e}"));
            assert!(next.checkpoint().unwrap_or_else(|error| panic!("{place}: {error}")));
            deliver(2);
            acknowledged.put_all(&next, 20..23).unwrap_or_else(|e| panic!("{place}: {e}"));
            assert!(next.checkpoint().unwrap_or_else(|error| panic!("{place}: {error}")));
            next.close().expect("close");
            deliver(3);
            acknowledged.are_found(&blobs, &place);
        }
    }
}

/// Attempts that were lost leave no gap in the numbers of manifests: otherwise an owner that was
/// replaced could make one above its successor's.
#[test]
fn lost_attempts_of_manifests_leave_no_gap() {
    for lost in 1..6 {
        let (far, blobs) = far_store();
        let acknowledged = Acknowledged::default();
        let owner = open(&blobs).expect("open");
        for round in 0..lost {
            acknowledged.put(&owner, round).expect("put");
            far.order(Call::Make, "manifest/", Mishap::LostRequest);
            fails(owner.checkpoint(), "no answer");
        }
        let next = open(&blobs).expect("open");
        acknowledged.put_all(&next, 100..103).expect("put");
        let refused = owner.checkpoint().expect_err("it was replaced");
        assert!(matches!(refused, Error::Replaced(_)), "{lost} lost: {refused}");
        acknowledged.put_all(&next, 103..106).expect("put");
        drop((owner, next));
        acknowledged.are_found(&blobs, &format!("{lost} lost"));
    }
}

/// An opening sends a number of requests that depends on the log's objects alone: one for each.
#[test]
fn an_opening_costs_one_request_for_each_log_object() {
    let cost = |commits: u32| {
        let (_, blobs) = far_store();
        let acknowledged = Acknowledged::default();
        let store = open(&blobs).expect("open");
        for round in 0..20 {
            acknowledged.put(&store, 1000 + round).expect("put");
            store.checkpoint().expect("checkpoint");
        }
        acknowledged.put_all(&store, 0..commits).expect("put");
        let stepped = Stepped::new(&blobs, u64::MAX, || {});
        drop(open(&(Arc::<Stepped>::clone(&stepped) as Arc<dyn Blobs>)).expect("open"));
        stepped.calls.load(Ordering::Relaxed)
    };
    let (few, many) = (cost(1), cost(101));
    println!("an opening sends {} requests, and one for each log object", few - 1);
    assert_eq!(many - few, 100, "{few} and {many}");
    assert!(few <= 45, "{few}");
}

/// Two processes create a store in one place: one of them fails, and destroys nothing.
#[test]
fn of_two_creations_one_fails() {
    let requests = at_every_request(|at| {
        let far = FarBlobs::new();
        let blobs: Arc<dyn Blobs> = Arc::<FarBlobs>::clone(&far);
        let acknowledged = Acknowledged::default();
        let (theirs, direct) = (acknowledged.clone(), Arc::clone(&blobs));
        let stepped = Stepped::new(&blobs, at, move || {
            let Ok(store) = create(&direct) else { return };
            let mut batch = Batch::new();
            batch.create_tree(TREE);
            store.commit(&batch).expect("commit");
            theirs.put_all(&store, 0..3).expect("put");
            store.close().expect("close");
        });
        let made = create(&(Arc::<Stepped>::clone(&stepped) as Arc<dyn Blobs>));
        if !stepped.has_acted() {
            return false;
        }
        if acknowledged.0.lock().is_empty() {
            // The other one came too late.
            let mut batch = Batch::new();
            batch.create_tree(TREE);
            made.expect("create").commit(&batch).expect("commit");
            return true;
        }
        let refused = made.expect_err("a store is here");
        assert!(matches!(refused, Error::Device(_)), "{at}: {refused}");
        acknowledged.are_found(&blobs, &format!("before request {at}"));
        true
    });
    assert!(requests >= 4, "{requests}");
}

/// A store that lists late is refused: there another process cannot be noticed.
#[test]
fn a_store_with_stale_listings_is_refused() {
    let (_, blobs) = far_store();
    struct Stale(Arc<dyn Blobs>, Vec<String>);
    impl OverBlobs for Stale {
        fn below(&self) -> &dyn Blobs {
            &*self.0
        }

        fn list(&self, prefix: &str) -> device::Result<Vec<String>> {
            Ok(self.1.iter().filter(|name| name.starts_with(prefix)).cloned().collect())
        }
    }
    let names = blobs.list("").expect("list");
    let stale: Arc<dyn Blobs> = Arc::new(Stale(Arc::clone(&blobs), names));
    let refused = open(&stale).expect_err("its claim is not listed");
    assert!(refused.to_string().contains("listings are out of date"), "{refused}");
    Acknowledged::default().are_found(&blobs, "with true listings");
}

/// The log must be where the manifests are.
#[test]
fn a_log_in_objects_needs_manifests_there() {
    let (_, blobs) = far_store();
    let alone = Options { blobs: None, ..on(&blobs) };
    let refused = LsmStore::open(&sim_env(1).env(), &alone).expect_err("there are no manifests");
    assert!(refused.to_string().contains("needs its manifests"), "{refused}");
    fails(
        LsmStore::create(&sim_env(1).env(), &alone),
        "a log in an object store needs its manifests",
    );
}
