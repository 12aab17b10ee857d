//! Signs of life: who lives is seen, and who does not is not taken for alive.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use device::sync::Mutex;
use device::{Blobs, Clock, Device, Result, Timestamp};
use objects::{Holder, Presence, Verdict};
use testing::{Call, FarBlobs, Mishap, SimClock, fails};

const VOLUME: [u8; 16] = [1; 16];
const PERIOD: Duration = Duration::from_secs(2);

fn holder(host: &str) -> Holder {
    let (host, user) = (host.to_owned(), "root".to_owned());
    Holder { host, user, pid: 812, started: Timestamp(5) }
}

fn announce(far: &Arc<FarBlobs>, opening: u8, host: &str) -> Presence {
    let clock = Arc::new(SimClock::new());
    let blobs: Arc<dyn Blobs> = far.clone();
    Presence::announce(blobs, VOLUME, [opening; 16], holder(host), PERIOD, clock).expect("a sign")
}

/// A clock that runs something at each sleep: what happens elsewhere while an observer waits.
struct Meanwhile<F: Fn(Duration) + Send + Sync> {
    clock: SimClock,
    run: F,
}

impl<F: Fn(Duration) + Send + Sync> Clock for Meanwhile<F> {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
        (self.run)(self.clock.monotonic());
    }
}

fn watch_while(far: &FarBlobs, run: impl Fn(Duration) + Send + Sync) -> (Verdict, Duration) {
    let clock = Meanwhile { clock: SimClock::new(), run };
    let verdict = Presence::watch(far, VOLUME, &clock).expect("a verdict");
    (verdict, clock.monotonic())
}

#[test]
fn a_living_process_is_seen_within_a_period() {
    let far = FarBlobs::new();
    assert_eq!(watch_while(&far, |_| {}), (Verdict::Nobody, Duration::ZERO));
    let presence = announce(&far, 7, "one.example");
    let (verdict, waited) = watch_while(&far, |now| {
        if now >= PERIOD / 2 {
            presence.beat().unwrap();
        }
    });
    let Verdict::Alive(sign) = verdict else { panic!("{verdict:?}") };
    assert_eq!(sign.holder, Some(holder("one.example")));
    assert_eq!(sign.period, PERIOD);
    assert!(waited <= PERIOD, "{waited:?}");
    assert_eq!(far.objects().len(), 1, "older signs are deleted");
    presence.withdraw().unwrap();
    assert!(far.objects().is_empty());
    assert_eq!(watch_while(&far, |_| {}).0, Verdict::Nobody);
}

#[test]
fn a_killed_process_is_silent_after_three_periods() {
    let far = FarBlobs::new();
    let presence = announce(&far, 7, "one.example");
    presence.beat().unwrap();
    drop(presence);
    let (verdict, waited) = watch_while(&far, |_| {});
    let Verdict::Silent(sign) = verdict else { panic!("{verdict:?}") };
    assert_eq!(sign.holder, Some(holder("one.example")));
    assert!(sign.silent >= PERIOD * 3 && waited < PERIOD * 4, "{waited:?}");
    // The next one takes over, and cleans up.
    let next = announce(&far, 8, "two.example");
    next.clear_others().unwrap();
    assert_eq!(far.objects().len(), 1);
    let (verdict, _) = watch_while(&far, |_| next.beat().unwrap());
    let Verdict::Alive(sign) = verdict else { panic!("{verdict:?}") };
    assert_eq!(sign.holder.unwrap().host, "two.example");
}

#[test]
fn a_process_that_was_replaced_finds_that_its_signs_were_cleared() {
    let far = FarBlobs::new();
    let replaced = announce(&far, 7, "one.example");
    replaced.beat().unwrap();
    assert!(!replaced.was_cleared().unwrap());
    let next = announce(&far, 8, "two.example");
    assert!(!replaced.was_cleared().unwrap(), "another one has only announced itself");
    next.clear_others().unwrap();
    assert!(replaced.was_cleared().unwrap());
    assert!(!next.was_cleared().unwrap());
}

#[test]
fn a_process_that_closes_while_it_is_watched_is_gone() {
    let far = FarBlobs::new();
    let presence = Mutex::new(Some(announce(&far, 7, "one.example")));
    let (verdict, waited) = watch_while(&far, |now| {
        if let Some(presence) = presence.lock().take_if(|_| now > PERIOD) {
            presence.withdraw().unwrap();
        }
    });
    assert_eq!(verdict, Verdict::Nobody);
    assert!(waited < PERIOD * 2, "{waited:?}");
}

/// Of a dead process and a living one, the living one is reported.
#[test]
fn the_living_process_is_reported_and_not_the_dead_one() {
    let far = FarBlobs::new();
    drop(announce(&far, 7, "dead.example"));
    let next = announce(&far, 3, "living.example");
    let (verdict, _) = watch_while(&far, |_| next.beat().unwrap());
    let Verdict::Alive(sign) = verdict else { panic!("{verdict:?}") };
    assert_eq!(sign.holder.unwrap().host, "living.example");
    // One that opens the volume meanwhile lives, too.
    let far = FarBlobs::new();
    drop(announce(&far, 7, "dead.example"));
    let (verdict, _) = watch_while(&far, |_| drop(announce(&far, 9, "new.example")));
    let Verdict::Alive(sign) = verdict else { panic!("{verdict:?}") };
    assert_eq!(sign.holder.unwrap().host, "new.example");
}

#[test]
fn of_two_that_open_at_once_at_most_one_remains() {
    let far = FarBlobs::new();
    let none = BTreeSet::new();
    let (one, other) = (announce(&far, 3, "one.example"), announce(&far, 7, "other.example"));
    assert!(!other.is_alone(&none).unwrap(), "the greater id gives way");
    other.withdraw().unwrap();
    assert!(one.is_alone(&none).unwrap());
    // A rival with a greater id that looked before, saw nobody, and stays.
    let rival = announce(&far, 9, "rival.example");
    assert!(!one.is_alone(&none).unwrap());
    // One that is known from before is dead, or is to be replaced.
    assert!(one.is_alone(&BTreeSet::from([[9; 16]])).unwrap());
    assert_eq!(Presence::openings(&*far).unwrap(), BTreeSet::from([[3; 16], [9; 16]]));
    rival.withdraw().unwrap();
}

/// Signs of other volumes do not count, and signs that cannot be read count while they change.
#[test]
fn foreign_and_unreadable_signs() {
    let far = FarBlobs::new();
    let clock = Arc::new(SimClock::new());
    let blobs: Arc<dyn Blobs> = far.clone();
    let other = Presence::announce(blobs, [9; 16], [3; 16], holder("x"), PERIOD, clock).unwrap();
    far.put("alive/rubbish", b"rubbish");
    far.put(&format!("alive/{}-{}", "a".repeat(32), "z".repeat(16)), b"rubbish");
    assert_eq!(watch_while(&far, |_| other.beat().unwrap()).0, Verdict::Nobody);
    let name = |number: u64| format!("alive/{}-{number:016x}", "a".repeat(32));
    far.put(&name(1), b"a newer version");
    let (verdict, _) = watch_while(&far, |_| {});
    let Verdict::Silent(sign) = verdict else { panic!("{verdict:?}") };
    assert_eq!(sign.holder, None);
    let (verdict, _) = watch_while(&far, |_| far.put(&name(2), b"a newer version"));
    let Verdict::Alive(sign) = verdict else { panic!("{verdict:?}") };
    assert_eq!(sign.holder, None);
}

/// Lost requests, lost answers, late and repeated ones: the next sign appears nevertheless, and
/// closing leaves nothing but what is carried out after it.
#[test]
fn failed_signs_are_followed_by_others() {
    for mishap in [
        Mishap::LostRequest,
        Mishap::LostAnswer,
        Mishap::Late,
        Mishap::Twice,
        Mishap::Repeated,
        Mishap::Full,
    ] {
        for call in [Call::Make, Call::Delete] {
            let far = FarBlobs::new();
            let presence = announce(&far, 7, "one.example");
            far.order(call, "alive/", mishap);
            let failed = presence.beat().is_err();
            assert!(far.take_back() == 0, "{call:?} {mishap:?}");
            far.deliver();
            let (verdict, _) = watch_while(&far, |_| presence.beat().unwrap());
            assert!(matches!(verdict, Verdict::Alive(_)), "{call:?} {mishap:?} {failed}");
            assert_eq!(far.objects().len(), 1, "{call:?} {mishap:?}");
            presence.withdraw().unwrap();
            assert!(far.objects().is_empty(), "{call:?} {mishap:?}");
        }
    }
}

/// Objects of a store that takes its time: each request takes as long as ordered, by a clock that
/// others read.
struct Slow {
    far: Arc<FarBlobs>,
    clock: Arc<SimClock>,
    takes: Mutex<Duration>,
    requests: Mutex<Vec<&'static str>>,
}

impl Slow {
    fn new() -> Arc<Slow> {
        let (far, clock) = (FarBlobs::new(), Arc::new(SimClock::new()));
        let (takes, requests) = (Mutex::new(Duration::ZERO), Mutex::default());
        Arc::new(Slow { far, clock, takes, requests })
    }

    fn take(&self, what: &'static str) -> &FarBlobs {
        self.requests.lock().push(what);
        let takes = *self.takes.lock();
        self.clock.advance(takes);
        &self.far
    }
}

impl Blobs for Slow {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.take("create").create(name, bytes)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        self.far.adopt(name, device, path)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.far.read_at(name, buffer, offset)
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        self.take("length").length(name)
    }

    /// The answer is of when the request arrives.
    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let names = self.far.list(prefix);
        self.take("list");
        names
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.far.delete(name)
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        self.take("delete").delete_all(names)
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool> {
        self.far.punch(name, offset, length)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        self.far.disk_bytes(name)
    }
}

/// An owner knows by its own clock when others see no sign of it, also while a request has no
/// answer.
#[test]
fn an_owner_knows_that_its_sign_is_overdue() {
    let slow = Slow::new();
    let (blobs, clock): (Arc<dyn Blobs>, _) = (slow.clone(), slow.clock.clone());
    let presence =
        Presence::announce(blobs, VOLUME, [7; 16], holder("one.example"), PERIOD, clock).unwrap();
    slow.clock.advance(PERIOD);
    assert_eq!(presence.overdue(), None);
    slow.far.take_nothing(Some(std::io::ErrorKind::TimedOut));
    fails(presence.beat(), "timed out");
    slow.clock.advance(PERIOD);
    assert_eq!(presence.overdue(), Some(PERIOD * 2));
    slow.far.take_nothing(None);
    // It counts from when the request was sent: the sign may have appeared right then.
    *slow.takes.lock() = PERIOD * 2;
    presence.beat().unwrap();
    assert_eq!(presence.overdue(), Some(PERIOD * 2));
    *slow.takes.lock() = Duration::ZERO;
    presence.beat().unwrap();
    assert_eq!(presence.overdue(), None);
}

/// While the store is slow, an owner only gives signs: what could be done later would delay them.
#[test]
fn a_slow_store_delays_no_sign() {
    let slow = Slow::new();
    let (blobs, clock): (Arc<dyn Blobs>, _) = (slow.clone(), slow.clock.clone());
    let presence =
        Presence::announce(blobs, VOLUME, [7; 16], holder("one.example"), PERIOD, clock).unwrap();
    slow.requests.lock().clear();
    *slow.takes.lock() = PERIOD;
    for _ in 0..3 {
        assert!(!presence.was_cleared().unwrap());
        presence.beat().unwrap();
    }
    // The first look finds out that the store is slow.
    assert_eq!(*slow.requests.lock(), ["length", "create", "create", "create"]);
    assert_eq!(slow.far.objects().len(), 4);
    *slow.takes.lock() = Duration::ZERO;
    presence.beat().unwrap();
    assert_eq!(slow.far.objects().len(), 1, "what was left is deleted");
    assert!(!presence.was_cleared().unwrap());
}

/// An observer of a slow store looks once more after its time: its last answer may be of long
/// before.
#[test]
fn a_slow_store_makes_nobody_look_dead() {
    let slow = Slow::new();
    let presence = announce(&slow.far, 7, "one.example");
    // Every request takes longer than an observer watches, and the process gives signs meanwhile.
    *slow.takes.lock() = PERIOD * 4;
    let beating = Meanwhile { clock: SimClock::new(), run: |_| presence.beat().unwrap() };
    let clock = Both { own: beating, shared: slow.clock.clone() };
    let verdict = Presence::watch(&*slow, VOLUME, &clock).unwrap();
    let Verdict::Alive(sign) = verdict else { panic!("{verdict:?}") };
    assert_eq!(sign.holder.unwrap().host, "one.example");
}

/// The time of a store's clock, and what happens elsewhere at each sleep.
struct Both<F: Fn(Duration) + Send + Sync> {
    own: Meanwhile<F>,
    shared: Arc<SimClock>,
}

impl<F: Fn(Duration) + Send + Sync> Clock for Both<F> {
    fn now(&self) -> Timestamp {
        self.shared.now()
    }

    fn monotonic(&self) -> Duration {
        self.shared.monotonic()
    }

    fn sleep(&self, duration: Duration) {
        self.shared.sleep(duration);
        self.own.sleep(duration);
    }
}
