//! The numbers of nodes under histories in which most of them collide.

use std::collections::{BTreeMap, BTreeSet};

use device::Timestamp;
use inode::{Ino, NodeId, Slot};

use super::{INODE_MASK, KernelNumbers, mix};

const SLOTS: u64 = 3;
/// Upper parts that the inodes of the tests have.
const UPPERS: [u64; 4] = [0, 1, 5 << 9, 5 << 9 | 1];

fn node(slot: u64, upper: u64, low: u64) -> NodeId {
    NodeId::of(Slot(slot), Ino(upper << 40 | low))
}

/// What the kernel holds, which must always have one node to a number.
#[derive(Default)]
struct Kernel {
    numbers: BTreeMap<u64, (NodeId, u64, u64)>,
    /// What the file system holds.
    held: BTreeSet<NodeId>,
}

impl Kernel {
    fn look_up(&mut self, numbers: &KernelNumbers, node: NodeId) {
        // As in the product, look-ups of virtual directories are not counted.
        if node.slot().0 & super::VIRTUAL == 0 {
            self.held.insert(node);
        }
        let number = numbers.hold(|node| self.held.contains(&node), node);
        assert!(number > 1, "{node:?} has {number}");
        let generation = numbers.generation(number, node, 0);
        let entry = self.numbers.entry(number).or_insert((node, 0, generation));
        assert_eq!((entry.0, entry.2), (node, generation), "{number:x} is of two nodes");
        entry.1 += 1;
        assert_eq!(numbers.node(number), node);
        assert_eq!(numbers.known(node), Some(number));
    }

    fn forget(&mut self, numbers: &KernelNumbers, number: u64, count: u64) {
        let (node, lookups, _) = self.numbers[&number];
        let count = count.min(lookups);
        numbers.forget(number, count);
        if count == lookups {
            self.numbers.remove(&number);
            if !self.numbers.values().any(|(other, ..)| *other == node) {
                self.held.remove(&node);
            }
        } else if let Some(entry) = self.numbers.get_mut(&number) {
            entry.1 -= count;
        }
    }
}

/// Histories in which most numbers collide: every number is of one node for as long as the kernel
/// holds it.
#[test]
fn a_number_has_one_node_while_it_is_held() {
    let seed = testing::run::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut natural, mut other) = (0, 0);
    // Without a mix, inodes collide that differ in their upper parts.
    let mixes: [super::Mix; 3] = [|_| 0, |upper| upper & 1, mix];
    for round in 0..300 {
        let numbers = KernelNumbers::new(Timestamp(random.i64(..)), mixes[round % 3]);
        let mut kernel = Kernel::default();
        for _ in 0..400 {
            let known: Vec<u64> = kernel.numbers.keys().copied().collect();
            if random.u8(..3) == 0 && !known.is_empty() {
                let number = known[random.usize(..known.len())];
                kernel.forget(&numbers, number, random.u64(1..4));
                continue;
            }
            let (slot, upper) = (random.u64(1..=SLOTS), UPPERS[random.usize(..UPPERS.len())]);
            let slot = if random.u8(..8) == 0 { slot | super::VIRTUAL } else { slot };
            kernel.look_up(&numbers, node(slot, upper, random.u64(2..8)));
        }
        let session = kernel.numbers.keys().filter(|number| **number >> 40 == 0).count();
        other += session;
        natural += kernel.numbers.len() - session;
        for number in kernel.numbers.keys().copied().collect::<Vec<_>>() {
            kernel.forget(&numbers, number, u64::MAX);
        }
        assert!(numbers.is_empty(), "a forgotten node is still in the table");
    }
    assert!(natural > 300 && other > 300, "{natural} and {other}");
}

/// A handle has number and generation; what is found by the number with another generation is not
/// opened by the kernel.
#[test]
fn number_and_generation_name_one_inode() {
    for mix in [mix as super::Mix, |_| 0] {
        let numbers = KernelNumbers::new(Timestamp(1), mix);
        let mut seen = BTreeMap::new();
        for upper in (0..1 << 24).step_by(4099).chain(UPPERS) {
            for low in [2, 3, INODE_MASK] {
                let node = node(1, upper, low);
                let number = numbers.hold(|_| false, node);
                let handle = (number, numbers.generation(number, node, 0) as u32);
                assert_eq!(*seen.entry(handle).or_insert(node), node, "{handle:x?}");
                numbers.forget(number, 1);
            }
        }
    }
}

/// A forgotten node is found by its number alone, if it had its natural one.
#[test]
fn candidates_of_a_number_have_the_node() {
    let numbers = KernelNumbers::new(Timestamp(1), mix);
    for upper in UPPERS {
        let node = node(2, upper, 77);
        let number = numbers.hold(|_| false, node);
        if upper > 0 {
            assert_eq!(numbers.candidates(|| UPPERS.to_vec(), number), [node], "it is held");
        }
        numbers.forget(number, 1);
        let found = numbers.candidates(|| UPPERS.to_vec(), number);
        assert!(found.contains(&node) && found.len() == UPPERS.len(), "{found:?}");
    }
    // A number of a session that is over.
    assert_eq!(numbers.candidates(|| UPPERS.to_vec(), 1 << 30), []);
}

/// A handle of an earlier session does not fit a number of this one.
#[test]
fn sessions_have_other_generations() {
    let (mut seen, mut generations) = (BTreeMap::new(), BTreeSet::new());
    for session in 0..1000 {
        let numbers = KernelNumbers::new(Timestamp(1_700_000_000_000_000_000 + session), |_| 0);
        let (narrow, wide) = (node(1, 0, 7), node(1, 1, 7));
        let number = numbers.hold(|held| held == narrow, wide);
        assert_eq!(number >> 40, 0, "the narrow one has its number");
        let generation = numbers.generation(number, wide, 0);
        assert_eq!(seen.insert((number, generation), session), None);
        generations.insert(generation);
    }
    assert!(generations.len() > 990, "{} generations", generations.len());
}
