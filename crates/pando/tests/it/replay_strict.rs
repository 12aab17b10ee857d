//! `pando replay --strict` fails if a result differs from the recorded one.

use std::fs;

use crate::world::World;

#[test]
fn a_replay_that_differs_fails_if_strict() {
    let world = World::new();
    let trace = world.path().join("made.trace");
    let trace = trace.to_str().unwrap();
    if !world.mount_with(&["--trace", trace]) {
        return;
    }
    for number in 0..20 {
        fs::create_dir(world.below_mount(&format!("d{number}"))).unwrap();
    }
    world.umount();
    let to = |name: &str| {
        let dir = world.path().join(name);
        fs::create_dir(&dir).unwrap();
        dir.to_str().unwrap().to_owned()
    };
    let same = to("same");
    let report = world.json(&["replay", "--strict", trace, &same]).pop().unwrap();
    assert!(report["calls"].as_u64() >= Some(20), "{report}");
    // The directories are there already: each is refused.
    let report = world.json(&["replay", trace, &same]).pop().unwrap();
    assert_eq!(report["differences"]["failed"], 20, "{report}");
    let refused = world.fails(1, &["replay", "--strict", trace, &same]);
    assert!(refused.contains("differ from the recorded ones"), "{refused}");
}
