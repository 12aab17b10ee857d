//! An old block is put back where a place was reused: damage that a structure's own bytes do not
//! show, because they are whole.
//!
//! A node, a page of counts and a long value that were in the same place at an earlier checkpoint
//! are valid in themselves. Only the checksum in the pointer to the place shows that they are
//! stale. Contents of a file have no header: the checksum in the record of the extent finds that
//! they are old.

use std::collections::BTreeMap;

use fs::Engine;

use super::anatomy::{DamageSite, places};
use super::damage::{Damage, Target};
use super::made::{as_it_was, made_worn};
use super::run::{Table, assert_struck, campaign, name, shown};
use super::selection::Selection;
use crate::script::scale;
use crate::subject::Base;

/// A whole earlier one of these has to be put back in its place.
const OLD_BTREE: &[&str] = &[
    "contents in an open segment",
    "interior node",
    "leaf",
    "long value",
    "node above the top directory",
    "node of the catalog",
    "node of the copies of its records",
    "node of the volume's own tree",
    "page of counts",
    "superblock",
];

/// A whole earlier one of these, or one of an earlier file of that kind: its files are never
/// written over.
const OLD_LSM: &[&str] = &[
    "block of a run",
    "block of a value log",
    "contents in an open segment",
    "copy of the manifest",
    "index of a run",
    "manifest",
    "run of the copies of its records",
    "run of the volume's own tree",
];

/// The same on either engine.
const OLD_ANY: &[&str] = &["cluster of the index", "manifest of the index"];

#[expect(clippy::print_stdout, reason = "the seed comes first, and the table is documented")]
fn worn(engine: Engine, base: &Base, wanted: &[&'static str]) {
    let mut table = Table::new();
    let lists = [wanted, OLD_ANY];
    // The place of the next write is chance: what no volume had twice in one place, the next
    // has.
    for seed in 70..78 {
        let is_struck = |structure: &&str| table.contains_key(&(structure, Damage::Old));
        let is_enough =
            || !Selection::asked().is_all() || lists.iter().copied().flatten().all(is_struck);
        if seed >= scale(71, 73) && is_enough() {
            break;
        }
        println!("seed {seed}");
        let volume = made_worn(seed, base);
        let were: Vec<Vec<DamageSite>> = volume.olds.iter().map(places).collect();
        let how = (seed, &[Damage::Old][..], were.as_slice());
        campaign((&volume, &volume.closed, "worn"), how, &|_| true, &mut table);
        let open = |place: &DamageSite| place.structure == "contents in an open segment";
        campaign((&volume, &volume.crashed, "crashed"), how, &open, &mut table);
        // What by chance is nowhere in a place where one of its kind was, was so at times before.
        for at in (1..were.len()).rev() {
            let (media, before) = (&volume.olds[at], (&volume.olds[..at], &were[..at]));
            let target = Target { all: &were[at], olds: before.0, were: before.1 };
            let is_missing =
                |place: &&DamageSite| !table.contains_key(&(place.structure, Damage::Old));
            let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
            let mut was_there = |place: &&DamageSite| {
                let read = || media.read(&place.path);
                is_missing(place)
                    && target
                        .same_kind(place, files.entry(place.path.clone()).or_insert_with(read))
                        .is_some()
            };
            let Some(place) = were[at].iter().find(|place| was_there(place)) else { continue };
            let earlier = as_it_was(media, base, before.0);
            let how = (seed, &[Damage::Old][..], before.1);
            campaign((&earlier, media, "worn"), how, &|other| other == place, &mut table);
        }
    }
    print!("{}", shown(&format!("{}, worn", name(engine)), &table));
    assert_struck(&table, Damage::Old, &lists, name(engine));
}

#[test]
fn an_old_block_restored_in_a_b_tree_is_reported() {
    worn(Engine::Btree, &Base::Engine(Engine::Btree), OLD_BTREE);
}

#[test]
fn an_old_block_restored_in_the_log_structured_engine_is_reported() {
    worn(Engine::Lsm, &Base::Column, OLD_LSM);
}
