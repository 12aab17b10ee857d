//! The volume's own records after a first blow: copies that were given up are never believed, what
//! only the copies have is not given up, a bad sector is as good as damage for reading and no
//! reason to remove anything.

use std::sync::Arc;

use format::key::{self, Counter};
use fs::{Engine, FileSystem, Fs, Repair};
use inode::{Caller, NodeId};
use store::{Batch, Durability, Store, TreeId};

use super::anatomy::{Place, places};
use super::asked::open;
use super::media::Media;
use super::own::{COPY, VOLUME, engine, is_of_copies, is_of_own, options, records};
use super::run::repair;
use crate::check::told;
use crate::check::volume::opened_with;
use crate::subject::{Base, FsSubject};

/// A B-tree volume with so many snapshots that each of both trees has several leaves; and the key
/// of the record of the last, and of one in the middle.
fn with_snapshots(seed: u64) -> (Media, Vec<u8>, Vec<u8>) {
    let media = Media::new(seed, false);
    let base = Base::Engine(Engine::Btree);
    let subject = FsSubject::format_on(media.device(), &opened_with(Durability::Async), &base);
    let (fs, root) = (subject.fs(), Caller::root());
    let one = fs.mkdir(&root, NodeId::ROOT, b"one", 0o755).expect("there is room").node;
    for n in 0..600 {
        fs.snapshot_create(&root, one, format!("s{n:03}").as_bytes()).expect("there is room");
    }
    fs.close().expect("there is room");
    drop(subject);
    let all = records(&*engine(&media.copy().env()), VOLUME);
    let subvolumes: Vec<_> = all.into_keys().filter(|key| key.starts_with(b"S")).collect();
    let (last, middle) = (subvolumes.len() - 1, subvolumes.len() / 2);
    (media, subvolumes[last].clone(), subvolumes[middle].clone())
}

fn zero(media: &Media, place: &Place) {
    media.volume.overwrite(&place.path, place.offset, &vec![0; place.length as usize]);
}

fn heal(media: &Media, place: &Place, from: &Media) {
    let bytes = &from.read(&place.path)[place.offset as usize..];
    media.volume.overwrite(&place.path, place.offset, &bytes[..place.length as usize]);
}

/// Places without which a record cannot be read, while another can.
fn leaf_of(media: &Media, tree: TreeId, lost: &[u8], whole: &[u8]) -> Place {
    let is_of = |place: &Place| if tree == COPY { is_of_copies(place) } else { is_of_own(place) };
    let mut found = places(media).into_iter().filter(is_of).filter(|place| {
        let hurt = media.copy();
        zero(&hurt, place);
        let store = engine(&hurt.env());
        store.get(tree, lost).is_err() && store.get(tree, whole).is_ok()
    });
    found.next().expect("the tree has several leaves")
}

#[test]
fn copies_that_were_given_up_are_not_believed_when_the_other_rots() {
    let (before, last, _) = with_snapshots(120);
    let counter = key::counter(Counter::Root);
    let struck = leaf_of(&before, COPY, &last, &counter);
    let hurt = before.copy();
    zero(&hurt, &struck);
    let subject = open(&hurt).unwrap_or_else(|error| panic!("it opens: {error}"));
    let (fs, root) = (subject.fs(), Caller::root());
    let one = fs.lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
    fs.snapshot_create(&root, one, b"meanwhile").expect("what is whole takes it");
    let damaged = fs.status().expect("it answers").damaged;
    assert!(damaged.is_some_and(|why| why.contains("no copies")));
    fs.close().expect("there is room");
    drop(subject);
    // The medium gives the copies again, and not the volume's own tree.
    heal(&hurt, &struck, &before);
    let rotten = hurt.copy();
    zero(&rotten, &leaf_of(&hurt, VOLUME, &counter, &last));
    let error = open(&rotten.copy()).err().expect("what is left is older").to_string();
    assert!(error.contains("btree/nodes"), "{error}");
    let mended = repair(&rotten, Repair::Do);
    assert!(!mended.after.is_clean() && mended.mended.is_empty(), "{}", told(&mended.after));
    for place in places(&hurt).iter().filter(|place| is_of_own(place)) {
        heal(&rotten, place, &hurt);
    }
    let subject = open(&rotten).unwrap_or_else(|error| panic!("it opens: {error}"));
    let names = subject.fs().snapshot_list(&root, one).expect("it answers");
    assert!(names.iter().any(|info| info.name == b"meanwhile"));
}

#[test]
fn copies_are_not_given_up_while_something_can_be_read_from_them_only() {
    let (hurt, last, middle) = with_snapshots(121);
    let (own, copy) =
        (leaf_of(&hurt, VOLUME, &middle, &last), leaf_of(&hurt, COPY, &last, &middle));
    zero(&hurt, &own);
    zero(&hurt, &copy);
    let mut captured: Option<Arc<dyn Store>> = None;
    let fs = Fs::open_through(hurt.env(), &options(), |store| {
        captured = Some(Arc::clone(&store));
        store
    });
    let (_fs, store) = (fs.expect("it opens"), captured.expect("it was opened"));
    let value = store.get(VOLUME, &middle).expect("the copy answers").expect("it is there");
    let mut batch = Batch::new();
    batch.put(VOLUME, &last, b"other");
    store.commit(&batch).expect_err("what is damaged is needed");
    assert_eq!(store.get(VOLUME, &middle).expect("the copy answers"), Some(value));
}
