//! Files that have a segment's name but are not that segment: a user copied, created or renamed
//! them.
//!
//! A name proves nothing. The file's own contents count, and those of the segment before it. A
//! segment gets its name after the one before it ended. So if that one contains the record in the
//! name, or a later one, no segment ever began there. Also, a segment that begins before the one
//! from which the log is read is not needed. Such a file is left in place and reported. If neither
//! is known, the file may be a destroyed segment: the log is damaged there.

use format::log_segment::{Decoded, HEADER_BYTES, RECORDS_START, SEGMENT_BYTES_MAX, SegmentHeader};
use format::{COUNTED_MAX, Corruption};

use super::beginning::begins_with;
use super::search::search;
use super::segment::{Files, SEGMENT_SUFFIX};
use crate::{Error, Lsn, Remedy, Result};

/// A file that has a segment's name, but is not that segment.
#[derive(Debug)]
pub(super) struct Stray {
    pub(super) path: String,
    /// The record in its name.
    pub(super) name: u64,
    pub(super) is: Is,
    /// Whether it is known that no segment of its name is needed. Otherwise the log is read as if
    /// the file were one.
    pub(super) is_ignored: bool,
    /// Whether it is before everything needed.
    pub(super) is_below: bool,
}

/// What a file is that is not the segment of its name.
#[derive(Debug)]
pub(super) enum Is {
    /// A segment that begins with another record, by its own header, and whether a file of that
    /// name exists.
    Another { first: u64, is_copy: bool },
    /// A segment of another volume, by its header.
    Foreign,
    /// A segment of a newer version, of any volume.
    Newer,
    /// Nothing that identifies it.
    Nothing(&'static str),
}

/// Takes out of `firsts` the files that are not the segment of their name, and are not needed as
/// one; the state ends with `from`. Files of another volume are reported in any case. `unread`
/// decides about a file that cannot be read.
pub(super) fn take_strays(
    files: &Files,
    firsts: &mut Vec<u64>,
    from: Lsn,
    unread: fn(Error) -> Result<()>,
) -> Result<Vec<Stray>> {
    let (mut found, mut proven) = (Vec::new(), Vec::new());
    for &name in &*firsts {
        match what_is(files, name) {
            Ok(Some(is)) => found.push((name, is)),
            Ok(None) => proven.push(name),
            Err(error) => {
                unread(error)?;
                proven.push(name);
            }
        }
    }
    let begin = proven.iter().rfind(|&&first| first <= from.0.saturating_add(1)).copied();
    let mut strays = Vec::new();
    for (name, mut is) in found {
        let is_below = begin.is_some_and(|begin| name < begin);
        let is_ignored = match &mut is {
            Is::Another { first, is_copy } => {
                *is_copy = proven.contains(first);
                true
            }
            _ => {
                is_below
                    || is_within(files, &proven, name).or_else(|error| {
                        unread(error)?;
                        Ok::<bool, Error>(false)
                    })?
            }
        };
        if is_ignored {
            firsts.retain(|&other| other != name);
        }
        if is_ignored || matches!(is, Is::Foreign) {
            strays.push(Stray { path: files.segment_path(name), name, is, is_ignored, is_below });
        }
    }
    Ok(strays)
}

/// What a file is that is not the segment of its name. Its header is of another, or it has neither
/// a header nor the record in its name.
fn what_is(files: &Files, name: u64) -> Result<Option<Is>> {
    let file = files.device.open(&files.segment_path(name))?;
    let mut head = [0; HEADER_BYTES];
    let read = file.read_at(&mut head, 0)?;
    Ok(match SegmentHeader::decode(&head[..read]) {
        Ok(Decoded::Header(header)) if header.volume != files.volume => Some(Is::Foreign),
        Ok(Decoded::Header(SegmentHeader { first, .. })) => {
            (first != name).then_some(Is::Another { first, is_copy: false })
        }
        Ok(Decoded::Newer(_)) => Some(Is::Newer),
        Err(_) if read == 0 => Some(Is::Nothing("an empty file")),
        Err(_) => {
            let bytes = bytes_of(files, name)?;
            (!begins_with(files.seed, &bytes, name))
                .then_some(Is::Nothing("neither a header nor that record"))
        }
    })
}

/// Whether the segment before a number contains that record, or a later one, so that no segment
/// ever began with it. Records of an earlier use of a file are numbered lower than its first.
fn is_within(files: &Files, proven: &[u64], name: u64) -> Result<bool> {
    let Some(&before) = proven.iter().rfind(|&&first| first < name) else { return Ok(false) };
    if name > COUNTED_MAX {
        return Ok(false);
    }
    let bytes = bytes_of(files, before)?;
    let records = bytes.get(RECORDS_START as usize..).unwrap_or_default();
    Ok(search(files.seed, records, name).last >= name)
}

fn bytes_of(files: &Files, name: u64) -> Result<Vec<u8>> {
    let file = files.device.open(&files.segment_path(name))?;
    let mut bytes = vec![0; file.len()?.min(SEGMENT_BYTES_MAX) as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

impl Stray {
    /// Whether it may contain what follows a log that ends before a record, or replaces the file
    /// that does.
    pub(super) fn continues_from(&self, next: u64) -> bool {
        match self.is {
            Is::Another { first, is_copy } => self.name == next || !is_copy && first >= next,
            _ => false,
        }
    }

    /// Whether the log may be truncated beside it: nothing identifies it, and nothing before it is
    /// removed.
    pub(super) fn is_harmless(&self) -> bool {
        self.is_below && matches!(self.is, Is::Nothing(_))
    }

    /// Why a log that ends before a record is incomplete without it.
    pub(super) fn missed(&self, next: u64) -> Corruption {
        let expected = format!("record {next} and what follows in files of their own names");
        let found = self.found();
        let found = format!("{found} under another name");
        Corruption {
            file: self.path.clone(),
            offset: 0,
            structure: "log",
            expected,
            found,
            unread: false,
        }
    }

    fn found(&self) -> String {
        match &self.is {
            Is::Another { first, .. } => format!("a file with record {first}"),
            Is::Foreign => "a file of another volume's log".to_owned(),
            Is::Newer => "a file of a newer version".to_owned(),
            Is::Nothing(what) => (*what).to_owned(),
        }
    }

    /// What repairs it. Where the log is incomplete without it (`is_missed`), it may be the missing
    /// part.
    pub(super) fn remedy(&self, is_missed: bool) -> Remedy {
        let is_another = matches!(self.is, Is::Another { .. });
        if is_another && is_missed || !self.is_ignored { Remedy::ByHand } else { Remedy::MoveAway }
    }

    /// What it is, and what an administrator does where [`Stray::remedy`] requires one.
    pub(super) fn damage(&self, is_missed: bool) -> Corruption {
        let expected = match self.is {
            Is::Another { first, is_copy } if is_missed => {
                let name = format!("{first:016x}{SEGMENT_SUFFIX}");
                let or = if is_copy {
                    " if it is whole and the one there is not, or take it away"
                } else {
                    ""
                };
                format!("that of its name; give it its own name: {name}{or}")
            }
            _ if !self.is_ignored => {
                "that of its name; move it away, and put back what it may have replaced".to_owned()
            }
            _ => "that of its name".to_owned(),
        };
        let structure = "log segment header";
        let (file, found) = (self.path.clone(), self.found());
        Corruption { file, offset: 0, structure, expected, found, unread: false }
    }
}

#[cfg(test)]
mod tests;
