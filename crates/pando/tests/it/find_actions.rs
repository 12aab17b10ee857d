//! Compares `pando find` with the machine's `find`: actions that write files, several start paths
//! in all spellings, commas, and `-quit`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use crate::find::{compare, expression, found, tree};
use crate::find_words::dotted;
use crate::world::{PANDO, World};

/// A tree on a fresh mount.
struct Scene {
    world: World,
    root: PathBuf,
    all: Vec<PathBuf>,
    random: fastrand::Rng,
    seed: u64,
}

fn scene() -> Option<Scene> {
    let world = World::new();
    if !world.mount() {
        return None;
    }
    let seed = testing::run::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let root = world.below_mount("tree");
    fs::create_dir(&root).unwrap();
    let all = tree(&root, &mut random);
    // A listing updates access times; the second one does not.
    found(&[OsStr::new("find"), OsStr::new(".")], &[], &root, 0);
    Some(Scene { world, root, all, random, seed })
}

fn programs(more: &[OsString]) -> (Vec<&OsStr>, Vec<&OsStr>) {
    let more = more.iter().map(OsString::as_os_str);
    let theirs: Vec<&OsStr> = [OsStr::new("find")].into_iter().chain(more).collect();
    let ours = [&[OsStr::new(PANDO)], &theirs[..]].concat();
    (theirs, ours)
}

impl Scene {
    /// Expressions are compared from `starts`.
    fn agree(&self, starts: &[OsString], words: &[OsString]) -> bool {
        let (theirs, ours) = programs(starts);
        compare(&theirs, &ours, words, &self.root, self.seed)
    }

    fn expression(&mut self) -> Vec<OsString> {
        let mut words = vec!["(".into()];
        words.extend(expression(&self.root, &self.all, false, &mut self.random, 1));
        words.push(")".into());
        words
    }

    /// One of the paths, spelled in one of many ways.
    fn start(&mut self) -> OsString {
        let path = self.all[self.random.usize(..self.all.len())].clone();
        let is_directory = self.root.join(&path).symlink_metadata().unwrap().is_dir();
        let mut typed = dotted(path.as_os_str());
        if is_directory {
            let ends = ["", "", "", "/", "//", "/.", "/../."];
            // Paths above the root of the tree are not part of it.
            let most = if path == Path::new(".") { ends.len() - 1 } else { ends.len() };
            typed.push(ends[self.random.usize(..most)]);
        }
        typed
    }
}

#[test]
fn paths_of_any_spelling_are_searched_as_by_gnu_find() {
    let Some(mut scene) = scene() else { return };
    for _ in 0..40 {
        let count = scene.random.usize(1..4);
        let starts: Vec<OsString> = (0..count).map(|_| scene.start()).collect();
        let starts = match scene.random.u8(..4) {
            0 => [&["-H".into()], &starts[..]].concat(),
            _ => starts,
        };
        let mut words = scene.expression();
        words.extend(["-printf".into(), "%p|%P|%H|%f|%h|%d|%y\\0".into()]);
        println!("{starts:?}");
        scene.agree(&starts, &words);
    }
    scene.world.umount();
}

/// A path that cannot be followed is reported, and the others are searched. The exit code is 1.
#[test]
fn a_path_that_cannot_be_followed_leaves_the_others_to_be_searched() {
    let Some(scene) = scene() else { return };
    std::os::unix::fs::symlink("loop", scene.root.join("loop")).unwrap();
    fs::create_dir(scene.root.join("there")).unwrap();
    for starts in [&["-H", "loop", "there"][..], &["there", "loop/below"], &["absent", "there"]] {
        let starts: Vec<OsString> = starts.iter().map(Into::into).collect();
        let (theirs, ours) = programs(&starts);
        for program in [theirs, ours] {
            let mut command = std::process::Command::new(program[0]);
            let done = command.args(&program[1..]).current_dir(&scene.root).output().unwrap();
            let [out, err] =
                [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap());
            assert_eq!((out.as_str(), done.status.success()), ("there\n", false), "{err}");
            assert!(err.contains("loop") || err.contains("absent"), "{err}");
        }
    }
    scene.world.umount();
}

#[test]
fn files_that_actions_write_are_those_that_gnu_find_writes() {
    let Some(mut scene) = scene() else { return };
    let start = [OsString::from(".")];
    let (theirs, ours) = programs(&start);
    for _ in 0..15 {
        let (one, other) = (scene.expression(), scene.expression());
        let written = |program: &[&OsStr], name: &str| -> BTreeMap<&str, Vec<Vec<u8>>> {
            let place = scene.world.path().join(name);
            fs::create_dir_all(&place).unwrap();
            let at = |file: &str| place.join(file).into_os_string();
            let mut words: Vec<OsString> = [&one[..], &["-fprint".into(), at("lines")]].concat();
            words.extend(["-fprint0".into(), at("both"), "-o".into()]);
            words.extend(other.iter().cloned());
            words.extend(["-fprintf".into(), at("both"), "%p %s %m\\0".into(), "-print0".into()]);
            words.extend(["-fprintf".into(), at("none"), "%p".into(), "-false".into()]);
            words.extend(["-fls".into(), at("never")]);
            let words = crate::find_words::gnu_for(program, &words, &scene.root);
            let mut all: BTreeMap<&str, Vec<Vec<u8>>> = ["lines", "both", "none", "never"]
                .into_iter()
                .map(|file| (file, Vec::new()))
                .collect();
            all.insert("output", found(program, &words, &scene.root, 0));
            for (file, records) in &mut all {
                let close = if *file == "lines" { b'\n' } else { 0 };
                if *file != "output" {
                    let text = fs::read(place.join(file)).unwrap();
                    records.extend(text.split(|byte| *byte == close).map(<[u8]>::to_vec));
                    // The order of rows without `--sort` is not defined, so it is not compared.
                    records.sort_unstable();
                }
                if *file == "none" {
                    *records = vec![{
                        let mut bytes = records.concat();
                        bytes.sort_unstable();
                        bytes
                    }];
                }
            }
            all
        };
        let wanted = written(&theirs, "theirs");
        let given = written(&ours, "ours");
        // Results that depend on the clock may differ once.
        if wanted != given {
            assert_eq!(written(&theirs, "theirs"), given, "seed {}: {one:?} {other:?}", scene.seed);
        }
    }
    scene.world.umount();
}

#[test]
fn a_comma_runs_all_and_returns_the_last() {
    let Some(mut scene) = scene() else { return };
    let start = [OsString::from(".")];
    // Findutils 4.9 puts cheap tests first, also across a comma: so the cheap one is first here.
    let cheap = ["-name a*", "-name *[0-9]", "-path */a*", "-iname *R*", "-true", "-false"];
    let dear =
        ["-size +1k", "-mtime -3", "-perm -111", "-links +1", "-uid 0", "-newermt yesterday"];
    let split = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
    let comma = [OsString::from(",")];
    for _ in 0..30 {
        let random = &mut scene.random;
        let one = split(cheap[random.usize(..cheap.len())]);
        let other = split(dear[random.usize(..dear.len())]);
        let list = [&["(".into()], &one[..], &comma, &other, &[")".into()]].concat();
        let not = if random.bool() { vec![OsString::from("-not")] } else { Vec::new() };
        scene.agree(&start, &[&not[..], &list, &["-print0".into()]].concat());
        // Expressions after an action are not reordered.
        let (one, other) = (scene.expression(), scene.expression());
        let words = [&one[..], &split("-print0"), &comma, &other, &split("-printf %f|%d\\0")];
        scene.agree(&start, &words.concat());
    }
    scene.world.umount();
}

#[test]
fn a_search_stops_at_its_limit_from_any_number_of_paths() {
    let Some(mut scene) = scene() else { return };
    let split = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
    let records = |program: &[&OsStr], words: &[OsString], root: &Path| {
        let all = found(program, words, root, 0);
        all.into_iter().filter(|record| !record.is_empty()).collect::<Vec<_>>()
    };
    for _ in 0..20 {
        // The order of rows below a path is not defined, but that of the paths is. With one row per
        // path, the results are the same.
        let starts: Vec<OsString> = (0..5).map(|_| scene.start()).collect();
        let words = [
            &split("-maxdepth 0 -printf %p|\\0 ( -type d -o -size +1k ) -quit")[..],
            &split(", -printf after|\\0"),
        ];
        scene.agree(&starts, &words.concat());
        scene.agree(&starts, &split("-maxdepth 0 -print0 -quit"));
        scene.agree(&starts, &split("-maxdepth 0 -quit"));
        scene.agree(&starts, &split("-maxdepth 0 -type f -quit -o -print0"));
        // Any one of several rows may be found.
        let words = [scene.expression(), split("-print0 -quit")].concat();
        let every = [words[..words.len() - 1].to_vec()].concat();
        let (theirs, ours) = programs(&starts);
        let as_gnu = crate::find_words::gnu(&words, &scene.root);
        let wanted = records(&theirs, &as_gnu, &scene.root);
        let given = records(&ours, &words, &scene.root);
        let place = format!("seed {}: {starts:?} {words:?}", scene.seed);
        assert_eq!((wanted.len(), given.len()), (given.len(), wanted.len().min(1)), "{place}");
        let as_gnu = crate::find_words::gnu(&every, &scene.root);
        let all = records(&theirs, &as_gnu, &scene.root);
        assert!(given.iter().all(|record| all.contains(record)), "{place}");
    }
    scene.world.umount();
}
