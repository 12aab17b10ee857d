//! A volume that is refused when it is opened is left as it is.

use std::sync::Arc;

use device::{Env, Objects};
use format::key::{self, Counter};
use inode::NameHash;
use opening::create::FormatOptions;
use store::{Batch, Commit, Read};
use testing::{FarBlobs, MemStore, sim_env};
use volume::subvol::VOLUME;
use volume::{Core, OpenError, OpenOptions, record_copies};

/// In an object store each opening reserves numbers of segments. One that fails reserves none:
/// otherwise a falsified volume would change with each attempt, and its numbers would run out.
#[test]
fn a_refused_volume_in_an_object_store_reserves_no_numbers() {
    let big = |number: u64| Some(number.to_le_bytes().to_vec());
    let falsified = [
        (key::counter(Counter::NextTree).to_vec(), big(0)),
        (key::counter(Counter::NextTree).to_vec(), big(u64::MAX)),
        (key::counter(Counter::NextSubvolume).to_vec(), big(u64::MAX)),
        (key::counter(Counter::NextDetached).to_vec(), big(u64::MAX)),
        (key::counter(Counter::Epoch).to_vec(), big(u64::MAX)),
        (key::counter(Counter::NextSegment).to_vec(), big(u64::MAX)),
        (key::subvolume(1).to_vec(), None),
    ];
    for (key, value) in falsified {
        println!("{key:02x?}: {value:02x?}");
        let (sim, store) = (sim_env(1), Arc::new(MemStore::new()));
        let far = FarBlobs::new();
        let env = sim.env();
        let env = Env { objects: Some(Objects::new(far, Arc::clone(&env.clock))), ..env };
        let made = opening::create::format_on(&env, &*store, &FormatOptions::default());
        let header = made.expect("an empty store");
        let open = || {
            let hash = NameHash::new(header.hash_key);
            let below =
                record_copies::over(Arc::<MemStore>::clone(&store)).expect("it is in memory");
            Core::open(env.clone(), below, header.clone(), &OpenOptions::default(), hash).map(drop)
        };
        let reserved =
            || store.get(VOLUME, &key::counter(Counter::NextSegment)).expect("it is in memory");
        open().expect("it was made just now");
        assert!(reserved().is_some(), "a volume that opens reserves numbers");
        let mut batch = Batch::new();
        match &value {
            Some(value) => batch.put(VOLUME, &key, value),
            None => batch.delete(VOLUME, &key),
        }
        store.commit(&batch).expect("it is in memory");
        let before = reserved();
        let refused = open();
        assert!(matches!(refused, Err(OpenError::Inconsistent(_))), "{refused:?}");
        assert_eq!(reserved(), before, "nothing was reserved");
    }
}
