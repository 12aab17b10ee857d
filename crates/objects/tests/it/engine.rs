//! The suite of every engine on the log-structured one, with its runs and manifests on a server.
//!
//! Twice, because there are two ways to ask a store what it has. [`Alone`] has a prefix of the
//! server for itself, and lists, makes, reads and deletes there: what needs no power cut runs so.
//! For the others the server would have to go back to what it had when the power was cut, with
//! another store still at it. There the simulated disk has the names of what was there at each
//! moment (`SimObjects`), and the server has the bytes. Each request that makes, deletes or reads
//! may be cut off, fail, or lose its answer.
//!
//! What means nothing here:
//! * `store_conformance_damaged`: the bytes are the server's, and a test cannot flip one of them.
//!   Damage is tested where the disk has the bytes (`far_suite` of the engine), and bytes that
//!   change on their way in `mishaps`.
//! * `store_conformance_bounded`: there a test sets the space of the disk, and a server
//!   has as much as it has. One that reports that it is full, at each request in turn, is among the
//!   rest.
//!
//! A request takes a hundred times what a read of memory does, so runs are shorter (`SPARED`).

use std::sync::{Arc, OnceLock};

use device::{Blobs, Device};
use lsm::{BlobStore, LsmStore, Options};
use store::{Durability, Result, Store};
use testing::store_conformance::{Begin, EngineUnderTest, small};
use testing::{SimEnv, SimObjects};

use super::{fresh_prefix, open_for_engine as open};

fn options(durability: Durability, blobs: Arc<dyn Blobs>) -> Options {
    Options {
        common: small(durability),
        block_bytes: 1 << 10,
        compression: 0,
        blobs: Some(BlobStore(blobs)),
        ..Options::default()
    }
}

mod alone {
    use super::*;

    /// The file of the disk with the prefix of its objects.
    const PREFIX: &str = "prefix";

    /// A store that has a prefix of the server for itself.
    struct Alone;

    fn prefix(device: &dyn Device) -> String {
        let length = device.metadata(PREFIX).expect("known").map_or(0, |found| found.length);
        let mut bytes = vec![0; length as usize];
        if length > 0 {
            device.open(PREFIX).expect("there").read_at(&mut bytes, 0).expect("readable");
        }
        String::from_utf8(bytes).expect("text")
    }

    impl EngineUnderTest for Alone {
        const NAME: &'static str = "lsm on objects";
        const SPARED: u64 = 12;
        const SPARED_SHORT: u64 = 4;

        fn begin(
            sim: &SimEnv,
            durability: Durability,
            how: Begin,
            _log_segment_bytes: Option<u64>,
        ) -> Result<Arc<dyn Store>> {
            if how == Begin::Open {
                let blobs = open(&prefix(&sim.device));
                return Ok(LsmStore::open(&sim.env(), &options(durability, blobs))?);
            }
            let prefix = fresh_prefix();
            let file = sim.device.create(PREFIX)?;
            file.write_at(prefix.as_bytes(), 0)?;
            file.sync_data()?;
            sim.device.sync_dir("")?;
            Ok(LsmStore::create(&sim.env(), &options(durability, open(&prefix)))?)
        }
    }

    testing::store_conformance_volatile!(Alone);
    testing::store_conformance_tests!(Alone:
        a_closed_store_opens_again,
        a_dropped_store_opens_again_with_what_was_synced,
        a_dropped_tree_frees_its_space,
        a_pin_outlives_the_trees_that_it_shows,
        a_log_record_is_never_written_before_its_barrier,
        conflicting_commits_are_applied_in_the_order_of_the_log,
    );
}

mod cut {
    use super::*;

    /// A store of which the disk has the names of the objects, and the server the bytes.
    struct Cut;

    impl Cut {
        fn options(sim: &SimEnv, durability: Durability) -> Options {
            /// All keys are different, so one prefix has space for all.
            static SERVER: OnceLock<Arc<dyn Blobs>> = OnceLock::new();
            let server = SERVER.get_or_init(|| open(&fresh_prefix()));
            options(durability, SimObjects::on(&sim.device, "far", Arc::clone(server)))
        }
    }

    impl EngineUnderTest for Cut {
        const NAME: &'static str = "lsm on objects, cut";
        const SPARED: u64 = 8;
        const SPARED_SHORT: u64 = 6;

        testing::engine_begins!(LsmStore, Self::options);
    }

    testing::store_conformance_kept!(Cut);
}
