//! The log-structured engine with its runs and manifests on a server.
//!
//! Left out is what damages or fills the medium: the server is the medium, and it neither flips
//! bits nor runs full when the simulator does. Power cuts are in `cuts`, at requests; those at
//! every write of the log open the store tens of thousands of times, with some forty requests each.
//! So are the longest of the random tests, which read some hundred thousand blocks.

use std::sync::Arc;

use device::{Device, Env};
use lsm::{BlobStore, LsmStore, Options};
use store::{Durability, Result, Store};
use testing::store_conformance::{EngineUnderTest, small};

use super::{fresh_prefix, open};

/// The file of the medium that says below which prefix its objects are.
const PREFIX: &str = "prefix";

struct OnServer;

fn options(durability: Durability, prefix: &str) -> Options {
    Options {
        common: small(durability),
        block_bytes: 1 << 10,
        compression: 0,
        blobs: Some(BlobStore(open(prefix))),
        ..Options::default()
    }
}

fn read_prefix(device: &dyn Device) -> String {
    let length = device.metadata(PREFIX).expect("known").map_or(0, |found| found.length);
    let mut bytes = vec![0; length as usize];
    if length > 0 {
        device.open(PREFIX).expect("there").read_at(&mut bytes, 0).expect("readable");
    }
    String::from_utf8(bytes).expect("text")
}

impl EngineUnderTest for OnServer {
    const NAME: &'static str = "lsm on objects";

    fn create(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        let prefix = fresh_prefix();
        let file = env.device.create(PREFIX)?;
        file.write_at(prefix.as_bytes(), 0)?;
        file.sync_data()?;
        env.device.sync_dir("")?;
        Ok(LsmStore::create(env, &options(durability, &prefix))?)
    }

    fn open(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        let prefix = read_prefix(&*env.device);
        Ok(LsmStore::open(env, &options(durability, &prefix))?)
    }
}

testing::store_conformance_tests!(OnServer:
    a_batch_is_applied_in_order,
    an_empty_batch_is_no_commit,
    a_batch_that_names_no_tree_is_refused_whole,
    a_merge_changes_numbers_in_place,
    keys_and_values_of_every_length_come_back,
    a_clone_and_its_source_do_not_see_each_other,
    a_partial_clone_has_the_prefixes_only,
    a_deleted_range_is_gone,
    a_dropped_tree_is_gone_and_reclaimed,
    cursors_move_as_the_oracle_does,
    a_live_cursor_skips_nothing_and_repeats_nothing,
    a_pin_shows_its_moment,
    differences_are_what_differs,
    pins_of_two_stores_are_not_compared,
    what_is_no_sorted_run_is_refused,
    a_visit_of_clones_visits_what_they_share_once,
    a_torn_batch_is_never_seen,
    writers_on_several_threads_lose_nothing,
    tokens_are_in_order,
    a_closed_store_opens_again,
    a_dropped_store_opens_again_with_what_was_synced,
    a_pin_outlives_the_trees_that_it_shows,
    a_log_record_is_never_written_before_its_barrier,
    conflicting_commits_are_applied_in_the_order_of_the_log,
);
