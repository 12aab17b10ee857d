//! Objects that are far away where there is no room: a store opens all the same, though no manifest
//! can be made that is greater than any that may come late, and deletes nothing until there is one.

use std::sync::Arc;

use device::Blobs;
use lsm::{BlobStore, LsmStore, Options};
use store::Store;
use testing::{Call, CrashPolicy, FarBlobs, Mishap, SimEnv, entries, sim_env};

use crate::util::{TREE, commit};

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

/// Opens what a power cut leaves now, on these objects.
fn cut(sim: &SimEnv, far: &Arc<FarBlobs>) -> (SimEnv, Arc<LsmStore>) {
    let sim = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1);
    let store = LsmStore::open(&sim.env(), &options(far)).expect("open");
    (sim, store)
}

/// The manifest that the process before asked for last comes before or after the next commits, or
/// never; its run is there.
#[test]
fn a_store_opens_where_there_is_no_room_for_a_manifest() {
    let mishaps = [Mishap::LostRequest, Mishap::LostAnswer, Mishap::Late];
    for (mishap, early) in mishaps.into_iter().flat_map(|mishap| [(mishap, false), (mishap, true)])
    {
        let far = FarBlobs::new();
        let sim = sim_env(1);
        let store = LsmStore::create(&sim.env(), &options(&far)).expect("create");
        commit(&store, |batch| batch.create_tree(TREE));
        put(&store, 0);
        assert!(store.checkpoint().expect("checkpoint"));
        put(&store, 1000);
        far.order(Call::Make, "manifest-", mishap);
        store.checkpoint().expect_err("no answer");
        drop(store);
        let before = far.objects();
        far.order(Call::Make, "manifest-", Mishap::Full);
        let (sim, store) = cut(&sim, &far);
        assert_eq!(far.take_back(), 0, "no manifest was tried");
        assert!(far.objects() == before, "{mishap:?}: something was made or deleted");
        assert_eq!(entries(&*store, TREE).len(), 200, "{mishap:?}");
        if early {
            far.deliver();
        }
        put(&store, 2000);
        far.deliver();
        // What came late is not the newest for what was committed since.
        assert_eq!(entries(&*cut(&sim, &far.copy()).1, TREE).len(), 300, "{mishap:?}");
        assert!(store.checkpoint().expect("there is room again"));
        assert_eq!(entries(&*cut(&sim, &far.copy()).1, TREE).len(), 300, "{mishap:?}");
        store.close().expect("close");
        drop(store);
        let (_, store) = cut(&sim, &far);
        assert_eq!(entries(&*store, TREE).len(), 300, "{mishap:?}");
        // What nothing needs has gone with the opening that found room.
        assert_eq!(far.list("manifest-").expect("in memory").len(), 1, "{mishap:?}");
    }
}
