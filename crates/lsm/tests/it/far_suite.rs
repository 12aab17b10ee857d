//! The suite with runs, manifests and value logs in an object store. A test's disk also holds the
//! objects (`SimObjects`), in a directory that the engine does not know. So power cuts also happen
//! at requests, and failing calls are requests that fail or whose answer is lost. Damage and lack
//! of space also affect objects. Other outcomes of a request are tested in `far`.

use std::borrow::Cow;

use lsm::{BlobStore, LsmStore, Options};
use store::Durability;
use testing::store_conformance::EngineUnderTest;
use testing::{SimEnv, SimObjects};

use crate::conformance::options;

/// Where the disk holds the objects.
const OBJECTS: &str = "far";

/// A store with values in value logs from this many bytes on.
struct Far<const VALUES_FROM: u64>;

impl<const VALUES_FROM: u64> Far<VALUES_FROM> {
    fn options(sim: &SimEnv, durability: Durability) -> Options {
        let blobs = Some(BlobStore(SimObjects::below(&sim.device, OBJECTS)));
        Options { blobs, values_from: VALUES_FROM, ..options(durability) }
    }
}

impl<const VALUES_FROM: u64> EngineUnderTest for Far<VALUES_FROM> {
    const NAME: &'static str = "lsm with objects far away";
    const SPARED_SHORT: u64 = 6;

    /// Named after the directory that would hold it if it were local.
    fn named(path: &str) -> Cow<'_, str> {
        match path.strip_prefix(OBJECTS) {
            Some(name) => Cow::Owned(format!("lsm{name}")),
            None => Cow::Borrowed(path),
        }
    }

    testing::engine_begins!(LsmStore, Self::options);
}

mod rows {
    testing::store_conformance!(super::Far<0>);
    testing::store_conformance_tests!(super::Far<0>:
        the_reserve_for_removing_is_for_batches_that_declare_it,
    );
}

mod column {
    testing::store_conformance!(super::Far<24>);
}
