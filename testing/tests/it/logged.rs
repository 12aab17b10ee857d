//! The oracle behind the log.

use std::sync::Arc;

use store::{Durability, Result, Store};
use testing::store_conformance::EngineUnderTest;
use testing::{LoggedStore, SimEnv};

struct LoggedUnderTest;

impl EngineUnderTest for LoggedUnderTest {
    const NAME: &'static str = "logged memory";

    fn create(sim: &SimEnv, durability: Durability) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(LoggedStore::create(&sim.env(), durability)?))
    }

    fn open(sim: &SimEnv, durability: Durability) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(LoggedStore::open(&sim.env(), durability)?))
    }
}

testing::store_conformance!(LoggedUnderTest);
