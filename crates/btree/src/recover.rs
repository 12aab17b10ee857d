//! Creating a store, and opening one: the newest whole superblock, then the log after it.
//!
//! The two superblocks are equal, except after a crash between writing one and the other. Then one
//! may be torn, or a checkpoint behind, and nothing that the older state needs was freed yet. So
//! either of them is enough, and the newer is used. A superblock of another volume counts as a torn
//! one: it is replaced once the state that ours points to was read.
//!
//! A superblock that can be read need not be durable. The process that wrote it may have been
//! killed before the sync, or its sync may have failed. A later sync then has nothing to write. So
//! the superblock that is opened is written again and synced before the log is trimmed for it. The
//! same is done before space is reused that the one before refers to. Until then the other
//! superblock, whatever its content, may be the only durable one, so this one is written second.
//!
//! If it is not known that the superblock that was read is the newest, the store opens read-only.
//! That is the case when the other one could not be read or is damaged, and this one may have been
//! written alternately with it. All nodes that the store writes then, to replay the log, stay in
//! memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Env, File, Overlay};
use format::Corruption;
use format::catalog::{CatalogKey, RootRecord};
use format::superblock::{Decoded, SUPERBLOCK_BYTES, Superblock, VERSION};
use store::{Error, Journal, Lsn, Result};

use crate::checkpoint::{CheckpointState, FREED_MAX, Gather, SUPERBLOCK_FILES};
use crate::checkpoint::{create_superblocks, write_superblocks};
use crate::copied::{Copied, copy_forward};
use crate::core::Core;
use crate::nodes::{NODES_FILE, Nodes};
use crate::options::Options;
use crate::replay::Replayer;
use crate::space::Space;
use crate::tree::Root;

const DIRECTORY: &str = "btree";

/// Creates an empty store.
pub(crate) fn create(env: &Env, options: &Options) -> Result<Core> {
    env.device.create_dir(DIRECTORY)?;
    let journal = Journal::create(env, &options.common)?;
    let nodes = Nodes::new(env.device.create(NODES_FILE)?);
    let catalog = Root::empty(&nodes.budget);
    let state = CheckpointState {
        space: Space::empty(),
        generation: 0,
        lsn: Lsn(0),
        catalog: None,
        next_trash: 0,
        gather: Gather::default(),
    };
    // Both superblocks exist before the first checkpoint, which replaces them; until then their
    // pointer is invalid and is refused.
    let nowhere = format::Pointer { unit: 0, units: 1, overflows: false, checksum: 0 };
    let superblock = Superblock {
        volume: options.common.volume,
        generation: 0,
        lsn: 0,
        groups: 0,
        next_trash: 0,
        time: env.clock.now().0,
        directory: nowhere,
        catalog: nowhere,
        catalog_level: 0,
    };
    create_superblocks(env.device.as_ref(), &superblock)?;
    env.device.sync_dir(DIRECTORY)?;
    env.device.sync_dir("")?;
    let superblocks = open_superblocks(env)?;
    let core = Core::new(env, options.clone(), nodes, superblocks, catalog, (state, journal));
    core.checkpoint_locked(&mut core.checkpoint.lock(), FREED_MAX)?;
    Ok(core)
}

/// Opens a store.
pub(crate) fn open(env: &Env, options: &Options) -> Result<Core> {
    let Chosen { slot, superblock, doubt } = newest(&open_superblocks(env)?, options)?;
    let env = &match doubt {
        Some(_) => Env { device: Arc::new(Overlay::new(Arc::clone(&env.device))), ..env.clone() },
        None => env.clone(),
    };
    let superblocks = open_superblocks(env)?;
    let nodes = Nodes::new(open_file(env, NODES_FILE)?);
    let space = Space::open(&nodes, superblock.directory)?;
    if space.groups.len() as u64 != superblock.groups {
        let found = format!("{} groups", space.groups.len());
        return Err(damaged(NODES_FILE, format!("{} groups", superblock.groups), found).into());
    }
    let catalog = Root::on_disk(superblock.catalog, superblock.catalog_level);
    let state = CheckpointState {
        space,
        generation: superblock.generation,
        lsn: Lsn(superblock.lsn),
        catalog: Some(RootRecord { pointer: superblock.catalog, level: superblock.catalog_level }),
        next_trash: superblock.next_trash,
        gather: Gather::default(),
    };
    let (trees, trash) = count_records(&nodes, &catalog)?;
    if doubt.is_none() {
        write_superblocks(&superblocks, slot, &superblock)?;
    }
    let from = Lsn(superblock.lsn);
    let journal = Journal::of_state(env, &options.common, from);
    let core = Core::new(env, options.clone(), nodes, superblocks, catalog, (state, journal));
    core.tree_count.store(trees, Ordering::Relaxed);
    core.trash.store(trash, Ordering::Relaxed);
    core.journal.found_checkpoint(superblock.time);
    let mut replay = Replayer::new(&core, from, doubt.is_none());
    let start = env.clock.monotonic();
    core.journal.replay(&mut replay)?;
    if !replay.wrote() {
        core.measured_replay(env.clock.monotonic().saturating_sub(start));
    }
    core.trim_replayed();
    if let Some(why) = doubt {
        core.journal.open_read_only(why);
    }
    core.settle_lost();
    Ok(core)
}

pub(crate) fn open_file(env: &Env, path: &str) -> Result<Arc<dyn File>> {
    env.device.open(path).map_err(|error| {
        if error.is_not_found() {
            Error::Missing { file: path.to_owned(), record: None }
        } else {
            error.into()
        }
    })
}

pub(crate) fn open_superblocks(env: &Env) -> Result<[Arc<dyn File>; 2]> {
    let [first, second] = SUPERBLOCK_FILES;
    Ok([open_file(env, first)?, open_file(env, second)?])
}

/// The superblock that a store is opened by.
struct Chosen {
    /// Its index.
    slot: usize,
    superblock: Superblock,
    /// Why it may not be the newest, or may not be replaced.
    doubt: Option<String>,
}

/// Why a superblock cannot be used.
enum Bad {
    /// The disk failed to read it. A retry may succeed.
    Unread(device::Error),
    Damaged(Corruption),
}

/// The newest valid superblock.
fn newest(files: &[Arc<dyn File>; 2], options: &Options) -> Result<Chosen> {
    let mut best: Option<(usize, Superblock)> = None;
    let mut in_turns = false;
    let mut bad = None;
    for (slot, (file, path)) in files.iter().zip(SUPERBLOCK_FILES).enumerate() {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let decoded = match file.read_at(&mut bytes, 0) {
            Ok(read) => Superblock::decode(&bytes[..read]),
            Err(error) if error.is_shortage() => return Err(error.into()),
            Err(error) => {
                tracing::warn!(path, %error, "a superblock could not be read");
                // If both fail, report the error that a retry may clear.
                bad = Some(Bad::Unread(error));
                continue;
            }
        };
        let superblock = match decoded {
            Ok(Decoded::Newer(found)) => {
                return Err(Error::NewerFormat { file: path.to_owned(), found, known: VERSION });
            }
            Ok(Decoded::Superblock(found) | Decoded::InTurns(found))
                if found.volume != options.common.volume =>
            {
                tracing::warn!(path, "a superblock is of another volume");
                let expected = format!("volume {:02x?}", options.common.volume);
                let of_another = damaged(path, expected, format!("{:02x?}", found.volume));
                bad.get_or_insert(Bad::Damaged(of_another));
                continue;
            }
            Ok(Decoded::Superblock(superblock)) => superblock,
            Ok(Decoded::InTurns(superblock)) => {
                in_turns = true;
                superblock
            }
            Err(malformed) => {
                tracing::warn!(path, %malformed, "a superblock is torn or damaged");
                bad.get_or_insert(Bad::Damaged(malformed.located(path, 0)));
                continue;
            }
        };
        if best.as_ref().is_none_or(|(_, best)| best.generation < superblock.generation) {
            best = Some((slot, superblock));
        }
    }
    match (best, bad) {
        (Some((_, best)), None) if best.generation == 0 => Err(no_state().into()),
        (Some((slot, superblock)), bad) if superblock.generation > 0 => {
            let doubt = bad.as_ref().and_then(|bad| doubt(bad, slot, in_turns));
            Ok(Chosen { slot, superblock, doubt })
        }
        (_, Some(Bad::Unread(error))) => Err(error.into()),
        (_, Some(Bad::Damaged(error))) => Err(error.into()),
        (_, None) => unreachable!("each superblock is whole or not"),
    }
}

/// Why nothing is written by the superblock at `slot`, given the error of the other one.
fn doubt(bad: &Bad, slot: usize, in_turns: bool) -> Option<String> {
    let other = SUPERBLOCK_FILES[1 - slot];
    match bad {
        Bad::Unread(error) => Some(format!(
            "{other} could not be read, and may be newer ({error}): open the volume again when \
             it can be read, or have `pando fsck --repair` rewrite it"
        )),
        // Nothing was freed of the state that this one points to.
        Bad::Damaged(_) if !in_turns => None,
        Bad::Damaged(error) => Some(format!(
            "{other} is damaged, and may have been newer ({error}): an older program wrote \
             {}, whose state may point to space that is in use again; copy the volume, then have \
             `pando fsck --repair` continue from that state",
            SUPERBLOCK_FILES[slot]
        )),
    }
}

fn damaged(file: &str, expected: String, found: String) -> Corruption {
    let (file, structure) = (file.to_owned(), "superblock");
    Corruption { file, offset: 0, structure, expected, found, unread: false }
}

/// No superblock points to a state.
pub(crate) fn no_state() -> Corruption {
    damaged(
        SUPERBLOCK_FILES[0],
        "one that points to a state".to_owned(),
        "none of the two".to_owned(),
    )
}

/// How many trees and how much trash the catalog lists.
fn count_records(nodes: &Nodes, catalog: &Root) -> Result<(u64, u64)> {
    let (mut trees, mut trash) = (0, 0);
    let mut copied = Copied::default();
    let mut next = Some(Vec::new());
    while let Some(from) = next.take() {
        next = copy_forward(nodes, catalog, &from, &mut copied)?;
        for at in 0..copied.len() {
            match CatalogKey::decode(copied.key(at)) {
                Ok(CatalogKey::Tree(_)) => trees += 1,
                Ok(CatalogKey::Trash(_)) => trash += 1,
                Err(malformed) => return Err(malformed.located(NODES_FILE, 0).into()),
            }
        }
    }
    Ok((trees, trash))
}

#[cfg(test)]
mod tests {
    use store::{Batch, Commit, Durable, Maintain, Read, TreeId};
    use testing::{CrashPolicy, Fault, FaultOn, Op, SimEnv};

    use crate::{BtreeStore, Options};

    const TREE: TreeId = TreeId(32);

    /// Each sync of a checkpoint fails once; the store is opened again on the same disk, and then
    /// the power is cut.
    #[test]
    fn data_of_a_failed_sync_is_durable_after_reopening() {
        let mut options = Options::with_cache(8 << 20);
        // So short that a checkpoint makes segments superfluous.
        options.common.log_segment_bytes = 32 << 10;
        let mut failed = 0;
        for case in 0..100_u64 {
            let (sim, fault) = (testing::sim_env(case), case % 10);
            let store = BtreeStore::create(&sim.env(), &options).unwrap();
            let put = |store: &BtreeStore, key: u64| {
                let mut batch = Batch::new();
                batch.put(TREE, &key.to_be_bytes(), &[key as u8; 500]);
                store.commit(&batch).unwrap();
            };
            let mut batch = Batch::new();
            batch.create_tree(TREE);
            store.commit(&batch).unwrap();
            assert!(store.checkpoint().unwrap());
            (0..200).for_each(|key| put(&store, key));
            store.sync(store.last_commit()).unwrap();
            sim.device.inject(Fault::io(FaultOn::Only(Op::Sync), fault));
            failed += u32::from(store.checkpoint().is_err());
            sim.device.clear_faults();
            drop(store);
            let there = |sim: &SimEnv| {
                let store = BtreeStore::open(&sim.env(), &options)
                    .unwrap_or_else(|error| panic!("case {case}: {error}"));
                (0..200_u64).for_each(|key| {
                    let value = store.get(TREE, &key.to_be_bytes()).unwrap();
                    assert_eq!(value, Some(vec![key as u8; 500]), "case {case}");
                });
            };
            there(&sim);
            there(&SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, case), case));
        }
        assert!(failed > 10, "{failed} checkpoints failed");
    }
}
