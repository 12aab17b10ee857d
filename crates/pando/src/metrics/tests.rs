//! Metrics over a source whose values are known, and a server whose peers misbehave.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use device::SystemClock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use vfs::{Observer, Operation, Outcome};
use wire::{Status, StoreCache, StoreStatus};

use super::http::parse;
use super::*;

/// A volume that cannot be read.
struct Unreadable;

impl Source for Unreadable {
    fn status(&self) -> Option<Status> {
        None
    }

    fn sessions(&self) -> u64 {
        3
    }
}

fn metrics(calls: &Calls) -> Metrics {
    Metrics::new(calls, Unreadable, Arc::new(SystemClock::new()))
}

#[test]
fn calls_are_counted_by_kind_and_outcome() {
    let calls = Calls::new();
    calls.called(Operation::Lookup, Outcome::Done, Duration::from_micros(30));
    calls.called(Operation::Lookup, Outcome::Refused, Duration::from_micros(20));
    calls.called(Operation::Fsync, Outcome::Failed, Duration::from_secs(3));
    let text = metrics(&calls).text().expect("text");
    for line in [
        "pando_calls_total{call=\"lookup\",outcome=\"done\"} 1",
        "pando_calls_total{call=\"lookup\",outcome=\"refused\"} 1",
        "pando_calls_total{call=\"fsync\",outcome=\"failed\"} 1",
        "pando_calls_total{call=\"fsync\",outcome=\"done\"} 0",
        "pando_call_duration_seconds_count{call=\"lookup\"} 2",
        "pando_call_duration_seconds_bucket{le=\"0.000025\",call=\"lookup\"} 1",
        "pando_call_duration_seconds_bucket{le=\"0.00005\",call=\"lookup\"} 2",
        "pando_call_duration_seconds_bucket{le=\"2.5\",call=\"fsync\"} 0",
        "pando_call_duration_seconds_bucket{le=\"10.0\",call=\"fsync\"} 1",
        "pando_sessions 3",
        "pando_up 0",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
    }
    assert!(!text.contains("pando_inodes"), "values of a volume that cannot be read:\n{text}");
}

#[test]
fn each_kind_of_call_has_its_own_place() {
    for (at, operation) in Operation::ALL.into_iter().enumerate() {
        assert_eq!(operation as usize, at, "{}", operation.name());
    }
    let mut names: Vec<_> = Operation::ALL.iter().map(|operation| operation.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Operation::ALL.len(), "names are distinct");
}

#[test]
fn addresses_without_a_port_to_scrape_are_refused() {
    assert_eq!(parse_address("127.0.0.1:9478"), Ok("127.0.0.1:9478".parse().expect("an address")));
    for wrong in ["127.0.0.1", "9478", "127.0.0.1:0", "127.0.0.1:x", "127.0.0.1:70000", ""] {
        let message = parse_address(wrong).expect_err(wrong);
        assert!(message.starts_with("expected"), "{wrong}: {message}");
    }
}

fn parse_address(text: &str) -> std::result::Result<SocketAddr, String> {
    super::parse(text)
}

#[test]
fn requests_are_parsed_when_they_are_complete() {
    let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n";
    let request = parse(whole).expect("a request").expect("all of it");
    assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/metrics"));
    for end in 0..whole.len() {
        assert_eq!(parse(&whole[..end]), Ok(None), "the first {end} bytes");
    }
    assert_eq!(parse(b"\x16\x03\x01\x02\x00\x01\x00"), Err(()));
}

/// A server, and one request to it.
fn served() -> SocketAddr {
    let bound = Bound::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
    let address = bound.listener.local_addr().expect("its address");
    bound.serve(&Calls::new(), Unreadable, Arc::new(SystemClock::new())).expect("served");
    address
}

fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.write_all(request).expect("sent");
    // A request that is refused may be answered, and the connection closed, before its end.
    match stream.shutdown(Shutdown::Write) {
        Err(error) if error.kind() == ErrorKind::NotConnected => {}
        ended => ended.expect("ended"),
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn scrapes_are_answered_and_other_requests_refused() {
    let address = served();
    let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text;"));
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    let head = ask(address, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
    for (request, status) in [
        (&b"GET /other HTTP/1.1\r\n\r\n"[..], "404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        (b"\x16\x03\x01 hello\r\n\r\n", "400 Bad Request"),
    ] {
        let answer = ask(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
    }
    let long = [&b"GET /metrics HTTP/1.1\r\nA: "[..], &vec![b'a'; 9 << 10]].concat();
    let answer = ask(address, &long);
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[test]
fn silent_peers_beyond_a_bound_are_closed_and_leave_no_trace() {
    let address = served();
    let silent: Vec<_> = (0..8).map(|_| TcpStream::connect(address).expect("connected")).collect();
    // The bound is reached when the last of them was admitted: then a further one is closed.
    let mut further;
    loop {
        further = TcpStream::connect(address).expect("connected");
        further.set_read_timeout(Some(Duration::from_millis(50))).expect("a limit");
        match further.read(&mut [0; 1]) {
            Ok(0) => break,
            Ok(_) => panic!("an answer without a request"),
            Err(_) => further.shutdown(Shutdown::Both).unwrap_or_default(),
        }
    }
    drop(silent);
    // When their places are free again, a scrape is answered.
    loop {
        let mut stream = TcpStream::connect(address).expect("connected");
        let sent = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
        let mut answer = String::new();
        let read = sent.and_then(|()| stream.read_to_string(&mut answer));
        if read.is_ok() && answer.starts_with("HTTP/1.1 200 OK") {
            break;
        }
    }
}

/// The metrics of an object store alone.
#[derive(Debug)]
struct Alone(StoreStatus);

impl Collector for Alone {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        volume::store(&mut volume::Writer { encoder }, &self.0)
    }
}

#[test]
fn metrics_of_an_object_store_are_those_of_the_guide() {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Alone(StoreStatus {
        url: "s3://bucket/prefix".to_owned(),
        creates: 2,
        reads: 3,
        lists: 5,
        heads: 7,
        deletes: 11,
        retries: 13,
        bytes_in: 17,
        bytes_out: 19,
        cache: Some(StoreCache { hits: 23, misses: 29, bytes: 31 }),
        seconds: 86_400,
        stored_bytes: Some(3_000_000_000_000),
        content_objects: 41,
        silent: Some(11),
        commit_times: vec![(Some(5), 3), (Some(50), 4), (None, 1)],
        commit_micros: 2_500_000,
        unreachable: Some((4, "no answer".to_owned())),
        waits: Some((37, "no answer".to_owned())),
    })));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("text");
    for line in [
        "pando_store_requests_total{request=\"create\"} 2",
        "pando_store_requests_total{request=\"delete\"} 11",
        "pando_store_retries_total 13",
        "pando_store_content_objects 41",
        "pando_store_received_bytes_total 17",
        "pando_store_sent_bytes_total 19",
        "pando_store_reachable 0",
        "pando_store_waits_seconds 37",
        "pando_store_silent_seconds 11",
        "pando_store_commit_seconds_bucket{le=\"0.005\"} 3",
        "pando_store_commit_seconds_bucket{le=\"0.05\"} 7",
        "pando_store_commit_seconds_bucket{le=\"+Inf\"} 8",
        "pando_store_commit_seconds_sum 2.5",
        "pando_store_commit_seconds_count 8",
        "pando_store_cache_hits_total 23",
        "pando_store_cache_misses_total 29",
        "pando_store_cache_bytes 31",
    ] {
        assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
    }
    let name = |line: &str| {
        let name = line.split([' ', '{']).next().unwrap_or_default();
        let histogram = "pando_store_commit_seconds";
        if name.starts_with(histogram) { histogram.to_owned() } else { name.to_owned() }
    };
    let found: std::collections::BTreeSet<_> =
        text.lines().filter(|line| !line.starts_with('#')).map(name).collect();
    let guide = include_str!("../../../../docs/guide/metrics.md");
    let row = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let listed: std::collections::BTreeSet<_> =
        guide.lines().filter_map(row).filter(|name| name.starts_with("pando_store_")).collect();
    assert_eq!(listed, found, "docs/guide/metrics.md and the metrics");
}
