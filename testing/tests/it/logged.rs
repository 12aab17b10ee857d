//! The oracle behind the log.

use std::sync::Arc;

use store::{Durability, Result, Store};
use testing::store_conformance::{Begin, EngineUnderTest};
use testing::{LoggedStore, SimEnv};

struct LoggedUnderTest;

impl EngineUnderTest for LoggedUnderTest {
    const NAME: &'static str = "logged memory";

    fn begin(
        sim: &SimEnv,
        durability: Durability,
        how: Begin,
        _log_segment_bytes: Option<u64>,
    ) -> Result<Arc<dyn Store>> {
        match how {
            Begin::Create => Ok(Arc::new(LoggedStore::create(&sim.env(), durability)?)),
            Begin::Open => Ok(Arc::new(LoggedStore::open(&sim.env(), durability)?)),
        }
    }
}

testing::store_conformance!(LoggedUnderTest);
