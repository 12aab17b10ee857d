//! `pando fsck`: clean volumes are clean, owned or not, crashed or not; damage is named.

use std::os::unix::fs::FileExt;

use crate::world::{World, is_alive, signal, wait_until};

/// A volume with some files and a clone, which an owner has open.
fn filled() -> World {
    let world = World::new();
    let source = world.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for n in 0..300 {
        std::fs::write(source.join(format!("file {n}")), vec![n as u8; 100]).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/one")]);
    world.ok(&["clone", &world.at("/one"), &world.at("/two")]);
    world
}

fn leave(world: &World) {
    let pid = world.owner().unwrap();
    signal(pid, rustix::process::Signal::TERM);
    wait_until("the owner leaves", || !is_alive(pid));
}

#[test]
fn a_volume_is_clean_beside_its_owner_and_without_one() {
    let world = filled();
    // The owner answers, and stays the owner.
    let pid = world.owner().unwrap();
    let beside = world.json(&["fsck", world.vol()]);
    assert_eq!(beside.len(), 1, "{beside:?}");
    assert_eq!(beside[0]["clean"], true);
    assert_eq!(world.owner().unwrap(), pid);
    // What it left behind as after a crash, with most of it in the log only.
    world.kill_owner();
    let crashed = world.json(&["fsck", world.vol()]).remove(0);
    assert_eq!(crashed["clean"], true, "{crashed}");
    assert!(crashed["log_records"].as_u64().unwrap() > 10, "{crashed}");
    world.status();
    leave(&world);
    let closed = world.json(&["fsck", world.vol()]).remove(0);
    assert_eq!((&closed["clean"], &closed["log_records"]), (&true.into(), &0.into()), "{closed}");
    assert!(closed["entries"].as_u64().unwrap() > 300, "{closed}");
    assert!(closed["bytes"].as_u64().unwrap() > 30_000 && closed["lost_bytes"] == 0, "{closed}");
    assert!(world.ok(&["fsck", world.vol()]).ends_with("clean\n"));
    assert_eq!(world.names("/one").len(), 300);
}

#[test]
fn damage_is_named_and_ends_with_its_own_code() {
    let world = filled();
    leave(&world);
    let path = world.volume.join("btree/nodes");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let magic = &format::node::MAGIC;
    let mut named = 0;
    for at in (0..bytes.len()).step_by(format::node::UNIT_BYTES) {
        if !bytes[at..].starts_with(magic) {
            continue;
        }
        let place = at as u64 + 36;
        let old = bytes[at + 36];
        file.write_all_at(&[old ^ 4], place).unwrap();
        let answer = world.run(&["fsck", "--json", world.vol()]);
        file.write_all_at(&[old], place).unwrap();
        // A node to which nothing leads any more is nobody's loss.
        if answer.code != 0 {
            assert_eq!(answer.code, 5, "{}", answer.err);
            let line = answer.out.lines().find(|line| line.contains("unreadable"));
            let line: serde_json::Value = serde_json::from_str(line.unwrap()).unwrap();
            assert_eq!((&line["file"], &line["offset"]), (&"btree/nodes".into(), &at.into()));
            let error: serde_json::Value = serde_json::from_str(&answer.err).unwrap();
            assert_eq!(error["error"]["kind"], "damaged");
            named += 1;
        }
    }
    assert!(named >= 3, "{named} nodes were found damaged");
    world.ok(&["fsck", world.vol()]);
    let said = world.fails(8, &["fsck", world.path().to_str().unwrap()]);
    assert!(said.contains("not a volume"), "{said}");
}

#[test]
fn a_repair_says_what_it_would_do_and_then_does_it() {
    let world = filled();
    let before = world.names("/one");
    leave(&world);
    // The copy of a superblock is damaged, and the marks of a data segment's file.
    let path = world.volume.join("btree/super-0");
    std::fs::write(&path, vec![7; 128]).unwrap();
    let told = world.run(&["fsck", "--repair", "--dry-run", world.vol()]);
    assert_eq!(told.code, 5, "{}", told.err);
    assert!(told.out.contains("would: count anew"), "{}", told.out);
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 128]);
    let found = world.run(&["fsck", "--json", world.vol()]);
    let line = found.out.lines().find(|line| line.contains("super-0")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["finding"], "unreadable");
    assert!(!line["remedy"].as_str().unwrap().is_empty(), "{line}");
    let mended = world.ok(&["fsck", "--repair", world.vol()]);
    assert!(mended.contains("clean"), "{mended}");
    world.ok(&["fsck", world.vol()]);
    assert_eq!(world.names("/one"), before);
    // An owner without a mount hands the volume over.
    assert!(world.owner().is_some());
    world.ok(&["fsck", "--repair", world.vol()]);
    // The dry run needs --repair, so that nobody takes it for one.
    assert_eq!(world.run(&["fsck", "--dry-run", world.vol()]).code, 2);
}

#[test]
fn a_damaged_file_is_named_with_its_path_in_every_subvolume_that_has_it() {
    let world = World::new();
    let source = world.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("large"), vec![5; 300_000]).unwrap();
    std::fs::write(source.join("other"), vec![6; 300_000]).unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/one")]);
    world.ok(&["clone", &world.at("/one"), &world.at("/two")]);
    leave(&world);
    // Where another owner came in between, it is sealed.
    let mut segments = ["data/open", "data/sealed"]
        .into_iter()
        .flat_map(|dir| std::fs::read_dir(world.volume.join(dir)).unwrap());
    let path = segments.next().unwrap().unwrap().path();
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes.chunks(4096).position(|page| page == [5; 4096]).unwrap() as u64 * 4096;
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[9], at + 5000).unwrap();
    for how in [&["fsck", "--json", world.vol()][..], &["fsck", "--repair", "--json", world.vol()]]
    {
        let answer = world.run(how);
        assert_eq!(answer.code, 5, "{}", answer.err);
        let lines = answer.out.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<serde_json::Value> = lines.collect();
        let named: Vec<_> = lines.iter().filter(|line| line["finding"] == "contents").collect();
        let paths: Vec<_> = named.iter().map(|line| line["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/one/large", "/two/large"], "{lines:#?}");
        let shown = named[0]["what"].as_str().unwrap();
        assert!(shown.contains(&(at + 4096).to_string()), "{shown}");
    }
    assert!(world.run(&["cat", &world.at("/one/large")]).code != 0);
    assert_eq!(world.ok(&["cat", &world.at("/one/other")]).len(), 300_000);
}

#[test]
fn a_volume_in_use_has_no_garbage_and_loses_nothing_to_a_collection() {
    let world = filled();
    let before = world.names("/one");
    for how in [&["gc", world.vol()][..], &["gc", "--delete", "--grace", "0s", world.vol()]] {
        let lines = world.json(how);
        let total = lines.last().unwrap();
        assert_eq!((&total["garbage_bytes"], &total["freed_bytes"]), (&0.into(), &0.into()));
    }
    assert!(world.ok(&["gc", world.vol()]).contains("nothing is unnamed"));
    assert_eq!(world.names("/one"), before);
    world.ok(&["fsck", world.vol()]);
    for how in [&["gc", "--grace", "1h", world.vol()][..], &["gc", "--delete", "--grace", "soon"]] {
        assert_eq!(world.run(how).code, 2);
    }
}
