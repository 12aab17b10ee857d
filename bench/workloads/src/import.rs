//! `import`: names of a list in JSON lines, in directories of 1,000, from parsing until they are
//! durable. A builder makes many at once; single calls make the others. One thread parses, as the
//! command does in an import, and another one makes what it read, as the daemon does.

use std::io::Write as _;
use std::sync::Arc;

use device::sync::{SyncSender, bounded_channel};
use device::{Clock, SystemClock, Timestamp};
use fs::{Builder, BulkNode, FileSystem, NewNode};
use inode::{Kind, NodeId, SetAttr, SetTime};
use program::failure::Result;
use program::manifest::{Entry, Manifest, Read1};
use program::output::Output;
use serde_json::json;
use wire::{Failure, FailureKind};

use super::Run;
use super::volume::{Volume, broken, caller};

/// Files of a directory.
const A_DIRECTORY: u64 = 1000;
/// The share of names that single calls make: one of so many.
const SINGLE: u64 = 10;
/// Memory for what is made and not visible yet, in bytes.
const MEMORY: usize = 32 << 20;
/// Entries that one thread hands to the other at once.
const BATCH_ENTRIES: usize = 512;
/// Batches that may wait.
const BATCHES: usize = 8;

pub(super) fn run(run: &Run<'_>, volume: &Volume, output: &mut Output) -> Result<()> {
    let files = run.args.files;
    run.bar.set_length(files + files / SINGLE);
    let list = Arc::new(list(files));
    let part = Arc::new(self::list(files / SINGLE));
    let single = import(run, volume, (b"single", part), None)?;
    let many = import(run, volume, (b"many", Arc::clone(&list)), Some(MEMORY))?;
    run.bar.finish_and_clear();
    let (many_rate, single_rate) = (files as f64 / many, (files / SINGLE) as f64 / single);
    output.object(&json!({
        "workload": "import",
        "engine": volume.engine(),
        "files": files,
        "list_bytes": list.len(),
        "memory": MEMORY,
        "seconds": many,
        "files_per_second": many_rate,
        "single_files": files / SINGLE,
        "single_files_per_second": single_rate,
        "ratio": many_rate / single_rate,
    }))?;
    output.line(&format!(
        "{many_rate:.0} files/s many at once, {single_rate:.0} by single calls, parsing included, \
         durable at the end"
    ))
}

/// A list of directories, each followed by its files.
fn list(files: u64) -> Vec<u8> {
    let mut list = Vec::new();
    for file in 0..files {
        let directory = file / A_DIRECTORY;
        if file.is_multiple_of(A_DIRECTORY) {
            let line = format!(r#"{{"path":"d{directory}","kind":"d","mode":"0755","uid":0}}"#);
            writeln!(list, "{line}").expect("invariant: memory takes writes");
        }
        let (size, time) = (8192 + file % 100_000, 1_700_000_000 + file);
        let line = format!(
            r#"{{"path":"d{directory}/file-{file}.dat","kind":"f","mode":"0644",{}}}"#,
            format_args!(r#""uid":1000,"gid":1000,"size":{size},"mtime":{time}"#)
        );
        writeln!(list, "{line}").expect("invariant: memory takes writes");
    }
    list
}

/// Seconds from the first byte of the list until everything is durable.
fn import(
    run: &Run<'_>,
    volume: &Volume,
    (name, list): (&[u8], Arc<Vec<u8>>),
    memory: Option<usize>,
) -> Result<f64> {
    let clock = SystemClock::new();
    let fs = volume.fs().with_virtual_dirs();
    let top = fs.mkdir(&caller(), volume.directory(), name, 0o755).map_err(broken)?.node;
    let start = clock.monotonic();
    let mut builder = Builder::new(&fs, &caller(), top, memory).map_err(broken)?;
    let (batches, parsed) = bounded_channel(BATCHES);
    let parser = device::spawn("parse", move || parse(&list, &batches));
    let parser = parser.map_err(|error| refused(&error.to_string()))?;
    let mut directory = None;
    while let Ok(batch) = parsed.recv() {
        let batch: Vec<Box<Entry>> = batch;
        for entry in &batch {
            make(&mut builder, (top, &mut directory), entry).map_err(broken)?;
            builder.flush_full().map_err(broken)?;
        }
        run.bar.inc(batch.len() as u64);
        run.check()?;
    }
    match parser.join() {
        Ok(Ok(())) => {}
        Ok(Err(why)) => return Err(refused(&why)),
        Err(_) => return Err(refused("the thread that parses it ended")),
    }
    builder.flush().map_err(broken)?;
    fs.sync().map_err(broken)?;
    Ok(clock.monotonic().saturating_sub(start).as_secs_f64())
}

/// Parses a list, in batches; returns why it cannot be read.
#[expect(clippy::vec_box, reason = "entries come in boxes, and are large")]
fn parse(list: &[u8], batches: &SyncSender<Vec<Box<Entry>>>) -> std::result::Result<(), String> {
    let mut manifest = Manifest::new(list);
    loop {
        let mut batch = Vec::with_capacity(BATCH_ENTRIES);
        let end = loop {
            match manifest.read_next().map_err(|error| error.to_string())? {
                None => break true,
                Some(Read1::Bad(why)) => return Err(why),
                Some(Read1::Entry(entry)) => batch.push(entry),
            }
            if batch.len() == BATCH_ENTRIES {
                break false;
            }
        };
        // The other thread may have ended, with an error of its own.
        if batches.send(batch).is_err() || end {
            return Ok(());
        }
    }
}

/// Makes what a line describes, as the daemon does for an item.
fn make(
    builder: &mut Builder<'_>,
    (top, directory): (NodeId, &mut Option<BulkNode>),
    entry: &Entry,
) -> fs::FsResult<()> {
    let name = entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let changes = SetAttr {
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        atime: entry.mtime.map(|time| SetTime::At(Timestamp(time))),
        mtime: entry.mtime.map(|time| SetTime::At(Timestamp(time))),
        ..SetAttr::default()
    };
    if entry.kind == Kind::Directory {
        let made = builder.mkdir(BulkNode::of(top), name, 0o700)?;
        if let Some(left) = directory.replace(made) {
            builder.release(left);
        }
        return builder.setattr(made, &changes);
    }
    let new = NewNode { kind: Kind::File, mode: 0o600, rdev: 0 };
    let parent = directory.unwrap_or(BulkNode::of(top));
    let made = builder.mknod(parent, name, &new)?;
    if entry.size > 0 {
        builder.setattr(made, &SetAttr { size: Some(entry.size), ..SetAttr::default() })?;
    }
    builder.setattr(made, &changes)?;
    builder.release(made);
    Ok(())
}

fn refused(why: &str) -> Failure {
    Failure::new(FailureKind::Other, format!("the list cannot be read: {why}"))
}
