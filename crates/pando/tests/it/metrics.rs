//! Metrics of a real mount: against what was done in it, the list in the guide, and the dashboard.

#![expect(clippy::float_cmp, reason = "the values are whole numbers")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use device::{Clock, SystemClock};

use crate::world::{World, wait_until};

const GUIDE: &str = include_str!("../../../../docs/guide/metrics.md");
const DASHBOARD: &str = include_str!("../../../../scripts/package/pando.json");

/// An address on which nobody listens.
fn free_address() -> String {
    format!("127.0.0.1:{}", testing::unused_port())
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    body.to_owned()
}

/// The samples without labels of time, by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.rsplit_once(' ').unwrap());
    pairs.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

/// The names of metrics as a reader of the guide sees them: histograms once.
fn names(samples: &BTreeMap<String, f64>) -> BTreeSet<String> {
    let base = |name: &String| {
        let name = name.split('{').next().unwrap();
        let of_histogram = ["_bucket", "_sum", "_count"];
        of_histogram.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name).to_owned()
    };
    samples.keys().map(base).collect()
}

#[test]
fn metrics_count_what_was_done_in_the_mount() {
    let world = World::new();
    let address = free_address();
    if !world.mount_with(&["--metrics", &address]) {
        return;
    }
    let before = samples(&scrape(&address));
    for number in 0..7 {
        std::fs::create_dir(world.below_mount(&format!("/d{number}"))).unwrap();
    }
    for number in 0..3 {
        std::fs::remove_dir(world.below_mount(&format!("/d{number}"))).unwrap();
    }
    std::fs::create_dir(world.below_mount("/d4/inner")).unwrap();
    assert_eq!(
        std::fs::remove_dir(world.below_mount("/d4")).unwrap_err().kind(),
        std::io::ErrorKind::DirectoryNotEmpty
    );
    let file = std::fs::File::options()
        .write(true)
        .create_new(true)
        .open(world.below_mount("/f"))
        .unwrap();
    (&file).write_all(&[7; 5000]).unwrap();
    let clock = SystemClock::new();
    file.sync_all().unwrap();
    let synced = clock.monotonic().as_secs_f64();
    world.ok(&["snapshot", "create", &world.at("/d5"), "s"]);
    let count = |samples: &BTreeMap<String, f64>, call: &str, outcome: &str| {
        samples[&format!("pando_calls_total{{call=\"{call}\",outcome=\"{outcome}\"}}")]
    };
    // The values are up to a second old.
    wait_until("the scrape shows the snapshot", || {
        samples(&scrape(&address))["pando_snapshots"] == 1.0
    });
    let after = samples(&scrape(&address));
    let grown = |call, outcome| count(&after, call, outcome) - count(&before, call, outcome);
    assert_eq!(grown("mkdir", "done"), 8.0);
    assert_eq!(grown("rmdir", "done"), 3.0);
    assert_eq!(grown("rmdir", "refused"), 1.0, "a directory that is not empty");
    assert_eq!(grown("fsync", "done"), 1.0);
    assert_eq!(count(&after, "fsync", "failed"), 0.0);
    let timed = |name: &str| after[&format!("pando_call_duration_seconds_{name}")];
    assert_eq!(timed("count{call=\"mkdir\"}"), count(&after, "mkdir", "done"));
    assert_eq!(timed("bucket{le=\"+Inf\",call=\"mkdir\"}"), timed("count{call=\"mkdir\"}"));
    // The one call is counted where its time is, which is part of the caller's.
    let sum = timed("sum{call=\"fsync\"}");
    assert!(sum > 0.0 && sum <= synced, "{sum} s of {synced} s");
    let bucket = |name: &str| {
        let labels = name.strip_prefix("pando_call_duration_seconds_bucket{le=\"")?;
        labels.strip_suffix("\",call=\"fsync\"}")?.parse::<f64>().ok()
    };
    let buckets: Vec<_> =
        after.iter().filter_map(|(name, calls)| Some((bucket(name)?, *calls))).collect();
    assert!(buckets.len() > 1, "{buckets:?}");
    for (most, calls) in buckets {
        assert_eq!(
            calls,
            f64::from(u8::from(sum <= most)),
            "{sum} s are in the bucket of {most} s"
        );
    }
    let status = world.status();
    for (metric, field) in [
        ("pando_inodes", "inodes"),
        ("pando_contents_bytes", "bytes"),
        ("pando_clones", "clones"),
        ("pando_disk_bytes", "disk_bytes"),
        ("pando_log_since_checkpoint_bytes", "log_bytes_since_checkpoint"),
    ] {
        assert_eq!(after[metric], status[field].as_f64().unwrap(), "{metric}");
    }
    assert_eq!((after["pando_up"], after["pando_writable"]), (1.0, 1.0));
}

#[test]
fn guide_and_dashboard_name_the_metrics_that_there_are() {
    let world = World::new();
    let address = free_address();
    if !world.mount_with(&["--metrics", &address]) {
        return;
    }
    world.ok(&["sync", world.vol()]);
    let mut found = names(&samples(&scrape(&address)));
    // Absent before the first checkpoint.
    found.insert("pando_last_checkpoint_time_seconds".to_owned());
    let row = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    // A unit test compares those of volumes in an object store, `far_admin` those of servers.
    let of_server = ["pando_client", "pando_serving", "pando_takeovers", "pando_grant"];
    let of_store = |name: &String| {
        name.starts_with("pando_store_") || of_server.iter().any(|of| name.starts_with(of))
    };
    let listed: BTreeSet<String> =
        GUIDE.lines().filter_map(row).filter(|name| !of_store(name)).collect();
    assert_eq!(listed, found, "docs/guide/metrics.md and a scrape");
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut shown = BTreeSet::new();
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let expression = target["expr"].as_str().unwrap();
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| word.starts_with("pando_")) {
            let name = word.strip_suffix("_bucket").unwrap_or(word);
            assert!(found.contains(name), "the dashboard asks for {word}: {expression}");
            shown.insert(name.to_owned());
        }
    }
    assert!(shown.len() > 12, "the dashboard shows {shown:?}");
}

/// Variables of an expression, but those of Grafana itself (`$__rate_interval`).
fn variables(text: &str) -> BTreeSet<&str> {
    let words = text.split('$').skip(1).map(|rest| rest.trim_start_matches('{'));
    let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let names = words.map(|rest| rest.split(is_end).next().unwrap());
    names.filter(|name| !name.starts_with("__")).collect()
}

/// What Grafana needs of a dashboard, by its documentation of the JSON model. Without some of these
/// it refuses the file, or shows a panel without data.
#[test]
fn the_dashboard_has_the_fields_that_grafana_needs() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    assert!(!text(&dashboard["title"]).is_empty());
    let uid = text(&dashboard["uid"]);
    let is_of_uid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    assert!((1..=40).contains(&uid.len()) && uid.chars().all(is_of_uid), "uid {uid}");
    // That of Grafana 10.1, which newer programs migrate.
    assert_eq!(dashboard["schemaVersion"], 39);
    assert!(dashboard["version"].is_u64() && dashboard["id"].is_null(), "an import gives the id");
    for time in ["from", "to"] {
        assert!(text(&dashboard["time"][time]).starts_with("now"), "{}", dashboard["time"]);
    }
    assert!(dashboard["annotations"]["list"].is_array());
    let listed = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<String> = listed.iter().map(|variable| text(&variable["name"])).collect();
    for variable in listed {
        match variable["type"].as_str() {
            Some("datasource") => assert_eq!(variable["query"], "prometheus"),
            Some("query") => {
                assert!(!text(&variable["query"]["query"]).is_empty(), "{variable}");
                assert_eq!(variable["datasource"]["type"], "prometheus", "{variable}");
            }
            other => panic!("a variable of type {other:?}"),
        }
    }
    let is_known = |name: &&str| names.iter().any(|known| known == name);
    let panels = dashboard["panels"].as_array().unwrap();
    let (mut ids, mut places) = (BTreeSet::new(), Vec::<(String, [u64; 4])>::new());
    for panel in panels {
        let title = text(&panel["title"]);
        assert!(!title.is_empty(), "{panel}");
        let id = panel["id"].as_u64().unwrap_or_else(|| panic!("{title} has no id"));
        assert!(ids.insert(id), "{title} has the id of another panel");
        let types = ["stat", "timeseries", "gauge", "bargauge", "table", "heatmap"];
        assert!(types.contains(&&*text(&panel["type"])), "{title}: type {}", panel["type"]);
        assert!(panel["fieldConfig"]["defaults"].is_object(), "{title}");
        assert!(panel["fieldConfig"]["overrides"].is_array(), "{title}");
        let source = &panel["datasource"];
        assert_eq!(source["type"], "prometheus", "{title}");
        assert!(variables(&text(&source["uid"])).iter().all(is_known), "{title}: {source}");
        let at = ["x", "y", "w", "h"].map(|side| {
            panel["gridPos"][side].as_u64().unwrap_or_else(|| panic!("{title} has no {side}"))
        });
        let [x, y, w, h] = at;
        assert!(w > 0 && h > 0 && x + w <= 24, "{title}: {at:?}");
        for (other, [ox, oy, ow, oh]) in &places {
            let apart = x + w <= *ox || ox + ow <= x || y + h <= *oy || oy + oh <= y;
            assert!(apart, "{title} covers {other}");
        }
        places.push((title.clone(), at));
        let targets = panel["targets"].as_array().unwrap();
        let references: BTreeSet<String> = targets.iter().map(|it| text(&it["refId"])).collect();
        assert!(!targets.is_empty() && !references.contains(""), "{title}");
        assert_eq!(references.len(), targets.len(), "{title}: refIds differ");
        for target in targets {
            let expression = text(&target["expr"]);
            assert!(variables(&expression).iter().all(is_known), "{title}: {expression}");
            let (opened, closed) =
                (expression.matches('(').count(), expression.matches(')').count());
            assert!(!expression.is_empty() && opened == closed, "{title}: {expression}");
        }
    }
    assert!(ids.len() > 10, "the dashboard has panels");
}

#[test]
fn an_address_in_use_mounts_nothing() {
    let world = World::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = world.fails(6, &["mount", world.vol(), world.mnt(), "--metrics", &address]);
    assert!(error.contains(&format!("cannot listen on {address} for metrics")), "{error}");
    assert!(error.contains("choose another address or port"), "{error}");
    assert_eq!(fuse::find_mount(&world.mount_point).map(|found| found.mount_point), None);
    let answer = world.run(&["mount", world.vol(), world.mnt(), "--metrics", "127.0.0.1"]);
    assert_eq!(answer.code, 2, "{}", answer.err);
    assert!(answer.err.contains("expected HOST:PORT"), "{}", answer.err);
}
