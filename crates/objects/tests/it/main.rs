//! Objects on a server, and the log-structured engine on them.
//!
//! The server is the one that `PANDO_S3_ENDPOINT` names (with `PANDO_S3_BUCKET`, which exists, and
//! `PANDO_S3_KEY` and `PANDO_S3_SECRET`). Else it is the one that `PANDO_S3_SERVER` names, or one
//! that is installed, which is started (`outside`). Else it is part of these tests and knows as
//! much of the protocol as they need (`server`). Tests that order mishaps always use the last, and
//! so does the suite of the engine unless a server is requested.

mod cached;
mod conformance;
mod cuts;
mod engine;
mod mishaps;
mod objects;
mod outside;
mod presence;
mod refusals;
mod server;
mod tls;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use device::{Random, Result, SystemClock, SystemRandom};
use objects_crate::{Keys, S3Blobs, S3Bucket};

use ::objects as objects_crate;

/// Objects below a prefix, on the server of these tests.
fn open(prefix: &str) -> Arc<S3Blobs> {
    Arc::new(connect(&place(prefix)).expect("a server"))
}

/// The same for the suite of the engine, which makes many thousands of requests. It runs on a
/// server that is requested, else on the small one, which answers four times as fast.
fn open_for_engine(prefix: &str) -> Arc<S3Blobs> {
    static SMALL: OnceLock<String> = OnceLock::new();
    let requested =
        ["PANDO_S3_ENDPOINT", "PANDO_S3_SERVER"].iter().any(|name| std::env::var(name).is_ok());
    let mut place = place(prefix);
    if !requested {
        place.endpoint.clone_from(SMALL.get_or_init(server::start));
    }
    Arc::new(connect(&place).expect("a server"))
}

fn connect(place: &S3Bucket) -> Result<S3Blobs> {
    S3Blobs::open(place, Arc::new(SystemClock::new()), Arc::new(SystemRandom))
}

/// A prefix that nobody used, now or in another run.
fn fresh_prefix() -> String {
    let mut own = [0; 16];
    SystemRandom.fill(&mut own);
    format!("pando-test-{:032x}/", u128::from_le_bytes(own))
}

fn place(prefix: &str) -> S3Bucket {
    static PLACE: OnceLock<S3Bucket> = OnceLock::new();
    S3Bucket { prefix: prefix.to_owned(), ..PLACE.get_or_init(whole_server).clone() }
}

/// Whether the server of these tests is one of a third party, which checks signatures.
fn is_third_partys() -> bool {
    place("");
    THIRD_PARTY.load(Ordering::Relaxed)
}

static THIRD_PARTY: AtomicBool = AtomicBool::new(false);

/// A place on the server of these tests.
#[expect(clippy::print_stderr, reason = "a run prints what it was on")]
fn whole_server() -> S3Bucket {
    let given = |name: &str| std::env::var(name).ok();
    let or = |name: &str, default: &str| given(name).unwrap_or_else(|| default.to_owned());
    let (id, secret) = (or("PANDO_S3_KEY", "key"), or("PANDO_S3_SECRET", "secret"));
    let (bucket, region) = (or("PANDO_S3_BUCKET", "pando"), or("PANDO_S3_REGION", "us-east-1"));
    let mut place = S3Bucket::new("", &bucket, &region, Keys { id, secret, token: None });
    let (name, endpoint) = match given("PANDO_S3_ENDPOINT") {
        Some(endpoint) => ("the one given".to_owned(), endpoint),
        None => outside::start(given("PANDO_S3_SERVER").as_deref(), &place)
            .unwrap_or_else(|| ("own".to_owned(), server::start())),
    };
    THIRD_PARTY.store(name != "own", Ordering::Relaxed);
    eprintln!("objects are on this server: {name}, {endpoint}");
    place.endpoint = endpoint;
    place
}
