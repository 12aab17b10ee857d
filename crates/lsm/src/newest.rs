//! Finds the newest manifest among the existing ones: whole, damaged, unreadable, or under a wrong
//! name.
//!
//! A file that holds a manifest of this volume with another number (`Stray`) was put there by
//! another program: no store writes one. It is ignored, as if it did not exist, under three
//! conditions. Nothing else is under that number. It is older than the state that is found.
//! Everything that this state names exists, with the log behind it. If a finished manifest had had
//! that name, the log would have been trimmed for it. The file is neither read nor overwritten, and
//! the opening that ignores it deletes no unnamed blob.

use device::Blobs;
use format::Corruption;
use format::run_manifest::{Decoded, RunManifest, VERSION};
use store::{Error, Finding, FindingKind, Remedy, Result};

use crate::files::{Files, manifest_numbers, path};
use crate::names::{MANIFEST_PREFIX, both_names, manifest_name};

/// The newest state.
pub(crate) struct Newest {
    pub(crate) manifest: RunManifest,
    /// The greatest number of any manifest, damaged or not.
    pub(crate) greatest: u64,
    /// Its bytes under one name.
    pub(crate) bytes: u64,
    /// Whether it is whole under both names, and the greatest.
    pub(crate) is_twice: bool,
    /// The name under which nothing exists.
    absent: Option<String>,
    /// Names whose files could not be read, and why.
    pub(crate) unread: Vec<(String, Error)>,
    /// What is damaged of it, or of a manifest that was being made after it.
    pub(crate) damaged: Vec<Corruption>,
    /// Files with greater numbers that hold older manifests of this volume.
    pub(crate) strays: Vec<Stray>,
}

impl Newest {
    /// The damage of a manifest with a greater number, which is treated as unfinished; or a file
    /// that holds no manifest of its name.
    pub(crate) fn skipped(&self) -> Option<Corruption> {
        let stray = || self.strays.first().map(Stray::corruption);
        let passed = self.damaged.first().cloned().or_else(stray);
        passed.filter(|_| self.manifest.number < self.greatest)
    }

    /// What is missing of it, if it has one copy and nothing is wrong with it.
    pub(crate) fn alone(&self) -> Option<Alone> {
        let is_sound = self.damaged.is_empty() && self.unread.is_empty();
        let name = self.absent.clone().filter(|_| is_sound)?;
        Some(Alone { name, bytes: self.manifest.encode() })
    }

    /// The names whose files could not be read.
    pub(crate) fn unread(&self) -> Vec<String> {
        self.unread.iter().map(|(name, _)| name.clone()).collect()
    }
}

/// A copy of a state's manifest that does not exist, because there was no space for it.
pub(crate) struct Alone {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Makes the second copy of the newest state's manifest, if a crash left it with only the first. If
/// requests may arrive late, another manifest may still appear: then it makes nothing.
pub(crate) fn complete(files: &Files, newest: &mut Newest) -> Result<()> {
    if files.blobs.answers_may_be_lost() {
        return Ok(());
    }
    if let Some(Alone { name, bytes }) = newest.alone() {
        newest.is_twice = files.blobs.create(&name, &bytes)?;
    }
    Ok(())
}

/// Finds the newest state.
pub(crate) fn newest(files: &Files) -> Result<Newest> {
    let all = manifest_numbers(files)?;
    let Some(&greatest) = all.last() else {
        return Err(Error::Missing { file: path(MANIFEST_PREFIX), record: None });
    };
    let (mut damaged, mut strays) = (Vec::new(), Vec::new());
    for &number in all.iter().rev() {
        let (mut whole, mut bytes, mut there, mut foreign) = (Vec::new(), 0, 0, None);
        let (mut absent, mut unread, mut here) = (None, Vec::new(), Vec::new());
        for name in both_names(number) {
            match read_named(files, &name, number) {
                Named::Absent => {
                    absent = Some(name);
                    continue;
                }
                Named::Whole(manifest, length) => {
                    whole.push(manifest);
                    bytes = length;
                }
                Named::Damaged(bad) => damaged.push(bad),
                Named::Stray(stray) => here.push(stray),
                Named::Foreign(error) => foreign = Some(error),
                Named::Unread(error) => unread.push((name, error)),
            }
            there += 1;
        }
        let differ = whole.len() == 2 && whole[0] != whole[1];
        if differ {
            damaged.push(differs(&both_names(number)[1]));
        }
        let is_twice = whole.len() == 2 && number == greatest && damaged.is_empty();
        if let Some(manifest) = whole.into_iter().next() {
            if let Some(newer) = strays.iter().chain(&here).find(|stray| stray.of > number) {
                return Err(newer.corruption().into());
            }
            // What is not of this volume or number, or is of a newer format, is neither of its two
            // copies.
            damaged.extend(foreign.and_then(as_damage));
            damaged.extend(here.iter().map(Stray::corruption));
            let absent = absent.filter(|_| number == greatest);
            return Ok(Newest {
                manifest,
                greatest,
                bytes,
                is_twice: is_twice && here.is_empty(),
                absent,
                unread,
                damaged,
                strays,
            });
        }
        // What could not be read may be whole, and the newest.
        if let Some(error) = foreign.or_else(|| unread.pop().map(|(_, error)| error)) {
            return Err(error);
        }
        let late = files.blobs.answers_may_be_lost();
        if here.len() == there && !late {
            // No store made anything under this number that it did not withdraw itself.
            strays.append(&mut here);
            continue;
        }
        damaged.extend(here.iter().map(Stray::corruption));
        // It was being made, and nothing of the previous manifest was freed for it. If requests may
        // arrive late, a single copy may be from any process.
        if there > 1 || late {
            break;
        }
    }
    damaged.extend(strays.iter().map(Stray::corruption));
    match damaged.into_iter().next() {
        Some(bad) => Err(bad.into()),
        // Deleted since they were listed: another process has made newer ones.
        None => Err(Error::Missing { file: path(&manifest_name(greatest)), record: None }),
    }
}

/// A file that holds a manifest of this volume with a number other than its name.
#[derive(Debug, Clone)]
pub(crate) struct Stray {
    name: String,
    number: u64,
    /// The number in the manifest.
    of: u64,
}

impl Stray {
    /// The error that keeps the store closed, and what to do about it.
    pub(crate) fn corruption(&self) -> Corruption {
        let Stray { name, number, of } = self;
        let own = path(&manifest_name(*of));
        Corruption {
            file: path(name),
            offset: 0,
            structure: "manifest of runs",
            expected: format!("number {number:016x}"),
            found: format!("{of:016x} (name it {own} if there is none, or move it away)"),
            unread: false,
        }
    }

    /// Reports that the file is there although nothing needs it.
    pub(crate) fn finding(&self) -> Finding {
        let Stray { name, of, .. } = self;
        let what = format!("it is that of number {of:016x}");
        Finding::new(FindingKind::Structure, path(name), 0, what).with(Remedy::MoveAway)
    }
}

/// Such files with lower numbers than that of the state. No opening reads them.
pub(crate) fn strays_below(files: &Files, number: u64) -> Result<Vec<Stray>> {
    let mut found = Vec::new();
    for &number in manifest_numbers(files)?.range(..number) {
        for name in both_names(number) {
            if let Named::Stray(stray) = read_named(files, &name, number) {
                found.push(stray);
            }
        }
    }
    Ok(found)
}

/// What a manifest name holds.
pub(crate) enum Named {
    Absent,
    /// With its bytes.
    Whole(RunManifest, u64),
    Damaged(Corruption),
    /// Whole and of this volume, but of this other number.
    Stray(Stray),
    /// Whole, and of another volume, or of a newer format.
    Foreign(Error),
    /// The read failed.
    Unread(Error),
}

pub(crate) fn read_named(files: &Files, name: &str, number: u64) -> Named {
    let bytes = match read_all(&*files.blobs, name) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Named::Absent,
        Err(error) => return Named::Unread(error.into()),
    };
    let length = bytes.len() as u64;
    match RunManifest::decode(&bytes, files.volume, number) {
        Ok(Decoded::Manifest(manifest)) => Named::Whole(manifest, length),
        Ok(Decoded::Newer(found)) => {
            Named::Foreign(Error::NewerFormat { file: path(name), found, known: VERSION })
        }
        Err(bad) => {
            let bad = bad.located(&path(name), 0);
            match whole_elsewhere(&bytes) {
                None => Named::Damaged(bad),
                Some((volume, of)) if volume == files.volume => {
                    Named::Stray(Stray { name: name.to_owned(), number, of })
                }
                Some(_) => {
                    let expected = "one of this volume".to_owned();
                    let found = "one of another (move it to where it belongs)".to_owned();
                    Named::Foreign(Corruption { expected, found, ..bad }.into())
                }
            }
        }
    }
}

fn read_all(blobs: &dyn Blobs, name: &str) -> device::Result<Option<Vec<u8>>> {
    let Some(length) = blobs.length(name)? else { return Ok(None) };
    let mut bytes = vec![0; length as usize];
    match blobs.read_at(name, &mut bytes, 0) {
        Ok(read) => bytes.truncate(read),
        // Another process deleted it meanwhile.
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    }
    Ok(Some(bytes))
}

/// The volume and number of the whole manifest in these bytes, if there is one, whatever they are.
fn whole_elsewhere(bytes: &[u8]) -> Option<([u8; 16], u64)> {
    RunManifest::named(bytes)
        .filter(|&(volume, number)| RunManifest::decode(bytes, volume, number).is_ok())
}

/// What is found beside a whole manifest in the place of its other copy.
fn as_damage(error: Error) -> Option<Corruption> {
    match error {
        Error::Corrupt(bad) => Some((*bad).clone()),
        Error::NewerFormat { file, found, known } => Some(Corruption {
            file,
            offset: 0,
            structure: "manifest of runs",
            expected: format!("version {known} or older, as the other has"),
            found: format!("version {found}"),
            unread: false,
        }),
        _ => None,
    }
}

/// Both are whole, with different content.
pub(crate) fn differs(name: &str) -> Corruption {
    Corruption {
        file: path(name),
        offset: 0,
        structure: "manifest of runs",
        expected: "what the other of this number has".to_owned(),
        found: "something else".to_owned(),
        unread: false,
    }
}

/// Whether all existing copies of a manifest can be read and belong to this volume.
pub(crate) fn is_own(files: &Files, number: u64) -> bool {
    let of = |name: String| read_named(files, &name, number);
    both_names(number).map(of).iter().all(|named| matches!(named, Named::Absent | Named::Whole(..)))
}
