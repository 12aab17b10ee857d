//! Limits of totals: as many owners as a large site has users, and sizes that add up to more than
//! 64 bits.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::other_users::Nobody;
use crate::world::{Answer, PANDO, World, answer, is_root};

const OWNERS: u32 = 50_000;
/// The first owner and the first group: long numbers with long sizes, so that all of them together
/// exceed a message.
const USER: u32 = 3_000_000_000;
const GROUP: u32 = 3_500_000_000;
const SIZE: u64 = 1 << 40;

/// Runs `summary` where names come from files: systemd's service takes ten system calls for each of
/// 100,000 numbers, which took most of this test.
fn summary(world: &World, more: &[&str]) -> Answer {
    const SCRIPT: &str = r#"
[ ! -e /etc/nsswitch.conf ] || mount --bind "$1" /etc/nsswitch.conf || exit 99
shift && exec "$@""#;
    let files = world.path().join("nsswitch.conf");
    fs::write(&files, "passwd: files\ngroup: files\n").unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, "sh"]).arg(&files).args([PANDO, "summary"]);
    answer(&command.arg(world.at("/")).args(more).output().unwrap())
}

#[test]
fn fifty_thousand_owners_are_all_listed() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let mut list = String::new();
    for number in 0..50 {
        writeln!(list, r#"{{"path":"{number}","kind":"directory"}}"#).unwrap();
    }
    for number in 0..OWNERS {
        let (directory, size) = (number % 50, SIZE + u64::from(number));
        let owner = format!(r#""uid":{},"gid":{}"#, USER + number, GROUP + number);
        let path = format!(r#""path":"{directory}/{number}""#);
        writeln!(list, r#"{{{path},"kind":"file","size":{size},{owner}}}"#).unwrap();
    }
    let path = world.path().join("list");
    fs::write(&path, list).unwrap();
    let to = world.at("/d");
    world.ok(&["import", "--format", "list", path.to_str().unwrap(), &to]);
    let printed = summary(&world, &["--json"]);
    assert_eq!(printed.code, 0, "{}", printed.err);
    let reported: Value = serde_json::from_str(&printed.out).unwrap();
    for (list, first) in [("owners", u64::from(USER)), ("groups", u64::from(GROUP))] {
        let list = reported[list].as_array().unwrap();
        assert_eq!(list.len(), OWNERS as usize);
        let numbers: BTreeSet<u64> =
            list.iter().map(|one| one["number"].as_u64().unwrap()).collect();
        assert!(numbers.into_iter().eq(first..first + u64::from(OWNERS)), "every one once");
        let bytes: u64 = list.iter().map(|one| one["bytes"].as_u64().unwrap()).sum();
        assert_eq!(reported["bytes"], bytes);
        assert_eq!(list[0]["bytes"], SIZE + u64::from(OWNERS) - 1, "the largest first");
    }
    assert_eq!(reported["owners_in_all"], OWNERS);
    assert_eq!(reported["groups_in_all"], OWNERS);
    // The text shows the largest, and the sum of the others.
    let text = world.ok(&["summary", &world.at("/"), "--top", "3"]);
    assert!(text.contains("  3000049999\n") && text.contains("  and 49,997 others\n"), "{text}");
    let text = summary(&world, &["--all"]).out;
    let has_files = |line: &&str| line.contains(" file ") || line.contains(" files ");
    assert!(text.lines().filter(has_files).count() > OWNERS as usize);
    assert!(!text.contains("others"));
    let refused = world.run(&["summary", &world.at("/"), "--top", "1001"]);
    assert!(refused.code == 2 && refused.err.contains("1001"), "{}", refused.err);
}

#[test]
fn sizes_beyond_64_bits_are_exact() {
    const GREATEST: u64 = (1 << 63) - 1;
    let world = World::new();
    if !world.mount() {
        return;
    }
    fs::create_dir(world.below_mount("d")).unwrap();
    let mut reported = Vec::new();
    for name in ["a.raw", "b.raw", "c.raw", "e.raw", "f.raw"] {
        let file = fs::File::create_new(world.below_mount("d").join(name)).unwrap();
        file.set_len(GREATEST).unwrap();
        reported.push(world.status()["bytes"].as_u64().unwrap());
    }
    assert_eq!(reported[..2], [GREATEST, 2 * GREATEST], "as far as 64 bits go");
    let sum = u128::from(GREATEST) * 5;
    for at in [world.mnt().to_owned(), world.at("/")] {
        if at == world.at("/") {
            world.umount();
        }
        let json = format!("\"bytes\":{sum},");
        for verb in [&["du"][..], &["summary"], &["du", "-s"]] {
            let reported = world.ok(&[verb, &["--json", at.as_str()]].concat());
            assert!(reported.lines().all(|line| line.contains(&json)), "{reported}");
        }
        assert_eq!(world.ok(&["du", "-sb", &at]), format!("{sum}\t{at}\n"));
        let kibibytes = sum.div_ceil(1024);
        let reported = world.ok(&["du", "-s", "--apparent-size", &at]);
        assert_eq!(reported, format!("{kibibytes}\t{at}\n"));
        let text = world.ok(&["summary", &at]);
        // A file that is a single hole shows one block.
        let held = "5 files, 1 directory, 40.00 EiB (2.50 KiB on disk)";
        assert!(text.contains(held), "{text}");
    }
}

/// The target of a link does not count as nothing if it cannot be read.
#[test]
fn a_link_to_an_inaccessible_target_is_refused() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("closed/inner")).unwrap();
    fs::write(source.join("closed/inner/file"), "contents").unwrap();
    fs::set_permissions(source.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink("closed/inner", source.join("link")).unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/in")]);
    world.ok(&["du", "-sb", &world.at("/in/link")]);
    let refused = Nobody::new(&world).run(&["du", "-sb", &world.at("/in/link")]);
    assert_eq!((refused.code, &refused.out[..]), (4, ""), "{}", refused.err);
}

/// Like GNU du: counts the link itself. A path where there is no link is an error.
#[test]
fn a_dangling_link_is_counted_itself() {
    let world = World::new();
    let source = world.source();
    fs::write(source.join("file"), "x").unwrap();
    for (name, target) in [("loose", "nowhere"), ("ring", "ring"), ("through", "file/x")] {
        std::os::unix::fs::symlink(target, source.join(name)).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/in")]);
    world.ok(&["snapshot", "create", &world.at("/in"), "s"]);
    for (name, bytes) in [("loose", 7), ("ring", 4), ("through", 6)] {
        for at in [world.at(&format!("/in/{name}")), world.at(&format!("/in@s/{name}"))] {
            assert_eq!(world.ok(&["du", "-sb", &at]), format!("{bytes}\t{at}\n"));
            assert_eq!(world.ok(&["du", &at]), format!("1\t{at}\n"));
        }
    }
    for absent in ["/in/absent", "/in/loose/", "/in/loose/x"] {
        assert_eq!(world.run(&["du", &world.at(absent)]).code, 3, "{absent}");
    }
    assert_eq!(world.run(&["summary", &world.at("/in/loose")]).code, 3);
    if world.mount() {
        let at = world.below_mount("in/loose");
        let at = at.to_str().unwrap();
        assert_eq!(world.ok(&["du", "-sb", at]), format!("7\t{at}\n"));
    }
}
