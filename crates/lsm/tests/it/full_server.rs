//! A server that accepts nothing, because it is full or the keys are read-only. Its objects can be
//! read, new data goes to the log while there is space for it, and everything resumes when it
//! accepts objects again. Nothing is deleted there meanwhile, and requests of a dead process may be
//! carried out at any time.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::Arc;

use device::Blobs;
use lsm::{BlobStore, LsmStore, Options, inspect};
use store::{Batch, Commit, Durable, Error, Maintain};
use testing::{Call, CrashPolicy, FarBlobs, Mishap, SimEnv, entries, fails, sim_env};

use crate::util::{TREE, commit, settle};

fn options(far: &Arc<FarBlobs>) -> Options {
    Options { blobs: Some(BlobStore(Arc::<FarBlobs>::clone(far))), ..crate::util::options() }
}

fn put(store: &LsmStore, from: u32) {
    commit(store, |batch| {
        for n in from..from + 100 {
            batch.put(TREE, &n.to_be_bytes(), &[7; 50]);
        }
    });
    store.sync(store.last_commit()).expect("sync");
}

/// A store with a hundred entries, as its process left it when it ended.
fn left_behind(far: &Arc<FarBlobs>) -> SimEnv {
    let sim = sim_env(1);
    let store = LsmStore::create(&sim.env(), &options(far)).expect("create");
    commit(&store, |batch| batch.create_tree(TREE));
    put(&store, 0);
    assert!(store.checkpoint().expect("checkpoint"));
    after_a_cut(&sim)
}

fn after_a_cut(sim: &SimEnv) -> SimEnv {
    SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1)
}

fn opened(sim: &SimEnv, far: &Arc<FarBlobs>) -> Arc<LsmStore> {
    LsmStore::open(&sim.env(), &options(far)).expect("it opens, whatever the server takes")
}

/// What an opening finds after a power cut now: a whole store with this many entries.
fn found(sim: &SimEnv, far: &Arc<FarBlobs>) -> usize {
    let (sim, far) = (after_a_cut(sim), far.copy());
    let mut proceed = |_, _| ControlFlow::Continue(());
    let report = inspect(&sim.env(), &options(&far), &mut proceed).expect("the files are there");
    assert!(report.is_clean(), "{:#?}", report.findings);
    entries(&*opened(&sim, &far), TREE).len()
}

fn names(far: &FarBlobs, prefix: &str) -> Vec<String> {
    far.list(prefix).expect("they are in memory")
}

#[test]
fn a_server_that_accepts_no_writes_is_read_and_the_log_continues() {
    for why in [ErrorKind::StorageFull, ErrorKind::PermissionDenied] {
        let far = FarBlobs::new();
        let sim = left_behind(&far);
        let store = opened(&sim, &far);
        put(&store, 1000);
        // What is left of this nothing names.
        far.order(Call::Make, "manifest-", Mishap::LostRequest);
        fails(store.checkpoint(), "no answer");
        drop(store);
        let (sim, before) = (after_a_cut(&sim), far.objects());
        far.take_nothing(Some(why));
        let mut there = 200;
        for round in 0..4_u32 {
            let store = opened(&sim, &far);
            assert_eq!(entries(&*store, TREE).len(), there, "{why:?}, {round}");
            put(&store, 2000 + round * 1000);
            there += 100;
            let refused = store.checkpoint().expect_err("it takes nothing");
            assert_eq!(refused.is_no_space(), why == ErrorKind::StorageFull, "{refused}");
            while store.reclaim_step(100).is_ok_and(|more| more) {}
            assert_eq!(found(&sim, &far), there, "{why:?}, {round}");
            if round % 2 == 0 {
                store.close().expect("with a log");
            }
            assert!(far.objects() == before, "{why:?}, {round}: nothing is deleted");
        }
        let store = opened(&sim, &far);
        far.take_nothing(None);
        put(&store, 9000);
        assert!(store.checkpoint().expect("it takes objects again"));
        settle(&store);
        assert_eq!(names(&far, "manifest-").len(), 1, "{why:?}");
        assert_eq!(names(&far, "run-").len(), 2, "what was left is gone: {why:?}");
        assert_eq!(found(&sim, &far), there + 100, "{why:?}");
        store.close().expect("close");
        drop(store);
        assert_eq!(entries(&*opened(&sim, &far), TREE).len(), there + 100, "{why:?}");
    }
}

/// What is only in the log and in memory is bounded: at the bound commits are refused, and earlier
/// commits stay.
#[test]
fn commits_without_space_are_refused_until_there_is_some() {
    let far = FarBlobs::new();
    let sim = left_behind(&far);
    far.take_nothing(Some(ErrorKind::StorageFull));
    let store = opened(&sim, &far);
    let add = |n: u32| {
        let mut batch = Batch::new();
        batch.put(TREE, &n.to_be_bytes(), &testing::noise(n.into(), 5000));
        store.commit(&batch)
    };
    let refused = (1000..100_000).find_map(|n| Some((n, add(n).err()?)));
    let (n, refused) = refused.expect("memory has a bound");
    assert!(refused.is_no_space(), "{refused}");
    assert!(add(n).is_err_and(|error| error.is_no_space()));
    store.sync(store.last_commit()).expect("sync");
    let there = (n - 1000 + 100) as usize;
    assert_eq!(entries(&*store, TREE).len(), there);
    assert_eq!(found(&sim, &far), there);
    // Also if the next opening finds the server full.
    store.close().expect("with a log");
    drop(store);
    let store = opened(&sim, &far);
    assert_eq!(entries(&*store, TREE).len(), there);
    far.take_nothing(None);
    put(&store, 200_000);
    assert!(store.checkpoint().expect("there is space"));
    settle(&store);
    assert_eq!(found(&sim, &far), there + 100);
}

/// A process on a full server requests manifests and blobs and dies; the next one finds it full as
/// well. The requests of the first are carried out at any time: the state never mixes what the two
/// of them wrote.
fn late(prefix: &str, deliver_at: usize, between: impl Fn(&SimEnv)) {
    let place = format!("{prefix} carried out at {deliver_at}");
    let far = FarBlobs::new();
    let sim = left_behind(&far);
    let deliver = |at: usize| {
        if at == deliver_at {
            far.deliver();
        }
    };
    let full = |is: bool| far.take_nothing(is.then_some(ErrorKind::StorageFull));
    full(true);
    let first = opened(&sim, &far);
    put(&first, 1000);
    full(false);
    for _ in 0..4 {
        far.order(Call::Make, prefix, Mishap::Late);
        fails(first.checkpoint(), "no answer");
    }
    drop(first);
    let sim = after_a_cut(&sim);
    between(&sim);
    deliver(0);
    full(true);
    let second = opened(&sim, &far);
    deliver(1);
    assert_eq!(entries(&*second, TREE).len(), 200, "{place}");
    put(&second, 2000);
    fails(second.checkpoint(), "no storage space");
    deliver(2);
    assert_eq!(found(&sim, &far), 300, "{place}");
    full(false);
    assert!(second.checkpoint().expect("numbers are its own"), "{place}");
    deliver(3);
    settle(&second);
    assert_eq!(found(&sim, &far), 300, "{place}");
    deliver(4);
    assert_eq!(found(&sim, &far), 300, "{place}");
    put(&second, 3000);
    assert!(second.checkpoint().expect("numbers are its own"), "{place}");
    settle(&second);
    assert_eq!(found(&sim, &far), 400, "{place}");
    drop(second);
    let third = opened(&after_a_cut(&sim), &far);
    settle(&third);
    assert_eq!(entries(&*third, TREE).len(), 400, "{place}");
    assert_eq!(names(&far, "manifest-").len(), 1, "{place}");
    assert_eq!(names(&far, "copy-").len(), 1, "{place}");
}

#[test]
fn a_late_request_to_a_full_server_may_arrive_during_the_next_process() {
    for prefix in ["manifest-", "copy-", "run-"] {
        for at in 0..5 {
            late(prefix, at, |_| {});
            // One place of the note is torn, or rots.
            for place in [0, 4096] {
                late(prefix, at, |sim| sim.device.overwrite("lsm/numbers", place, &[0; 40]));
            }
        }
    }
}

/// Two processes have opened one place, each with a copy of the volume's directory, and neither has
/// a manifest of its own. The first to make one continues.
#[test]
fn of_two_daemons_on_one_full_server_one_continues() {
    for second_is_first in [false, true] {
        let far = FarBlobs::new();
        let sim = left_behind(&far);
        far.take_nothing(Some(ErrorKind::StorageFull));
        let first = opened(&sim, &far);
        // With the note of the first.
        let copy = after_a_cut(&sim);
        let second = opened(&copy, &far);
        put(&first, 1000);
        put(&second, 2000);
        far.take_nothing(None);
        let (continues, ends) = if second_is_first { (&second, &first) } else { (&first, &second) };
        assert!(continues.checkpoint().expect("it came first"));
        let refused = ends.checkpoint();
        assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
        put(continues, 3000);
        assert!(continues.checkpoint().expect("it continues"));
        settle(continues);
        assert_eq!(found(if second_is_first { &copy } else { &sim }, &far), 300);
    }
}

/// A store whose process requested a manifest and died before an answer. Then its log rotted, in
/// the fourth of five records: of 400 entries 200 are before that.
fn rotten_behind(far: &Arc<FarBlobs>) -> SimEnv {
    let sim = left_behind(far);
    let first = opened(&sim, far);
    for from in [1000, 2000, 3000] {
        put(&first, from);
    }
    far.order(Call::Make, "manifest-", Mishap::Late);
    fails(first.checkpoint(), "no answer");
    drop(first);
    let sim = after_a_cut(&sim);
    let files = sim.device.files().into_iter().map(|(path, _)| path);
    let log: Vec<String> = files.filter(|path| path.starts_with("log/")).collect();
    let segment = log.iter().find(|path| !path.contains("spare")).expect("there is one");
    let bytes = sim.device.read_file(segment);
    let wanted: Vec<u8> = 2050_u32.to_be_bytes().into_iter().collect();
    let at = bytes.windows(4).position(|window| window == wanted).expect("it is in the log");
    sim.device.flip_bit(segment, at as u64 * 8);
    fails(LsmStore::open(&sim.env(), &options(far)), "record 4, for records up to 4 were durable");
    sim
}

#[test]
fn a_log_is_not_truncated_if_the_server_refuses_a_newer_state() {
    let far = FarBlobs::new();
    let sim = rotten_behind(&far);
    for why in [ErrorKind::StorageFull, ErrorKind::PermissionDenied] {
        far.take_nothing(Some(why));
        let refused = LsmStore::cut_log(&sim.env(), &options(&far)).expect_err("it takes nothing");
        assert!(refused.to_string().contains("the log is not truncated"), "{refused}");
        fails(
            LsmStore::open(&sim.env(), &options(&far)),
            "record 4, for records up to 4 were durable",
        );
    }
    far.take_nothing(None);
    LsmStore::cut_log(&sim.env(), &options(&far)).expect("it takes objects");
    assert_eq!(found(&sim, &far), 200);
}

/// The manifest that arrives after the log was truncated is older than the remaining state. That
/// holds whatever was committed since under the numbers of the lost records.
#[test]
fn a_log_is_truncated_only_after_a_state_newer_than_late_requests() {
    let far = FarBlobs::new();
    let sim = rotten_behind(&far);
    LsmStore::cut_log(&sim.env(), &options(&far)).expect("it takes objects");
    far.take_nothing(Some(ErrorKind::StorageFull));
    let second = opened(&sim, &far);
    assert_eq!(entries(&*second, TREE).len(), 200);
    for from in [5000, 6000, 7000] {
        put(&second, from);
    }
    let there = entries(&*second, TREE);
    drop(second);
    let sim = after_a_cut(&sim);
    far.deliver();
    far.take_nothing(None);
    let third = opened(&sim, &far);
    assert!(entries(&*third, TREE) == there);
    settle(&third);
    assert_eq!(found(&sim, &far), 500);
}

/// Each process leaves a server with space for one manifest and not for two as it found it, however
/// often one opens it and tries. A withdrawn request may still be carried out.
#[test]
fn manifests_that_have_no_copy_do_not_fill_a_server() {
    let far = FarBlobs::new();
    let sim = left_behind(&far);
    let before = far.objects();
    for _ in 0..5 {
        far.order(Call::Make, "manifest-", Mishap::Twice);
        far.order(Call::Make, "copy-", Mishap::Full);
        drop(opened(&sim, &far));
        assert!(far.objects() == before, "{:?}", far.list(""));
        assert_eq!(found(&sim, &far), 100);
    }
    far.deliver();
    assert_eq!(names(&far, "manifest-").len(), 6);
    assert_eq!(found(&sim, &far), 100);
    let store = opened(&sim, &far);
    for round in 0..5_u32 {
        put(&store, 1000 + 1000 * round);
        far.order(Call::Make, "manifest-", Mishap::Twice);
        far.order(Call::Make, "copy-", Mishap::Full);
        if round == 2 {
            // It is retried before the next attempt.
            far.order(Call::Delete, "manifest-", Mishap::LostRequest);
        }
        fails(store.checkpoint(), "no space");
        assert_eq!(names(&far, "manifest-").len(), if round == 2 { 2 } else { 1 });
        let there = 200 + 100 * round as usize;
        assert_eq!(found(&sim, &far), there);
        if round == 3 {
            far.deliver();
            assert_eq!(found(&sim, &far), there, "what they name is there");
        }
        assert_eq!(found(&sim, &far), there);
    }
    assert!(store.checkpoint().expect("there is space"));
    settle(&store);
    assert_eq!(names(&far, "manifest-").len(), 1);
    assert_eq!(found(&sim, &far), 600);
}
