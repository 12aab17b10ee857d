//! How contiguous the writes of checkpoints are after long use: rounds of random overwriting of a
//! tree and of a clone that is then dropped. For each round it prints the mean write of
//! checkpoints, and that of runs of nodes alone. It prints the bytes written a change, and what of
//! them was only moved. It also prints the length of the file, what of it the disk holds, and what
//! of that is in use.
//!
//! `cargo run --release -p pando-btree --example fragments [ENTRIES] [ROUNDS] [CHANGES] [CLONES]
//! [DIRECTORY]`, as many changes in a round; without clones when CLONES is 0
#![expect(clippy::print_stdout, reason = "it is a program that reports")]

use std::ops::ControlFlow;

use btree::{BtreeStore, Options};
use device::Env;
use store::{Batch, Commit, Maintain, TreeId};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TREE: TreeId = TreeId(32);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |usual: u64| arguments.next().map_or(usual, |text| text.parse().expect("a number"));
    let (entries, rounds, changes) = (number(1_000_000), number(10), number(100_000));
    let clones = number(1) > 0;
    let parent = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let place = tempfile::tempdir_in(&parent).expect("a directory");
    let env = Env::system(place.path()).expect("a directory");
    let store = BtreeStore::create(&env, &Options::default()).expect("create");
    let mut random = fastrand::Rng::with_seed(1);
    let mut batch = Batch::new();
    batch.create_tree(TREE);
    let put = |tree: TreeId, batch: &mut Batch, key: u64| {
        batch.put(tree, &key.to_be_bytes(), &[key as u8; 100]);
        if batch.len() >= 1000 {
            store.commit(batch).expect("commit");
            batch.clear();
            if store.checkpoint_due() {
                store.checkpoint().expect("checkpoint");
            }
        }
    };
    (0..entries).for_each(|key| put(TREE, &mut batch, key));
    for round in 0..=rounds {
        let (before, nodes) = (store.stats(), store.engine().node_writes());
        if round > 0 {
            let clone = TreeId(TREE.0 + round);
            if clones {
                batch.clone_tree(TREE, clone);
            }
            for n in 0..changes {
                // Scattered; some in the clone.
                let tree = if clones && n % 4 == 0 { clone } else { TREE };
                put(tree, &mut batch, random.u64(..entries));
            }
            if clones && round > 1 {
                batch.drop_tree(TreeId(clone.0 - 1));
            }
        }
        store.commit(&batch).expect("commit");
        batch.clear();
        store.checkpoint().expect("checkpoint");
        while store.reclaim_step(2048).expect("reclaim") {}
        store.checkpoint().expect("checkpoint");
        let report = store.check(&mut |_, _| ControlFlow::Continue(())).expect("check");
        assert!(report.is_clean(), "{:?}", report.findings);
        let after = store.stats();
        let bytes = after.checkpoint_bytes - before.checkpoint_bytes;
        let writes = after.checkpoint_writes - before.checkpoint_writes;
        let length = env.device.open("btree/nodes").and_then(|file| file.len()).expect("a length");
        let written = store.engine().node_writes();
        let run = (written.bytes - nodes.bytes) as f64 / (written.runs - nodes.runs).max(1) as f64;
        println!(
            "round {round:2}: {:7.1} KiB a write, {:7.1} KiB a run, {:6} bytes a change, {:3} % \
             moved; {} MiB long, {} MiB on disk, {} MiB in use",
            bytes as f64 / writes.max(1) as f64 / 1024.0,
            run / 1024.0,
            bytes / if round > 0 { changes } else { entries },
            (written.moved - nodes.moved) * 100 / bytes.max(1),
            length >> 20,
            after.disk_bytes >> 20,
            (report.units * 1024) >> 20,
        );
    }
}
