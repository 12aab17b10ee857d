//! Closing makes acknowledged changes durable, whatever else fails.

use fs::{Engine, FileSystem, FormatOptions, Fs, NewNode, OpenOptions};
use inode::{Caller, Kind, NodeId};
use testing::{Fault, FaultOn, Op, SimEnv, sim_env};

on_each_engine!(a_segment_that_does_not_take_its_footer_costs_no_acknowledged_change);

fn open(sim: &SimEnv) -> std::sync::Arc<Fs> {
    Fs::open(sim.env(), &OpenOptions::default()).expect("it opens")
}

/// The contents of an earlier opening are durable long since; their footer is not worth the
/// changes of the last seconds.
fn a_segment_that_does_not_take_its_footer_costs_no_acknowledged_change(engine: Engine) {
    for which in [Op::Sync, Op::Write] {
        let sim = sim_env(1);
        let root = Caller::root();
        Fs::format(&sim.env(), &FormatOptions { engine, ..FormatOptions::default() })
            .expect("an empty disk");
        let fs = open(&sim);
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let file = fs.mknod(&root, NodeId::ROOT, b"file", &new).expect("made").node;
        fs.write(&root, file, 0, &vec![7; 100_000]).expect("written");
        fs.sync().expect("durable");
        // Its owner is killed, and its segment stays open.
        drop(fs);
        let fs = open(&sim);
        fs.mkdir(&root, NodeId::ROOT, b"acknowledged", 0o755).expect("made");
        sim.device.inject(Fault::io(FaultOn::Only(which), 0).below("data/").forever());
        let closed = fs.close();
        sim.device.clear_faults();
        drop(fs);
        let crashed = SimEnv::on(sim.device.after_crash(testing::CrashPolicy::LoseAll, 1), 1);
        let fs = open(&crashed);
        let found = fs.lookup(&root, NodeId::ROOT, b"acknowledged");
        assert!(found.is_ok(), "{which:?}: close answered {closed:?}, and {found:?}");
    }
}
