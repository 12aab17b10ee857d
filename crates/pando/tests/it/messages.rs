//! Messages that scripts and people depend on: about paths, about names, and what to do next.

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
fn reading_verbs_accept_a_snapshot_by_its_at_sign() {
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
    // A file with that literal name takes precedence.
    let empty = world.path().join("empty");
    fs::write(&empty, "").unwrap();
    world.ok(&["import", empty.to_str().unwrap(), &at("/data@monday")]);
    assert_eq!(world.ok(&["cat", &at("/data@monday")]), "");
}

#[test]
fn writing_verbs_report_that_a_snapshot_was_named() {
    if !crate::world::is_root() {
        return;
    }
    let world = world();
    let at = |inner: &str| world.at(inner);
    assert!(world.fails(3, &["rmr", &at("/data@monday")]).contains("is a snapshot"));
    assert!(world.fails(7, &["rmr", &at("/data@monday/a.txt")]).contains("read-only"));
    let none = world.fails(3, &["ls", &at("/data@tuesday")]);
    assert!(none.contains("pando snapshot list"), "{none}");
    let slashed = world.fails(2, &["snapshot", "create", &at("/data"), "a/b"]);
    assert!(slashed.contains("a/b"), "{slashed}");
    let twice = world.fails(6, &["snapshot", "create", &at("/data"), "monday"]);
    assert!(twice.contains("it already has a snapshot monday"), "{twice}");
    let trash = world.fails(3, &["trash", "off", &at("/data")]);
    assert!(trash.contains("has a trash"), "{trash}");
    world.ok(&["trash", "on", &at("/data")]);
    let lost = ["restore", &at("/data/lost"), "--to", &at("/data/found")];
    assert!(world.fails(3, &lost).contains("/data/lost: it is not in the trash"));
    world.ok(&["rmr", &at("/data/deep")]);
    let restored = world.ok(&["restore", &at("/data/deep"), "--to", &at("/data/back")]);
    let (deep, back) = (at("/data/deep"), at("/data/back"));
    assert_eq!(restored, format!("restored {deep} to {back}\n"));
    let file = ["clone", &at("/data@monday/a.txt"), &at("/copy")];
    assert!(world.fails(6, &file).contains("a.txt: not a directory"));
}

#[test]
fn errors_name_the_path_that_was_typed() {
    let world = world();
    let names = |code: i32, arguments: &[&str], path: &str| {
        let printed = world.fails(code, arguments);
        assert!(printed.starts_with(&format!("pando: {path}: ")), "{printed}");
        printed
    };
    let (missing, above) = (world.at("/no/such/file"), world.at("/no/such"));
    names(3, &["ls", &missing], &missing);
    names(3, &["import", "/etc/passwd", &missing], &above);
    let data = world.at("/data");
    names(6, &["import", "/etc/passwd", &data], &data);
    let root = world.at("/");
    assert!(names(2, &["rmr", &root], &root).contains("root of the volume"));
    if !world.mount() {
        return;
    }
    let data = world.below_mount("/data");
    let (data, gone) = (data.to_str().unwrap(), world.below_mount("/data/no/such"));
    names(6, &["import", "/etc/passwd", data], data);
    let above = gone.parent().unwrap().to_str().unwrap();
    names(3, &["import", "/etc/passwd", gone.to_str().unwrap()], above);
    names(3, &["rmr", gone.to_str().unwrap()], above);
    names(2, &["rmr", world.mnt()], world.mnt());
    world.ok(&["ls", &format!("{data}@monday/deep")]);
    world.umount();
}

/// How each verb is called with a path that is missing: P is the path, R the root.
pub(crate) const MISSING: [&str; 42] = [
    "stat P",
    "cat P",
    "ls P",
    "ls -R P",
    "du P",
    "summary P",
    "find P",
    "find P -name x -o -size +1",
    "history P",
    "info P",
    "rmr P",
    "rollback P one",
    "clone P R/c",
    "clone R P/c",
    "snapshot create P s",
    "snapshot list P",
    "snapshot delete P s",
    "snapshot rename P s t",
    "snapshot schedule P",
    "snapshot schedule P @daily",
    "snapshot schedule --off P",
    "snapshot prune P",
    "snapshot hold P s h",
    "snapshot release P s h",
    "search flush P",
    "trash on P",
    "trash off P",
    "trash list P",
    "trash empty P",
    "quota get P",
    "quota set P --files 3",
    "diff P R",
    "diff R P",
    "send P@s",
    "dump P",
    "export P out",
    "subvolume create P/x",
    "restore P/x",
    "restore --from s P/x",
    "receive P/x",
    "load P/x",
    "import /etc/hostname P/x",
];

/// Verbs that take no path in a volume: they are about a volume, or other files.
const OF_NO_PATH: [&str; 24] = [
    "bench",
    "cluster certs",
    "format",
    "fsck",
    "gc",
    "index",
    "mount",
    "quota check",
    "quota list",
    "replay",
    "search declare",
    "search limits",
    "search list",
    "search undeclare",
    "serve",
    "session end",
    "session list",
    "status",
    "sync",
    "trace anonymise",
    "trace convert",
    "trace generate",
    "trace info",
    "umount",
];

/// Each verb that takes a path, as typed through the volume's directory, through its mount, and
/// from a directory of the mount.
#[test]
fn each_verb_names_a_missing_path_as_typed() {
    let world = world();
    let input = world.path().join("input");
    fs::write(&input, "").unwrap();
    let check = |typed: &str, others: &[&str]| {
        for verb in MISSING {
            let path = format!("{typed}no/such");
            let word = |word: &str| match word {
                "R" if typed.is_empty() => ".".to_owned(),
                "R" => typed.to_owned(),
                "R/c" => format!("{typed}c"),
                "R@s" => format!("{typed}@s"),
                _ => word.replacen('P', &path, 1),
            };
            let words: Vec<String> = verb.split(' ').map(word).collect();
            let mut command = World::command(&words);
            if typed.is_empty() {
                command.current_dir(world.mnt());
            }
            command.stdin(fs::File::options().read(true).open(&input).unwrap());
            let answer = crate::world::answer(&command.output().unwrap());
            let printed = answer.err;
            assert!(answer.code != 0, "{verb}");
            // What is missing may be reported as the parent, which is missing too.
            let above = format!("{typed}no");
            let mut printed_words =
                printed.split(|c: char| c.is_whitespace() || ":,`'".contains(c));
            let names = |word: &str| word == above || word.starts_with(&format!("{above}/"));
            let is_named = if typed.is_empty() {
                printed_words.any(names) && !printed.contains("/no/") && !printed.contains("/no:")
            } else {
                printed.contains(&above)
            };
            assert!(is_named, "{verb}: {printed}");
            for other in others {
                assert!(!printed.contains(&format!("{other}no")), "{verb}: {printed}");
            }
        }
    };
    let mounted = format!("{}/", world.mnt());
    check(&world.at("/"), &[&mounted]);
    if world.mount() {
        check(&mounted, &[&world.at("/")]);
        check("", &[&world.at("/"), &mounted]);
        world.umount();
    }
}

/// The lists above have every verb: a new one is in one of them.
#[test]
fn each_verb_is_tested_with_a_missing_path_or_takes_none() {
    each_verb_is_in_one_list(|verb| {
        MISSING.iter().any(|form| *form == verb || form.starts_with(&format!("{verb} ")))
    });
}

/// Each verb is tested with a path, or takes none: the tested verbs are in a list.
pub(crate) fn each_verb_is_in_one_list(is_tested: impl Fn(&str) -> bool) {
    let world = World::without_volume();
    let mut all = Vec::new();
    verbs(&world, &[], &mut all);
    let all: Vec<String> = all.iter().map(|words| words.join(" ")).collect();
    let is_group = |verb: &str| all.iter().any(|other| other.starts_with(&format!("{verb} ")));
    for verb in all.iter().filter(|verb| !is_group(verb)) {
        let is_listed = OF_NO_PATH.contains(&verb.as_str());
        assert!(is_tested(verb) != is_listed, "`{verb}` is in neither list, or in both");
    }
    for verb in OF_NO_PATH {
        assert!(all.iter().any(|other| other == verb), "there is no `{verb}`");
    }
}

#[test]
fn a_missing_path_looks_the_same_through_a_mount() {
    let world = world();
    let nope = world.path().join("nope");
    let nope = nope.to_str().unwrap();
    for verb in ["find", "summary", "du", "ls"] {
        let printed = world.fails(3, &[verb, nope]);
        assert!(printed.contains(&format!("there is no {nope}")), "{printed}");
    }
    let word = world.fails(3, &["find", &world.at("/"), "zlib"]);
    assert!(word.contains("use name:zlib"), "{word}");
    assert_eq!(
        world.ok(&["find", &world.at("/"), "name:dee"]),
        format!("{}\n", world.at("/data/deep"))
    );
}

#[test]
fn du_sorts_human_sizes_and_accepts_files() {
    let world = World::new();
    let source = world.path().join("source");
    for (name, bytes) in [("small", 5_000), ("middle", 200_000), ("large", 3_000_000)] {
        fs::create_dir_all(source.join(name)).unwrap();
        fs::write(source.join(name).join("f"), vec![7; bytes]).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/data")]);
    let reported = world.ok(&["du", "-hd1", "--apparent-size", &world.at("/data")]);
    let figure = |name: &str| {
        let line = reported.lines().find(|line| line.ends_with(name)).unwrap();
        line.split('\t').next().unwrap()
    };
    assert_eq!((figure("/small"), figure("/middle"), figure("/large")), ("4.9K", "196K", "2.9M"));
    let file = world.at("/data/small/f");
    assert_eq!(world.ok(&["du", "-b", &file]), format!("5000\t{file}\n"));
    assert_eq!(world.ok(&["du", "--inodes", &file]), format!("1\t{file}\n"));
    assert_eq!(world.json(&["du", &file])[0]["files"], 1);
    assert!(world.fails(6, &["summary", &file]).contains("not a directory"));
}

#[test]
fn usage_errors_are_objects_with_json() {
    let world = World::without_volume();
    for arguments in [&["--json", "stat"][..], &["stat", "--json"], &["--json", "frob"]] {
        let answer = world.run(arguments);
        assert_eq!((answer.code, &answer.out[..]), (2, ""), "{arguments:?}");
        let reported: serde_json::Value = serde_json::from_str(&answer.err).unwrap();
        assert_eq!(reported["error"]["kind"], "invalid", "{reported}");
        assert!(!reported["error"]["message"].as_str().unwrap().contains('\n'), "{reported}");
        assert!(reported["error"]["hint"].as_str().unwrap().contains("pando"), "{reported}");
    }
    assert!(world.run(&["frob"]).err.starts_with("error: "));
    let quota = world.run(&["quota", "set", "nowhere"]);
    for option in ["--inodes", "--bytes", "--unlimited"] {
        assert!(quota.code == 2 && quota.err.contains(option), "{}", quota.err);
    }
    // Help is no error.
    let help = world.run(&["--json", "ls", "--help"]);
    assert!(help.code == 0 && help.out.contains("Example"), "{}", help.err);
}

/// Every verb, with those below it.
fn verbs(world: &World, above: &[&str], all: &mut Vec<Vec<String>>) {
    let help = world.ok(&[above, &["--help"]].concat());
    // The first help has its verbs in groups, each below a heading of its own.
    let (groups, _) = help.split_once("\n`pando help VERB`").unwrap_or_default();
    let grouped = groups.split("\n\n").skip(2).flat_map(|group| group.lines().skip(1));
    let commands = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let listed = commands.lines().take_while(|line| !line.is_empty());
    // A line that continues the one above is indented further.
    for line in grouped.chain(listed).filter(|line| !line.starts_with("   ")) {
        let verb = line.split_whitespace().next().unwrap_or_default();
        let path = [above, &[verb]].concat();
        all.push(path.iter().map(|&word| word.to_owned()).collect());
        verbs(world, &path, all);
    }
}

#[test]
fn every_help_has_an_example() {
    let world = World::without_volume();
    let mut all = Vec::new();
    verbs(&world, &[], &mut all);
    assert!(all.len() > 40 && all.contains(&vec!["quota".to_owned(), "check".to_owned()]));
    for verb in all {
        let help = world.ok(&[&verb[..], &["--help".to_owned()]].concat());
        assert!(help.contains("Example"), "{verb:?}");
        let shown = format!("  pando {}", verb[0]);
        assert!(help.contains(&shown), "{verb:?} has none of its own");
    }
}

#[test]
fn info_reports_the_subvolume_of_a_path_and_its_source() {
    let world = world();
    let reported = |inner: &str| world.json(&["info", &world.at(inner)]).remove(0);
    let deep = reported("/data/deep");
    assert_eq!(deep["in_snapshots"][0]["name"], "monday", "{deep}");
    assert_eq!(deep["in_snapshots"][0]["directory"], world.at("/data"), "{deep}");
    let data = reported("/data");
    assert_eq!(data["snapshots"][0]["name"], "monday", "{data}");
    assert_eq!(data["in_snapshots"].as_array().map(Vec::len), Some(0), "{data}");
    assert!(data.get("copy_of").is_none(), "{data}");
    world.ok(&["clone", &world.at("/data"), &world.at("/fork")]);
    assert_eq!(reported("/fork/deep")["copy_of"], world.at("/data"));
    world.ok(&["clone", &world.at("/data@monday"), &world.at("/older")]);
    assert_eq!(reported("/older")["copy_of"], world.at("/data/.snapshots/monday"));
    let text = world.ok(&["info", &world.at("/data/deep")]);
    assert!(text.contains(&format!("monday of {}", world.at("/data"))), "{text}");
    let made = world.json(&["snapshot", "create", &world.at("/data"), "next"]).remove(0);
    assert_eq!((&made["name"], &made["created"]), (&"next".into(), &"next".into()));
}

#[test]
fn quotas_are_listed_by_path() {
    if !crate::world::is_root() {
        return;
    }
    let world = world();
    let (deep, volume) = (world.at("/data/deep"), world.vol());
    assert_eq!(world.json(&["quota", "get", &deep])[0]["quota"], serde_json::Value::Null);
    world.ok(&["quota", "set", &deep, "--inodes", "2"]);
    let reported = world.json(&["quota", "list", volume]).remove(0);
    assert_eq!(reported["path"], deep, "{reported}");
    let listed = world.ok(&["quota", "list", volume]);
    assert!(listed.starts_with(&format!("{deep}: 1 inode of 2")), "{listed}");
    assert_eq!(world.json(&["quota", "get", &deep])[0]["path"], deep);
    let source = world.path().join("source");
    fs::write(source.join("b.txt"), "more").unwrap();
    let full = world.fails(7, &["import", source.to_str().unwrap(), &world.at("/data/deep/in")]);
    assert!(full.contains("pando quota get") && !full.contains("free space"), "{full}");
}

#[test]
fn missing_things_are_reported_with_the_command_that_creates_them() {
    let world = World::new();
    let nope = world.path().join("nope");
    let nope = nope.to_str().unwrap();
    assert!(world.fails(3, &["mount", world.vol(), nope]).contains(&format!("mkdir -p {nope}")));
    let index = world.fails(8, &["index", "--into", nope]);
    assert!(index.contains(&format!("pando index DIR --into {nope}")), "{index}");
}
