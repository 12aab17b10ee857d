//! The suite with runs, manifests and value logs far away. The disk of a
//! test has the objects, too (`SimObjects`), in a directory that the engine does not know: so power
//! is cut at requests as well, calls that fail are requests that fail or of which the answer is
//! lost, and damage and want of room are also those of objects. What else may become of a request
//! is in `far`.

use std::borrow::Cow;
use std::sync::Arc;

use lsm::{BlobStore, LsmStore, Options};
use store::{Durability, Result, Store};
use testing::store_conformance::EngineUnderTest;
use testing::{SimEnv, SimObjects};

use crate::conformance::options;

/// Where the disk has the objects.
const OBJECTS: &str = "far";

/// A store with values in value logs from so many bytes on.
struct Far<const VALUES_FROM: u64>;

impl<const VALUES_FROM: u64> Far<VALUES_FROM> {
    fn options(sim: &SimEnv, durability: Durability) -> Options {
        let blobs = Some(BlobStore(SimObjects::below(&sim.device, OBJECTS)));
        Options { blobs, values_from: VALUES_FROM, ..options(durability) }
    }

    fn with_segments(sim: &SimEnv, durability: Durability, log_segment_bytes: u64) -> Options {
        let mut options = Self::options(sim, durability);
        options.common.log_segment_bytes = log_segment_bytes;
        options
    }
}

impl<const VALUES_FROM: u64> EngineUnderTest for Far<VALUES_FROM> {
    const NAME: &'static str = "lsm with objects far away";

    /// By the directory that it would be in if it were not far away.
    fn named(path: &str) -> Cow<'_, str> {
        match path.strip_prefix(OBJECTS) {
            Some(name) => Cow::Owned(format!("lsm{name}")),
            None => Cow::Borrowed(path),
        }
    }

    fn create(sim: &SimEnv, durability: Durability) -> Result<Arc<dyn Store>> {
        Ok(LsmStore::create(&sim.env(), &Self::options(sim, durability))?)
    }

    fn open(sim: &SimEnv, durability: Durability) -> Result<Arc<dyn Store>> {
        Ok(LsmStore::open(&sim.env(), &Self::options(sim, durability))?)
    }

    fn create_with_segments(
        sim: &SimEnv,
        durability: Durability,
        log_segment_bytes: u64,
    ) -> Result<Arc<dyn Store>> {
        let options = Self::with_segments(sim, durability, log_segment_bytes);
        Ok(LsmStore::create(&sim.env(), &options)?)
    }

    fn open_with_segments(
        sim: &SimEnv,
        durability: Durability,
        log_segment_bytes: u64,
    ) -> Result<Arc<dyn Store>> {
        let options = Self::with_segments(sim, durability, log_segment_bytes);
        Ok(LsmStore::open(&sim.env(), &options)?)
    }
}

mod rows {
    testing::store_conformance!(super::Far<0>);
    testing::store_conformance_tests!(super::Far<0>:
        what_is_kept_for_removing_is_for_batches_that_say_so,
    );
}

mod column {
    testing::store_conformance!(super::Far<24>);
}
