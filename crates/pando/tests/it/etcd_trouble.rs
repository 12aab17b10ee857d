//! An etcd that is absent, full, or restored from an older state; and two volumes of one bucket
//! that move to another server. What is served stays served, nothing is lost, and the log of a
//! server names what is wrong, where, and what to do.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use device::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::bad_stores::server;
use crate::failover::{Writer, cluster};
use crate::partition::in_store;
use crate::two_servers::{Cluster, Route, may_run};
use crate::world::{PANDO, World, wait_until};

/// Longer than the lease of a server (3 s).
const BEYOND_LEASE: u64 = 5;

/// Sends a request to etcd.
fn post(port: u16, path: &str, body: &Value) -> Value {
    let body = body.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = format!(
        "POST /v3/{path} HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    // (Of an answer in chunks, the lengths are lines of their own.)
    let object = answer.lines().find(|line| line.starts_with('{'));
    let object = object.unwrap_or_else(|| panic!("{path}: {answer}"));
    serde_json::from_str(object).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
}

/// Fills etcd up, until it raises its alarm.
fn fill(port: u16) {
    let value = "AAAA".repeat(4096);
    wait_until("etcd is full", || {
        let answer = post(port, "kv/put", &json!({ "key": "ZmlsbA==", "value": value }));
        answer["error"].as_str().is_some_and(|error| error.contains("space exceeded"))
    });
}

/// Makes space as an administrator does.
fn make_space(port: u16) {
    let read = post(port, "kv/range", &json!({ "key": "ZmlsbA==" }));
    let revision = &read["header"]["revision"];
    post(port, "kv/compaction", &json!({ "revision": revision, "physical": true }));
    post(port, "maintenance/defragment", &json!({}));
    let alarms = post(port, "maintenance/alarm", &json!({ "action": "GET" }));
    for alarm in alarms["alarms"].as_array().expect("an alarm") {
        let member = &alarm["memberID"];
        let disarm = json!({ "action": "DEACTIVATE", "memberID": member, "alarm": "NOSPACE" });
        post(port, "maintenance/alarm", &disarm);
    }
}

/// A step now and then, for longer than a lease.
fn write_beyond_a_lease(writer: &mut Writer) {
    for _ in 0..BEYOND_LEASE {
        writer.step();
        SystemClock::new().sleep(Duration::from_secs(1));
    }
}

#[test]
fn a_server_that_finds_no_etcd_names_it_and_begins_when_it_answers() {
    if !may_run() {
        return;
    }
    let mut cluster = cluster();
    cluster.stop_etcd();
    cluster.start(0);
    cluster.start(1);
    let named = format!("etcd at http://127.0.0.1:{}", cluster.etcd_port);
    for number in [0, 1] {
        wait_until("etcd is named", || cluster.logged(number).contains(&named));
        let log = cluster.logged(number);
        assert!(log.contains("check that it runs, and its address"), "{log}");
        assert_eq!(cluster.state(number), None, "nothing is served");
    }
    // It ends in order while it waits.
    cluster.end(1);
    cluster.start_etcd();
    cluster.await_state(0, "serving");
}

#[test]
fn a_full_etcd_is_named_and_what_is_served_stays_served() {
    if !may_run() {
        return;
    }
    let world = World::in_store();
    let url = world.url.clone().unwrap();
    let mut cluster = Cluster::with_etcd(world, url, "--quota-backend-bytes 262144");
    cluster.start(0);
    cluster.await_state(0, "serving");
    let one = cluster.mount("one");
    let mut writer = Writer::new(&one.join("work"));
    writer.step();
    fill(cluster.etcd_port);
    write_beyond_a_lease(&mut writer);
    assert_eq!(cluster.state(0).as_deref(), Some("serving"));
    let etcd = format!("etcd at http://127.0.0.1:{}", cluster.etcd_port);
    let is_named = |log: &str| {
        log.contains(&etcd)
            && log.contains("it is full; compact and defragment it, then disarm its NOSPACE alarm")
    };
    wait_until("the server that serves reports it", || is_named(&cluster.logged(0)));
    // Another one does not begin.
    cluster.start(1);
    wait_until("the other one reports it", || is_named(&cluster.logged(1)));
    assert_eq!(cluster.state(1), None);
    // Nobody takes over.
    cluster.kill(0);
    SystemClock::new().sleep(Duration::from_secs(BEYOND_LEASE));
    assert_eq!(cluster.state(1), None);
    make_space(cluster.etcd_port);
    cluster.await_state(1, "serving");
    (0..5).for_each(|_| writer.step());
    writer.verify(&one);
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.unwrap().success());
}

/// The state of yesterday names a server that is dead, by the name of one that lives; the one that
/// serves is unknown to it.
#[test]
fn an_etcd_that_is_restored_from_yesterday_loses_nothing() {
    if !may_run() {
        return;
    }
    let mut cluster = cluster();
    cluster.start(0);
    cluster.await_state(0, "serving");
    let one = cluster.mount("one");
    let mut writer = Writer::new(&one.join("work"));
    writer.step();
    let (data, yesterday) = (cluster.etcd().join("data"), cluster.world.path().join("yesterday"));
    cluster.stop_etcd();
    copy(&data, &yesterday);
    cluster.start_etcd();
    cluster.start(1);
    cluster.await_state(1, "standby");
    cluster.kill(0);
    cluster.await_state(1, "serving");
    (0..5).for_each(|_| writer.step());
    cluster.start(0);
    cluster.await_state(0, "standby");
    cluster.stop_etcd();
    fs::remove_dir_all(&data).unwrap();
    copy(&yesterday, &data);
    cluster.start_etcd();
    write_beyond_a_lease(&mut writer);
    writer.verify(&one);
    let serves = |cluster: &Cluster, number: usize| {
        let other = cluster.state(1 - number);
        cluster.state(number).as_deref() == Some("serving") && other.as_deref() == Some("standby")
    };
    wait_until("one serves and the other one waits", || (0..2).any(|one| serves(&cluster, one)));
    // Etcd has both of them again.
    let serving = usize::from(serves(&cluster, 1));
    cluster.kill(serving);
    cluster.await_state(1 - serving, "serving");
    (0..5).for_each(|_| writer.step());
    writer.verify(&one);
}

/// Each volume is below a prefix of one bucket, and has its own log, owner and sessions.
#[test]
fn both_volumes_of_a_bucket_move_to_the_other_server() {
    const VOLUMES: [&str; 2] = ["vol", "other"];
    if !may_run() {
        return;
    }
    let (endpoint, objects) = server::start_ordered();
    let port = endpoint.rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap();
    let urls = ["s3://bucket/one", "s3://bucket/two"];
    let mut cluster = Cluster::new(World::without_volume(), urls[0].to_owned());
    cluster.more.push((VOLUMES[1], urls[1].to_owned()));
    cluster.routes = [0, 1].map(|_| Route { env: in_store(port), ..Route::default() });
    for url in urls {
        let mut format = Command::new(PANDO);
        format.args(["format", url]).env("PANDO_HOST_DIRECTORY", cluster.world.hosts());
        assert!(format.envs(in_store(port)).stdin(Stdio::null()).status().unwrap().success());
    }
    let await_both = |cluster: &Cluster, number: usize, state: &str| {
        for volume in VOLUMES {
            cluster.await_state_of(number, volume, state);
        }
    };
    cluster.start(0);
    await_both(&cluster, 0, "serving");
    cluster.start(1);
    await_both(&cluster, 1, "standby");
    let mounts = VOLUMES.map(|volume| cluster.mount_volume(volume, volume));
    let mut writers = VOLUMES.map(|name| Writer::new(&cluster.world.path().join(name).join(name)));
    let step = |writers: &mut [Writer; 2]| {
        (0..5).for_each(|_| writers.iter_mut().for_each(Writer::step));
    };
    step(&mut writers);
    cluster.kill(0);
    step(&mut writers);
    await_both(&cluster, 1, "serving");
    cluster.start(0);
    await_both(&cluster, 0, "standby");
    // And back, in order.
    cluster.end(1);
    step(&mut writers);
    await_both(&cluster, 0, "serving");
    for ((volume, mount), writer) in VOLUMES.iter().zip(&mounts).zip(&writers) {
        writer.verify(mount);
        let names = fs::read_dir(mount).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), [*volume], "what the other volume has is not in it");
    }
    let all = objects.all();
    assert!(
        all.keys().all(|name| name.starts_with("/bucket/one/") || name.starts_with("/bucket/two/"))
    );
}
