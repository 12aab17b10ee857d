//! Followers: what `pando status` shows of them, and how they end, whatever they are doing.

use std::fs;
use std::time::Duration;

use device::{Clock, SystemClock};

use crate::index::{Follower, rename};
use crate::other_users::Nobody;
use crate::world::{World, is_root, wait_until};

/// The index is another process's, and the caller may be another user.
#[test]
fn an_index_reports_its_source_its_last_scan_and_its_follower() {
    assert!(World::new().status()["index"].is_null(), "no index");
    let world = World::without_volume();
    let source = world.source();
    fs::write(source.join("file"), b"").unwrap();
    let mut follower = Follower::new(&world, &source, "--watch=inotify");
    let index = || world.status()["index"].clone();
    wait_until("it is followed", || !index()["followed"].is_null());
    let reported = index();
    assert_eq!(reported["source"], source.to_str().unwrap());
    assert_eq!(reported["followed"]["by"], "inotify");
    assert_eq!(reported["followed"]["pid"], follower.process.id());
    assert_eq!(
        (&reported["scanned"]["unread"], &reported["unfinished"]),
        (&0.into(), &false.into())
    );
    let time: jiff::Timestamp = reported["scanned"]["updated"].as_str().unwrap().parse().unwrap();
    assert!(time.duration_until(jiff::Timestamp::now()) < jiff::SignedDuration::from_secs(600));
    let text = world.ok(&["status", world.vol()]);
    let line = format!("followed    by inotify, process {}", follower.process.id());
    assert!(text.contains(&line) && text.contains(", updated "), "{text}");
    if is_root() {
        let other = Nobody::new(&world).run(&["status", world.vol()]);
        assert!(other.out.contains(&line), "{} {}", other.out, other.err);
    }
    follower.end();
    wait_until("it is not followed", || index()["followed"].is_null());
    assert_eq!(index()["source"], reported["source"]);
}

/// An update under way is dropped: the next scan reports its changes. Regression: such a follower
/// ended with an error.
#[test]
fn following_stops_cleanly_during_an_update() {
    let world = World::without_volume();
    let (source, tree) = (world.path().join("source"), world.path().join("tree"));
    fs::create_dir(&source).unwrap();
    for directory in 0..40 {
        let directory = tree.join(format!("d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..250 {
            fs::write(directory.join(format!("f{file}")), b"").unwrap();
        }
    }
    let clock = SystemClock::new();
    for round in 0..6 {
        fs::write(source.join(format!("{round}")), b"").unwrap();
        let mut follower = Follower::new(&world, &source, "--watch=inotify");
        // It waits 50 ms for more before it looks, and then reads all of it.
        rename(&tree, source.join("tree")).unwrap();
        clock.sleep(Duration::from_millis(60 + 40 * round));
        follower.end();
        rename(source.join("tree"), &tree).unwrap();
    }
}
