//! Nodes whose checksums are valid and that break a rule: each is found, and named by its file and
//! offset. Damage cannot make such nodes, only a buggy program can, so they are forged. A node is
//! decoded, altered and sealed again. Its new checksum is put into every pointer to it, up to the
//! catalog and both superblocks. References stay as the map counts them.

use std::ops::ControlFlow;

use format::Pointer;
use format::catalog::{CatalogKey, RootRecord};
use format::node::{self, InteriorBody, Kind, LeafBody, LeafValue, UNIT_BYTES};
use format::superblock::{Decoded, SUPERBLOCK_BYTES, Superblock};
use store::{Batch, CheckReport, Commit, Durable, FindingKind, Read, TreeId};
use testing::SimEnv;

use crate::checkpoint::SUPERBLOCK_FILES;
use crate::entries::entry_weight;
use crate::limits::{WEIGHT_MAX, WEIGHT_MIN};
use crate::nodes::NODES_FILE;
use crate::units::unit_offset;
use crate::{BtreeStore, Options, check, inspect};

const TREE: TreeId = TreeId(32);
/// A clone of it: both have one root.
const CLONE: TreeId = TreeId(33);
const ENTRIES: u32 = 3000;

/// Keys that differ only at their ends have long separators, so the tree grows high.
fn key(n: u32) -> Vec<u8> {
    [[b'k'; 460].as_slice(), &n.to_be_bytes()].concat()
}

/// A value of a leaf.
enum Value {
    Near(Vec<u8>),
    Far(Pointer, u32),
}

/// A node, to be altered.
struct Forged {
    pointer: Pointer,
    kind: Kind,
    level: u8,
    generation: u64,
    prefix: Vec<u8>,
    /// Keys without the prefix.
    keys: Vec<Vec<u8>>,
    /// Values, of a leaf.
    values: Vec<Value>,
    /// Children, of an interior node.
    below: Vec<Pointer>,
}

impl Forged {
    fn decode(bytes: &[u8], pointer: Pointer) -> Forged {
        let (header, body) = node::verify(bytes, pointer.unit, pointer.checksum).expect("whole");
        let (kind, level, generation) = (header.kind, header.level, header.generation);
        let (mut keys, mut values, mut below) = (Vec::new(), Vec::new(), Vec::new());
        let prefix;
        if level > 0 {
            let mut interior = InteriorBody::new(&header, body).expect("whole");
            prefix = interior.prefix().to_vec();
            below.push(interior.first());
            while let Some((suffix, pointer)) = interior.next_child().expect("whole") {
                keys.push(suffix.to_vec());
                below.push(pointer);
            }
        } else {
            let mut leaf = LeafBody::new(&header, body).expect("whole");
            prefix = leaf.prefix().to_vec();
            while let Some((suffix, value)) = leaf.next_entry().expect("whole") {
                keys.push(suffix.to_vec());
                values.push(match value {
                    LeafValue::Inline(value) => Value::Near(value.to_vec()),
                    LeafValue::Overflow { pointer, length } => Value::Far(pointer, length),
                });
            }
        }
        Forged { pointer, kind, level, generation, prefix, keys, values, below }
    }

    /// Its bytes, and their checksum.
    fn encode(&self) -> (Vec<u8>, u32) {
        let mut out = Vec::new();
        let count = self.values.len() + self.below.len();
        node::begin(&mut out, self.kind, self.level, self.generation, count as u32);
        node::put_prefix(&mut out, &self.prefix);
        for (key, value) in self.keys.iter().zip(&self.values) {
            match value {
                Value::Near(value) => node::put_inline(&mut out, key, value),
                Value::Far(pointer, length) => {
                    node::put_overflow(&mut out, key, *length, pointer);
                }
            }
        }
        if let Some((first, rest)) = self.below.split_first() {
            node::put_first_child(&mut out, first);
            self.keys.iter().zip(rest).for_each(|(key, at)| node::put_child(&mut out, key, at));
        }
        let checksum = node::seal(&mut out, self.pointer.unit);
        (out, checksum)
    }

    fn whole_key(&self, at: usize) -> Vec<u8> {
        [self.prefix.as_slice(), &self.keys[at]].concat()
    }

    fn is_far(&self) -> bool {
        self.values.iter().any(|value| matches!(value, Value::Far(..)))
    }

    /// Gives a leaf `entries` entries near the first key, of the requested weight.
    fn weigh(&mut self, entries: usize, weight: usize) {
        let first = self.keys[0].clone();
        let more = (0..entries as u8 - 1).map(|n| [first.as_slice(), &[n]].concat());
        self.keys = [first.clone()].into_iter().chain(more).collect();
        let keys = self.keys.iter().map(|key| entry_weight(self.prefix.len() + key.len(), 0));
        let mut left = weight - keys.sum::<usize>();
        self.values.clear();
        for _ in 0..entries {
            let bytes = left.min(node::INLINE_VALUE_BYTES_MAX);
            self.values.push(Value::Near(vec![7; bytes]));
            left -= bytes;
        }
        assert_eq!(left, 0, "more entries are needed");
    }
}

/// A closed store, with a tree of three levels and its clone.
struct Subject {
    sim: SimEnv,
    superblock: Superblock,
}

impl Subject {
    fn new() -> Subject {
        let sim = testing::sim_env(1);
        let store = BtreeStore::create(&sim.env(), &Options::default()).expect("create");
        for first in (0..ENTRIES).step_by(500) {
            let mut batch = Batch::new();
            if first == 0 {
                batch.create_tree(TREE);
            }
            for n in first..first + 500 {
                batch.put(TREE, &key(n), &vec![n as u8; if n % 60 == 0 { 3000 } else { 300 }]);
            }
            store.commit(&batch).expect("commit");
        }
        let mut batch = Batch::new();
        batch.clone_tree(TREE, CLONE);
        store.commit(&batch).expect("commit");
        store.close().expect("close");
        drop(store);
        let decoded = SUPERBLOCK_FILES.map(|path| {
            let bytes = sim.device.read_file(path);
            match Superblock::decode(&bytes[..SUPERBLOCK_BYTES]).expect("whole") {
                Decoded::Superblock(superblock) => superblock,
                other => panic!("{other:?}"),
            }
        });
        let newest = decoded.into_iter().max_by_key(|superblock| superblock.generation);
        Subject { sim, superblock: newest.expect("there are two") }
    }

    fn read(&self, pointer: Pointer) -> Forged {
        let bytes = self.sim.device.read_file(NODES_FILE);
        let bytes = &bytes[unit_offset(pointer.unit) as usize..];
        Forged::decode(&bytes[..bytes.len().min(pointer.units as usize * UNIT_BYTES)], pointer)
    }

    /// Writes a node to its place; returns its checksum.
    fn write(&self, node: &Forged) -> u32 {
        let (bytes, checksum) = node.encode();
        assert!(bytes.len() <= node.pointer.units as usize * UNIT_BYTES, "it became too long");
        let first = unit_offset(node.pointer.unit);
        self.sim.device.overwrite(NODES_FILE, first, &bytes);
        // Those of the catalog are stored twice.
        let second = first + u64::from(node.pointer.units / 2) * UNIT_BYTES as u64;
        if self.sim.device.read_file(NODES_FILE)[second as usize..].starts_with(&node::MAGIC) {
            self.sim.device.overwrite(NODES_FILE, second, &bytes);
        }
        checksum
    }

    /// The root of the tree.
    fn root(&self) -> Pointer {
        let catalog = self.read(self.superblock.catalog);
        let at = (0..catalog.keys.len())
            .find(|&at| catalog.whole_key(at) == CatalogKey::Tree(TREE.0).encode());
        record(&catalog.values[at.expect("it is listed")]).pointer
    }

    /// The node at the end of a path from the root, each step the number of a child.
    fn node(&self, way: &[usize]) -> Forged {
        let root = self.read(self.root());
        way.iter().fold(root, |node, &at| self.read(node.below[at]))
    }

    /// Alters the node at the end of a path, and its ancestors, so that all checksums are right.
    fn forge<T>(&mut self, way: &[usize], alter: impl FnOnce(&mut Forged) -> T) -> T {
        let mut node = self.node(way);
        let answer = alter(&mut node);
        let mut checksum = self.write(&node);
        for (depth, &at) in way.iter().enumerate().rev() {
            let mut parent = self.node(&way[..depth]);
            parent.below[at].checksum = checksum;
            checksum = self.write(&parent);
        }
        let root = self.root();
        self.forge_catalog(|catalog| {
            for value in &mut catalog.values {
                let mut record = record(value);
                if record.pointer == root {
                    record.pointer.checksum = checksum;
                    *value = Value::Near(record.encode());
                }
            }
        });
        answer
    }

    /// The same for the catalog, which is one leaf.
    fn forge_catalog(&mut self, alter: impl FnOnce(&mut Forged)) {
        let mut catalog = self.read(self.superblock.catalog);
        alter(&mut catalog);
        self.superblock.catalog.checksum = self.write(&catalog);
        self.write_superblocks();
    }

    /// The same for the record of the clone.
    fn forge_clone(&mut self, alter: impl FnOnce(&mut RootRecord)) {
        self.forge_catalog(|catalog| {
            let clone = CatalogKey::Tree(CLONE.0).encode();
            let at = (0..catalog.keys.len()).find(|&at| catalog.whole_key(at) == clone);
            let value = &mut catalog.values[at.expect("it is listed")];
            let mut record = record(value);
            alter(&mut record);
            *value = Value::Near(record.encode());
        });
    }

    fn write_superblocks(&self) {
        for path in SUPERBLOCK_FILES {
            self.sim.device.overwrite(path, 0, &self.superblock.encode());
        }
    }

    fn inspect(&self) -> CheckReport {
        let mut proceed = |_, _| ControlFlow::Continue(());
        inspect(&self.sim.env(), &Options::default(), &mut proceed).expect("all is readable")
    }

    /// Asserts that this is found at a unit; other findings follow from it.
    fn finds(&self, kind: FindingKind, unit: u64, what: &str) -> CheckReport {
        let report = self.inspect();
        // If a node is not what is expected, a field of its header shows so.
        let within = if kind == FindingKind::Unreadable { node::HEADER_BYTES as u64 } else { 1 };
        let place = unit_offset(unit)..unit_offset(unit) + within;
        let found = report.findings.iter().any(|found| {
            found.kind == kind
                && found.file == NODES_FILE
                && place.contains(&found.offset)
                && found.what.contains(what)
        });
        assert!(found, "{kind:?} at unit {unit}: {what}: {:#?}", report.findings);
        report
    }

    /// Asserts that this is found, and nothing else.
    fn finds_only(&self, kind: FindingKind, unit: u64, what: &str) {
        let report = self.finds(kind, unit, what);
        assert_eq!(report.findings_count, 1, "{:#?}", report.findings);
    }

    fn is_clean(&self) -> CheckReport {
        let report = self.inspect();
        assert!(report.is_clean(), "{:#?}", report.findings);
        report
    }
}

fn record(value: &Value) -> RootRecord {
    match value {
        Value::Near(value) => RootRecord::decode(value).expect("a record"),
        Value::Far(..) => panic!("a record of the catalog is short"),
    }
}

/// A leaf in the middle, and one that has overflow nodes.
const LEAF: [usize; 2] = [1, 1];
const INTERIOR: [usize; 1] = [1];

/// The path to a leaf in the middle that has overflow nodes.
fn far_leaf(subject: &Subject) -> [usize; 2] {
    let ways = (1..20).map(|at| [1, at]);
    ways.into_iter().find(|way| subject.node(way).is_far()).expect("some have")
}

#[test]
fn nodes_rewritten_by_the_rules_are_clean() {
    let mut subject = Subject::new();
    let before = subject.is_clean();
    assert!(before.interiors > 3 && before.overflows > 10, "{before:?}");
    // The root of the catalog is underfull, and may be.
    assert_eq!(before.underfull, 0);
    for way in [&[][..], &INTERIOR, &LEAF] {
        subject.forge(way, |_| ());
    }
    assert_eq!(subject.is_clean(), before);
    let key = subject.forge(&LEAF, |leaf| {
        assert!(!leaf.is_far(), "other tests alter this leaf");
        leaf.values[2] = Value::Near(b"forged".to_vec());
        leaf.whole_key(2)
    });
    subject.is_clean();
    let store = BtreeStore::open(&subject.sim.env(), &Options::default()).expect("open");
    for tree in [TREE, CLONE] {
        let value = store.get(tree, &key).expect("all checksums are right");
        assert_eq!(value.as_deref(), Some(&b"forged"[..]));
    }
}

#[test]
fn keys_that_do_not_ascend_are_found() {
    let what = "keys do not ascend";
    for way in [&[][..], &INTERIOR, &LEAF] {
        for equal in [false, true] {
            let mut subject = Subject::new();
            let unit = subject.forge(way, |node| {
                if equal {
                    node.keys[2] = node.keys[1].clone();
                } else {
                    node.keys.swap(1, 2);
                }
                node.pointer.unit
            });
            let report = subject.finds(FindingKind::Structure, unit, what);
            // Separators are bounds too, so other findings follow from theirs.
            assert_eq!(report.findings_count == 1, way.len() == 2, "{:#?}", report.findings);
        }
    }
}

#[test]
fn keys_outside_of_their_parents_bounds_are_found() {
    let what = "a key outside of its parent's bounds";
    // Below the least key that the parent's separator admits, ...
    let mut subject = Subject::new();
    let unit = subject.forge(&LEAF, |leaf| {
        leaf.keys[0].clear();
        leaf.pointer.unit
    });
    subject.finds_only(FindingKind::Structure, unit, what);
    // ... the next separator, which is the first key that is not admitted, and behind it.
    for beyond in [false, true] {
        let mut subject = Subject::new();
        let high = subject.node(&INTERIOR).whole_key(LEAF[1]);
        let unit = subject.forge(&LEAF, |leaf| {
            let high = high.strip_prefix(leaf.prefix.as_slice()).expect("it begins as they do");
            let last = leaf.keys.last_mut().expect("there are keys");
            *last = if beyond { vec![0xff; 4] } else { high.to_vec() };
            leaf.pointer.unit
        });
        subject.finds_only(FindingKind::Structure, unit, what);
    }
    // A separator, so that a child may have what the node may not.
    let mut subject = Subject::new();
    let unit = subject.forge(&INTERIOR, |interior| {
        *interior.keys.last_mut().expect("there are separators") = vec![0xff; 4];
        interior.pointer.unit
    });
    subject.finds(FindingKind::Structure, unit, what);
}

#[test]
fn a_node_over_the_greatest_weight_is_found() {
    for over in [0, 1] {
        let mut subject = Subject::new();
        let unit = subject.forge(&LEAF, |leaf| {
            leaf.weigh(34, WEIGHT_MAX + over);
            leaf.pointer.unit
        });
        if over == 0 {
            subject.is_clean();
        } else {
            let what = format!("the node is too large, with a weight of {}", WEIGHT_MAX + 1);
            subject.finds_only(FindingKind::Structure, unit, &what);
        }
    }
}

#[test]
fn a_node_under_the_minimum_weight_is_counted_as_underfull() {
    for under in [0, 1] {
        let mut subject = Subject::new();
        subject.forge(&LEAF, |leaf| leaf.weigh(7, WEIGHT_MIN - under));
        assert_eq!(subject.is_clean().underfull, under as u64);
    }
}

#[test]
fn a_pointer_with_a_wrong_overflow_flag_is_reported() {
    for has in [true, false] {
        let mut subject = Subject::new();
        let way = if has { far_leaf(&subject) } else { LEAF };
        let unit = subject.forge(&INTERIOR, |interior| {
            let pointer = &mut interior.below[way[1]];
            assert_eq!(pointer.overflows, has);
            pointer.overflows = !has;
            pointer.unit
        });
        subject.finds_only(FindingKind::Structure, unit, "is wrong about its overflow nodes");
    }
}

#[test]
fn a_node_whose_level_differs_from_its_parents_record_is_found() {
    let what = "the level below its parent's";
    // There is nothing below a leaf without overflow nodes, so nothing else is found.
    for (kind, level) in [(Kind::Leaf, 1), (Kind::Interior, 0)] {
        let mut subject = Subject::new();
        let unit = subject.forge(&LEAF, |leaf| {
            leaf.kind = kind;
            leaf.level = level;
            leaf.pointer.unit
        });
        subject.finds_only(FindingKind::Unreadable, unit, what);
    }
    let mut subject = Subject::new();
    let unit = subject.forge(&INTERIOR, |interior| {
        interior.level += 1;
        interior.pointer.unit
    });
    subject.finds(FindingKind::Unreadable, unit, what);
}

#[test]
fn two_nodes_at_one_unit_are_reported() {
    let mut subject = Subject::new();
    let root = subject.root().unit;
    subject.forge_clone(|record| record.pointer.units += 1);
    subject.finds_only(FindingKind::Count, root, "two nodes begin here");
}

/// Only the first is followed.
#[test]
fn differing_pointers_to_a_node_are_reported() {
    let alter: [fn(&mut RootRecord); 3] = [
        |record| record.pointer.checksum ^= 1,
        |record| record.pointer.overflows = true,
        |record| record.level -= 1,
    ];
    for alter in alter {
        let mut subject = Subject::new();
        let root = subject.root().unit;
        subject.forge_clone(alter);
        subject.finds_only(FindingKind::Structure, root, "two pointers to it differ");
    }
}

#[test]
fn a_long_value_of_the_wrong_length_is_reported() {
    let mut subject = Subject::new();
    let unit = subject.forge(&far_leaf(&subject), |leaf| {
        let far = leaf.values.iter_mut().find_map(|value| match value {
            Value::Far(pointer, length) => Some((pointer, length)),
            Value::Near(_) => None,
        });
        let (pointer, length) = far.expect("it has overflow nodes");
        *length += 1;
        pointer.unit
    });
    subject.finds_only(FindingKind::Unreadable, unit, "the length in its leaf");
}

#[test]
fn nodes_that_overlap_are_found() {
    let mut subject = Subject::new();
    let unit = subject.forge(&INTERIOR, |interior| {
        // A pointer that is too long points to a whole node all the same.
        let behind = |at: &Pointer| at.unit + u64::from(at.units);
        let next = |pair: &[Pointer]| behind(&pair[0]) == pair[1].unit;
        let at = interior.below.windows(2).position(next).expect("written in one run");
        interior.below[at].units += 1;
        interior.below[at + 1].unit
    });
    subject.finds(FindingKind::Count, unit, "two nodes overlap here");
}

#[test]
fn a_record_of_the_catalog_that_does_not_decode_is_found() {
    let good = RootRecord { pointer: Subject::new().root(), level: 2 }.encode();
    let tree = CatalogKey::Tree(u64::MAX).encode().to_vec();
    let unknown = [b"Z".as_slice(), &tree[1..]].concat();
    for (key, value) in [(unknown, good.clone()), (tree.clone(), good[1..].to_vec())] {
        let mut subject = Subject::new();
        let unit = subject.superblock.catalog.unit;
        subject.forge_catalog(|catalog| {
            // Others begin in another way.
            let prefix = std::mem::take(&mut catalog.prefix);
            catalog.keys.iter_mut().for_each(|key| key.splice(..0, prefix.clone()).for_each(drop));
            catalog.keys.push(key);
            catalog.values.push(Value::Near(value));
        });
        subject.finds_only(FindingKind::Structure, unit, "in the catalog: ");
    }
}

#[test]
fn a_superblock_with_a_wrong_map_length_is_reported() {
    let mut subject = Subject::new();
    subject.superblock.groups += 1;
    subject.write_superblocks();
    let report = subject.inspect();
    assert_eq!(report.findings_count, 1, "{:#?}", report.findings);
    let found = &report.findings[0];
    assert_eq!((found.kind, found.file.as_str()), (FindingKind::Structure, NODES_FILE));
    assert!(found.what.contains("the superblock has 2 groups"), "{found:?}");
}

/// The in-memory walk applies the same rules: tests rely on that.
#[test]
fn broken_rules_are_found_in_memory_too() {
    let loaded = |alter: &dyn Fn(&mut Forged)| {
        let mut subject = Subject::new();
        subject.forge(&LEAF, alter);
        let store = BtreeStore::open(&subject.sim.env(), &Options::default()).expect("open");
        let before = check(&store).expect("check");
        let key = subject.node(&LEAF).whole_key(1);
        assert!(store.get(TREE, &key).expect("read").is_some());
        let report = check(&store).expect("check");
        assert_eq!(report.leaves, before.leaves);
        let in_memory = report.findings.iter().filter(|found| found.file == "memory");
        let what: Vec<String> = in_memory.map(|found| found.what.clone()).collect();
        (what, report.underfull - before.underfull)
    };
    assert_eq!(loaded(&|_| ()), (Vec::new(), 0));
    let (what, underfull) = loaded(&|leaf| leaf.keys[0].clear());
    assert_eq!((what.len(), underfull), (1, 0));
    assert!(what[0].contains("a cell's keys are out of order"), "{what:?}");
    let (what, underfull) = loaded(&|leaf| leaf.weigh(34, WEIGHT_MAX + 1));
    assert_eq!((what.len(), underfull), (1, 0));
    assert!(what[0].contains("a cell weighs"), "{what:?}");
    assert_eq!(loaded(&|leaf| leaf.weigh(7, WEIGHT_MIN - 1)), (Vec::new(), 1));
}
