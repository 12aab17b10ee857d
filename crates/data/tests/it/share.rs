//! Reflinks: what they show, and what no change of either side may give back.

use crate::support::{Volume, check_records, pattern};

const TREE: u64 = 32;

#[test]
fn a_reflink_shows_the_source_and_outlives_it() {
    let mut volume = Volume::new(1);
    volume.write(TREE, 1, 0, &pattern(1, 300_000)).unwrap();
    volume.write(TREE, 1, 500_000, &pattern(2, 100)).unwrap();
    volume.share((TREE, 1, 1000), (TREE, 2, 77), 499_050).unwrap();
    volume.verify();
    volume.truncate(TREE, 1, 0).unwrap();
    volume.collect().unwrap();
    volume.clean(true).unwrap();
    volume.verify();
    volume.release(TREE, 2).unwrap();
    volume.collect().unwrap();
    assert!(check_records(&volume.store), "all of it is given back by a collection");
}

/// A view beside the copied range names the page that the last copied byte is in. Were it not
/// flagged as well, its removal would give the page back while the copy shows it.
#[test]
fn the_page_at_the_border_of_a_copy_is_kept() {
    let mut volume = Volume::new(2);
    volume.write(TREE, 1, 0, &pattern(3, 100_000)).unwrap();
    // Two views of one stored range, that meet in the page of bytes 49152 to 53247.
    volume.punch(TREE, 1, (50_000, 50_100)).unwrap();
    volume.share((TREE, 1, 0), (TREE, 2, 0), 50_000).unwrap();
    volume.punch(TREE, 1, (0, 50_000)).unwrap();
    volume.punch(TREE, 1, (50_100, 100_000)).unwrap();
    volume.sync().unwrap();
    volume.clean(true).unwrap();
    volume.verify();
}

#[test]
fn a_range_is_copied_within_its_file() {
    let mut volume = Volume::new(3);
    volume.write(TREE, 1, 0, &pattern(4, 200_000)).unwrap();
    volume.share((TREE, 1, 10_000), (TREE, 1, 100_500), 60_000).unwrap();
    volume.verify();
    volume.share((TREE, 1, 100_500), (TREE, 1, 0), 60_000).unwrap();
    volume.write(TREE, 1, 120_000, &pattern(5, 5000)).unwrap();
    volume.clean(true).unwrap();
    volume.verify();
    volume.collect().unwrap();
    volume.verify();
}
