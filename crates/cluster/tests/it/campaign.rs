//! A campaign whose coordinator fails once, or has a record that cannot be read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::{
    Advertised, Campaign, Coordinator, Error, Item, Lease, Put, Result, Standing, holder_key,
};
use device::sync::Mutex;

/// One lease and its names. The next calls fail as `failing` has it.
#[derive(Default)]
struct Names {
    items: Mutex<BTreeMap<String, Item>>,
    failing: Mutex<Option<Failing>>,
}

/// What fails once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failing {
    Get,
    Remove,
    /// The name is made, and the answer lost.
    Put,
}

impl Names {
    fn fails(&self, call: Failing) -> bool {
        self.failing.lock().take_if(|failing| *failing == call).is_some()
    }

    fn check(&self, call: Failing) -> Result<()> {
        if self.fails(call) { Err(Error::Unreachable("no answer".to_owned())) } else { Ok(()) }
    }
}

impl Coordinator for Names {
    fn grant(&self, _: Duration) -> Result<Lease> {
        Ok(Lease(1))
    }

    fn keep_alive(&self, _: Lease) -> Result<()> {
        Ok(())
    }

    fn revoke(&self, _: Lease) -> Result<()> {
        Ok(())
    }

    fn put_if_absent(&self, key: &str, value: &[u8], lease: Option<Lease>) -> Result<Put> {
        if let Some(item) = self.items.lock().get(key) {
            return Ok(Put::Exists(item.clone()));
        }
        let item = Item { key: key.to_owned(), value: value.to_vec(), revision: 1, lease };
        self.items.lock().insert(key.to_owned(), item);
        self.check(Failing::Put).map(|()| Put::Made(1))
    }

    fn get(&self, key: &str) -> Result<Option<Item>> {
        self.check(Failing::Get)?;
        Ok(self.items.lock().get(key).cloned())
    }

    fn list(&self, _: &str) -> Result<Vec<Item>> {
        Ok(self.items.lock().values().cloned().collect())
    }

    fn remove(&self, key: &str, _: u64) -> Result<bool> {
        self.check(Failing::Remove)?;
        Ok(self.items.lock().remove(key).is_some())
    }
}

const VOLUME: [u8; 16] = [7; 16];

fn campaign(names: &Arc<Names>, name: &str) -> Campaign {
    let own = Advertised { instance: name.to_owned(), address: format!("{name}:1") };
    Campaign::new(Arc::<Names>::clone(names), name, own, Duration::from_secs(10))
}

#[test]
fn a_volume_that_could_not_be_given_back_is_given_back_by_the_next_step() {
    for failing in [Failing::Get, Failing::Remove] {
        let names = Arc::new(Names::default());
        let (one, other) = (campaign(&names, "one"), campaign(&names, "other"));
        one.enter(VOLUME);
        one.step().expect("it answers");
        assert_eq!(one.standing(&VOLUME), Standing::Ours);
        *names.failing.lock() = Some(failing);
        assert!(matches!(one.leave(&VOLUME), Err(Error::Unreachable(_))));
        one.step().expect("it answers");
        other.enter(VOLUME);
        other.step().expect("it answers");
        assert_eq!(other.standing(&VOLUME), Standing::Ours);
    }
}

#[test]
fn a_name_whose_answer_was_lost_is_given_back() {
    for leave_fails in [false, true] {
        let names = Arc::new(Names::default());
        let (one, other) = (campaign(&names, "one"), campaign(&names, "other"));
        one.step().expect("it begins its lease");
        one.enter(VOLUME);
        *names.failing.lock() = Some(Failing::Put);
        assert!(matches!(one.step(), Err(Error::Unreachable(_))));
        *names.failing.lock() = leave_fails.then_some(Failing::Get);
        let left = one.leave(&VOLUME);
        assert_eq!(left.is_err(), leave_fails);
        one.step().expect("it answers");
        other.enter(VOLUME);
        other.step().expect("it answers");
        assert_eq!(other.standing(&VOLUME), Standing::Ours);
    }
}

#[test]
fn a_volume_that_is_wanted_again_is_kept() {
    let names = Arc::new(Names::default());
    let one = campaign(&names, "one");
    one.enter(VOLUME);
    one.step().expect("it answers");
    *names.failing.lock() = Some(Failing::Get);
    assert!(matches!(one.leave(&VOLUME), Err(Error::Unreachable(_))));
    one.enter(VOLUME);
    for _ in 0..2 {
        one.step().expect("it answers");
        assert_eq!(one.standing(&VOLUME), Standing::Ours);
        assert!(names.items.lock().contains_key(&holder_key(&VOLUME)));
    }
}

/// Regression: a record that cannot be read stopped the questions about all later volumes. What was
/// owed was kept for the length of the lease.
#[test]
fn a_record_that_cannot_be_read_stops_nothing_else_and_stays() {
    const BAD: [u8; 16] = [1; 16];
    const OWED_BAD: [u8; 16] = [2; 16];
    let names = Arc::new(Names::default());
    let one = campaign(&names, "one");
    let owed = [OWED_BAD, [3; 16], [4; 16]];
    for volume in &owed {
        one.enter(*volume);
    }
    one.step().expect("it answers");
    for volume in &owed {
        *names.failing.lock() = Some(Failing::Get);
        assert!(matches!(one.leave(volume), Err(Error::Unreachable(_))));
    }
    let damage = |volume| {
        let (key, value) = (holder_key(volume), b"{".to_vec());
        let item = Item { key: key.clone(), value, revision: 1, lease: None };
        names.items.lock().insert(key, item)
    };
    let intact = damage(&OWED_BAD).expect("it is owed");
    damage(&BAD);
    for volume in [BAD, VOLUME] {
        one.enter(volume);
    }
    for _ in 0..2 {
        let error = one.step().expect_err("two records cannot be read");
        assert!(matches!(&error, Error::Foreign(what) if what.contains(&holder_key(&BAD))));
        assert_eq!(
            (one.standing(&VOLUME), one.standing(&BAD)),
            (Standing::Ours, Standing::Unknown)
        );
        let mut left: Vec<_> = names.items.lock().keys().cloned().collect();
        left.retain(|key| key.contains("/volumes/"));
        assert_eq!(left, [BAD, OWED_BAD, VOLUME].map(|volume| holder_key(&volume)));
    }
    // What is owed is given back when its record can be read again.
    names.items.lock().insert(holder_key(&OWED_BAD), intact);
    names.items.lock().remove(&holder_key(&BAD));
    one.step().expect("all can be read");
    assert_eq!(one.standing(&BAD), Standing::Ours);
    assert!(!names.items.lock().contains_key(&holder_key(&OWED_BAD)));
}

/// Regression: a record that could not be read ended what was owed.
#[test]
fn a_volume_is_owed_until_its_record_can_be_read() {
    let names = Arc::new(Names::default());
    let one = campaign(&names, "one");
    one.enter(VOLUME);
    one.step().expect("it answers");
    let key = holder_key(&VOLUME);
    let set = |value: &[u8]| {
        let mut items = names.items.lock();
        let item = items.get_mut(&key).expect("it was made");
        std::mem::replace(&mut item.value, value.to_vec())
    };
    let value = set(b"{");
    let error = one.leave(&VOLUME).expect_err("it cannot be read");
    assert!(matches!(error, Error::Foreign(_)), "{error}");
    set(&value);
    one.step().expect("it answers");
    assert!(!names.items.lock().contains_key(&key));
}
