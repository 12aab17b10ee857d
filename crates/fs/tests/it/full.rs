//! The medium is full in the middle of anything: an operation that finds no room has no effect,
//! everything can still be read, and with room again the volume goes on.

use store::Durability;
use testing::{CrashPolicy, SimDevice};

use crate::script::{Script, Step, check_state, options, scale};
use crate::subject::{Base, FsSubject};

#[test]
fn full_disk_in_the_middle_of_anything_changes_nothing_and_passes() {
    for seed in 0..scale(48, 300) {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let mut script = Script::new(&device, seed, Durability::Async, &Base::Engine);
        for _ in 0..20 {
            assert_eq!(script.step(), Step::Done);
        }
        let mut random = fastrand::Rng::with_seed(seed);
        device.set_capacity(Some(device.used_bytes() + random.u64(..40) * 4096));
        let mut refused = 0;
        let mut latched = false;
        for _ in 0..100 {
            match script.step() {
                Step::Done => {}
                Step::NoSpace => refused += 1,
                Step::ReadOnly => {
                    latched = true;
                    break;
                }
                Step::Failed => panic!("seed {seed}: a full medium is no I/O error"),
            }
        }
        script.compare();
        println!("{refused} operations found no room; latched: {latched}");

        // A full volume opens, after a crash too.
        let medium = device.after_crash(CrashPolicy::LoseAll, seed);
        medium.set_capacity(Some(medium.used_bytes()));
        let mut subject = FsSubject::open(&medium, &options(Durability::Async), &Base::Engine)
            .unwrap_or_else(|error| panic!("seed {seed}: a full volume opens: {error}"));
        check_state(&mut subject, &script.states.lock(), &format!("seed {seed}, full"));
        drop(subject);

        // With room it goes on.
        device.set_capacity(None);
        if !latched {
            for _ in 0..40 {
                assert_eq!(script.step(), Step::Done, "seed {seed}: there is room again");
            }
            script.compare();
        }
    }
}
