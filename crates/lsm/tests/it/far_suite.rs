//! What the suite has on power cuts, with runs, manifests and value logs far away: a cut goes back
//! to what the device had, and the objects are those that were there at that moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Device, Env};
use lsm::{BlobStore, LsmStore, Options};
use parking_lot::Mutex;
use store::{Durability, Result, Store};
use testing::store_conformance::EngineUnderTest;
use testing::{CrashPolicy, FarBlobs, SimDevice};

use crate::conformance::options;

/// The file of the device that says which objects are its.
const OWN: &str = "far";

/// All objects of these tests, by what that file says.
static ALL: Mutex<BTreeMap<u64, Arc<FarBlobs>>> = Mutex::new(BTreeMap::new());

fn on(far: &Arc<FarBlobs>, durability: Durability, values_from: u64) -> Options {
    let blobs = Some(BlobStore(Arc::<FarBlobs>::clone(far)));
    Options { blobs, values_from, ..options(durability) }
}

/// Keeps objects, and says on the device which.
fn keep(device: &dyn Device, far: &Arc<FarBlobs>) -> device::Result<()> {
    let mut all = ALL.lock();
    let number = all.keys().next_back().map_or(0, |last| last + 1);
    all.insert(number, Arc::clone(far));
    drop(all);
    let file = match device.metadata(OWN)? {
        Some(_) => device.open(OWN)?,
        None => device.create(OWN)?,
    };
    file.write_at(&number.to_le_bytes(), 0)?;
    file.sync_data()?;
    device.sync_dir("")
}

fn kept(device: &dyn Device) -> device::Result<Arc<FarBlobs>> {
    let mut number = [0; 8];
    device.open(OWN)?.read_at(&mut number, 0)?;
    Ok(Arc::clone(&ALL.lock()[&u64::from_le_bytes(number)]))
}

fn create(env: &Env, durability: Durability, values_from: u64) -> Result<Arc<dyn Store>> {
    let far = FarBlobs::new();
    keep(&*env.device, &far)?;
    Ok(LsmStore::create(env, &on(&far, durability, values_from))?)
}

/// With a copy of the objects: what is opened after a cut is not what goes on being written.
fn open(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
    let far = kept(&*env.device)?.copy();
    keep(&*env.device, &far)?;
    // A store knows its layout.
    Ok(LsmStore::open(env, &on(&far, durability, 0))?)
}

/// A store with values in value logs from so many bytes on.
struct Far<const VALUES_FROM: u64>;

impl<const VALUES_FROM: u64> EngineUnderTest for Far<VALUES_FROM> {
    const NAME: &'static str = "lsm with objects far away";

    fn create(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        create(env, durability, VALUES_FROM)
    }

    fn open(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        open(env, durability)
    }

    /// Objects that are made after the device was cut would tell of a log that is not there.
    fn cut(device: &SimDevice, policy: CrashPolicy, seed: u64) -> SimDevice {
        let far = kept(device).expect("the store says which objects are its");
        let (far, cut) = far.copy_beside(|| device.after_crash(policy, seed));
        keep(&cut, &far).expect("nothing fails in what is left");
        cut
    }
}

mod rows {
    const VALUES_FROM: u64 = 0;

    testing::store_conformance_tests!(super::Far<VALUES_FROM>:
        a_closed_store_opens_again,
        random_operations_survive_reopening,
        nothing_leaks_over_crashes,
        acknowledged_commits_of_many_threads_survive,
        power_may_be_cut_at_every_operation,
        power_may_be_cut_at_every_operation_in_sync_mode,
        power_may_be_cut_while_runs_are_ingested,
    );
}

mod column {
    const VALUES_FROM: u64 = 24;

    testing::store_conformance_tests!(super::Far<VALUES_FROM>:
        a_closed_store_opens_again,
        random_operations_survive_reopening,
        nothing_leaks_over_crashes,
        acknowledged_commits_of_many_threads_survive,
        power_may_be_cut_at_every_operation,
        power_may_be_cut_at_every_operation_in_sync_mode,
        power_may_be_cut_while_runs_are_ingested,
        a_failed_read_is_an_error_and_no_more,
    );
}
