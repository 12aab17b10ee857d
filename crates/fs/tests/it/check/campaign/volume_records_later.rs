//! The volume's own records after first damage. Abandoned copies are never used, and what only the
//! copies have is not abandoned. A bad sector counts as damage for reading but removes nothing.
//! What an interrupted repair left is reported.

use std::ops::ControlFlow;
use std::sync::Arc;

use device::sync::Mutex;
use format::key::{self, Counter};
use fs::{Engine, FileSystem, Fs, Repair};
use inode::{Caller, NodeId};
use store::{Batch, Durability, Store, TreeId};
use testing::{CrashPolicy, SimDevice, fails};

use super::anatomy::{DamageSite, places};
use super::asked::open;
use super::bad_sector::BadSector;
use super::made::made;
use super::media::Media;
use super::run::{check, repair};
use super::volume_records::{
    BASES, COPY, VOLUME, assert_same, engine, is_of_copies, is_of_own, options, records,
};
use crate::check::reported;
use crate::check::volume::opened_with;
use crate::script::scale;
use crate::subject::{Base, FsSubject};

/// A volume with so many snapshots that each of both trees has several leaves. Also returns the key
/// of the last record, and of one in the middle.
pub(super) fn with_snapshots(seed: u64, on: Engine) -> (Media, Vec<u8>, Vec<u8>) {
    let media = Media::new(seed, false);
    let base = Base::Engine(on);
    let subject = FsSubject::format_on(media.device(), &opened_with(Durability::Async), &base);
    let (fs, root) = (subject.fs(), Caller::root());
    let one = fs.mkdir(&root, NodeId::ROOT, b"one", 0o755).expect("there is space").node;
    for n in 0..600 {
        fs.snapshot_create(&root, one, format!("s{n:03}").as_bytes()).expect("there is space");
    }
    fs.close().expect("there is space");
    drop(subject);
    let all = records(&*engine(&media.copy().env()), VOLUME);
    let subvolumes: Vec<_> = all.into_keys().filter(|key| key.starts_with(b"S")).collect();
    let (last, middle) = (subvolumes.len() - 1, subvolumes.len() / 2);
    (media, subvolumes[last].clone(), subvolumes[middle].clone())
}

pub(super) fn zero(media: &Media, place: &DamageSite) {
    media.volume.overwrite(&place.path, place.offset, &vec![0; place.length as usize]);
}

fn heal(media: &Media, place: &DamageSite, from: &Media) {
    let bytes = &from.read(&place.path)[place.offset as usize..];
    media.volume.overwrite(&place.path, place.offset, &bytes[..place.length as usize]);
}

/// Places without which a record cannot be read, while another can.
pub(super) fn leaf_of(media: &Media, tree: TreeId, lost: &[u8], whole: &[u8]) -> DamageSite {
    let is_of =
        |place: &DamageSite| if tree == COPY { is_of_copies(place) } else { is_of_own(place) };
    let mut found = places(media).into_iter().filter(is_of).filter(|place| {
        let hurt = media.copy();
        zero(&hurt, place);
        let store = engine(&hurt.env());
        store.get(tree, lost).is_err() && store.get(tree, whole).is_ok()
    });
    found.next().expect("the tree has several leaves")
}

#[test]
fn dropped_copies_are_not_trusted_after_later_damage() {
    let (before, last, _) = with_snapshots(120, Engine::Btree);
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
    fs.close().expect("there is space");
    drop(subject);
    // The disk gives the copies again, and not the volume's own tree.
    heal(&hurt, &struck, &before);
    let rotten = hurt.copy();
    zero(&rotten, &leaf_of(&hurt, VOLUME, &counter, &last));
    let error = open(&rotten.copy()).err().expect("what is left is older").to_string();
    assert!(error.contains("btree/nodes"), "{error}");
    let repaired = repair(&rotten, Repair::Do);
    assert!(
        !repaired.after.is_clean() && repaired.repaired.is_empty(),
        "{}",
        reported(&repaired.after)
    );
    for place in places(&hurt).iter().filter(|place| is_of_own(place)) {
        heal(&rotten, place, &hurt);
    }
    let subject = open(&rotten).unwrap_or_else(|error| panic!("it opens: {error}"));
    let names = subject.fs().snapshot_list(&root, one).expect("it answers");
    assert!(names.iter().any(|info| info.name == b"meanwhile"));
}

#[test]
fn copies_are_kept_while_they_are_the_only_readable_source() {
    let (hurt, last, middle) = with_snapshots(121, Engine::Btree);
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
    fails(store.commit(&batch), "btree/nodes is damaged");
    assert_eq!(store.get(VOLUME, &middle).expect("the copy answers"), Some(value));
}

#[test]
fn an_unreadable_sector_is_read_from_the_copy_and_nothing_is_removed() {
    for (seed, base) in (122..).zip(&BASES[..2]) {
        let volume = made(seed, base, false);
        let own = places(&volume.closed).into_iter().filter(is_of_own);
        for place in own {
            let what = format!("{base:?}: {place:?}");
            let media = volume.closed.copy();
            let env = BadSector::env(&media, &place);
            let fs = Fs::open(env.clone(), &options());
            let fs = fs.unwrap_or_else(|error| panic!("{what}: {error}"));
            let root = Caller::root();
            let one = fs.lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
            assert!(!fs.snapshot_list(&root, one).expect("the copies answer").is_empty());
            let status = fs.status().expect("it answers");
            assert!(status.read_only.is_none() || status.damaged.is_some(), "{what}");
            fs.close().expect("there is nothing to write");
            drop(fs);
            let mut proceed = |_, _| ControlFlow::Continue(());
            if let Ok(repaired) = Fs::repair(&env, Repair::Do, &mut proceed) {
                assert!(repaired.repaired.is_empty(), "{what}: {}", reported(&repaired.before));
            }
            assert!(check(&media).is_clean(), "{what}:\n{}", reported(&check(&media)));
            assert_same(&media.env(), &what);
        }
    }
}

/// The disk as a power cut leaves it before each change of a repair.
fn cuts(hurt: &Media) -> Vec<Media> {
    let found: Arc<Mutex<Vec<(u64, SimDevice)>>> = Arc::default();
    let kept = Arc::clone(&found);
    hurt.volume.watch(move |device, op| kept.lock().push((op, device.copy())));
    repair(hurt, Repair::Do);
    hurt.volume.unwatch();
    let found = std::mem::take(&mut *found.lock());
    let after = |(op, device): &(u64, SimDevice)| {
        CrashPolicy::ALL.map(|policy| Media { volume: device.after_crash(policy, *op), log: None })
    };
    found.iter().flat_map(after).collect()
}

#[test]
fn a_volume_gets_its_copies_wherever_their_repair_was_interrupted() {
    for (seed, base) in (125..).zip(&BASES[..2]) {
        let volume = made(seed, base, false);
        let hurt = volume.closed.copy();
        let place = places(&hurt).into_iter().find(is_of_copies).expect("there are copies");
        zero(&hurt, &place);
        let all = cuts(&hurt);
        let step = all.len().div_ceil(scale(40, u64::MAX) as usize).max(1);
        for (n, media) in all.iter().step_by(step).enumerate() {
            let fs = Fs::open(media.env(), &options()).expect("the volume's own tree is whole");
            fs.close().expect("there is space");
            drop(fs);
            let value = engine(&media.env()).get(VOLUME, &key::counter(Counter::Root));
            let value = value.expect("it is whole").expect("it is there");
            assert_eq!(value.len(), 16, "{base:?}: cut {n}: there are no copies");
        }
    }
}

#[test]
fn lost_counts_are_reported_until_a_repair_has_recounted() {
    for (seed, base) in (128..).zip(&BASES[..2]) {
        let volume = made(seed, base, false);
        let hurt = volume.closed.copy();
        for place in places(&hurt).iter().filter(|place| is_of_own(place)) {
            zero(&hurt, place);
        }
        let (mut seen, all) = (0, cuts(&hurt));
        let step = all.len().div_ceil(scale(120, u64::MAX) as usize).max(1);
        for media in all.iter().step_by(step) {
            let note = engine(&media.copy().env()).get(VOLUME, b"V");
            if !matches!(note, Ok(Some(_))) {
                continue;
            }
            seen += 1;
            let fs = Fs::open(media.env(), &options()).expect("it is whole");
            let status = fs.status().expect("it answers");
            assert!(status.damaged.is_some_and(|why| why.contains("recounts")), "{base:?}");
            assert_eq!(status.read_only, None, "{base:?}");
        }
        assert!(seen > 0, "{base:?}");
    }
}
