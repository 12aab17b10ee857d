//! Servers that refuse, settings that are wrong, and servers that must not be used: each error
//! names what to check.

use std::sync::Arc;
use std::time::Duration;

use device::{Blobs, Clock, Device, SystemRandom};
use objects::{Location, Probe, S3Blobs, S3Bucket, Seams, Settings};
use testing::SimClock;

use super::server::{self, Mishap, Objects};
use super::{fresh_prefix, open, place};

fn connect(place: &S3Bucket) -> device::Result<S3Blobs> {
    S3Blobs::open(place, Arc::new(SimClock::new()), Arc::new(SystemRandom))
}

/// A server of which something is ordered, and a place there.
fn ordered() -> (Arc<Objects>, S3Bucket) {
    let (endpoint, objects) = server::start_ordered();
    (objects, S3Bucket { endpoint, silence: Duration::from_secs(60), ..place(&fresh_prefix()) })
}

fn code(code: &str) -> String {
    format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>m</Message></Error>")
}

/// The error of opening, when the first request is answered so.
fn refused(status: u16, headers: &str, body: &str) -> String {
    let (objects, place) = ordered();
    let secret = place.keys.secret.clone() + "-and-more";
    let keys = objects::Keys { secret: secret.clone(), ..place.keys.clone() };
    objects.order("GET", Mishap::Answer(status, headers.to_owned(), body.to_owned()));
    let error = connect(&S3Bucket { keys, ..place }).err().expect("refused").to_string();
    assert_eq!(objects.left(), 0);
    assert_eq!(objects.requests(), 1, "it would be refused again: {error}");
    assert!(!error.contains(&secret) && error.len() < 1000, "{error}");
    error
}

#[test]
fn a_refusal_names_what_to_check() {
    for (status, named, advice) in [
        (403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
        (403, "RequestTimeTooSkewed", "set the clock"),
        (403, "AccessDenied", "permissions"),
        (400, "ExpiredToken", "AWS_SESSION_TOKEN"),
        (404, "NoSuchBucket", "create it, or check the name and the endpoint"),
        (400, "AuthorizationHeaderMalformed", "AWS_REGION"),
        (301, "PermanentRedirect", "AWS_REGION"),
        (507, "StorageFull", "full"),
        (403, "QuotaExceeded", "full"),
        (501, "NotImplemented", "does not support"),
    ] {
        let error = refused(status, "", &code(named));
        assert!(error.contains(advice), "{named}: {error}");
        assert!(error.contains(&format!("{status}")) && error.contains(named), "{error}");
    }
    let error = refused(301, "x-amz-bucket-region: eu-north-1\r\n", "");
    assert!(error.contains("region eu-north-1") && error.contains("us-east-1"), "{error}");
    let body = code("AuthorizationHeaderMalformed")
        .replace("<Message>", "<Region>eu-west-1</Region><Message>");
    let error = refused(400, "", &body);
    assert!(error.contains("region eu-west-1"), "{error}");
}

/// A server that checks signatures, and has no bucket but one.
#[test]
fn a_third_partys_server_refuses_wrong_settings() {
    if !super::is_third_partys() {
        eprintln!(
            "NOT TESTED: refusals of a third party's S3 server (scripts/s3-server.sh install)"
        );
        return;
    }
    let right = place(&fresh_prefix());
    let (id, secret) = (right.keys.id.clone(), right.keys.secret.clone());
    let keys = |id: &str, secret: &str| {
        let (id, secret) = (id.to_owned(), secret.to_owned());
        objects::Keys { id, secret, token: None }
    };
    let bucket = "no-such-bucket".to_owned();
    for (place, advice) in [
        (S3Bucket { keys: keys(&id, "wrong"), ..right.clone() }, "AWS_SECRET_ACCESS_KEY"),
        (S3Bucket { keys: keys("wrong", &secret), ..right.clone() }, "AWS_ACCESS_KEY_ID"),
        (S3Bucket { bucket, ..right.clone() }, "there is no bucket no-such-bucket"),
        (S3Bucket { region: "eu-north-1".to_owned(), ..right.clone() }, "AWS_REGION"),
    ] {
        let error = super::connect(&place).err().expect(advice).to_string();
        assert!(error.contains(advice), "{error}");
        assert!(!error.contains(&secret) || secret.len() < 8, "{error}");
    }
    assert!(super::connect(&right).is_ok());
}

/// Temporary keys expire while a volume is mounted, and somebody writes newer ones to the file.
#[test]
fn keys_that_are_refused_are_read_again() {
    let (objects, place) = ordered();
    let newer = objects::Keys { id: "newer".to_owned(), ..place.keys.clone() };
    for (keys, works) in [(Some(newer), true), (Some(place.keys.clone()), false), (None, false)] {
        let place = S3Bucket { renew: Some(Arc::new(move || keys.clone())), ..place.clone() };
        for (status, named) in [(400, "ExpiredToken"), (403, "InvalidAccessKeyId")] {
            let blobs = connect(&place).expect("a server");
            // That the server decides creations is known from here on.
            blobs.create("made", b"bytes").unwrap();
            let before = objects.requests();
            objects.order("GET", Mishap::Status(status, code(named)));
            assert_eq!(blobs.list("").is_ok(), works, "{named}");
            assert_eq!(objects.requests() - before, 1 + u64::from(works));
            assert!(blobs.list("").is_ok());
            objects.order("PUT", Mishap::Status(status, code(named)));
            // By now the newer keys are in use, and are the only ones.
            let made = blobs.create("other", b"bytes");
            assert!(made.is_err_and(|error| error.message.contains(named)), "{named}");
        }
    }
}

/// The simulated clock starts at midnight of 2026-01-01.
#[test]
fn a_refusal_names_the_clocks_difference() {
    let ahead = "date: Wed, 31 Dec 2025 23:40:00 GMT\r\n";
    let behind = "date: Thu, 01 Jan 2026 00:20:00 GMT\r\n";
    for (date, words) in [(ahead, "20 minutes ahead of"), (behind, "20 minutes behind")] {
        let error = refused(403, date, &code("AccessDenied"));
        assert!(error.contains(words) && error.contains("timedatectl"), "{error}");
    }
    let near = "date: Thu, 01 Jan 2026 00:02:00 GMT\r\n";
    assert!(refused(403, near, &code("AccessDenied")).contains("permissions"));
}

/// Web pages under any status: of proxies, consoles, captive portals. None is a success.
#[test]
fn web_pages_are_no_answers() {
    let page = "<!DOCTYPE html>\n<html><body>Welcome, please log in</body></html>";
    let html = "content-type: text/html; charset=utf-8\r\n";
    for (status, headers) in [(200, html), (404, html), (403, html), (404, ""), (302, html)] {
        let error = refused(status, headers, page);
        assert!(error.contains("web page") && !error.contains("Welcome"), "{status}: {error}");
    }
    let (objects, place) = ordered();
    let blobs = connect(&place).expect("a server");
    for method in ["PUT", "GET", "GET", "DELETE"] {
        objects.order(method, Mishap::Answer(200, html.to_owned(), page.to_owned()));
    }
    let is_page = |error: device::Error| error.to_string().contains("web page");
    let is_unread = |error: device::Error| !error.is_not_found() && is_page(error);
    assert!(blobs.create("a", b"bytes").is_err_and(is_page), "it is not made");
    assert_eq!(objects.bytes("/a"), None);
    assert!(blobs.read_at("a", &mut [0; 4], 0).is_err_and(is_unread));
    assert!(blobs.length("a").is_err_and(is_page));
    assert!(blobs.delete("a").is_err_and(is_page));
    // A page about a page that is missing proves nothing about an object.
    objects.order("GET", Mishap::Answer(404, html.to_owned(), page.to_owned()));
    assert!(blobs.length("a").is_err_and(is_page));
    objects.order("GET", Mishap::Answer(404, html.to_owned(), page.to_owned()));
    assert!(blobs.read_at("a", &mut [0; 4], 0).is_err_and(is_unread));
}

/// If a bucket is gone, nobody may conclude that an object in it was deleted.
#[test]
fn a_missing_bucket_is_no_missing_object() {
    let (objects, place) = ordered();
    let blobs = connect(&place).expect("a server");
    let gone = || Mishap::Status(404, code("NoSuchBucket"));
    for other in [code("NoSuchBucket"), code("XAdminUserNotFound"), code("Whatever")] {
        objects.order("GET", Mishap::Status(404, other.clone()));
        assert!(blobs.read_at("a", &mut [0; 4], 0).is_err_and(|error| !error.is_not_found()));
        objects.order("GET", Mishap::Status(404, other));
        assert!(blobs.length("a").is_err_and(|error| error.message.contains("404")));
    }
    assert!(blobs.read_at("a", &mut [0; 4], 0).is_err_and(|error| error.is_not_found()));
    assert_eq!(blobs.length("a").unwrap(), None);
    objects.order("DELETE", gone());
    assert!(blobs.delete("a").unwrap_err().message.contains("no bucket"));
    objects.order("PUT", gone());
    assert!(blobs.create("a", b"bytes").unwrap_err().message.contains("no bucket"));
}

/// A server that is overloaded for minutes is asked until the deadline, with growing pauses, and
/// answers again after an error.
#[test]
fn an_overloaded_server_is_asked_until_the_deadline() {
    let (objects, place) = ordered();
    let clock = Arc::new(SimClock::new());
    let random = Arc::new(SystemRandom);
    let blobs = S3Blobs::open(&place, Arc::clone(&clock) as Arc<dyn Clock>, random).unwrap();
    for minutes in [false, true] {
        let before = (clock.monotonic(), objects.requests());
        let times = if minutes { 1000 } else { 6 };
        (0..times).for_each(|_| objects.order("GET", Mishap::Status(503, code("SlowDown"))));
        let read = blobs.list("");
        let (waited, requests) =
            (clock.monotonic().saturating_sub(before.0), objects.requests() - before.1);
        if minutes {
            let error = read.unwrap_err();
            assert!(error.message.contains("overloaded") && error.message.contains("SlowDown"));
            assert!(error.message.contains(&format!("tried {requests} times")), "{error}");
            assert!(waited <= place.deadline && waited > place.deadline / 2, "{waited:?}");
            assert!((8..30).contains(&requests), "{requests}");
            let failing = blobs.traffic().counts().failing.expect("it fails");
            assert!(failing.why.contains("SlowDown") && failing.since <= clock.monotonic());
        } else {
            assert_eq!((read.unwrap().len(), requests), (0, 7));
            assert_eq!(blobs.traffic().counts().failing, None);
        }
    }
    while objects.left() > 0 {
        drop(blobs.list(""));
    }
    assert!(blobs.list("").is_ok());
    assert_eq!(blobs.traffic().counts().failing, None);
}

#[test]
fn requests_are_counted_by_kind() {
    let (objects, place) = ordered();
    let blobs = connect(&place).expect("a server");
    let before = blobs.traffic().counts();
    objects.order("PUT", Mishap::Status(503, String::new()));
    assert!(blobs.create("a", &[1; 1000]).unwrap());
    assert_eq!(blobs.read_at("a", &mut [0; 300], 0).unwrap(), 300);
    assert_eq!(blobs.length("a").unwrap(), Some(1000));
    blobs.list("").unwrap();
    blobs.delete("a").unwrap();
    let after = blobs.traffic().counts();
    // The repeated creation is looked up, because the first may have made it.
    assert_eq!((after.create - before.create, after.retries - before.retries), (2, 1));
    assert_eq!((after.read - before.read, after.head - before.head), (1, 1));
    assert_eq!((after.list - before.list, after.delete - before.delete), (1, 1));
    assert_eq!((after.bytes_out - before.bytes_out, after.bytes_in - before.bytes_in), (2000, 300));
}

#[test]
fn many_objects_are_deleted_by_few_requests() {
    let names: Vec<String> = (0..1500).map(|n| format!("log/1/{n:04}")).collect();
    let (bulk, one_by_one) = (server::start_ordered(), server::start_without_bulk());
    for ((endpoint, objects), most) in [(bulk, 2), (one_by_one, 1502)] {
        let blobs = connect(&S3Bucket { endpoint, ..place(&fresh_prefix()) }).expect("a server");
        for name in names.iter().step_by(100) {
            assert!(blobs.create(name, b"x").unwrap());
        }
        assert!(blobs.create("log/2/1", b"x").unwrap());
        let before = objects.requests();
        blobs.delete_all(&names).unwrap();
        assert_eq!(objects.requests() - before, most);
        assert_eq!(blobs.list("").unwrap(), ["log/2/1"]);
        blobs.delete_all(&[]).unwrap();
    }
    // On the server of these tests.
    let blobs = open(&fresh_prefix());
    for name in names.iter().step_by(100) {
        assert!(blobs.create(name, b"x").unwrap());
    }
    blobs.delete_all(&names).unwrap();
    assert!(blobs.list("").unwrap().is_empty());
}

/// One that decides creations one after the other passes a test of two, and not a race.
#[test]
fn a_server_that_lets_two_creators_succeed_is_refused() {
    let endpoint = server::start_racy();
    let trusting = S3Bucket { endpoint: endpoint.clone(), ..place(&fresh_prefix()) };
    assert!(connect(&trusting).is_ok(), "the weak test does not find it");
    let place = S3Bucket { probe: Probe::Race, ..trusting };
    let error = connect(&place).err().expect("refused").to_string();
    assert!(error.contains("concurrent creations of one name succeeded"), "{error}");
    let careless = S3Bucket { endpoint: server::start_careless(), ..place.clone() };
    assert!(connect(&careless).is_err_and(|error| error.to_string().contains("16 of 16")));
    // Two endpoints, and each decides for itself.
    let others = vec![server::start()];
    let split = S3Bucket { endpoint: server::start(), other_endpoints: others, ..place };
    let error = connect(&split).err().expect("refused").to_string();
    assert!(error.contains("2 of 16 concurrent"), "{error}");
}

/// The server of these tests passes the race, also through two names of its endpoint, and nothing
/// of the probe is left.
#[test]
fn a_sound_server_passes_the_race() {
    let place = S3Bucket { probe: Probe::Race, ..place(&fresh_prefix()) };
    let other_endpoints = vec![place.endpoint.replace("127.0.0.1", "localhost")];
    let place = S3Bucket { other_endpoints, ..place };
    let blobs = super::connect(&place).expect("sound");
    assert!(blobs.list("").unwrap().is_empty());
    let requests = blobs.traffic().counts();
    assert_eq!((requests.create, requests.delete), (80, 5), "16 creations of 5 names");
    assert!(blobs.create("a", b"bytes").unwrap());
}

struct TestConfig(Vec<(&'static str, String)>);

impl device::UserConfig for TestConfig {
    fn variable(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(of, _)| *of == name).map(|(_, value)| value.clone())
    }

    fn read(&self, _: &str) -> std::io::Result<Option<String>> {
        Ok(None)
    }
}

fn by_name(place: &S3Bucket, url: &str, settings: &Settings) -> device::Result<objects::Opened> {
    let config = Arc::new(TestConfig(vec![
        ("AWS_ACCESS_KEY_ID", place.keys.id.clone()),
        ("AWS_SECRET_ACCESS_KEY", place.keys.secret.clone()),
        ("AWS_ENDPOINT_URL", place.endpoint.clone()),
    ]));
    let clock = Arc::new(SimClock::new());
    let seams = Seams { clock, random: Arc::new(SystemRandom), config };
    Location::parse(url).expect("a name").open(settings, &seams)
}

#[test]
fn a_store_is_opened_by_its_name() {
    let own = fresh_prefix();
    let place = place(&own);
    let url = format!("s3://{}/{own}", place.bucket);
    let settings = Settings { probe: Probe::Race, ..Settings::default() };
    let opened = by_name(&place, &url, &settings).expect("opened");
    assert!(opened.warnings.is_empty(), "{:?}", opened.warnings);
    assert!(opened.blobs.create("manifest/1", b"bytes").unwrap());
    let again = by_name(&place, &url, &Settings::default()).expect("opened");
    assert_eq!(again.blobs.list("manifest/").unwrap(), ["manifest/1"]);
    assert!(again.traffic.counts().create >= 2, "its own test");
    let gone = by_name(&place, "s3://no-such-bucket-here/x", &Settings::default());
    assert!(gone.is_err() || place.endpoint.contains("127.0.0.1"), "the small server has all");
}

#[test]
fn rules_of_the_bucket_are_checked() {
    let lock = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>";
    let locked = format!(
        "{lock}<Rule><DefaultRetention><Days>3</Days></DefaultRetention></Rule>\
                          </ObjectLockConfiguration>"
    );
    let expire = "<LifecycleConfiguration><Rule><ID>tidy</ID><Status>Enabled</Status>\
                  <Filter/><Expiration><Days>9</Days></Expiration></Rule></LifecycleConfiguration>";
    for (name, text, words) in [
        ("lifecycle", expire, Err("rule 'tidy' would delete")),
        ("object-lock", locked.as_str(), Err("object lock")),
        ("object-lock", lock, Ok(0)),
        ("versioning", "<VersioningConfiguration><Status>Enabled</Status>", Ok(1)),
        ("versioning", "<VersioningConfiguration/>", Ok(0)),
    ] {
        let (objects, place) = ordered();
        objects.set(name, text);
        let url = format!("s3://{}/vol", place.bucket);
        let settings = Settings { probe: Probe::Race, ..Settings::default() };
        match (by_name(&place, &url, &settings), words) {
            (Ok(opened), Ok(warnings)) => assert_eq!(opened.warnings.len(), warnings, "{name}"),
            (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
            (opened, _) => panic!("{name}: {:?}", opened.err()),
        }
        assert!(by_name(&place, &url, &Settings::default()).is_ok(), "checked when it is made");
    }
}

#[test]
fn a_directory_is_opened_by_its_name() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let place = place("");
    let url = format!("file://{}", directory.path().display());
    let opened = by_name(&place, &url, &Settings::default()).expect("opened");
    assert!(opened.blobs.create("log/1/1", b"bytes").unwrap());
    assert_eq!(opened.traffic.counts().create, 1);
    let again = by_name(&place, &url, &Settings::default()).expect("opened");
    assert!(!again.blobs.create("log/1/1", b"other").unwrap());
    let gone = by_name(&place, &format!("{url}/gone"), &Settings::default());
    let error = gone.err().expect("refused").to_string();
    assert!(error.contains("create it, or mount"), "{error}");
    let unfit = by_name(&place, "file:///proc", &Settings::default());
    let error = unfit.err().expect("refused").to_string();
    assert!(error.contains("another host"), "{error}");
    // The message advises what exists.
    let guide = include_str!("../../../../docs/guide/object-stores.md");
    assert!(error.contains("guide to object stores") && !error.contains("option"), "{error}");
    assert!(guide.contains("ext4, XFS, Btrfs, tmpfs, F2FS, ZFS, bcachefs, overlayfs"), "{error}");
    let device = device::LocalDevice::open(directory.path()).unwrap();
    assert!(device.metadata("gone").unwrap().is_none(), "no directory is made");
}
