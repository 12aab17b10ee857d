//! Requests that go wrong, on the way and on the server. What may be repeated is, and of what was
//! made it is known whose it is.

use std::sync::Arc;
use std::time::Duration;

use device::{Blobs, LocalDevice, SystemRandom};
use objects::{S3Blobs, S3Bucket};
use testing::{SimClock, fails};

use super::server::{self, Mishap, Objects};
use super::{fresh_prefix, place};

/// Deadline within which there are four tries, whatever the length of the pauses. They take at most
/// 700 ms before the fourth, and at least 750 ms before a fifth.
pub(crate) const FOUR_TRIES: Duration = Duration::from_millis(740);

/// Opens with a clock on which nobody waits.
fn connect(place: &S3Bucket) -> device::Result<S3Blobs> {
    S3Blobs::open(place, Arc::new(SimClock::new()), Arc::new(SystemRandom))
}

/// Objects on a server of their own, with a clock on which nobody waits.
fn ordered() -> (S3Blobs, Arc<Objects>) {
    // Nothing is silent here but a machine that is busy.
    ordered_within(Duration::from_secs(120))
}

/// The same of a server that may be silent for so long.
fn ordered_within(silence: Duration) -> (S3Blobs, Arc<Objects>) {
    let (endpoint, objects) = server::start_ordered();
    let place = S3Bucket { endpoint, silence, deadline: FOUR_TRIES, ..place(&fresh_prefix()) };
    let blobs = connect(&place).expect("a server");
    (blobs, objects)
}

/// What passes under a status of which that is not so in general. The last two are of conditional
/// requests that meet another for the same name.
const WITH_WORDS: [(u16, &str); 3] =
    [(400, "RequestTimeout"), (409, "ConditionalRequestConflict"), (409, "OperationAborted")];

/// Transient errors: the request is repeated, and succeeds.
fn passing() -> Vec<Mishap> {
    let mut all: Vec<Mishap> =
        [408, 429, 500, 502, 503, 504].map(|status| Mishap::Status(status, String::new())).into();
    for (status, code) in WITH_WORDS {
        all.push(Mishap::Status(status, format!("<Error><Code>{code}</Code></Error>")));
    }
    all.extend([Mishap::LostRequest, Mishap::LostAnswer]);
    all
}

/// Where each read had left its connection behind, the next one made another.
#[test]
fn a_connection_serves_one_request_after_the_other() {
    let (blobs, objects) = ordered();
    assert!(blobs.create("a", b"0123456789").unwrap());
    let before = (objects.requests(), objects.connections());
    for _ in 0..10 {
        for (length, offset) in [(4, 3), (10, 0), (20, 5), (4, 10), (4, 20)] {
            let mut buffer = vec![0; length];
            let read = blobs.read_at("a", &mut buffer, offset).unwrap();
            assert_eq!(read, length.min(10_usize.saturating_sub(offset as usize)));
        }
        assert_eq!((blobs.length("a").unwrap(), blobs.length("b").unwrap()), (Some(10), None));
        assert_eq!(blobs.list("").unwrap(), ["a"]);
        // Refusals with words.
        let words = "<Error><Code>PreconditionFailed</Code></Error>".to_owned();
        objects.order("PUT", Mishap::Answer(412, String::new(), words));
        assert!(!blobs.create("a", b"other").unwrap());
        let words = "<Error><Code>NoSuchKey</Code></Error>".to_owned();
        objects.order("GET", Mishap::Answer(404, String::new(), words));
        fails(blobs.read_at("a", &mut [0; 4], 0), "NoSuchKey");
        assert!(blobs.create("b", b"0").unwrap());
        blobs.delete("b").unwrap();
    }
    assert_eq!(objects.connections(), before.1, "{} requests", objects.requests() - before.0);
}

#[test]
fn transient_errors_are_retried() {
    let (blobs, objects) = ordered();
    for mishap in passing() {
        for times in 1..4 {
            let order = |method| (0..times).for_each(|_| objects.order(method, mishap.clone()));
            order("PUT");
            assert!(blobs.create("a", b"0123456789").unwrap(), "{mishap:?}");
            assert_eq!(objects.bytes("/a").as_deref(), Some(&b"0123456789"[..]));
            order("GET");
            assert_eq!(blobs.length("a").unwrap(), Some(10), "{mishap:?}");
            order("GET");
            let mut buffer = [0; 4];
            assert_eq!(blobs.read_at("a", &mut buffer, 3).unwrap(), 4, "{mishap:?}");
            assert_eq!(&buffer, b"3456");
            order("GET");
            assert_eq!(blobs.list("").unwrap(), ["a"], "{mishap:?}");
            order("DELETE");
            blobs.delete("a").unwrap();
            assert_eq!(objects.bytes("/a"), None);
            assert_eq!(objects.left(), 0);
        }
    }
}

#[test]
fn permanent_server_errors_are_reported_with_the_servers_message() {
    let (blobs, objects) = ordered();
    let words = format!("<Code>Why</Code>{}", "x".repeat(10_000));
    for (status, tries) in [(400, 1), (403, 1), (404, 1), (409, 1), (501, 1), (507, 1), (503, 4)] {
        for _ in 0..tries {
            objects.order("GET", Mishap::Status(status, words.clone()));
        }
        let before = objects.requests();
        let error = blobs.read_at("a", &mut [0; 4], 0).unwrap_err();
        assert!(error.message.contains("<Code>Why</Code>xxx"), "{status}: {error}");
        assert!(error.message.len() < 1000, "{status}: {error}");
        assert_eq!(objects.requests() - before, tries, "{status}");
        assert!(!error.is_not_found(), "only the code for an object that is absent: {error}");
        assert_eq!(error.is_no_space(), status == 507, "{error}");
    }
    // If an object could not be made, another request looks whether it is there.
    for _ in 0..4 {
        objects.order("PUT", Mishap::Status(503, words.clone()));
    }
    let error = blobs.create("a", b"first").unwrap_err();
    assert!(error.message.contains("503 <Code>Why"), "{error}");
    assert_eq!((objects.left(), objects.bytes("/a")), (0, None));
}

/// A server that is full, or whose keys are for reading, is opened for what it has. That it heeds
/// conditions is found out before the first object is made.
#[test]
fn a_server_that_accepts_no_writes_is_opened_read_only() {
    for status in [403, 507] {
        let (endpoint, objects) = server::start_ordered();
        let place = S3Bucket { endpoint, ..place(&fresh_prefix()) };
        let connect = || connect(&place);
        assert!(connect().expect("a server").create("a", b"0123456789").unwrap());
        let refuse = || objects.order("PUT", Mishap::Status(status, String::new()));
        refuse();
        let blobs = connect().expect("it answers");
        let mut buffer = [0; 4];
        assert_eq!(blobs.read_at("a", &mut buffer, 3).unwrap(), 4);
        assert_eq!(&buffer, b"3456");
        refuse();
        let refused = blobs.create("b", b"bytes").unwrap_err();
        assert_eq!(refused.is_no_space(), status == 507, "{refused}");
        // The probe is made, refused, and deleted.
        let before = objects.requests();
        assert!(blobs.create("b", b"bytes").unwrap());
        assert_eq!(objects.requests() - before, 4);
        assert!(blobs.create("c", b"bytes").unwrap());
        assert_eq!(objects.requests() - before, 5);
        assert_eq!(blobs.list("").unwrap(), ["a", "b", "c"]);
    }
}

/// It took the first object of the probe, and refuses what follows.
#[test]
fn a_server_that_refuses_part_of_the_probe_is_opened() {
    let (endpoint, objects) = server::start_ordered();
    let place = S3Bucket { endpoint, ..place(&fresh_prefix()) };
    objects.order("DELETE", Mishap::Status(403, String::new()));
    let blobs = connect(&place).expect("it answers");
    assert_eq!(objects.left(), 0);
    assert!(blobs.list("").unwrap().is_empty(), "the probe is deleted");
    assert!(blobs.create("a", b"bytes").unwrap());
    assert_eq!(blobs.list("").unwrap(), ["a"]);
}

#[test]
fn a_short_answer_is_requested_again() {
    let (blobs, objects) = ordered();
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    assert!(blobs.create("a", &bytes).unwrap());
    for mishap in [Mishap::ShortBody, Mishap::ShortPart] {
        for offset in [0, 50_000, 95_000] {
            objects.order("GET", mishap.clone());
            let mut buffer = vec![0; 10_000];
            let read = blobs.read_at("a", &mut buffer, offset as u64).unwrap();
            let end = (offset + 10_000).min(bytes.len());
            assert!(buffer[..read] == bytes[offset..end], "{mishap:?} {offset}: {read}");
        }
        objects.order("GET", Mishap::ShortBody);
        assert_eq!(blobs.list("").unwrap(), ["a"]);
        assert_eq!(objects.left(), 0);
    }
}

/// All four answers are lost, and the first made it.
#[test]
fn an_object_is_attributed_to_its_writer_after_lost_answers() {
    let (blobs, objects) = ordered();
    for _ in 0..4 {
        objects.order("PUT", Mishap::LostAnswer);
    }
    assert!(blobs.create("a", b"own").unwrap());
    // Somebody else is quicker, while the first request is lost.
    objects.order("PUT", Mishap::Overtaken(b"its".to_vec()));
    assert!(!blobs.create("b", b"own").unwrap());
    objects.order("PUT", Mishap::Overtaken(b"longer than that".to_vec()));
    assert!(!blobs.create("c", b"own").unwrap());
    assert_eq!(objects.bytes("/b").as_deref(), Some(&b"its"[..]));
    // Nobody asked in vain: it is taken, whatever it is.
    assert!(!blobs.create("b", b"its").unwrap());
}

/// A request that meets another for the same name, and what became of that one.
#[test]
fn a_conflict_is_retried() {
    let (blobs, objects) = ordered();
    let conflict = "<Error><Code>ConditionalRequestConflict</Code></Error>";
    let meet = || objects.order("PUT", Mishap::Status(409, conflict.to_owned()));
    meet();
    assert!(blobs.create("a", b"own").unwrap(), "the other one was not carried out");
    meet();
    objects.order("PUT", Mishap::Overtaken(b"its".to_vec()));
    assert!(!blobs.create("b", b"own").unwrap(), "the other one was");
    assert_eq!(objects.bytes("/b").as_deref(), Some(&b"its"[..]));
    (0..4).for_each(|_| meet());
    let error = blobs.create("c", b"own").unwrap_err();
    assert!(error.message.contains("409"), "{error}");
    assert_eq!((objects.left(), objects.bytes("/c")), (0, None));
}

#[test]
fn an_object_altered_in_transit_is_not_created() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let device = LocalDevice::open(directory.path()).unwrap();
    let (blobs, objects) = ordered();
    objects.order("PUT", Mishap::Flipped);
    assert!(blobs.create("a", b"0123456789").unwrap());
    assert_eq!(objects.bytes("/a").as_deref(), Some(&b"0123456789"[..]));
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 253) as u8).collect();
    device::Device::create(&device, "file").unwrap().write_at(&bytes, 0).unwrap();
    objects.order("PUT", Mishap::Flipped);
    objects.order("PUT", Mishap::LostAnswer);
    assert!(blobs.adopt("b", &device, "file").unwrap());
    assert!(objects.bytes("/b").is_some_and(|found| found == bytes));
    for _ in 0..4 {
        objects.order("PUT", Mishap::Flipped);
    }
    assert!(blobs.create("c", b"0123456789").unwrap_err().message.contains("BadDigest"));
    assert_eq!(objects.bytes("/c"), None);
}

/// A server that takes a request and is silent is asked again.
#[test]
fn no_wait_is_endless() {
    let (blobs, objects) = ordered_within(Duration::from_secs(2));
    objects.order("PUT", Mishap::Silence);
    assert!(blobs.create("a", b"0123456789").unwrap());
    objects.order("GET", Mishap::Silence);
    assert_eq!(blobs.read_at("a", &mut [0; 10], 0).unwrap(), 10);
    assert_eq!(objects.left(), 0);
}

/// A server whose answer comes a byte at a time is never silent, and is asked again all the same.
#[test]
fn no_answer_is_endless() {
    let (blobs, objects) = ordered_within(Duration::from_secs(1));
    objects.order("PUT", Mishap::Trickle);
    assert!(blobs.create("a", b"0123456789").unwrap());
    objects.order("GET", Mishap::Trickle);
    assert_eq!(blobs.read_at("a", &mut [0; 10], 0).unwrap(), 10);
    assert_eq!(objects.left(), 0);
}

/// A server that is full stays as it is, and takes objects when it has space.
#[test]
fn a_full_server_keeps_what_it_has() {
    let (blobs, objects) = ordered();
    assert!(blobs.create("a", b"0123456789").unwrap());
    let before = objects.all();
    let full = "<Error><Code>StorageFull</Code></Error>".to_owned();
    objects.always(&["PUT"], Some(&Mishap::Status(507, full)));
    for _ in 0..3 {
        assert!(blobs.create("b", b"0123456789").unwrap_err().is_no_space());
    }
    assert_eq!(blobs.read_at("a", &mut [0; 10], 0).unwrap(), 10);
    assert_eq!(objects.all(), before);
    objects.always(&[], None);
    assert!(blobs.create("b", b"0123456789").unwrap());
}

#[test]
fn the_size_of_all_objects_takes_one_request() {
    let (blobs, objects) = ordered();
    for n in 0..20 {
        assert!(blobs.create(&format!("{n}"), &[1; 100]).unwrap());
    }
    let before = objects.requests();
    assert_eq!(blobs.disk_bytes_all().unwrap(), 2000);
    assert_eq!(objects.requests() - before, 1);
}
