//! The setting that bounds the memory of a server.

use crate::world::World;

#[test]
fn the_memory_of_a_server_is_at_least_what_its_parts_need() {
    let world = World::new();
    let refused = world.run(&["serve", "--memory", "1M", world.vol()]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("at least 128 MiB"), "{}", refused.err);
    let parts = ["serve", "--memory", "1G", "--cache-size", "900M", world.vol()];
    let refused = world.fails(2, &parts);
    assert!(refused.contains("more than half of the memory"), "{refused}");
    assert!(refused.contains("only --memory"), "{refused}");
}
