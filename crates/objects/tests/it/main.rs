//! Objects on a server, and the log-structured engine on them.
//!
//! The server is the one that `PANDO_S3_ENDPOINT` names (with `PANDO_S3_BUCKET`, which exists, and
//! `PANDO_S3_KEY` and `PANDO_S3_SECRET`), else one that is part of these tests and knows as much
//! of the protocol as they need.

mod engine;
mod objects;
mod server;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use device::SystemClock;
use objects_crate::{Place, S3Blobs};

use ::objects as objects_crate;

/// Objects below a prefix, on the server of these tests.
fn open(prefix: &str) -> Arc<S3Blobs> {
    Arc::new(S3Blobs::open(&place(prefix), Arc::new(SystemClock::new())).expect("a server"))
}

/// A prefix that nobody used.
fn fresh_prefix() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("pando-test-{}-{count}/", std::process::id())
}

fn place(prefix: &str) -> Place {
    static OWN: OnceLock<String> = OnceLock::new();
    let given = |name: &str| std::env::var(name).ok();
    let endpoint =
        given("PANDO_S3_ENDPOINT").unwrap_or_else(|| OWN.get_or_init(server::start).clone());
    Place {
        endpoint,
        bucket: given("PANDO_S3_BUCKET").unwrap_or_else(|| "pando".to_owned()),
        region: given("PANDO_S3_REGION").unwrap_or_else(|| "us-east-1".to_owned()),
        prefix: prefix.to_owned(),
        keys: (
            given("PANDO_S3_KEY").unwrap_or_else(|| "key".to_owned()),
            given("PANDO_S3_SECRET").unwrap_or_else(|| "secret".to_owned()),
        ),
    }
}
