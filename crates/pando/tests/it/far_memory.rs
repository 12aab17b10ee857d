//! Memory of a server: idle sessions, and the setting that bounds it.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use device::{Net, SystemClock, SystemNet};
use rpc::Channel;
use wire::Bytes;
use wire::remote::{
    Asker, FrameKind, REMOTE_MAGIC, REMOTE_VERSION, RemoteHello, Use, put_head, split_head,
};

use crate::far::Served;
use crate::world::{World, is_root};

/// Sessions that do nothing, and what they take of the server, as its bounds count them.
const IDLE: usize = 300;
const IDLE_KIB_MAX: u64 = IDLE as u64 * 384;

/// The resident size of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// A session that sends no more than hello.
fn idle(at: SocketAddr) -> Channel {
    let within = Duration::from_secs(60);
    let link = SystemNet.connect(at, within).unwrap();
    let channel = Channel::plain(link, Arc::new(SystemClock::new())).unwrap();
    let hello = RemoteHello {
        magic: REMOTE_MAGIC,
        version_min: REMOTE_VERSION,
        version: REMOTE_VERSION,
        features: 0,
        volume: Bytes::from(&b"vol"[..]),
        use_for: Use::Mount,
        who: Asker::default(),
        resume: None,
        awaits: Vec::new(),
    };
    let mut frame = Vec::new();
    put_head(FrameKind::Hello, 0, &mut frame);
    wire::encode(&hello, &mut frame);
    channel.send(&frame).unwrap();
    channel.receive(&mut frame, 1 << 14, within).unwrap();
    assert!(matches!(split_head(&frame), Some((FrameKind::Welcome, ..))));
    channel
}

#[test]
fn idle_sessions_take_no_more_of_a_server_than_its_bounds_count() {
    if !is_root() {
        return;
    }
    device::raise_descriptor_limit();
    let world = World::new();
    let served = Served::start(&world, &["--memory", "8G"]);
    let address = served.url.trim_start_matches("pando://").trim_end_matches("/vol");
    let address: SocketAddr = address.parse().unwrap();
    let first = idle(address);
    let before = resident(served.child.id());
    let others: Vec<Channel> = (1..IDLE).map(|_| idle(address)).collect();
    let grew = resident(served.child.id()).saturating_sub(before);
    println!("{IDLE} idle sessions: {grew} KiB");
    assert!(grew < IDLE_KIB_MAX, "{grew} KiB");
    let listed = world.ok(&["session", "list", world.vol()]);
    assert!(listed.lines().count() >= IDLE, "{listed}");
    drop((first, others));
}

#[test]
fn the_memory_of_a_server_is_at_least_what_its_parts_need() {
    let world = World::new();
    let refused = world.run(&["serve", "--memory", "1M", world.vol()]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("at least 128 MiB"), "{}", refused.err);
    let parts = ["serve", "--memory", "1G", "--cache-size", "900M", world.vol()];
    let refused = world.fails(2, &parts);
    assert!(refused.contains("more than half of the memory"), "{refused}");
    assert!(refused.contains("--memory alone"), "{refused}");
}
