//! Clones of clones, dropped in any order.

use store::{Read, Store, TreeId};

use crate::util::{TREE, checked, commit, entries, reclaim_all, store};

#[test]
fn a_thousand_clones_of_clones_give_all_room_back_in_any_order() {
    for seed in [3] {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let (_sim, store) = store(seed, 64 << 20);
        let empty = checked(&store);
        for n in 0..3000_u32 {
            commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), &[1; 100]));
        }
        let full = checked(&store);
        let mut alive = vec![TREE.0];
        for clone in 0..1000 {
            let source = alive[random.usize(0..alive.len())];
            let target = TREE.0 + 1 + clone;
            let key = random.u32(0..3000).to_be_bytes();
            commit(&store, |batch| {
                batch.clone_tree(TreeId(source), TreeId(target));
                batch.put(TreeId(target), &key, &target.to_be_bytes());
            });
            alive.push(target);
            if clone % 250 == 100 {
                checked(&store);
            }
        }
        checked(&store);
        random.shuffle(&mut alive);
        while let Some(tree) = alive.pop() {
            if tree == TREE.0 {
                continue;
            }
            commit(&store, |batch| batch.drop_tree(TreeId(tree)));
            if alive.len() % 200 == 50 {
                store.reclaim_step(10).expect("reclaim");
                checked(&store);
            }
        }
        reclaim_all(&store);
        let after = checked(&store);
        assert_eq!((after.leaves, after.interiors), (full.leaves, full.interiors));
        assert_eq!(entries(&*store, TREE).len(), 3000);
        commit(&store, |batch| batch.delete_range(TREE, b"", &[0xff; 9]));
        let after = checked(&store);
        assert_eq!((after.leaves, after.units), (empty.leaves, empty.units));
    }
}

#[test]
fn a_clone_costs_nothing_below_its_root() {
    let (_sim, store) = store(1, 256 << 20);
    for chunk in 0..100_u32 {
        commit(&store, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(TREE, &n.to_be_bytes(), &[1; 60]);
            }
        });
    }
    let before = checked(&store);
    for clone in 0..100 {
        commit(&store, |batch| batch.clone_tree(TREE, TreeId(TREE.0 + 1 + clone)));
    }
    let after = checked(&store);
    assert!(after.units < before.units + 32, "{} and {} units", before.units, after.units);
    // One write in a clone copies one path.
    commit(&store, |batch| batch.put(TreeId(TREE.0 + 5), &77_u32.to_be_bytes(), b"new"));
    let written = checked(&store);
    assert!(written.leaves + written.interiors <= after.leaves + after.interiors + 4);
    let old = store.get(TREE, &77_u32.to_be_bytes()).expect("read").expect("there");
    assert_eq!(old, [1; 60]);
}
