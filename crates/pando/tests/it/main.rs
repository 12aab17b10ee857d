//! The real binary against real volumes, mounts and users.
#![expect(clippy::unwrap_used, reason = "tests stop at what they do not expect")]

/// Tests that run on each engine: for each named function, one for the B-tree and one for the
/// log-structured engine, `NAME::btree` and `NAME::lsm`.
macro_rules! on_each_engine {
    ($($test:ident),+ $(,)?) => {
        $(mod $test {
            #[test]
            fn btree() {
                super::$test("btree");
            }

            #[test]
            fn lsm() {
                super::$test("lsm");
            }
        })+
    };
}

/// Tests whose claim is of what is above the engines: one for each named function. It runs on the
/// named engine, and with `PANDO_SLOW` (`make soak-mounts`) on both.
macro_rules! on_one_engine {
    ($engine:literal: $($test:ident),+ $(,)?) => {
        $(mod $test {
            #[test]
            fn above_the_engines() {
                for engine in crate::world::engines($engine) {
                    super::$test(engine);
                }
            }
        })+
    };
}

mod admission;
mod bad_input;
mod bad_stores;
mod bench;
mod bulk_ended;
mod certificates;
mod cluster_demo;
mod demo;
mod diff;
mod dump_columns;
mod ended_streams;
mod ended_traces;
mod etcd_trouble;
mod export;
mod extremes;
mod export_ended;
mod failover;
mod far;
mod far_admin;
mod far_locks;
mod far_memory;
mod far_states;
mod far_verbs;
mod far_volumes;
mod find;
mod find_actions;
mod find_over_base;
mod find_sorted;
mod find_words;
mod follow_end;
mod fsck;
mod full_disk;
mod habits;
mod held_trees;
mod hostile_find;
mod idle_sessions;
mod import;
mod import_again;
mod import_bucket;
mod import_ended;
mod import_list;
mod import_memory;
mod import_tar;
mod import_whole;
mod index;
mod index_progress;
mod kernel_caches;
mod kill;
mod kill_queries;
mod limits;
mod link_edge;
mod links;
mod load;
mod log_dir;
mod maps;
mod maps_refused;
mod messages;
mod metrics;
mod mounts;
mod newcomer;
mod object_store;
mod other_users;
mod daemon;
mod partition;
mod planted;
mod quota;
mod removed_snapshots;
mod replay_strict;
mod restore_from;
mod retention;
mod search_box;
mod search_dir;
mod search_limits;
mod sessions;
mod shown;
mod stream_holds;
mod streaming;
mod streaming_bounds;
mod streams;
mod terminal;
mod totals;
mod totals_by_group;
mod totals_over_base;
mod trace;
mod trace_shipped;
mod trash;
mod truth;
mod truth_info;
mod two_servers;
mod typed_paths;
mod verbs;
mod world;
