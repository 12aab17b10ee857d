//! `pando ls`: lists a directory, sorted by name unless told otherwise.

use serde_json::json;
use wire::{Body, Bytes, Call, Failure, ListEntry};

use super::attr_text;
use crate::cli::LsArgs;
use crate::failure::Result;
use crate::output::{self, Output};
use crate::place::Place;
use crate::session;

pub(crate) fn run(args: &LsArgs, output: &mut Output) -> Result<()> {
    let place = Place::reading(&args.path)?;
    let call = Call::List { path: &place.inner, recursive: args.recursive };
    let mut listing = Listing { args, output, directory: None, waiting: Vec::new(), skipped: None };
    session::call(&place, &call, &mut |body| match body {
        Body::Entries { directory, entries } => listing.take(directory, entries),
        Body::Skipped(failure) => {
            listing.output.failure(&failure);
            listing.skipped.get_or_insert(failure);
            Ok(())
        }
        _ => Ok(()),
    })?;
    listing.end_directory()?;
    match listing.skipped {
        Some(Failure { kind, .. }) => Err(Failure::new(kind, "not everything could be listed")),
        None => Ok(()),
    }
}

struct Listing<'a> {
    args: &'a LsArgs,
    output: &'a mut Output,
    directory: Option<Bytes>,
    waiting: Vec<ListEntry>,
    skipped: Option<Failure>,
}

impl Listing<'_> {
    fn take(&mut self, directory: Bytes, entries: Vec<ListEntry>) -> Result<()> {
        if self.directory.as_ref() != Some(&directory) {
            self.end_directory()?;
            if self.args.recursive {
                let first = self.directory.is_none();
                let shown: &[u8] = if directory.0.is_empty() { b"." } else { &directory.0 };
                let heading = output::printable(shown);
                self.output.line(&format!("{}{heading}:", if first { "" } else { "\n" }))?;
            }
            self.directory = Some(directory);
        }
        if self.args.unsorted {
            entries.iter().try_for_each(|entry| self.entry(entry))
        } else {
            self.waiting.extend(entries);
            Ok(())
        }
    }

    fn end_directory(&mut self) -> Result<()> {
        let mut entries = std::mem::take(&mut self.waiting);
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        entries.iter().try_for_each(|entry| self.entry(entry))
    }

    fn entry(&mut self, entry: &ListEntry) -> Result<()> {
        if entry.name.0.starts_with(b".") && !self.args.all {
            return Ok(());
        }
        if self.output.is_json() {
            return self.output.object(&self.object(entry));
        }
        if self.args.long {
            let attr = &entry.attr;
            let line = format!(
                "{} {:>3} {:>5} {:>5} {:>12} {} ",
                attr_text::mode_letters(attr),
                attr.nlink,
                attr.uid,
                attr.gid,
                attr_text::size_or_device(attr),
                output::time_local(attr.mtime),
            );
            self.output.raw(line.as_bytes())?;
        }
        let name = self.output.name(&entry.name.0);
        self.output.raw(&name)?;
        if let (true, Some(target)) = (self.args.long, &entry.target) {
            let target = self.output.name(&target.0);
            self.output.raw(b" -> ")?;
            self.output.raw(&target)?;
        }
        self.output.raw(b"\n")
    }

    fn object(&self, entry: &ListEntry) -> serde_json::Value {
        let mut object = if self.args.long {
            attr_text::json(&entry.attr, entry.target.as_ref())
        } else {
            json!({ "kind": entry.attr.kind.name(), "size": entry.attr.size })
        };
        output::put_bytes(&mut object, "name", &entry.name.0);
        if self.args.recursive {
            let directory = self.directory.as_ref().map_or(&[][..], |directory| &directory.0);
            output::put_bytes(&mut object, "directory", directory);
        }
        object
    }
}
