//! The daemon's side of `pando index`: passes the results of a scan to the volume.

use std::collections::{BTreeMap, BTreeSet};

use fs::{FsResult, Listed, Names, Scan, ScanDirectory, ScanOptions};
use inode::{Caller, FsError};
use wire::{
    Answer, Body, Failure, FailureKind, Followed, ScanInfo, ScanItem, ScanRow, ScanWatch,
    next_scan_item,
};

use super::replies::Replies;
use super::server::Server;

/// Bytes of directories that are sent as one part, plus at most one more name. Then the approximate
/// bytes of a directory without its names, and of a name without its letters.
const PART_BYTES: usize = 64 << 10;
const DIRECTORY_BYTES: usize = 64;
const CHILD_BYTES: usize = 12;

/// A scan under way on one connection.
pub(super) struct ScanSession<'a> {
    volume: Scan<'a>,
    directories: BTreeMap<u64, ScanDirectory>,
    /// Directories that were found by their paths: the scan reports only what changed in them.
    followed: BTreeSet<u64>,
    unknown: Vec<u64>,
    fresh: Vec<u64>,
    failed: Option<Failure>,
}

/// The state of the index.
pub(super) fn info(server: &Server) -> Result<Answer, Failure> {
    let followed = server.followed();
    Ok(Answer::ScanInfo(server.fs().scan_info()?.map(|info| to_wire(info, followed))))
}

/// Notes that a session follows the source.
pub(super) fn follow(
    (server, id): (&Server, u64),
    caller: &Caller,
    by: ScanWatch,
    unwatched: u64,
) -> Result<Answer, Failure> {
    may_scan(caller)?;
    server.set_follows(id, by, unwatched);
    Ok(Answer::Nothing)
}

/// Only root and the user that runs the daemon may scan: rows of an index keep the owners that they
/// have at the source.
fn may_scan(caller: &Caller) -> Result<(), Failure> {
    if caller.is_root() || caller.uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let failure = Failure::new(FailureKind::Permission, "the volume is another user's");
    Err(failure.hint("run it as the volume's user, or as root"))
}

fn to_wire(info: fs::ScanInfo, followed: Option<Followed>) -> ScanInfo {
    ScanInfo {
        source: info.source.into(),
        started: info.started,
        ended: info.ended,
        unread: info.unread,
        unfinished: info.unfinished,
        crosses_mounts: info.crosses_mounts,
        keeps_xattrs: info.keeps_xattrs,
        hidden: info.hidden,
        followed,
    }
}

impl<'a> ScanSession<'a> {
    /// Begins a scan.
    pub(super) fn open(
        server: &'a Server,
        caller: &Caller,
        options: &ScanOptions,
    ) -> Result<(ScanSession<'a>, Answer), Failure> {
        may_scan(caller)?;
        let scan = server.fs().scan_begin(options).map_err(|error| refuse(server, error))?;
        let answer = Answer::ScanOpened {
            root: scan.root_ino(),
            info: to_wire(scan.info(), server.followed()),
        };
        let scan = ScanSession {
            volume: scan,
            directories: BTreeMap::new(),
            followed: BTreeSet::new(),
            unknown: Vec::new(),
            fresh: Vec::new(),
            failed: None,
        };
        Ok((scan, answer))
    }

    /// Sends the state of directories that the index has recorded.
    pub(super) fn known(&self, replies: &mut Replies) -> Result<Answer, Failure> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        let mut broken = Ok(());
        self.volume.directories(&mut |known| {
            let (ino, elsewhere) = (known.ino, known.elsewhere);
            let (mtime, ctime) = (known.mtime, known.ctime);
            let mut children = known.children.into_iter();
            // A directory with many subdirectories takes several entries.
            loop {
                let mut some = Vec::new();
                bytes += DIRECTORY_BYTES;
                while bytes < PART_BYTES
                    && let Some(child) = children.next()
                {
                    bytes += child.name.len() + CHILD_BYTES;
                    some.push((child.name.into(), child.ino));
                }
                part.push(wire::ScanDirectory { ino, elsewhere, mtime, ctime, children: some });
                if bytes < PART_BYTES {
                    return Ok(());
                }
                bytes = 0;
                broken = replies.part(Body::Directories(std::mem::take(&mut part)));
                if broken.is_err() {
                    return Err(FsError::Interrupted);
                }
                if children.len() == 0 {
                    return Ok(());
                }
            }
        })?;
        broken?;
        replies.part(Body::Directories(part))?;
        Ok(Answer::Nothing)
    }

    /// Processes items in order. After a failure it processes no more.
    pub(super) fn items(&mut self, mut bytes: &[u8]) {
        while self.failed.is_none()
            && let Some(item) = next_scan_item(&mut bytes)
        {
            let done = match item {
                Ok(item) => self.item(&item).map_err(Failure::from),
                Err(error) => Err(Failure::new(FailureKind::Protocol, error.to_string())),
            };
            self.failed = done.err();
        }
    }

    /// The results since the last flush.
    pub(super) fn flush(&mut self) -> Result<Answer, Failure> {
        if let Some(failure) = &self.failed {
            return Err(failure.clone());
        }
        let (unknown, fresh) = (std::mem::take(&mut self.unknown), std::mem::take(&mut self.fresh));
        Ok(Answer::Scanned { unknown, fresh })
    }

    /// Ends the scan and applies what it reported.
    pub(super) fn close(self, ended: i64, unread: u64) -> Result<Answer, Failure> {
        if let Some(failure) = self.failed {
            return Err(failure);
        }
        let done = self.volume.finish(ended, unread)?;
        Ok(Answer::ScanClosed { changed: done.batches > 0 })
    }

    fn item(&mut self, item: &ScanItem<'_>) -> FsResult<()> {
        match item {
            ScanItem::Root { directory, attr, xattrs } => {
                let root = self.volume.root(attr, xattrs)?;
                self.directories.insert(*directory, root);
            }
            ScanItem::Find { directory, path, attr, xattrs } => match self.volume.find(path)? {
                Some(mut found) => {
                    self.volume.renew(&mut found, attr, xattrs);
                    self.followed.insert(*directory);
                    self.directories.insert(*directory, found);
                }
                None => self.unknown.push(*directory),
            },
            ScanItem::Rows { directory, rows } => self.rows(*directory, rows)?,
            ScanItem::Gone { directory, name } => {
                if let Some(directory) = self.directories.get_mut(directory) {
                    self.volume.remove(directory, name)?;
                }
            }
            ScanItem::Close { directory, all } => {
                self.followed.remove(directory);
                if let Some(directory) = self.directories.remove(directory) {
                    self.volume.close(directory, if *all { Names::All } else { Names::Some })?;
                }
            }
        }
        Ok(())
    }

    fn rows(&mut self, directory: u64, rows: &[ScanRow<'_>]) -> FsResult<()> {
        // The scan was already to_wire that the index lacks this directory; further items about it
        // are ignored.
        let Some(mut dir) = self.directories.remove(&directory) else { return Ok(()) };
        let listed: Vec<Listed<'_>> = rows
            .iter()
            .map(|row| Listed {
                name: row.name,
                attr: row.attr,
                target: row.target,
                xattrs: row.xattrs.clone(),
            })
            .collect();
        let followed = self.followed.contains(&directory);
        let mut known = Vec::new();
        let ScanSession { volume, directories, fresh, .. } = self;
        volume.names(&mut dir, &listed, &mut |index, child| {
            let row = &rows[index];
            let is = (row.attr.device, row.attr.number, row.attr.btime);
            if child.was() != Some(is) {
                fresh.push(row.directory);
            } else if followed {
                known.push(child);
                return;
            }
            directories.insert(row.directory, child);
        })?;
        // Closed at once, as the directory may itself be found by its path next. If two were open
        // for one directory, the one closed last would undo the changes of the other.
        for child in known {
            volume.close(child, Names::Some)?;
        }
        self.directories.insert(directory, dir);
        Ok(())
    }
}

/// Why no scan can begin.
fn refuse(server: &Server, error: FsError) -> Failure {
    match error {
        FsError::NotEmpty => {
            let message = "the volume holds files of its own";
            Failure::new(FailureKind::NotEmpty, message)
                .hint("an index needs its own volume: name a new directory")
        }
        FsError::Exists => {
            let info = server.fs().scan_info().ok().flatten();
            let source = info.map(|info| info.source).unwrap_or_default();
            let message = format!("the volume is an index of {}", source.escape_ascii());
            Failure::new(FailureKind::Exists, message)
                .hint("a volume indexes one directory; use another volume for another directory")
        }
        FsError::Busy(_) => Failure::new(FailureKind::Busy, "another scan is under way")
            .hint("another `pando index` is running; wait for it, or end it"),
        other => other.into(),
    }
}
