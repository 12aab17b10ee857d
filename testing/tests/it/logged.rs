//! The oracle behind the log.

use std::sync::Arc;

use device::Env;
use store::{Durability, Result, Store};
use testing::LoggedStore;
use testing::store_conformance::EngineUnderTest;

struct LoggedUnderTest;

impl EngineUnderTest for LoggedUnderTest {
    const NAME: &'static str = "logged memory";

    fn create(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(LoggedStore::create(env, durability)?))
    }

    fn open(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(LoggedStore::open(env, durability)?))
    }
}

testing::store_conformance!(LoggedUnderTest);
