//! Starting a server that is installed. It ends with the tests.

use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use device::{Clock, SystemClock};
use objects_crate::S3Bucket;
use rusty_s3::actions::{CreateBucket, S3Action};
use rusty_s3::{Bucket, Credentials, UrlStyle};

use ::objects as objects_crate;

/// Those that are used where they are installed. `moto_server` has to be requested: it takes
/// milliseconds for a request, and the tests make many thousands.
const LOOKED_FOR: [&str; 1] = ["versitygw"];
/// How often it is asked whether it is there, and the pause between.
const TRIES: usize = 300;
const PAUSE: Duration = Duration::from_millis(100);

/// Runs a server in the background until nobody holds the other end of the input; then it is
/// ended, and its directory removed.
const UNTIL_THE_END: &str =
    r#""$@" & server=$!; cat; kill "$server"; wait "$server"; rm -rf "$SERVED""#;

/// Starts a server, with a bucket, and answers what it is called and where it is. None where none
/// is installed, or `own` is requested; one that is requested must come.
pub(crate) fn start(asked: Option<&str>, place: &S3Bucket) -> Option<(String, String)> {
    if asked == Some("own") {
        return None;
    }
    let names: Vec<&str> = asked.map_or(LOOKED_FOR.to_vec(), |name| vec![name]);
    let started = names.iter().find_map(|name| Some(((*name).to_owned(), run(name, place)?)));
    assert!(started.is_some() || asked.is_none(), "{asked:?} does not serve");
    started
}

/// Runs one of the known servers.
#[expect(clippy::print_stderr, reason = "a user who installed it wants to know")]
fn run(name: &str, place: &S3Bucket) -> Option<String> {
    /// Held until the process ends.
    static RUNNING: OnceLock<Child> = OnceLock::new();
    let served = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory").keep();
    let port = testing::unused_port();
    let address = format!("127.0.0.1:{port}");
    let port = port.to_string();
    let directory = served.to_str().expect("it is ASCII");
    let (key, secret) = (place.keys.id.as_str(), place.keys.secret.as_str());
    let arguments: Vec<&str> = match name {
        "versitygw" => {
            vec!["--port", &address, "--access", key, "--secret", secret, "posix", directory]
        }
        "moto_server" => vec!["-H", "127.0.0.1", "-p", &port],
        other => panic!("no server is known as {other}"),
    };
    let Some(program) = program(name) else {
        eprintln!("NOT TESTED: {name}, which is not installed (scripts/s3-server.sh install)");
        drop(std::fs::remove_dir(&served));
        return None;
    };
    let child = Command::new("sh")
        .args(["-c", UNTIL_THE_END, "sh", &program])
        .args(&arguments)
        .env("SERVED", &served)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let endpoint = format!("http://{address}");
    if !has_bucket(&endpoint, place) {
        eprintln!("{name} is installed, and does not serve");
        return None;
    }
    drop(RUNNING.set(child));
    Some(endpoint)
}

/// Where a program is: in this checkout's tools, or on `PATH`.
fn program(name: &str) -> Option<String> {
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/bin");
    let found = Command::new("sh")
        .args(["-c", "PATH=\"$1:$PATH\"; command -v \"$2\"", "sh", tools, name])
        .output()
        .ok()?;
    let path = String::from_utf8(found.stdout).ok()?.trim().to_owned();
    (found.status.success() && !path.is_empty()).then_some(path)
}

/// Asks for a bucket until there is one.
fn has_bucket(endpoint: &str, place: &S3Bucket) -> bool {
    let credentials = Credentials::new(&place.keys.id, &place.keys.secret);
    let url = endpoint.parse().expect("it is an address");
    let (name, region) = (place.bucket.clone(), place.region.clone());
    let bucket = Bucket::new(url, UrlStyle::Path, name, region).expect("a name of a bucket");
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(10)))
        .proxy(None)
        .build()
        .into();
    (0..TRIES).any(|_| {
        let url = CreateBucket::new(&bucket, &credentials).sign(Duration::from_secs(60));
        let answer = agent.put(url.as_str()).send_empty();
        let there = answer.is_ok_and(|answer| matches!(answer.status().as_u16(), 200 | 409));
        if !there {
            SystemClock::new().sleep(PAUSE);
        }
        there
    })
}
