//! What commands say that scripts and people depend on: of paths, of names, and what to do next.

use std::fs;

use crate::world::World;

/// A volume with a directory of one file, and a snapshot of that.
fn world() -> World {
    let world = World::new();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("deep")).unwrap();
    fs::write(source.join("a.txt"), "before").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/data")]);
    world.ok(&["snapshot", "create", &world.at("/data"), "monday"]);
    world.ok(&["rmr", &world.at("/data/a.txt")]);
    world
}

#[test]
fn verbs_that_read_take_a_snapshot_by_its_sign() {
    let world = world();
    let at = |inner: &str| world.at(inner);
    assert_eq!(world.ok(&["ls", &at("/data@monday")]), "a.txt\ndeep\n");
    assert_eq!(world.ok(&["ls", &at("/data")]), "deep\n");
    assert_eq!(world.ok(&["cat", &at("/data@monday/a.txt")]), "before");
    assert_eq!(world.ok(&["cat", &at("/data/a.txt@monday")]), "before");
    assert_eq!(world.json(&["stat", &at("/data@monday/a.txt")])[0]["size"], 6);
    assert_eq!(world.json(&["info", &at("/data@monday/deep")])[0]["kind"], "directory");
    world.ok(&["clone", &at("/data@monday"), &at("/fork")]);
    assert_eq!(world.ok(&["cat", &at("/fork/a.txt")]), "before");
    let newer = ["find", &at("/data"), "-newer", &at("/data@monday/a.txt"), "-maxdepth", "0"];
    world.ok(&newer);
    // What is called so itself counts.
    world.ok(&["import", "/dev/null", &at("/data@monday")]);
    assert_eq!(world.ok(&["cat", &at("/data@monday")]), "");
}

#[test]
fn verbs_that_write_say_that_a_snapshot_was_named() {
    let world = world();
    let at = |inner: &str| world.at(inner);
    assert!(world.fails(3, &["rmr", &at("/data@monday")]).contains("there is a snapshot"));
    assert!(world.fails(7, &["rmr", &at("/data@monday/a.txt")]).contains("read-only"));
    let none = world.fails(3, &["ls", &at("/data@tuesday")]);
    assert!(none.contains("pando snapshot list"), "{none}");
    let slashed = world.fails(2, &["snapshot", "create", &at("/data"), "a/b"]);
    assert!(slashed.contains("a/b"), "{slashed}");
    let twice = world.fails(6, &["snapshot", "create", &at("/data"), "monday"]);
    assert!(twice.contains("it has a snapshot monday already"), "{twice}");
    let trash = world.fails(3, &["trash", "off", &at("/data")]);
    assert!(trash.contains("it has no trash"), "{trash}");
    let file = ["clone", &at("/data@monday/a.txt"), &at("/copy")];
    assert!(world.fails(6, &file).contains("a.txt: not a directory"));
}

#[test]
fn errors_name_the_path_that_was_typed() {
    let world = world();
    let says = |code: i32, arguments: &[&str], path: &str| {
        let said = world.fails(code, arguments);
        assert!(said.starts_with(&format!("pando: {path}: ")), "{said}");
        said
    };
    let (missing, above) = (world.at("/no/such/file"), world.at("/no/such"));
    says(3, &["ls", &missing], &missing);
    says(3, &["import", "/etc/passwd", &missing], &format!("{above}/"));
    let data = world.at("/data");
    says(6, &["import", "/etc/passwd", &data], &data);
    let root = world.at("/");
    assert!(says(2, &["rmr", &root], &root).contains("root of the volume"));
    if !world.mount() {
        return;
    }
    let data = world.below_mount("/data");
    let (data, gone) = (data.to_str().unwrap(), world.below_mount("/data/no/such"));
    says(6, &["import", "/etc/passwd", data], data);
    let above = gone.parent().unwrap().to_str().unwrap();
    says(3, &["import", "/etc/passwd", gone.to_str().unwrap()], above);
    says(3, &["rmr", gone.to_str().unwrap()], above);
    says(2, &["rmr", world.mnt()], world.mnt());
    world.ok(&["ls", &format!("{data}@monday/deep")]);
    world.umount();
}

#[test]
fn a_path_that_is_not_there_is_not_told_from_a_mount() {
    let world = world();
    let nope = world.path().join("nope");
    let nope = nope.to_str().unwrap();
    for verb in ["find", "summary", "du", "ls"] {
        let said = world.fails(3, &[verb, nope]);
        assert!(said.contains(&format!("there is no {nope}")), "{said}");
    }
    let word = world.fails(3, &["find", &world.at("/"), "zlib"]);
    assert!(word.contains("say name:zlib"), "{word}");
    assert_eq!(world.ok(&["find", &world.at("/"), "name:dee"]), format!("{}\n", world.at("/data/deep")));
}
