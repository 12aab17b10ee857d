//! What users type without looking it up, and the messages that they get.

use std::path::Path;
use std::process::Command;

use crate::world::{PANDO, World, answer, is_alive, is_root, wait_until};

/// A volume with `/d/a` of 3,000 bytes, `/d/sub/b`, and `/e/.hidden`.
fn filled() -> World {
    let world = World::new();
    let source = world.path().join("source");
    std::fs::create_dir_all(source.join("d/sub")).unwrap();
    std::fs::create_dir(source.join("e")).unwrap();
    std::fs::write(source.join("d/a"), vec![b'a'; 3000]).unwrap();
    std::fs::write(source.join("d/sub/b"), b"two").unwrap();
    std::fs::write(source.join("e/.hidden"), b"").unwrap();
    for name in ["d", "e"] {
        let from = source.join(name);
        world.ok(&["import", "-q", from.to_str().unwrap(), &world.at(&format!("/{name}"))]);
    }
    world
}

#[test]
fn ls_accepts_the_options_of_ls() {
    let world = filled();
    let (d, e, a) = (world.at("/d"), world.at("/e"), world.at("/d/a"));
    let both = world.ok(&["ls", &e, &a, &d]);
    assert_eq!(both, format!("{a}\n\n{e}:\n\n{d}:\na\nsub\n"));
    assert_eq!(world.ok(&["ls", "-d", &d, &e]), format!("{d}\n{e}\n"));
    let below = world.ok(&["ls", "-R", &d]);
    assert_eq!(below, format!("{d}:\na\nsub\n\n{d}/sub:\nb\n"));
    assert_eq!(world.ok(&["ls", "-S", &d]).lines().next(), Some("a"));
    assert_eq!(world.ok(&["ls", "-r", &d]), "sub\na\n");
    let long = world.ok(&["ls", "-lh", &d]);
    assert!(long.contains(" 3.0K ") && long.starts_with("-rw"), "{long}");
    let path = world.path().to_str().unwrap();
    let owner = Command::new("stat").args(["-c", "%U %G", path]).output().unwrap();
    let owner = String::from_utf8(owner.stdout).unwrap();
    assert!(long.contains(&format!(" {} ", owner.trim())), "{owner}: {long}");
    let numbers = world.ok(&["ls", "-n", &d]);
    assert!(
        numbers.contains(&format!(" {0} {0} ", rustix::process::getuid().as_raw())),
        "{numbers}"
    );
    // An operand that cannot be listed does not hide the others.
    let answer = world.run(&["ls", &world.at("/none"), &d]);
    assert_eq!((answer.code, answer.out), (3, format!("{d}:\na\nsub\n")));
    assert!(answer.err.contains("/none: no such file"), "{}", answer.err);
}

#[test]
fn ls_without_a_path_lists_the_current_directory() {
    let world = filled();
    let here = |at: &Path, arguments: &[&str]| {
        answer(&World::command(arguments).current_dir(at).output().unwrap())
    };
    let outside = here(world.path(), &["ls"]);
    assert_eq!(outside.code, 3, "{outside:?}");
    assert!(outside.err.contains("not below a mounted volume"), "{}", outside.err);
    if world.mount() {
        assert_eq!(here(&world.below_mount("d"), &["ls"]).out, "a\nsub\n");
        assert_eq!(here(&world.below_mount("d"), &["ls", "a", "sub"]).out, "a\n\nsub:\nb\n");
    }
}

#[test]
fn help_exists_for_every_alias() {
    let world = World::without_volume();
    let help = world.ok(&["help"]);
    assert_eq!(help, world.ok(&["--help"]));
    for part in ["Snapshots and clones:\n  snapshot ", "Exit codes:", "pando help VERB"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    assert_eq!(
        world.ok(&["help", "snapshot", "create"]),
        world.ok(&["snapshot", "create", "--help"])
    );
    assert_eq!(world.ok(&["help", "find"]), world.ok(&["find", "--help"]));
    assert_eq!(world.run(&["help", "frob"]).code, 2);
}

/// Operating-system error numbers mean nothing to users.
#[test]
fn messages_contain_no_os_error_numbers() {
    let world = filled();
    let (nope, at, volume) = ("/nope", world.at("/none"), world.vol().to_owned());
    let file = world.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let (file, below) = (file.to_str().unwrap(), file.join("x"));
    let below = below.to_str().unwrap();
    for arguments in [
        vec!["import", nope, &at],
        vec!["import", below, &at],
        vec!["format", "/proc/x"],
        vec!["format", below],
        vec!["format", file],
        vec!["mount", nope, world.mnt()],
        vec!["mount", &volume, below],
        vec!["umount", nope],
        vec!["umount", below],
        vec!["status", below],
        vec!["fsck", nope],
        vec!["gc", below],
        vec!["ls", nope],
        vec!["stat", below],
        vec!["cat", &at],
        vec!["index", nope, "--into", below],
        vec!["find", &volume, "-newer", nope],
        vec!["find", &at, "-fprint", "/nope/x"],
        vec!["rmr", &at],
        vec!["clone", &at, &at],
        vec!["snapshot", "create", nope, "x"],
        vec!["generate", "/proc/x"],
        vec!["bench", nope],
    ] {
        let answer = world.run(&arguments);
        assert_ne!(answer.code, 0, "{arguments:?}");
        assert!(!answer.err.contains("os error"), "{arguments:?}: {}", answer.err);
    }
    let json = world.run(&["--json", "import", nope, &at]);
    assert!(!json.err.contains("os error") && json.err.contains("No such file"), "{}", json.err);
}

#[test]
fn a_rollback_without_that_snapshot_suggests_a_clone() {
    let world = filled();
    world.ok(&["snapshot", "create", &world.at("/d"), "monday"]);
    let sub = world.at("/d/sub");
    let printed = world.fails(3, &["rollback", &sub, "monday"]);
    assert!(printed.contains(&format!("monday is a snapshot of {}", world.at("/d"))), "{printed}");
    let suggested = printed.split('`').nth(1).unwrap();
    let words: Vec<&str> = suggested.split(' ').skip(1).collect();
    world.ok(&words);
    assert_eq!(world.names("/d/sub-monday"), ["b"]);
    world.ok(&["snapshot", "create", &world.at("/"), "all"]);
    let printed = world.fails(3, &["rollback", &sub, "all"]);
    let words: Vec<&str> = printed.split('`').nth(1).unwrap().split(' ').skip(1).collect();
    world.ok(&words);
    assert_eq!(world.names("/d/sub-all"), ["b"]);
    let none = world.fails(3, &["rollback", &sub, "tuesday"]);
    assert!(none.contains("pando snapshot list"), "{none}");
}

#[test]
fn a_search_for_nothing_finds_nothing() {
    let world = filled();
    for arguments in [&["-false"][..], &["-false", "-name", "a"], &["-name", "a", "-false"]] {
        let at = world.at("/");
        let answer = world.run(&[&["find", &at], arguments].concat());
        assert_eq!((answer.code, answer.out, answer.err), (0, String::new(), String::new()));
    }
}

#[test]
fn unmounting_an_idle_volume_ends_its_daemon() {
    let world = filled();
    let pid = world.status()["daemon"]["pid"].as_i64().unwrap() as i32;
    assert!(is_alive(pid));
    let printed = world.ok(&["umount", world.vol()]);
    assert!(printed.contains(&format!("its daemon (pid {pid}) ended")), "{printed}");
    assert!(!is_alive(pid));
    let again = world.fails(3, &["umount", world.vol()]);
    assert!(again.contains("no daemon has it open"), "{again}");
}

/// All counters, compared with what was stored.
#[test]
fn figures_are_those_of_the_tree() {
    let world = filled();
    let status = || {
        let status = world.status();
        ["inodes", "bytes", "snapshots", "clones", "subvolumes"]
            .map(|key| status[key].as_u64().unwrap())
    };
    // The root, d, a, sub, b, e and .hidden.
    assert_eq!(status(), [7, 3003, 0, 0, 1]);
    world.ok(&["snapshot", "create", &world.at("/d"), "monday"]);
    world.ok(&["clone", &world.at("/d"), &world.at("/c")]);
    wait_until("the clone is counted", || status() == [11, 6006, 1, 1, 1]);
    // A rolled-back directory is no clone.
    world.ok(&["rollback", &world.at("/d"), "monday"]);
    let [_, _, snapshots, clones, subvolumes] = status();
    assert_eq!((snapshots, clones, subvolumes), (1, 1, 2));
    world.ok(&["umount", world.vol()]);
    // A daemon without submitted operations reports no ratio, whatever it writes for itself.
    let idle = world.status();
    assert_eq!(idle["writing"]["given_bytes"], 0, "{idle}");
    assert!(idle["writing"]["write_amplification"].is_null(), "{idle}");
    let text = world.ok(&["status", world.vol()]);
    assert!(!text.contains("owner") && text.contains("\ndaemon "), "{text}");
    let info = world.ok(&["info", &world.at("/d")]);
    assert!(info.contains("\nentries   2\n"), "{info}");
    assert!(info.starts_with(&format!("path      {}\n", world.at("/d"))), "{info}");
}

#[test]
fn directory_sizes_in_an_index_count_their_entries() {
    let world = World::without_volume();
    let source = world.path().join("source");
    std::fs::create_dir_all(source.join("full")).unwrap();
    for name in ["one", "two", "three"] {
        std::fs::write(source.join("full").join(name), b"").unwrap();
    }
    world.ok(&["index", "-q", source.to_str().unwrap(), "--into", world.vol()]);
    let info = world.json(&["info", &world.at("/full")]).remove(0);
    assert_eq!(info["entries"], 3);
    assert_eq!(info["path"], world.at("/full"));
    let du = world.ok(&["du", &world.at("/")]);
    assert!(du.lines().all(|line| !line.contains("//")), "{du}");
}

#[test]
fn a_trash_is_turned_off_where_it_was_turned_on() {
    if !is_root() {
        return;
    }
    let world = filled();
    let none = world.fails(3, &["trash", "off", &world.at("/d")]);
    assert!(none.contains("neither it nor a directory above it has a trash"), "{none}");
    world.ok(&["trash", "on", &world.at("/d")]);
    let below = world.fails(3, &["trash", "off", &world.at("/d/sub")]);
    assert!(below.contains("what is removed there goes to that of /d"), "{below}");
}

/// `make deb` packs the same; without root, and with the program of the tests.
#[test]
fn a_package_has_what_an_installation_has() {
    let world = World::without_volume();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install.sh");
    let mut bash = Command::new("bash");
    bash.arg(&script).arg("deb").env("PANDO", PANDO).env("MAINTAINER", "A <a@example.org>");
    // To compress the program takes longer than all else together.
    bash.env("PACKAGE_DIR", world.path()).env("PACKAGE_COMPRESSION", "none");
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let packages: Vec<_> = std::fs::read_dir(world.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    let listed = Command::new("dpkg-deb").arg("-c").args(&packages).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for file in [
        "./usr/bin/pando\n",
        "./usr/sbin/mount.pando -> ../bin/pando\n",
        "./usr/share/man/man1/pando.1.gz\n",
        "./usr/share/man/man8/mount.pando.8.gz\n",
        "./usr/share/bash-completion/completions/pando\n",
        "./usr/share/zsh/vendor-completions/_pando\n",
        "./usr/share/fish/vendor_completions.d/pando.fish\n",
        "./usr/lib/systemd/system/pando-mount@.service\n",
        "./usr/lib/systemd/system/pando-index@.service\n",
        "./usr/share/doc/pando/copyright\n",
    ] {
        assert!(listed.contains(file), "{file:?} is not in\n{listed}");
    }
    assert!(listed.lines().all(|line| line.contains(" root/root ")), "{listed}");
}

/// As packages do it: everything below one directory, and removed again.
#[test]
fn an_installation_is_whole_and_can_be_removed() {
    let world = World::without_volume();
    let root = world.path().join("root");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install.sh");
    let run = |what: &str| {
        let mut bash = Command::new("bash");
        bash.arg(&script).arg(what).env("PANDO", PANDO).env("DESTDIR", &root).env("PREFIX", "/usr");
        let output = bash.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    run("install");
    for file in [
        "usr/bin/pando",
        "usr/share/man/man1/pando.1.gz",
        "usr/share/man/man1/pando-snapshot-create.1.gz",
        "usr/share/man/man8/mount.pando.8.gz",
        "usr/share/bash-completion/completions/pando",
        "usr/share/zsh/vendor-completions/_pando",
        "usr/share/fish/vendor_completions.d/pando.fish",
        "usr/lib/systemd/system/pando-mount@.service",
        "usr/lib/systemd/system/pando-index@.service",
    ] {
        assert!(root.join(file).metadata().is_ok_and(|found| found.len() > 20), "{file}");
    }
    assert_eq!(
        std::fs::read_link(root.join("sbin/mount.pando")).unwrap(),
        Path::new("/usr/bin/pando")
    );
    for (shell, file) in [
        ("bash", "usr/share/bash-completion/completions/pando"),
        ("zsh", "usr/share/zsh/vendor-completions/_pando"),
        ("fish", "usr/share/fish/vendor_completions.d/pando.fish"),
    ] {
        are_completions(shell, &root.join(file));
    }
    let units = root.join("usr/lib/systemd/system");
    let mounts = is_unit(&world, &units, "pando-mount@");
    assert!(mounts.contains("ExecStart=/usr/bin/pando mount --foreground"), "{mounts}");
    let index = is_unit(&world, &units, "pando-index@");
    assert!(index.contains("ExecStart=/usr/bin/pando index --into %f"), "{index}");
    run("uninstall");
    let left = Command::new("find").arg(&root).args(["!", "-type", "d"]).output().unwrap();
    assert!(left.stdout.is_empty(), "{left:?}");
}

/// Whether a program is there; those of the tests are installed by `scripts/setup.sh test`.
#[expect(clippy::print_stdout, reason = "prints what is not tested")]
fn is_there(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        println!("{program} is not installed: only the form of its files is tested");
    }
    is_there
}

/// Has a shell parse its completions.
fn are_completions(shell: &str, file: &Path) {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("rollback") && !text.contains("idle-seconds"), "{shell}");
    let is_its = match shell {
        "zsh" => text.starts_with("#compdef pando\n") && text.contains("_arguments"),
        "fish" => text.contains("complete -c pando "),
        _ => text.contains("complete -F _pando"),
    };
    assert!(is_its, "{shell}: {text:.200}");
    if is_there(shell) {
        let parsed = Command::new(shell).arg("-n").arg(file).output().unwrap();
        assert!(parsed.status.success() && parsed.stderr.is_empty(), "{shell}: {parsed:?}");
    }
}

/// Has systemd parse an instance of a unit, and returns the unit.
fn is_unit(world: &World, units: &Path, name: &str) -> String {
    let text = std::fs::read_to_string(units.join(format!("{name}.service"))).unwrap();
    let mut sections = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[') {
            sections.push(section.strip_suffix(']').unwrap());
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("{name}: {line}"));
        let is_key = key.chars().all(|letter| letter.is_ascii_alphanumeric());
        assert!(is_key && !value.is_empty(), "{name}: {line}");
    }
    assert_eq!(sections, ["Unit", "Service", "Install"], "{name}");
    if is_there("systemd-analyze") {
        // It looks for the program, which is installed elsewhere here.
        let instance = format!("{name}srv-vol.service");
        let file = world.path().join(&instance);
        std::fs::write(&file, text.replace("/usr/bin/pando", PANDO)).unwrap();
        let verified = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&file)
            .output()
            .unwrap();
        // Other units of the machine may be at fault, and a warning is no failure to it.
        let found = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(!found.contains(&instance), "{found}");
    }
    text
}
