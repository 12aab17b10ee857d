//! Followers that are ended, whatever they are doing.

use std::fs;
use std::time::Duration;

use device::{Clock, SystemClock};

use crate::index::{Follower, rename};
use crate::world::World;

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
