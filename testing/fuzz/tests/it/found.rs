//! A panic is caught, reported with its place, and its input replayed.

use fuzz::target::{Category, Target, no_checksum};
use fuzz::worker;

const BROKEN: Target = Target {
    name: "broken",
    part: Category::Decoders,
    covers: &[],
    make: |random| vec![random.u8(..)],
    repair: no_checksum,
    run: |bytes| {
        assert!(bytes.first() != Some(&77), "seventy-seven");
        true
    },
};

#[test]
fn only_a_panic_is_a_finding() {
    worker::note_panics();
    assert_eq!(worker::run(&BROKEN, &[1]), Ok(true));
    let (place, what) = worker::run(&BROKEN, &[77]).unwrap_err();
    assert!(place.contains("found.rs") && what.contains("seventy-seven"), "{place}: {what}");
    assert_eq!(worker::run(&BROKEN, &[1]), Ok(true));
}
