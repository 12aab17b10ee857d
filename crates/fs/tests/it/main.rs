//! Tests of the namespace through its calls, one file per operation over the oracle store. The
//! whole is tested on the simulated disk: against the model of POSIX, and with the power cut, the
//! disk full or damaged.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests stop at what they do not expect, and print their progress"
)]

/// Tests that run on each engine: of each function that is named, one for the B-tree and one for
/// the log-structured engine, `NAME::btree` and `NAME::lsm`.
macro_rules! on_each_engine {
    ($($test:ident),+ $(,)?) => {
        $(mod $test {
            #[test]
            fn btree() {
                super::$test(fs::Engine::Btree);
            }

            #[test]
            fn lsm() {
                super::$test(fs::Engine::Lsm);
            }
        })+
    };
}

mod bulk;
mod check;
mod close;
mod collected;
mod column;
mod compare;
mod crash;
mod damage;
mod full;
mod handles;
mod header;
mod log_elsewhere;
mod model;
mod number_edges;
mod objects;
mod objects_back;
mod objects_index;
mod objects_outage;
mod once;
mod open;
mod ops;
mod owner_model;
mod owner_quota;
mod quota;
mod quota_adopt;
mod quota_crash;
mod quota_guards;
mod quota_names;
mod random;
mod removed;
mod scan;
mod script;
mod search;
mod search_bases;
mod search_below;
mod search_bounds;
mod search_cache;
mod search_claims;
mod search_counts;
mod search_counts_damaged;
mod search_cycles;
mod search_declared;
mod search_due;
mod search_fresh;
mod search_gone;
mod search_hostile;
mod search_limits;
mod search_logged;
mod search_memory;
mod search_opening;
mod search_ranges;
mod search_recovered;
mod search_removed;
mod search_totals;
mod search_totals_changed;
mod search_totals_damaged;
mod settled;
#[path = "../../../../testing/fuzz/src/small_index.rs"]
mod small_index;
mod subject;
mod subject_versions;
mod support;
mod threads;
mod trash;
mod trash_back;
mod trash_beside;
mod trash_hostile;
mod trash_model;
mod versions;
mod wide_inodes;

/// Tests allocate much, which takes less time here than in the allocator of the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
