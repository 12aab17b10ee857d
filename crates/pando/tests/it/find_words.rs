//! Words for random expressions that depend on the tree, and their form for GNU find, which does
//! not know all of them. Tests that it lacks become inode numbers that were looked up here.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Zoned;
use jiff::tz::TimeZone;

/// The time zone of both finders.
pub(crate) const ZONE: &str = "America/New_York";

const HOUR: i64 = 3600;

/// The values of an attribute that some files have.
const TAGS: &[&str] = &["red", "rose", "blue", ""];

/// The name of that attribute.
pub(crate) const TAG: &str = "user.tag";

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the time that find sees")]
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// A random element of `what`.
fn one<'a>(what: &[&'a str], random: &mut fastrand::Rng) -> &'a str {
    what[random.usize(..what.len())]
}

/// A path that cannot be taken for an option.
pub(crate) fn dotted(path: &OsStr) -> OsString {
    if path.as_bytes().starts_with(b".") {
        path.to_owned()
    } else {
        Path::new(".").join(path).into()
    }
}

/// A comparison with the times of a file.
pub(crate) fn newer(
    root: &Path,
    all: &[PathBuf],
    ordinary: bool,
    random: &mut fastrand::Rng,
) -> Vec<OsString> {
    if random.u8(..4) == 0 {
        let own = one(&["a", "c", "m"], random);
        return vec![format!("-newer{own}t").into(), moment(random).into()];
    }
    // find opens the operand of -samefile, and would wait forever for the writer of a pipe.
    let is_pipe = |path: &PathBuf| {
        use std::os::unix::fs::FileTypeExt;
        root.join(path).symlink_metadata().unwrap().file_type().is_fifo()
    };
    let files: Vec<&PathBuf> = all.iter().filter(|path| !is_pipe(path)).collect();
    let other = files[random.usize(..files.len())].clone().into_os_string();
    let test = match random.u8(..8) {
        0 => one(&["-newer", "-anewer", "-cnewer"], random).to_owned(),
        1 => "-samefile".to_owned(),
        // Tests that find lacks are looked up with root's rights.
        2 if !ordinary => {
            let (own, theirs) = (one(&["a", "c", "m", "B"], random), one(&["a", "m"], random));
            match own {
                "B" => format!("-newerB{theirs}"),
                own => format!("-newer{own}B"),
            }
        }
        _ => format!("-newer{}{}", one(&["a", "c", "m"], random), one(&["a", "c", "m"], random)),
    };
    vec![test.into(), dotted(&other)]
}

/// A point in time in one of many forms. Most are within the times of the files of a tree, and none
/// that is relative to now is near one of them.
fn moment(random: &mut fastrand::Rng) -> String {
    let ago = random.i64(0..200);
    let zone = TimeZone::get(ZONE).unwrap();
    let then = jiff::Timestamp::from_second(now() - ago * HOUR).unwrap();
    // Every local day has one noon.
    let noon = then.to_zoned(zone).with().hour(12).build().unwrap();
    let local = |form: &str, of: &Zoned| of.strftime(form).to_string();
    match random.u8(..15) {
        0 => format!("@{}", then.as_second()),
        1 => format!("@{}.{}", then.as_second(), random.u32(..1000)),
        2 => local("%Y-%m-%d", &noon),
        3 => local("%Y-%m-%d %H:%M", &noon),
        4 => local("%Y-%m-%d %H:%M:%S", &noon),
        5 => local("%Y-%m-%dT%H:%M:%S", &noon),
        6 => then.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        7 => local("%Y-%m-%dT%H:%M:%S%:z", &noon),
        8 => format!("{ago} hours ago"),
        9 => format!("{} minutes ago", ago * 60),
        10 => format!("{} days ago", ago / 24),
        11 => one(&["1 week ago", "1 month ago", "1 year ago", "2 weeks ago"], random).to_owned(),
        12 => "yesterday".to_owned(),
        13 => one(&["now", "today"], random).to_owned(),
        _ => "tomorrow".to_owned(),
    }
}

/// A part of a name, some of it special characters of patterns.
pub(crate) fn part(random: &mut fastrand::Rng) -> Vec<OsString> {
    let parts: &[&[u8]] = &[
        b"a",
        b"re",
        b"ort.",
        b".h5",
        b".H5",
        b" ",
        b"\n",
        b"\xff",
        b"t*",
        b"[x",
        b"]",
        b"-",
        b"e\\",
        b"\"",
        b"\xa9",
        b"1",
        b"?",
        b"caf\xc3\xa9",
        b"",
    ];
    let test = one(&["-contains", "-icontains"], random);
    vec![test.into(), OsString::from_vec(parts[random.usize(..parts.len())].to_vec())]
}

/// A test for the attribute that some files have.
pub(crate) fn tagged(random: &mut fastrand::Rng) -> Vec<OsString> {
    let patterns = ["", "=red", "=r*", "=*e*", "=", "=[!r]*", "=green"];
    vec!["-xattr".into(), format!("{TAG}{}", one(&patterns, random)).into()]
}

/// Sets the attribute of a file or directory, removes it, or does neither.
pub(crate) fn tag(path: &Path, random: &mut fastrand::Rng) {
    let is_plain = path.symlink_metadata().is_ok_and(|found| found.is_file() || found.is_dir());
    if is_plain && random.u8(..3) > 0 {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(path, TAG, one(TAGS, random).as_bytes(), flags).unwrap();
    } else if is_plain && random.bool() {
        // It may have none.
        rustix::fs::lremovexattr(path, TAG).unwrap_or_default();
    }
}

/// The tag of a file.
fn tag_of(path: &Path) -> Option<Vec<u8>> {
    let mut value = [0; 16];
    let length = rustix::fs::lgetxattr(path, TAG, &mut value).ok()?;
    Some(value[..length].to_vec())
}

/// All files at and below a directory.
fn files(root: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let all = walkdir::WalkDir::new(root).into_iter().map(Result::unwrap);
    all.map(|entry| (entry.path().to_owned(), entry.path().symlink_metadata().unwrap())).collect()
}

/// Whether a pattern of those of [`tagged`] matches.
fn tag_matches(pattern: &[u8], value: &[u8]) -> bool {
    match pattern {
        b"r*" => value.starts_with(b"r"),
        b"*e*" => value.contains(&b'e'),
        b"[!r]*" => !value.is_empty() && !value.starts_with(b"r"),
        plain => plain == value,
    }
}

type Time = (i64, i64);

/// One of the times of a file.
fn time(found: &fs::Metadata, which: u8) -> Time {
    match which {
        b'a' => (found.atime(), found.atime_nsec()),
        b'c' => (found.ctime(), found.ctime_nsec()),
        b'm' => (found.mtime(), found.mtime_nsec()),
        _ => {
            let born = found.created().unwrap().duration_since(UNIX_EPOCH).unwrap();
            (born.as_secs() as i64, i64::from(born.subsec_nanos()))
        }
    }
}

/// An expression in GNU find's words: other words replace those that it does not know.
pub(crate) fn gnu(words: &[OsString], root: &Path) -> Vec<OsString> {
    let mut printed = Vec::new();
    let mut words = words.iter();
    let numbered = |printed: &mut Vec<OsString>, is: &dyn Fn(&Path, &fs::Metadata) -> bool| {
        printed.extend(["(".into(), "-false".into()]);
        let mut inos: Vec<u64> = files(root)
            .into_iter()
            .filter_map(|(path, found)| is(&path, &found).then_some(found.ino()))
            .collect();
        inos.sort_unstable();
        inos.dedup();
        for ino in inos {
            printed.extend(["-o".into(), "-inum".into(), ino.to_string().into()]);
        }
        printed.push(")".into());
    };
    while let Some(word) = words.next() {
        match word.as_bytes() {
            test @ (b"-contains" | b"-icontains") => {
                let name = if test == b"-contains" { "-name" } else { "-iname" };
                let mut pattern = b"*".to_vec();
                for byte in words.next().unwrap().as_bytes() {
                    if b"*?[]\\".contains(byte) {
                        pattern.push(b'\\');
                    }
                    pattern.push(*byte);
                }
                pattern.push(b'*');
                printed.extend([name.into(), OsString::from_vec(pattern)]);
            }
            b"-xattr" => {
                let text = words.next().unwrap().as_bytes();
                let pattern = text.strip_prefix(TAG.as_bytes()).unwrap().strip_prefix(b"=");
                numbered(&mut printed, &|path, _| {
                    tag_of(path).is_some_and(|value| {
                        pattern.is_none_or(|pattern| tag_matches(pattern, &value))
                    })
                });
            }
            [b'-', b'n', b'e', b'w', b'e', b'r', own, theirs]
                if [*own, *theirs].contains(&b'B') =>
            {
                let other = root.join(words.next().unwrap()).symlink_metadata().unwrap();
                let then = time(&other, *theirs);
                numbered(&mut printed, &|_, found| time(found, *own) > then);
            }
            _ => printed.push(word.clone()),
        }
    }
    printed
}

/// An expression for a program: GNU find or `pando find`.
pub(crate) fn gnu_for(program: &[&OsStr], words: &[OsString], root: &Path) -> Vec<OsString> {
    if program[0] == "find" { gnu(words, root) } else { words.to_vec() }
}
