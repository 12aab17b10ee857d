//! A namespace like those of large file systems, generated from a seed.
//!
//! What is modelled, and after which studies:
//! * the tree: each new directory's parent is drawn with a weight of its sub-directories plus two.
//!   The files of a directory follow an inverse polynomial of degree 2 with offset 2.36. (Agrawal
//!   et al., "A five-year study of file-system metadata", FAST '07; "Generating realistic
//!   Impressions", FAST '09);
//! * sizes: lognormal (mu 9.48, sigma 2.46), with a Pareto tail above 512 MiB (the same). The shape
//!   is that of Douceur and Bolosky, "A large-scale study of file-system contents", 1999;
//! * owners: by sub-tree, with few strangers (Leung et al., "Measurement and analysis of
//!   large-scale network file system workloads", 2008; "Spyglass", FAST '09: namespace locality);
//! * extensions and common names: Zipf, with a favourite of each directory;
//! * times: of files near that of their directory, which is near that of its parent.
//!
//! Names are made up: syllables, numbered series, and the usual ones. They do not claim to be the
//! traces of the paper.

use fastrand::Rng;

use crate::cli::Profile;

/// The moment at which the namespace is observed: 2026-06-01, in seconds since 1970.
pub(super) const NOW_SECONDS: i64 = 1_780_272_000;
const SECOND: i64 = 1_000_000_000;
const DAY: f64 = 86_400.0;

/// Most files of a directory.
const FILES_MAX: f64 = 20_000.0;
/// Deepest directory.
const DEPTH_MAX: u8 = 24;
/// Words that names are made of.
const WORDS: usize = 8192;

const COMMON_WEB: [&str; 12] = [
    "index.html",
    "banner.jpg",
    "style.css",
    "logo.png",
    "favicon.ico",
    "main.js",
    "robots.txt",
    "header.gif",
    "footer.html",
    "sitemap.xml",
    "about.html",
    "contact.html",
];
const COMMON_ENG: [&str; 14] = [
    "Makefile",
    "README",
    "CMakeLists.txt",
    "main.c",
    "config.h",
    "test.py",
    "__init__.py",
    "build.log",
    "depend.mk",
    "LICENSE",
    "setup.py",
    "version.txt",
    "Kconfig",
    "utils.c",
];
const COMMON_HOME: [&str; 12] = [
    "notes.txt",
    "README.md",
    "todo.txt",
    ".DS_Store",
    "Thumbs.db",
    "report.doc",
    "budget.xls",
    "data.csv",
    "draft.tex",
    "backup.zip",
    "core",
    "out.log",
];
const EXTENSIONS_WEB: [&str; 16] = [
    "html", "jpg", "gif", "png", "css", "js", "php", "xml", "pdf", "txt", "json", "svg", "swf",
    "mp4", "zip", "log",
];
const EXTENSIONS_ENG: [&str; 24] = [
    "c", "h", "o", "cpp", "d", "py", "txt", "so", "a", "mk", "log", "java", "class", "xml", "sh",
    "cmd", "obj", "lib", "in", "m4", "po", "html", "tmp", "map",
];
const EXTENSIONS_HOME: [&str; 28] = [
    "txt", "doc", "jpg", "pdf", "xls", "csv", "h5", "dat", "py", "m", "c", "h", "log", "eps", "gz",
    "ppt", "tex", "html", "mp3", "png", "zip", "bak", "nc", "mat", "fits", "r", "json", "tif",
];

/// A directory. Number 0 is the root of it all.
pub(super) struct Directory {
    pub(super) parent: u32,
    pub(super) files: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) name: Box<[u8]>,
    depth: u8,
    favourite: u8,
    series: bool,
    seconds: i64,
    seed: u64,
}

/// The attributes of a file to create.
#[derive(Debug, Clone)]
pub(super) struct FileMeta {
    pub(super) name: Vec<u8>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) mtime: i64,
    pub(super) atime: i64,
}

/// All directories, and how to generate their files.
pub(super) struct Namespace {
    profile: Profile,
    words: Vec<Box<[u8]>>,
    users: u32,
    pub(super) directories: Vec<Directory>,
}

/// A number from a normal distribution (Box and Muller).
fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

/// A place among `count`, by Zipf's law with exponent 1.
fn zipf(random: &mut Rng, count: usize) -> usize {
    let place = (count as f64 + 1.0).powf(random.f64()) - 1.0;
    (place as usize).min(count - 1)
}

fn file_size(random: &mut Rng) -> u64 {
    const TAIL: f64 = 0.00006;
    if random.f64() < TAIL {
        let size = 512.0 * 1_048_576.0 / (1.0 - random.f64()).powf(1.0 / 0.91);
        return size.min(1e14) as u64;
    }
    (9.48 + 2.46 * normal(random)).exp().min(5e8) as u64
}

/// Syllables, so that names share parts as words do.
fn words(random: &mut Rng) -> Vec<Box<[u8]>> {
    let (consonants, vowels) = (b"bcdfghklmnprstvw", b"aeiou");
    let word = |random: &mut Rng| {
        let mut word = Vec::new();
        for _ in 0..random.usize(1..=4) {
            word.push(consonants[zipf(random, consonants.len())]);
            word.push(vowels[zipf(random, vowels.len())]);
            if random.u8(..3) == 0 {
                word.push(consonants[zipf(random, consonants.len())]);
            }
        }
        word.into_boxed_slice()
    };
    (0..WORDS).map(|_| word(random)).collect()
}

impl Namespace {
    /// Generates a namespace of exactly this many files.
    pub(super) fn generate(profile: Profile, files: u64, seed: u64) -> Namespace {
        let mut random = Rng::with_seed(seed);
        let words = words(&mut random);
        let users = (files / 10_000).clamp(20, 2000) as u32;
        let mut namespace = Namespace { profile, words, users, directories: Vec::new() };
        // Each directory is in this list twice, and once more for each of its sub-directories.
        let mut tickets = Vec::new();
        let mut left = files;
        namespace.begin(&mut random, &mut tickets);
        while left > 0 {
            let parent = tickets[random.usize(..tickets.len())];
            if namespace.directories[parent as usize].depth >= DEPTH_MAX {
                continue;
            }
            let number = namespace.directories.len() as u32;
            let directory = namespace.directory(&mut random, parent, left);
            left -= u64::from(directory.files);
            namespace.directories.push(directory);
            tickets.extend([parent, number, number]);
        }
        namespace
    }

    /// The root, and the home of every user.
    fn begin(&mut self, random: &mut Rng, tickets: &mut Vec<u32>) {
        let root = Directory {
            parent: 0,
            files: 0,
            uid: 0,
            gid: 0,
            name: Box::default(),
            depth: 0,
            favourite: 0,
            series: false,
            seconds: NOW_SECONDS - (2.5 * 365.0 * DAY) as i64,
            seed: random.u64(..),
        };
        self.directories.push(root);
        for user in 0..self.users {
            let number = self.directories.len() as u32;
            let mut home = self.directory(random, 0, 0);
            home.uid = 1000 + user;
            home.gid = 100 + user % 16;
            home.name = format!("user{user:04}").into_bytes().into();
            self.directories.push(home);
            tickets.extend([number, number]);
        }
    }

    fn directory(&self, random: &mut Rng, parent: u32, files_max: u64) -> Directory {
        let above = &self.directories[parent as usize];
        // P(n or more) = 2.36 / (n + 2.36): the sum of an inverse polynomial of degree 2.
        let files = (2.36 * (1.0 / (1.0 - random.f64()) - 1.0)).min(FILES_MAX) as u64;
        let moved = random.u8(..100) < 3;
        let stranger = 1000 + zipf(random, self.users as usize) as u32;
        let changed = random.u8(..100) < 30;
        let extensions = self.extensions().len();
        // Sub-directories are younger than their parents, mostly by up to a few weeks.
        let age = NOW_SECONDS - above.seconds;
        let seconds = above.seconds + (age as f64 * random.f64() * random.f64()) as i64;
        let number = self.directories.len();
        let word = &self.words[zipf(random, WORDS)];
        let mut name = word.to_vec();
        name.extend_from_slice(format!("{}", number % 1000).as_bytes());
        // Two children of one parent may have drawn the same; the number distinguishes them.
        if random.u8(..4) == 0 || number >= 1000 {
            name.extend_from_slice(format!("-{number:x}").as_bytes());
        }
        Directory {
            parent,
            files: files.min(files_max) as u32,
            uid: if moved { stranger } else { above.uid },
            gid: above.gid,
            name: name.into(),
            depth: above.depth + 1,
            favourite: if changed { zipf(random, extensions) as u8 } else { above.favourite },
            series: random.u8(..100) < 35,
            seconds,
            seed: random.u64(..),
        }
    }

    fn extensions(&self) -> &'static [&'static str] {
        match self.profile {
            Profile::Web => &EXTENSIONS_WEB,
            Profile::Eng => &EXTENSIONS_ENG,
            Profile::Home => &EXTENSIONS_HOME,
        }
    }

    fn common(&self) -> (&'static [&'static str], u8) {
        match self.profile {
            Profile::Web => (&COMMON_WEB, 20),
            Profile::Eng => (&COMMON_ENG, 10),
            Profile::Home => (&COMMON_HOME, 4),
        }
    }

    /// Calls `visit` with every file of a directory. Names differ.
    pub(super) fn files<E>(
        &self,
        directory: usize,
        mut visit: impl FnMut(&FileMeta) -> Result<(), E>,
    ) -> Result<(), E> {
        let directory = &self.directories[directory];
        let mut random = Rng::with_seed(directory.seed);
        let prefix = self.words[zipf(&mut random, WORDS)].clone();
        let (common, percent) = self.common();
        let mut used = 0_u32;
        for number in 0..directory.files {
            let is_common = random.u8(..100) < percent;
            let place = zipf(&mut random, common.len());
            let name = if is_common && used & 1 << place == 0 {
                used |= 1 << place;
                common[place].as_bytes().to_vec()
            } else {
                self.file_name(&mut random, directory, &prefix, number)
            };
            visit(&Namespace::meta(&mut random, directory, name))?;
        }
        Ok(())
    }

    fn file_name(
        &self,
        random: &mut Rng,
        directory: &Directory,
        prefix: &[u8],
        number: u32,
    ) -> Vec<u8> {
        let extensions = self.extensions();
        let favourite = random.u8(..100) < 60;
        let place =
            if favourite { directory.favourite.into() } else { zipf(random, extensions.len()) };
        let mut name;
        if directory.series {
            name = prefix.to_vec();
            name.extend_from_slice(format!("_{number:05}").as_bytes());
        } else {
            name = self.words[zipf(random, WORDS)].to_vec();
            name.push(
                *b"_-.".get(random.usize(..3)).expect("invariant: there are three separators"),
            );
            name.extend_from_slice(&self.words[random.usize(..WORDS)]);
            // The number keeps names of a directory apart.
            name.extend_from_slice(number.to_string().as_bytes());
        }
        if random.u8(..100) < 90 {
            name.push(b'.');
            name.extend_from_slice(extensions[place].as_bytes());
        }
        name
    }

    fn meta(random: &mut Rng, directory: &Directory, name: Vec<u8>) -> FileMeta {
        let near = (normal(random) * 0.8).exp() * 3.0 * DAY;
        let late = if random.u8(..100) < 15 { random.f64() * 300.0 * DAY } else { 0.0 };
        let seconds = (directory.seconds + (near + late) as i64).min(NOW_SECONDS - 1);
        // Archives and copies by old tools have whole seconds.
        let nanos = if random.u8(..100) < 25 { 0 } else { random.i64(0..SECOND) };
        let mtime = seconds * SECOND + nanos;
        let read = random.u8(..100) < 40;
        let left = (NOW_SECONDS * SECOND - mtime) as f64;
        let atime = if read { mtime + (left * random.f64() * random.f64()) as i64 } else { mtime };
        let mode = match random.u8(..100) {
            0..70 => 0o644,
            70..82 => 0o664,
            82..92 => 0o755,
            92..97 => 0o600,
            _ => 0o444,
        };
        let (uid, gid) = (directory.uid, directory.gid);
        FileMeta { name, uid, gid, mode, size: file_size(random), mtime, atime }
    }

    /// Directories in the order of a walk: a directory, then all below it.
    pub(super) fn walk(&self) -> Vec<u32> {
        let mut first = vec![u32::MAX; self.directories.len()];
        let mut next = vec![u32::MAX; self.directories.len()];
        for number in (1..self.directories.len()).rev() {
            let parent = self.directories[number].parent as usize;
            next[number] = first[parent];
            first[parent] = number as u32;
        }
        let mut order = Vec::with_capacity(self.directories.len());
        let mut left = vec![0_u32];
        while let Some(number) = left.pop() {
            order.push(number);
            let mut child = first[number as usize];
            while child != u32::MAX {
                left.push(child);
                child = next[child as usize];
            }
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_namespace_has_its_files_and_names_differ() {
        for profile in [Profile::Web, Profile::Eng, Profile::Home] {
            let namespace = Namespace::generate(profile, 30_000, 7);
            let (mut files, mut small) = (0_u64, 0_u64);
            let mut directories = BTreeSet::new();
            for (number, directory) in namespace.directories.iter().enumerate() {
                assert!(directories.insert((directory.parent, directory.name.clone())));
                let mut names = BTreeSet::new();
                namespace
                    .files::<Infallible>(number, |file| {
                        assert!(names.insert(file.name.clone()), "{:?}", file.name);
                        files += 1;
                        small += u64::from(file.size < 13_000);
                        Ok(())
                    })
                    .unwrap();
            }
            assert_eq!(files, 30_000);
            // Half of the files are smaller than e^9.48.
            assert!((14_000..16_000).contains(&small), "{small}");
            let count = namespace.directories.len();
            assert!((800..8000).contains(&count), "{count} directories");
            let walk = namespace.walk();
            assert_eq!(walk.len(), count);
        }
    }
}
