//! `pando ls`: lists directories and files, as ls(1) does: sorted by name unless an option requests
//! another order, operands that are not directories first.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde_json::json;
use wire::{Answer, Body, Bytes, Call, Failure, FailureKind, Kind, ListEntry};

use super::attr_text;
use crate::cli::{LsArgs, LsOrder};
use crate::failure::Result;
use crate::names::Names;
use crate::output::{self, Output};
use crate::place::{Last, VolumePath};
use crate::session;

pub(crate) fn run(args: &LsArgs, output: &mut Output) -> Result<()> {
    let here = [PathBuf::from(".")];
    let operands = if args.paths.is_empty() { &here[..] } else { &args.paths };
    let mut listing = Listing {
        args,
        output,
        names: Names::default(),
        directory: None,
        printed: false,
        waiting: Vec::new(),
        failed: None,
    };
    let mut directories = Vec::new();
    for operand in operands {
        match listing.operand(operand) {
            Ok(Some(place)) => directories.push((operand, place)),
            Ok(None) => {}
            Err(failure) if operands.len() == 1 => return Err(failure),
            Err(failure) => listing.skip(&failure)?,
        }
    }
    listing.end_directory()?;
    for (operand, place) in &directories {
        let headed = operands.len() > 1 || args.recursive;
        match listing.directory(operand, place, headed) {
            Err(failure) if operands.len() > 1 => listing.skip(&failure)?,
            done => done?,
        }
    }
    match listing.failed {
        Some(kind) => {
            let failure = Failure::new(kind, "some entries could not be listed");
            Err(failure.hint("the messages above have the reasons"))
        }
        None => Ok(()),
    }
}

/// Whether the directory that a symbolic link in `VOLDIR:/path` points to is there.
fn points_to_directory(place: &VolumePath) -> bool {
    let target = [&place.inner[..], b"/."].concat();
    let found = session::ask(&place.volume, &Call::Stat { path: &target });
    matches!(found, Ok(Answer::Stat(of)) if of.attr.kind == Kind::Directory)
}

struct Listing<'a> {
    args: &'a LsArgs,
    output: &'a mut Output,
    names: Names,
    /// The directory whose entries are in `waiting`, below its operand.
    directory: Option<Bytes>,
    /// Whether anything was printed above the next heading.
    printed: bool,
    waiting: Vec<ListEntry>,
    failed: Option<FailureKind>,
}

impl Listing<'_> {
    /// Keeps an operand that is listed by itself, and returns the place of a directory operand.
    fn operand(&mut self, operand: &Path) -> Result<Option<VolumePath>> {
        // Like ls(1): a link to a directory is followed, unless attributes are shown.
        let follows = !self.args.long() && !self.args.directory;
        if follows && operand.is_symlink() && operand.is_dir() {
            return VolumePath::reading(operand, Last::Target).map(Some);
        }
        let place = VolumePath::reading(operand, Last::Link)?;
        let Answer::Stat(stat) = session::ask(&place, &Call::Stat { path: &place.inner })? else {
            return Err(Failure::new(FailureKind::Protocol, "the daemon did not answer `stat`"));
        };
        match stat.attr.kind {
            _ if self.args.directory => {}
            Kind::Directory => return Ok(Some(place)),
            // Below a mount it was looked at.
            Kind::Symlink if follows && !operand.is_symlink() && points_to_directory(&place) => {
                return Ok(Some(place));
            }
            _ => {}
        }
        let name = Bytes(operand.as_os_str().as_bytes().to_vec());
        self.waiting.push(ListEntry { name, attr: stat.attr, target: stat.target });
        Ok(None)
    }

    fn directory(&mut self, operand: &Path, place: &VolumePath, headed: bool) -> Result<()> {
        let call = Call::List { path: &place.inner, recursive: self.args.recursive };
        session::call(place, &call, &mut |body| match body {
            Body::Entries { directory, entries } => {
                if self.directory.as_ref() != Some(&directory) {
                    self.end_directory()?;
                    self.begin_directory(operand, directory, headed)?;
                }
                self.take(entries)
            }
            Body::Skipped(failure) => {
                let at = below(operand, &failure.path);
                self.skip(&failure.at(&at))
            }
            _ => Ok(()),
        })?;
        if self.directory.is_none() {
            self.begin_directory(operand, Bytes::default(), headed)?;
        }
        self.end_directory()?;
        self.directory = None;
        Ok(())
    }

    fn begin_directory(&mut self, operand: &Path, inner: Bytes, headed: bool) -> Result<()> {
        if headed && !self.output.is_json() {
            let gap = if self.printed { "\n" } else { "" };
            let shown = output::printable(&below(operand, &inner));
            self.output.line(&format!("{gap}{shown}:"))?;
            self.printed = true;
        }
        self.directory = Some(inner);
        Ok(())
    }

    fn take(&mut self, entries: Vec<ListEntry>) -> Result<()> {
        let shown =
            entries.into_iter().filter(|entry| self.args.all || !entry.name.0.starts_with(b"."));
        self.waiting.extend(shown);
        if self.args.unsorted { self.give() } else { Ok(()) }
    }

    fn end_directory(&mut self) -> Result<()> {
        let order = self.args.order();
        let compare = |one: &ListEntry, other: &ListEntry| {
            let first = match order {
                LsOrder::Name => Ordering::Equal,
                LsOrder::Time => other.attr.mtime.cmp(&one.attr.mtime),
                LsOrder::Size => other.attr.size.cmp(&one.attr.size),
            };
            first.then_with(|| one.name.cmp(&other.name))
        };
        if !self.args.unsorted {
            self.waiting.sort_unstable_by(compare);
            if self.args.reverse {
                self.waiting.reverse();
            }
        }
        self.give()
    }

    /// Prints the waiting entries, in columns as wide as needed.
    fn give(&mut self) -> Result<()> {
        let entries = std::mem::take(&mut self.waiting);
        self.printed |= !entries.is_empty();
        if self.output.is_json() {
            let give =
                |entry| self.output.object(&object(self.args, entry, self.directory.as_ref()));
            return entries.iter().try_for_each(give);
        }
        if !self.args.long() {
            return entries.iter().try_for_each(|entry| self.name(entry));
        }
        let rows: Vec<_> = entries.iter().map(|entry| self.columns(entry)).collect();
        let mut widths = [0; 4];
        for row in &rows {
            for (width, text) in widths.iter_mut().zip(row) {
                *width = text.chars().count().max(*width);
            }
        }
        let [links, owner, group, size] = widths;
        for (entry, row) in entries.iter().zip(&rows) {
            let line = format!(
                "{} {:>links$} {:<owner$} {:<group$} {:>size$} {} ",
                attr_text::mode_letters(&entry.attr),
                row[0],
                row[1],
                row[2],
                row[3],
                output::time_local(entry.attr.mtime),
            );
            self.output.raw(line.as_bytes())?;
            self.name(entry)?;
        }
        Ok(())
    }

    /// Links, owner, group and size of an entry.
    fn columns(&mut self, entry: &ListEntry) -> [String; 4] {
        let attr = &entry.attr;
        let (owner, group) = if self.args.numeric {
            (attr.uid.to_string(), attr.gid.to_string())
        } else {
            (self.names.user(attr.uid), self.names.group(attr.gid))
        };
        let is_device = matches!(attr.kind, Kind::CharDevice | Kind::BlockDevice);
        let size = if self.args.human_readable && !is_device {
            output::short_size(attr.size.into())
        } else {
            attr_text::size_or_device(attr)
        };
        [attr.nlink.to_string(), owner, group, size]
    }

    fn name(&mut self, entry: &ListEntry) -> Result<()> {
        let name = self.output.name(&entry.name.0);
        self.output.raw(&name)?;
        if let (true, Some(target)) = (self.args.long(), &entry.target) {
            let target = self.output.name(&target.0);
            self.output.raw(b" -> ")?;
            self.output.raw(&target)?;
        }
        self.output.raw(b"\n")
    }

    /// Reports an entry that cannot be listed, and continues.
    fn skip(&mut self, failure: &Failure) -> Result<()> {
        self.output.flush()?;
        self.output.failure(failure);
        self.failed.get_or_insert(failure.kind);
        Ok(())
    }
}

/// A path below an operand, in the style in which the user typed the operand.
fn below(operand: &Path, inner: &Bytes) -> Vec<u8> {
    let inner = inner.0.strip_prefix(b"/").unwrap_or(&inner.0);
    if inner.is_empty() {
        return operand.as_os_str().as_bytes().to_vec();
    }
    operand.join(OsString::from_vec(inner.to_vec())).into_os_string().into_vec()
}

fn object(args: &LsArgs, entry: &ListEntry, directory: Option<&Bytes>) -> serde_json::Value {
    let mut object = if args.long() {
        attr_text::json(&entry.attr, entry.target.as_ref())
    } else {
        json!({ "kind": entry.attr.kind.name(), "size": entry.attr.size })
    };
    output::put_bytes(&mut object, "name", &entry.name.0);
    if args.recursive {
        output::put_bytes(&mut object, "directory", directory.map_or(&[], |inner| &inner.0));
    }
    object
}
