//! The index of a volume in an object store: numbers that name its objects, and what a replaced
//! host leaves alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::Clock;
use fs::{FileSystem, Fs, OpenError, OpenOptions};
use inode::Caller;
use testing::{FarBlobs, SimEnv, fails, sim_env};

use crate::objects::{ROOT, URL, env_of, formatted, make};

/// Opens the volume with its index.
fn indexed(sim: &SimEnv, far: &Arc<FarBlobs>) -> Result<Arc<Fs>, OpenError> {
    let env = env_of(sim, far);
    fs::make_host(&*env.device, &**far, URL)?;
    Fs::open(env, &OpenOptions::default())
}

fn names(far: &FarBlobs, folder: &str) -> Vec<String> {
    far.objects().into_keys().filter(|name| name.starts_with(folder)).collect()
}

/// Regression: another owner could assign the number of a base again, whose objects were there.
#[test]
fn a_base_is_durable_before_it_has_objects() {
    let far = formatted();
    let fs = indexed(&sim_env(9), &far).expect("a volume");
    for file in 0..20 {
        make(&fs, &format!("{file}"), b"");
    }
    fs.sync().expect("synced");
    let logs = names(&far, "lsm/log/");
    let is_durable = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_durable);
    far.watch(move |far, _| {
        if names(far, "index/").is_empty() && names(far, "lsm/log/") != logs {
            seen.store(true, Ordering::SeqCst);
        }
    });
    fs.index_flush(ROOT).expect("a base");
    far.unwatch();
    assert!(!names(&far, "index/").is_empty());
    assert!(is_durable.load(Ordering::SeqCst), "its number is in the log first");
}

/// Regression: a replaced host deleted the objects of its successor's index.
#[test]
fn a_replaced_host_deletes_no_index_of_its_successor() {
    let far = formatted();
    let sim = sim_env(9);
    let first = indexed(&sim, &far).expect("a volume");
    for file in 0..20 {
        make(&first, &format!("{file}"), b"");
    }
    first.index_flush(ROOT).expect("a base");
    first.sync().expect("synced");
    let second = indexed(&sim_env(10), &far).expect("a volume");
    for file in 20..40 {
        make(&second, &format!("{file}"), b"");
    }
    second.index_flush(ROOT).expect("a base");
    second.sync().expect("synced");
    let before = names(&far, "index/");
    for _ in 0..200 {
        sim.clock.advance(Duration::from_secs(60));
        first.background_step(1000).map(drop).unwrap_or_default();
    }
    assert_eq!(names(&far, "index/"), before);
    assert!(sim.clock.monotonic() > Duration::from_secs(3600));
    drop(first);
    assert!(second.lookup(&Caller::root(), ROOT, b"39").is_ok());
}

/// Regression: a base whose number could not be made durable was forgotten, and so was the request
/// for it.
#[test]
fn a_base_that_cannot_be_begun_is_begun_later() {
    let far = formatted();
    let sim = sim_env(9);
    let fs = indexed(&sim, &far).expect("a volume");
    for file in 0..20 {
        make(&fs, &format!("{file}"), b"");
    }
    while fs.background_step(1000).expect("background work").more {}
    fs.sync().expect("synced");
    let bases = || upkeep::search_bases::all(&fs).expect("the records of bases");
    assert_eq!(bases().len(), 0);
    fs.index_request(ROOT).expect("requested");
    far.take_nothing(Some(std::io::ErrorKind::TimedOut));
    // A caller that waits no longer, as the request of a user that is interrupted.
    let step = || fs.background_step(1000);
    let begun = device::interruptible(Arc::new(|| true), step);
    fails(begun, "interrupted");
    assert_eq!(bases().len(), 0, "what was begun is removed");
    far.take_nothing(None);
    for _ in 0..200 {
        sim.clock.advance(Duration::from_secs(1));
        fs.background_step(1000).expect("background work");
        assert!(bases().len() <= 1);
    }
    let bases = bases();
    assert!(bases.len() == 1 && bases[0].record.complete, "{}", bases.len());
    assert!(!names(&far, "index/").is_empty());
}
