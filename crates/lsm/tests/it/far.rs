//! Runs and manifests behind an unreliable connection: lost answers, late requests, and another
//! process at the same place.

use std::ops::ControlFlow;
use std::sync::Arc;

use device::Blobs;
use lsm::{BlobStore, LsmStore, Options, inspect};
use store::{
    CheckReport, Commit, Durable, Error, Item, Maintain, SliceRun, Snapshot, SortedRun, TreeId,
};
use testing::{Call, CrashPolicy, FarBlobs, Mishap, SimEnv, entries, fails, numbered, sim_env};

use crate::util::{TREE, commit, settle};

const OTHER: TreeId = TreeId(33);

fn options(far: &Arc<FarBlobs>) -> Options {
    Options { blobs: Some(BlobStore(Arc::<FarBlobs>::clone(far))), ..crate::util::options() }
}

fn store_on(far: &Arc<FarBlobs>) -> (SimEnv, Arc<LsmStore>) {
    let sim = sim_env(1);
    let store = LsmStore::create(&sim.env(), &options(far)).expect("create");
    commit(&store, |batch| {
        batch.create_tree(TREE);
        batch.create_tree(OTHER);
    });
    (sim, store)
}

fn put(store: &LsmStore, tree: TreeId, from: u32) {
    commit(store, |batch| {
        for n in from..from + 100 {
            batch.put(tree, &n.to_be_bytes(), &[7; 50]);
        }
    });
}

fn inspected(sim: &SimEnv, far: &Arc<FarBlobs>) -> CheckReport {
    let mut proceed = |_, _| ControlFlow::Continue(());
    let report = inspect(&sim.env(), &options(far), &mut proceed).expect("the files are there");
    assert!(report.is_clean(), "{:#?}", report.findings);
    report
}

/// Checks and then opens what a power cut leaves now.
fn after_a_cut(sim: &SimEnv, far: &Arc<FarBlobs>) -> (SimEnv, Arc<LsmStore>) {
    let again = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1);
    let far = far.copy();
    inspected(&again, &far);
    let store = LsmStore::open(&again.env(), &options(&far)).expect("open");
    (again, store)
}

fn names(far: &FarBlobs, prefix: &str) -> Vec<String> {
    far.list(prefix).expect("they are in memory")
}

/// The name of the manifest that the store tries to make next.
fn next_manifest(far: &FarBlobs) -> String {
    let last = names(far, "manifest-").pop().expect("there is one");
    let number = u64::from_str_radix(&last["manifest-".len()..], 16).expect("a number");
    format!("manifest-{:016x}", number + 1)
}

/// Whatever the outcome of a manifest attempt, and whenever it arrives, it does not affect a later
/// manifest. The state is one of the two.
#[test]
fn no_outcome_of_a_manifest_affects_a_later_one() {
    let mishaps = [Mishap::LostRequest, Mishap::LostAnswer, Mishap::Late];
    let early = mishaps.into_iter().flat_map(|mishap| [(mishap, false), (mishap, true)]);
    let names_too = early.flat_map(|(m, early)| [(m, early, "manifest-"), (m, early, "copy-")]);
    for (mishap, early, name) in names_too {
        let far = FarBlobs::new();
        let (sim, store) = store_on(&far);
        put(&store, TREE, 0);
        assert!(store.checkpoint().expect("checkpoint"));
        put(&store, TREE, 1000);
        far.order(Call::Make, name, mishap);
        // A process that deletes what it may have made cannot be sure of the result, either.
        far.order(Call::Delete, &next_manifest(&far), Mishap::Twice);
        let failed = store.checkpoint().expect_err("no answer");
        assert!(matches!(failed, Error::Device(_)), "{failed}");
        store.sync(store.last_commit()).expect("sync");
        assert_eq!(entries(&*after_a_cut(&sim, &far).1, TREE).len(), 200, "{mishap:?}");
        if early {
            far.deliver();
            assert_eq!(entries(&*after_a_cut(&sim, &far).1, TREE).len(), 200, "{mishap:?}");
        }
        put(&store, TREE, 2000);
        assert!(store.checkpoint().expect("there is a way again"));
        far.deliver();
        settle(&store);
        assert_eq!(entries(&*after_a_cut(&sim, &far).1, TREE).len(), 300, "{mishap:?}");
        put(&store, TREE, 3000);
        store.close().expect("close");
        drop(store);
        far.take_back();
        let store = LsmStore::open(&sim.env(), &options(&far)).expect("open");
        assert_eq!(entries(&*store, TREE).len(), 400, "{mishap:?}");
        // What was left is gone, and nothing else.
        assert_eq!(names(&far, "manifest-").len(), 1, "{mishap:?}");
        assert_eq!(names(&far, "copy-").len(), 1, "{mishap:?}");
    }
}

/// A process ends, and its last request is carried out when the next one is running.
#[test]
fn the_last_request_of_a_process_may_arrive_during_the_next_process() {
    for prefix in ["manifest-", "copy-", "run-"] {
        let far = FarBlobs::new();
        let (sim, store) = store_on(&far);
        assert!(store.checkpoint().expect("checkpoint"));
        put(&store, TREE, 0);
        store.sync(store.last_commit()).expect("sync");
        far.order(Call::Make, prefix, Mishap::Late);
        fails(store.checkpoint(), "no answer");
        drop(store);
        let sim = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1);
        let store = LsmStore::open(&sim.env(), &options(&far)).expect("open");
        far.deliver();
        assert_eq!(entries(&*after_a_cut(&sim, &far).1, TREE).len(), 100, "{prefix}");
        put(&store, TREE, 1000);
        assert!(store.checkpoint().expect("numbers are not those of the other process"));
        assert_eq!(entries(&*after_a_cut(&sim, &far).1, TREE).len(), 200, "{prefix}");
    }
}

/// A request that is repeated on the way gets the answer of the second attempt.
#[test]
fn an_existing_object_with_the_same_bytes_counts_as_created() {
    for prefix in ["manifest-", "copy-", "run-"] {
        let far = FarBlobs::new();
        let (sim, store) = store_on(&far);
        put(&store, TREE, 0);
        far.order(Call::Make, prefix, Mishap::Repeated);
        assert!(store.checkpoint().expect("it is its own"), "{prefix}");
        far.order(Call::Make, "run-", Mishap::Repeated);
        let run = numbered(5000..9000, 50);
        store.ingest(OTHER, &mut SliceRun::new(&run)).expect("it is its own");
        assert_eq!(far.take_back(), 0);
        let building = |path: &String| path.contains("building");
        let files: Vec<String> = sim.device.files().into_iter().map(|(path, _)| path).collect();
        assert!(!files.iter().any(building), "{files:?}");
        store.close().expect("close");
        assert_eq!(entries(&*after_a_cut(&sim, &far).1, OTHER).len(), 4000);
    }
}

/// A foreign process makes what only this store could have made. The foreign file stays, and this
/// store is read-only: it neither aborts the process nor continues to merge.
#[test]
fn another_process_files_are_kept_and_end_commits() {
    for (prefix, mishap) in [
        ("manifest-", None),
        ("manifest-", Some(Mishap::LostRequest)),
        ("copy-", None),
        ("copy-", Some(Mishap::LostRequest)),
        ("run-", None),
        ("run-", Some(Mishap::LostRequest)),
    ] {
        let far = FarBlobs::new();
        let (sim, store) = store_on(&far);
        // Four runs, whose merge is begun.
        for round in 0..4 {
            commit(&store, |batch| {
                for n in 0..6000_u32 {
                    batch.put(TREE, &(n * 4 + round).to_be_bytes(), &testing::noise(n.into(), 60));
                }
            });
            assert!(store.checkpoint().expect("checkpoint"));
        }
        assert!(store.reclaim_step(1).expect("a step"));
        assert!(store.stats().merges.is_some_and(|merges| merges.under_way.is_some()));
        put(&store, OTHER, 0);
        let name = match prefix {
            "manifest-" => next_manifest(&far),
            "copy-" => next_manifest(&far).replace("manifest-", "copy-"),
            // The blob of the merge has the number after the last.
            _ => format!("run-{:016x}", 6),
        };
        far.put(&name, b"another's");
        if let Some(mishap) = mishap {
            far.order(Call::Make, &name, mishap);
        }
        let failed = store.checkpoint().expect_err("it is not its own");
        if (prefix, mishap) != ("run-", Some(Mishap::LostRequest)) {
            assert!(matches!(failed, Error::ReadOnly(_)), "{prefix} {mishap:?}: {failed}");
            let mut batch = store::Batch::new();
            batch.put(TREE, b"key", b"value");
            let refused = store.commit(&batch);
            assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
            // The log may be another process's, too: what was not written yet stays unwritten.
            let ops = sim.device.ops();
            let written = store.sync(store.last_commit());
            assert_eq!(written.is_err(), prefix == "run-", "{written:?}");
            let refused = store.flush_if_due();
            assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
            assert_eq!(sim.device.ops(), ops);
            for _ in 0..20 {
                let refused = store.reclaim_step(1);
                assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
            }
            let refused = store.close();
            assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
            assert_eq!(sim.device.ops(), ops);
        }
        assert_eq!(far.objects()[&name][..], b"another's"[..], "{prefix} {mishap:?}");
        assert_eq!(entries(&*store, TREE).len(), 24_000, "it answers reads");
    }
}

/// Two processes have opened one place, each with a copy of the volume's directory. Their numbers
/// are far from each other; the first still finds the other's.
#[test]
fn of_two_daemons_on_one_prefix_one_continues() {
    let far = FarBlobs::new();
    let (sim, first) = store_on(&far);
    put(&first, TREE, 0);
    assert!(first.checkpoint().expect("checkpoint"));
    let copy = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1);
    let second = LsmStore::open(&copy.env(), &options(&far)).expect("open");
    put(&first, TREE, 1000);
    put(&second, TREE, 2000);
    for _ in 0..2 {
        let refused = first.checkpoint();
        assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
    }
    assert!(second.checkpoint().expect("it came last"));
    settle(&second);
    assert_eq!(entries(&*second, TREE).len(), 200);
    second.close().expect("close");
    inspected(&copy, &far);
}

/// If a manifest cannot even be checked, none is made over it, until it can.
#[test]
fn an_uncheckable_manifest_is_checked_later() {
    let far = FarBlobs::new();
    let (sim, store) = store_on(&far);
    put(&store, TREE, 0);
    let name = next_manifest(&far);
    far.order(Call::Make, &name, Mishap::LostAnswer);
    for _ in 0..4 {
        far.order(Call::Read, &name, Mishap::LostRequest);
    }
    for _ in 0..4 {
        fails(store.checkpoint(), "no answer");
        assert_eq!(names(&far, "manifest-").len(), 2);
    }
    assert!(store.checkpoint().expect("there is a way again"));
    assert_eq!(names(&far, "manifest-").len(), 1);
    assert_eq!(entries(&*after_a_cut(&sim, &far).1, TREE).len(), 100);
}

/// If a server has no space, nobody knows what it accepts later: nothing is deleted before a
/// greater manifest has both copies.
#[test]
fn on_a_full_server_nothing_is_deleted_before_two_newer_manifests_exist() {
    for full_of in ["manifest-", "copy-"] {
        let far = FarBlobs::new();
        let (sim, store) = store_on(&far);
        put(&store, OTHER, 0);
        assert!(store.checkpoint().expect("checkpoint"));
        put(&store, TREE, 0);
        assert!(store.checkpoint().expect("checkpoint"));
        let before = names(&far, "");
        let stays = |far: &FarBlobs, place: &str| {
            let now = far.objects();
            let is_gone = |name: &&String| !now.contains_key(*name);
            let gone: Vec<&String> = before.iter().filter(is_gone).collect();
            assert!(gone.is_empty(), "{full_of}, {place}: {gone:?}");
        };
        let fill = |far: &FarBlobs| {
            for _ in 0..100 {
                far.order(Call::Make, full_of, Mishap::Full);
            }
        };
        // The blob of this one is deleted with the next state.
        commit(&store, |batch| batch.drop_tree(OTHER));
        put(&store, TREE, 1000);
        store.sync(store.last_commit()).expect("sync");
        fill(&far);
        for _ in 0..3 {
            let refused = store.checkpoint().expect_err("no space left");
            assert!(refused.is_no_space(), "{full_of}: {refused}");
            stays(&far, "a checkpoint");
            fails(store.reclaim_step(100), "no space");
            stays(&far, "reclaiming");
        }
        drop(store);
        far.take_back();
        let (device, objects) = (sim.device.after_crash(CrashPolicy::LoseAll, 1), far.copy());
        fill(&objects);
        let opened = LsmStore::open(&SimEnv::on(device.copy(), 1).env(), &options(&objects));
        let opened = opened.expect("it is opened for what there is");
        assert_eq!(entries(&*opened, TREE).len(), 200, "{full_of}");
        stays(&objects, "an opening");
        opened.close().expect("with a log");
        stays(&objects, "closing");
        drop(opened);
        objects.take_back();
        let store =
            LsmStore::open(&SimEnv::on(device, 1).env(), &options(&objects)).expect("space");
        assert_eq!(entries(&*store, TREE).len(), 200, "{full_of}");
        assert!(store.checkpoint().expect("checkpoint"));
        settle(&store);
        assert_eq!(names(&objects, "manifest-").len(), 1, "{full_of}");
        assert!(!before.iter().all(|name| objects.objects().contains_key(name)), "{full_of}");
    }
}

/// A manifest whose creation seemed to fail exists after a power cut: so does what it names.
#[test]
fn files_named_by_an_uncertain_manifest_are_kept() {
    for run_fails in [false, true] {
        let far = FarBlobs::new();
        let (sim, store) = store_on(&far);
        assert!(store.checkpoint().expect("checkpoint"));
        put(&store, OTHER, 0);
        let name = next_manifest(&far);
        far.order(Call::Make, &name, Mishap::LostAnswer);
        far.order(Call::Delete, &name, Mishap::LostRequest);
        fails(store.checkpoint(), "no answer");
        commit_if_possible(&store);
        // A refused run causes everything unneeded to be deleted.
        if run_fails {
            let run = numbered(0..4000, 50);
            let refused = store.ingest(TREE, &mut SliceRun::new(&run));
            assert!(matches!(refused, Err(Error::RangeNotEmpty { .. })), "{refused:?}");
        }
        store.sync(store.last_commit()).expect("sync");
        let (_, opened) = after_a_cut(&sim, &far);
        assert!(!opened.tree_exists(OTHER).expect("asked"));
        drop(opened);
        far.take_back();
        assert!(store.checkpoint().expect("there is a way again"));
        settle(&store);
        // And then it is deleted.
        assert_eq!(names(&far, "manifest-").len(), 1);
        assert_eq!(names(&far, "run-").len(), 1, "what is in the tree");
    }
}

fn commit_if_possible(store: &LsmStore) {
    commit(store, |batch| {
        batch.drop_tree(OTHER);
        batch.put(TREE, &9_u32.to_be_bytes(), b"conflicts");
    });
}

/// What cannot be freed costs space: the checkpoint was made, the rest is freed, and it is retried
/// after the next.
#[test]
fn failed_frees_are_retried() {
    let far = FarBlobs::new();
    let (_sim, store) = store_on(&far);
    for tree in 40..44 {
        commit(&store, |batch| batch.create_tree(TreeId(tree)));
        put(&store, TreeId(tree), 0);
        assert!(store.checkpoint().expect("checkpoint"));
    }
    // A blob of two runs, one of which is dropped.
    commit(&store, |batch| batch.create_tree(TreeId(50)));
    put(&store, TreeId(50), 0);
    put(&store, TREE, 0);
    assert!(store.checkpoint().expect("checkpoint"));
    assert_eq!(names(&far, "run-").len(), 5);
    let first = names(&far, "run-")[0].clone();
    far.order(Call::Delete, &first, Mishap::LostRequest);
    far.order(Call::Punch, "run-", Mishap::LostRequest);
    commit(&store, |batch| {
        for tree in [40, 41, 42, 43, 50] {
            batch.drop_tree(TreeId(tree));
        }
    });
    assert!(store.checkpoint().expect("it is made all the same"));
    settle(&store);
    assert_eq!(far.take_back(), 0);
    assert_eq!(names(&far, "run-").len(), 2, "all the others are gone");
    assert_eq!(far.punched(), []);
    put(&store, TREE, 1000);
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    assert!(!names(&far, "run-").contains(&first));
    assert_eq!(far.punched().len(), 1);
}

/// Objects have no holes: live runs are moved out of a mostly dead object, so that it can be
/// deleted.
#[test]
fn a_small_tree_does_not_keep_the_space_of_a_large_dropped_one() {
    let far = FarBlobs::new();
    let (sim, store) = store_on(&far);
    put(&store, OTHER, 0);
    for part in 0..4 {
        commit(&store, |batch| {
            for n in part * 300..part * 300 + 300_u64 {
                batch.put(TREE, &n.to_be_bytes(), &testing::noise(n, 400));
            }
        });
    }
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    let blob = names(&far, "run-");
    assert_eq!(blob.len(), 1, "both are in one");
    let pin = store.pin().expect("pin");
    commit(&store, |batch| batch.drop_tree(TREE));
    settle(&store);
    assert_eq!(names(&far, "run-"), blob, "a pinned state needs it");
    drop(pin);
    put(&store, OTHER, 1000);
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    assert!(!names(&far, "run-").contains(&blob[0]), "{:?}", names(&far, "run-"));
    assert_eq!(entries(&*store, OTHER).len(), 200);
    let bytes: usize = far.objects().values().map(|object| object.len()).sum();
    assert!(bytes < 64 << 10, "{bytes} bytes for 200 entries");
    let ended = store.stats().merges.expect("it merges").ended;
    assert!(ended < 5, "{ended} merges");
    store.close().expect("close");
    drop(store);
    inspected(&sim, &far);
    let store = LsmStore::open(&sim.env(), &options(&far)).expect("open");
    assert_eq!(entries(&*store, OTHER).len(), 200);
}

#[test]
fn a_directory_with_a_store_is_refused() {
    let far = FarBlobs::new();
    let (sim, store) = store_on(&far);
    put(&store, TREE, 0);
    store.close().expect("close");
    let before = far.objects();
    for left in ["manifest-", "copy-", "run-"] {
        let part = far.copy();
        for name in names(&part, "").iter().filter(|name| !name.starts_with(left)) {
            part.delete(name).expect("it is in memory");
        }
        let another = Options {
            common: store::EngineOptions { volume: [8; 16], ..options(&part).common },
            ..options(&part)
        };
        let refused = LsmStore::create(&sim_env(2).env(), &another);
        assert!(matches!(refused, Err(Error::Device(_))), "{:?}", refused.err());
        assert_eq!(names(&part, "").len(), 1);
    }
    assert!(far.objects() == before);
    drop(store);
    // An object that another volume left there by mistake stays.
    let mut foreign = before.iter().find(|(name, _)| name.starts_with("run-")).unwrap().1.to_vec();
    foreign[16] ^= 1;
    far.put("run-00000000000000aa", &foreign);
    far.put("run-00000000000000ab", b"short");
    far.put("manifest-0000000000000000", b"nothing");
    let store = LsmStore::open(&sim.env(), &options(&far)).expect("open");
    assert_eq!(entries(&*store, TREE).len(), 100);
    for name in ["run-00000000000000aa", "run-00000000000000ab", "manifest-0000000000000000"] {
        assert!(far.objects().contains_key(name), "{name}");
    }
}

/// No merge makes a blob longer than the limit, and merging ends.
#[test]
fn blobs_stay_within_their_maximum_length() {
    let most = 200 << 10;
    let far = FarBlobs::with_bytes_max(most);
    let (sim, store) = store_on(&far);
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..60 {
        commit(&store, |batch| {
            for _ in 0..200 {
                let value: Vec<u8> = (0..90).map(|_| random.u8(..)).collect();
                batch.put(TREE, &random.u32(..).to_be_bytes(), &value);
            }
        });
        assert!(store.checkpoint().expect("checkpoint"));
        settle(&store);
    }
    let objects = far.objects();
    let lengths: Vec<u64> = objects.values().map(|bytes| bytes.len() as u64).collect();
    assert!(lengths.iter().all(|length| *length <= most), "{lengths:?}");
    assert!(lengths.iter().sum::<u64>() > 5 * most, "{lengths:?}");
    assert!(lengths.len() < 30, "they are merged as far as may be: {lengths:?}");
    // What is hidden is freed all the same.
    commit(&store, |batch| batch.delete_range(TREE, &[0], &[0xff; 5]));
    for _ in 0..3 {
        assert!(store.checkpoint().expect("checkpoint"));
        settle(&store);
    }
    assert!(names(&far, "run-").len() <= 1, "{:?}", names(&far, ""));
    let long = numbered(0..4000, 90);
    let refused = store.ingest(TREE, &mut SliceRun::new(&long));
    assert!(matches!(refused, Err(Error::RunTooLong)), "{refused:?}");
    inspected(&sim, &far);
}

/// The iterator of a run closes the store while the run is read.
struct Closing<'s> {
    store: &'s LsmStore,
    given: u32,
    key: [u8; 4],
}

impl SortedRun for Closing<'_> {
    fn next_entry(&mut self) -> store::Result<Option<Item<'_>>> {
        self.given += 1;
        if self.given == 10_000 {
            self.store.close()?;
        }
        self.key = self.given.to_be_bytes();
        Ok((self.given < 1_000_000).then_some(Item { key: &self.key, value: &[1; 50] }))
    }
}

#[test]
fn reading_a_run_stops_when_the_store_closes() {
    let far = FarBlobs::new();
    let (sim, store) = store_on(&far);
    let mut run = Closing { store: &store, given: 0, key: [0; 4] };
    let refused = store.ingest(TREE, &mut run);
    assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
    assert!(run.given < 100_000, "{} entries", run.given);
    assert_eq!(names(&far, "run-").len(), 0);
    let files: Vec<String> = sim.device.files().into_iter().map(|(path, _)| path).collect();
    assert!(!files.iter().any(|path| path.contains("building")), "{files:?}");
}

/// More of a log is live than a merge may take at once, measured before rows are packed. It is
/// emptied all the same, and cleaning ends.
#[test]
fn a_log_that_packs_well_is_emptied() {
    let far = FarBlobs::with_bytes_max(200 << 10);
    let sim = sim_env(1);
    let options = Options { values_from: 48, compression: 1, ..options(&far) };
    let store = LsmStore::create(&sim.env(), &options).expect("create");
    commit(&store, |batch| batch.create_tree(TREE));
    for round in 0..4_u8 {
        commit(&store, |batch| {
            // Less than half of the first log stays live, and more than half of a blob's length.
            for n in if round == 0 { 0..240_u32 } else { 110..240 } {
                batch.put(TREE, &n.to_be_bytes(), &[round; 1000]);
            }
        });
        assert!(store.checkpoint().expect("checkpoint"));
    }
    let steps = (0..1000).take_while(|_| store.reclaim_step(100).expect("reclaim")).count();
    let merges = store.stats().merges.expect("it merges");
    assert!(steps < 1000, "cleaning never ends: {merges:?}");
    assert_eq!((merges.logs.sparse, merges.cleaned), (0, 1), "{merges:?}");
    assert_eq!(entries(&*store, TREE).len(), 240);
    store.close().expect("close");
    inspected(&sim, &far);
}

/// Whatever the outcome for a value log, or for the run beside it, the state is one of the two. In
/// the end no unneeded file exists.
#[test]
fn no_outcome_of_a_value_log_loses_data() {
    let mishaps = [Mishap::LostRequest, Mishap::LostAnswer, Mishap::Late, Mishap::Repeated];
    for (mishap, beside) in mishaps.into_iter().flat_map(|m| [(m, 1), (m, 2)]) {
        let far = FarBlobs::new();
        let sim = sim_env(1);
        let options = Options { values_from: 48, ..options(&far) };
        let store = LsmStore::create(&sim.env(), &options).expect("create");
        commit(&store, |batch| batch.create_tree(TREE));
        put(&store, TREE, 0);
        assert!(store.checkpoint().expect("checkpoint"));
        let last = names(&far, "run-").pop().expect("a run and a value log");
        let last = u64::from_str_radix(&last["run-".len()..], 16).expect("a number");
        put(&store, TREE, 1000);
        store.sync(store.last_commit()).expect("sync");
        far.order(Call::Make, &format!("run-{:016x}", last + beside), mishap);
        let made = store.checkpoint();
        assert_eq!(made.is_ok(), mishap == Mishap::Repeated, "{mishap:?} {beside}: {made:?}");
        assert_eq!(far.take_back(), 0, "{mishap:?} {beside}");
        assert_eq!(entries(&*after_a_cut(&sim, &far).1, TREE).len(), 200, "{mishap:?} {beside}");
        far.deliver();
        assert_eq!(entries(&*after_a_cut(&sim, &far).1, TREE).len(), 200, "{mishap:?} {beside}");
        put(&store, TREE, 2000);
        assert!(store.checkpoint().expect("there is a way again"));
        assert_eq!(entries(&*after_a_cut(&sim, &far).1, TREE).len(), 300, "{mishap:?} {beside}");
        store.close().expect("close");
        drop(store);
        let store = LsmStore::open(&sim.env(), &options).expect("open");
        let logs = store.stats().merges.expect("it merges").logs.logs;
        assert_eq!(entries(&*store, TREE).len(), 300);
        let report = inspected(&sim, &far);
        assert_eq!((report.lost_bytes, logs > 0), (0, true), "{mishap:?} {beside}: {report:?}");
    }
}

/// Values of ingested runs go to the value log of the merge that meets them. They leave less space
/// in it for rows of other logs.
#[test]
fn a_value_log_stays_within_its_maximum_length() {
    let most = 4 << 20;
    let far = FarBlobs::with_bytes_max(most);
    let sim = sim_env(1);
    let options = Options { values_from: 48, small_log_bytes: 4 << 20, ..options(&far) };
    let store = LsmStore::create(&sim.env(), &options).expect("create");
    commit(&store, |batch| batch.create_tree(TREE));
    for part in 0..8_u32 {
        commit(&store, |batch| {
            for n in part * 80..part * 80 + 80 {
                batch.put(TREE, &n.to_be_bytes(), &testing::noise(u64::from(n), 2000));
            }
        });
        if part % 4 == 3 {
            assert!(store.checkpoint().expect("checkpoint"));
        }
    }
    for part in 1..5_u32 {
        let run = numbered(part * 1000..part * 1000 + 440, 2000);
        store.ingest(TREE, &mut SliceRun::new(&run)).expect("free");
    }
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    let merges = store.stats().merges.expect("it merges");
    assert!(merges.ended > 0, "{merges:?}");
    let lengths: Vec<usize> = far.objects().values().map(|bytes| bytes.len()).collect();
    assert!(lengths.iter().all(|length| *length as u64 <= most), "{lengths:?}");
    assert_eq!(entries(&*store, TREE).len(), 640 + 4 * 440);
    inspected(&sim, &far);
}
