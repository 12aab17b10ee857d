//! Results name paths as the user typed them, by `VOLDIR:/path` and through a mount, in text and
//! with `--json`. A test compares the list of verbs that take a path with the program's verbs.
//!
//! A path that nobody typed (a quota's directory, a clone's source) is printed as the user would
//! type it after that argument. The next verb would refuse one inside the volume.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::messages;
use crate::world::{World, answer, is_root};

/// A command, and the paths that its result names in text and with `--json`. D is a directory, R
/// the root of the volume, S a directory outside, O a name outside. `send` and `dump` write what
/// `receive` and `load` read. In this order, for one directory.
pub(crate) const RESULTS: &[(&str, &[&str], &[&str])] = &[
    ("stat D/a.txt", &["D/a.txt"], &["D/a.txt"]),
    ("cat D/a.txt", &[], &[]),
    ("ls D", &[], &[]),
    ("ls -R D", &["D", "D/deep"], &[]),
    ("ls -d D/a.txt", &["D/a.txt"], &["D/a.txt"]),
    ("du D", &["D", "D/deep"], &["D", "D/deep"]),
    ("summary D", &[], &[]),
    ("find D -name a*", &["D/a.txt"], &["D/a.txt"]),
    ("find D -name a* --sort size", &["D/a.txt"], &["D/a.txt"]),
    ("import S D/in", &[], &["D/in"]),
    ("export D/deep O", &[], &["D/deep"]),
    ("subvolume create D/s", &["D/s"], &["D/s"]),
    ("snapshot create D one", &["D"], &["D"]),
    ("snapshot create D two", &["D"], &["D"]),
    ("snapshot list D", &[], &[]),
    ("snapshot list R --all", &["D"], &["D", "D/.snapshots/one"]),
    ("snapshot rename D two three", &["D"], &["D"]),
    ("snapshot delete D three", &["D"], &["D"]),
    ("snapshot schedule D @daily", &["D"], &["D"]),
    ("snapshot schedule D", &["D"], &["D"]),
    ("snapshot schedule R --all", &["D"], &["D"]),
    ("snapshot prune D --keep 1d", &[], &[]),
    ("snapshot schedule --off D", &["D"], &["D"]),
    ("snapshot hold D one h", &[], &[]),
    ("snapshot release D one h", &[], &[]),
    ("history D/a.txt", &["D"], &["D"]),
    ("info D/a.txt", &["D/a.txt", "D"], &["D/a.txt", "D"]),
    ("send D@one", &[], &[]),
    ("send --dry-run D@one", &[], &[]),
    ("receive D/received", &["D/received"], &["D/received"]),
    ("dump D/deep", &[], &[]),
    ("load D/loaded", &["D/loaded"], &["D/loaded"]),
    ("trash on D", &["D"], &["D"]),
    ("rmr D/in/a.txt", &["D/in/a.txt"], &["D/in/a.txt"]),
    ("diff D@one D", &[], &[]),
    ("trash list D", &["D/in/a.txt"], &["D/in/a.txt"]),
    ("restore --list D", &["D/in/a.txt"], &["D/in/a.txt"]),
    ("restore D/in/a.txt", &["D/in/a.txt"], &["D/in/a.txt"]),
    ("restore --from one D/deep --to D/old", &["D/deep", "D/old"], &["D/deep", "D/old"]),
    ("trash empty D", &[], &[]),
    ("trash off D", &["D"], &["D"]),
    ("quota set D --files 100", &["D"], &["D"]),
    ("quota get D/deep", &["D"], &["D"]),
    ("quota list R", &["D"], &["D"]),
    ("quota set D --files none", &["D"], &["D"]),
    ("search flush D", &["D"], &["D"]),
    ("clone D D/copy", &["D", "D/copy"], &["D", "D/copy"]),
    ("info D/copy", &["D/copy", "D"], &["D/copy", "D"]),
    ("rmr D/copy", &["D/copy"], &["D/copy"]),
    ("rollback D one", &["D"], &["D"]),
];

/// All texts of an object, each with its key.
fn texts<'a>(key: &'a str, value: &'a Value, found: &mut Vec<(&'a str, &'a str)>) {
    match value {
        Value::String(text) => found.push((key, text)),
        Value::Array(parts) => parts.iter().for_each(|part| texts(key, part, found)),
        Value::Object(parts) => parts.iter().for_each(|(key, part)| texts(key, part, found)),
        _ => {}
    }
}

/// The words of a printed text, without what separates them from a path.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().map(|word| word.trim_end_matches([':', ',']))
}

/// Prefixes of paths in the volume: as they are typed, as they would be typed in other ways, and
/// inside the volume.
struct Typed {
    own: String,
    others: Vec<String>,
    name: &'static str,
    /// Where relative paths are typed.
    current: Option<PathBuf>,
}

impl Typed {
    /// The path that a word of the list means.
    fn path(&self, word: &str, outside: &Path) -> String {
        let below = |name: &str| outside.join(name).to_str().unwrap().to_owned();
        match word {
            "R" if self.own.is_empty() => ".".to_owned(),
            "R" => self.own.clone(),
            "S" => below("source"),
            "O" => below(&format!("out-{}", self.name)),
            _ => {
                let rest =
                    word.strip_prefix('D').filter(|rest| !rest.starts_with(char::is_alphabetic));
                rest.map_or(word.to_owned(), |rest| format!("{}{}{rest}", self.own, self.name))
            }
        }
    }

    /// What a result is expected to name. Below a root that was typed as `.` all names begin with
    /// it, as those of find(1).
    fn expected(&self, form: &str, word: &str, outside: &Path) -> String {
        let is_below_root = self.own.is_empty() && form.split(' ').any(|word| word == "R");
        let before = if is_below_root { "./" } else { "" };
        format!("{before}{}", self.path(word, outside))
    }

    /// What a result prints of paths in the volume that is not as typed.
    fn foreign<'a>(&self, printed: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
        let inside = format!("/{}", self.name);
        let is_foreign = |(key, text): &(&str, &str)| {
            let is_asked = *key == "path_in_volume";
            // Neither above nor below what was typed: 0102 has `VOLDIR:/path` for that.
            let is_beside = text.ends_with(":/data");
            let is_other = self.others.iter().any(|other| text.starts_with(other));
            !is_asked && !is_beside && (is_other || text.starts_with(&inside))
        };
        printed.filter(is_foreign).map(|(_, text)| text.to_owned()).collect()
    }

    /// Runs all verbs on a fresh copy of the data.
    fn check(&self, world: &World, json: bool) {
        world.ok(&["clone", &world.at("/data"), &world.at(&format!("/{}", self.name))]);
        for (form, in_text, in_json) in RESULTS {
            let mut arguments: Vec<String> =
                form.split(' ').map(|word| self.path(word, world.path())).collect();
            if json {
                arguments.push("--json".to_owned());
            }
            let stream = world.path().join(if form.starts_with("load") { "dump" } else { "send" });
            let mut command = World::command(&arguments);
            if let Some(current) = &self.current {
                command.current_dir(current);
            }
            if stream.exists() {
                command.stdin(fs::File::options().read(true).open(&stream).unwrap());
            }
            let output = command.output().unwrap();
            let got = answer(&output);
            assert_eq!(got.code, 0, "{form}: {}", got.err);
            // Remarks, which are for people with `--json` too.
            let remarked: Vec<_> = words(&got.err).map(|word| ("", word)).collect();
            let foreign = self.foreign(remarked.into_iter());
            assert!(foreign.is_empty(), "{form} remarks {foreign:?}: {}", got.err);
            for verb in ["send", "dump"] {
                if form.starts_with(verb) && !form.contains("--dry-run") {
                    fs::write(world.path().join(verb), &output.stdout).unwrap();
                }
            }
            if form.starts_with("send") || form.starts_with("cat") {
                continue;
            }
            let (of_json, of_text) = if json { (&got.out[..], "") } else { ("", &got.out[..]) };
            let objects = of_json.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let objects: Vec<Value> = objects.collect();
            let mut printed = Vec::new();
            for object in &objects {
                texts("", object, &mut printed);
            }
            // `info` prints the path inside the volume in a line of its own.
            let lines = of_text.lines().filter(|line| !line.starts_with("in volume "));
            printed.extend(lines.flat_map(words).map(|word| ("", word)));
            let foreign = self.foreign(printed.iter().copied());
            assert!(foreign.is_empty(), "{form} prints {foreign:?}: {}", got.out);
            let all = if json { *in_json } else { *in_text };
            for expected in all {
                let expected = self.expected(form, expected, world.path());
                let is_there = printed.iter().any(|(_, text)| *text == expected);
                assert!(is_there, "{form} does not print {expected}: {}", got.out);
            }
        }
    }
}

#[test]
fn results_name_the_typed_path() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let source = world.source();
    fs::create_dir(source.join("deep")).unwrap();
    fs::write(source.join("a.txt"), "one").unwrap();
    fs::write(source.join("deep/f"), "two").unwrap();
    world.ok(&["import", "-q", source.to_str().unwrap(), &world.at("/data")]);
    let (volume, mount) = (world.at("/"), format!("{}/", world.mnt()));
    let typed = |own: &str, others: &[&String], name| {
        let current = own.is_empty().then(|| PathBuf::from(world.mnt()));
        let others = others.iter().map(|&other| other.clone()).collect();
        Typed { own: own.to_owned(), others, name, current }
    };
    typed(&volume, &[&mount], "t1").check(&world, false);
    typed(&volume, &[&mount], "t2").check(&world, true);
    if world.mount() {
        typed(&mount, &[&volume], "t3").check(&world, false);
        typed(&mount, &[&volume], "t4").check(&world, true);
        // From a directory below the mount, as most paths are typed.
        typed("", &[&volume, &mount], "t5").check(&world, false);
        typed("", &[&volume, &mount], "t6").check(&world, true);
        world.umount();
    }
}

#[test]
fn results_are_a_line_with_the_typed_path() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let source = world.source();
    world.ok(&["import", "-q", source.to_str().unwrap(), &world.at("/a")]);
    let [a, c, s] = ["/a", "/c", "/s"].map(|inner| world.at(inner));
    assert_eq!(world.ok(&["clone", &a, &c]), format!("cloned {a} to {c}\n"));
    assert_eq!(world.ok(&["subvolume", "create", &s]), format!("made subvolume {s}\n"));
    let took = world.ok(&["snapshot", "create", &a, "one"]);
    assert_eq!(took, format!("took snapshot one of {a}\n"));
    assert_eq!(world.ok(&["rollback", &a, "one"]), format!("{a} is again one\n"));
    assert_eq!(world.json(&["rmr", &s])[0]["removed"], s);
    assert_eq!(world.json(&["quota", "set", &a, "--files", "9"])[0]["quota"], a);
    if !world.mount() {
        return;
    }
    let c = world.below_mount("c");
    let c = c.to_str().unwrap();
    assert_eq!(world.ok(&["rmr", c]), format!("removed {c}\n"));
    world.umount();
}

/// A directory above what is mounted was printed as the one above the mount point, where the two
/// have one name.
#[test]
fn what_is_above_a_mounted_directory_is_not_printed_as_if_it_were_below_the_mount() {
    if !is_root() {
        return;
    }
    let world = World::new();
    if !world.mount() {
        return;
    }
    fs::create_dir_all(world.below_mount("top/mnt")).unwrap();
    world.umount();
    assert!(world.mnt().ends_with("/mnt"), "{}", world.mnt());
    world.ok(&["quota", "set", &world.at("/top"), "--files", "100"]);
    assert!(world.mount_with(&["-o", "subdir=top/mnt"]));
    let quota = world.ok(&["quota", "get", world.mnt()]);
    assert!(quota.contains(&world.at("/top")), "{quota}");
    world.umount();
}

/// The lists have every verb: a new one is in one of them.
#[test]
fn the_result_of_each_verb_is_tested() {
    // (`quota list R` takes a volume.)
    let of_paths = |form: &&str| form.split(' ').any(|word| word.starts_with('D'));
    let forms: Vec<&str> = RESULTS.iter().map(|(form, ..)| *form).filter(of_paths).collect();
    messages::each_verb_is_in_one_list(|verb| {
        forms.iter().any(|form| form.starts_with(&format!("{verb} ")))
    });
}
