//! The suite with everything in an object store: runs, manifests and the log. A test's disk also
//! holds the objects (`SimObjects`). So power cuts happen at each request, and failing calls are
//! requests that fail or whose answer is lost.

use std::sync::Arc;
use std::time::Duration;

use device::Blobs;
use lsm::{BlobStore, LsmStore, Options};
use store::{Durability, LogObjects, LogPlace, ObjectLogSettings, Result, Store};
use testing::store_conformance::{Begin, EngineUnderTest};
use testing::{FlatBlobs, SimEnv, SimObjects};

use crate::conformance::options;

/// Where the disk holds the objects.
const OBJECTS: &str = "far";

/// A store with values in value logs from this many bytes on.
struct Fenced<const VALUES_FROM: u64>;

impl<const VALUES_FROM: u64> Fenced<VALUES_FROM> {
    fn options(sim: &SimEnv, durability: Durability) -> Options {
        let blobs: Arc<dyn Blobs> = Arc::new(FlatBlobs(SimObjects::below(&sim.device, OBJECTS)));
        in_objects(Options { values_from: VALUES_FROM, ..options(durability) }, &blobs)
    }
}

/// Options with everything in an object store.
pub(crate) fn in_objects(mut options: Options, blobs: &Arc<dyn Blobs>) -> Options {
    let settings = ObjectLogSettings {
        patience: Duration::from_secs(2),
        pause: Duration::from_millis(10),
        ..ObjectLogSettings::default()
    };
    options.blobs = Some(BlobStore(Arc::clone(blobs)));
    options.common.log_place = LogPlace::Objects(LogObjects { blobs: Arc::clone(blobs), settings });
    options
}

impl<const VALUES_FROM: u64> EngineUnderTest for Fenced<VALUES_FROM> {
    const NAME: &'static str = "lsm in an object store";

    /// An opening writes two manifests, and each is read back.
    const SPARED: u64 = 10;
    const SPARED_SHORT: u64 = 5;

    fn begin(
        sim: &SimEnv,
        durability: Durability,
        how: Begin,
        _log_segment_bytes: Option<u64>,
    ) -> Result<Arc<dyn Store>> {
        match how {
            Begin::Create => Ok(LsmStore::create(&sim.env(), &Self::options(sim, durability))?),
            Begin::Open => Ok(LsmStore::open(&sim.env(), &Self::options(sim, durability))?),
        }
    }
}

/// The tests of a kept store, but that a failed sync latches: here the records stay and are sent
/// again (`store/tests/it/objects.rs`).
mod rows {
    testing::store_conformance_volatile!(super::Fenced<0>);
    testing::store_conformance_resent!(super::Fenced<0>);
}

mod column {
    testing::store_conformance_tests!(super::Fenced<24>:
        random_operations_survive_reopening,
        power_may_be_cut_at_every_operation,
        power_may_be_cut_while_a_store_recovers,
        power_may_be_cut_while_runs_are_ingested,
        a_failed_operation_loses_nothing,
    );
}
