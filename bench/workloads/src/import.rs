//! `import`: names of a list in JSON lines, in directories of 1,000, from parsing until they are
//! durable: by a builder that makes many at once, and by single calls.

use std::io::Write as _;

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

pub(super) fn run(run: &Run<'_>, volume: &Volume, output: &mut Output) -> Result<()> {
    let files = run.args.files;
    run.bar.set_length(files + files / SINGLE);
    let list = list(files);
    let part = self::list(files / SINGLE);
    let single = import(run, volume, (b"single", &part), None)?;
    let many = import(run, volume, (b"many", &list), Some(fs::BULK_MEMORY))?;
    run.bar.finish_and_clear();
    let (many_rate, single_rate) = (files as f64 / many, (files / SINGLE) as f64 / single);
    output.object(&json!({
        "workload": "import",
        "engine": volume.engine(),
        "files": files,
        "list_bytes": list.len(),
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
    (name, list): (&[u8], &[u8]),
    memory: Option<usize>,
) -> Result<f64> {
    let clock = SystemClock::new();
    let fs = volume.fs().with_virtual_dirs();
    let top = fs.mkdir(&caller(), volume.directory(), name, 0o755).map_err(broken)?.node;
    let start = clock.monotonic();
    let mut builder = Builder::new(&fs, &caller(), top, memory).map_err(broken)?;
    let mut manifest = Manifest::new(list);
    let mut directory = None;
    let mut count = 0_u64;
    loop {
        let read = manifest.read_next().map_err(|error| refused(&error.to_string()))?;
        let entry = match read {
            None => break,
            Some(Read1::Entry(entry)) => entry,
            Some(Read1::Bad(why)) => return Err(refused(&why)),
        };
        make(&mut builder, (top, &mut directory), &entry).map_err(broken)?;
        builder.flush_full().map_err(broken)?;
        count += 1;
        if count.is_multiple_of(1024) {
            run.bar.inc(1024);
            run.check()?;
        }
    }
    builder.flush().map_err(broken)?;
    fs.sync().map_err(broken)?;
    Ok(clock.monotonic().saturating_sub(start).as_secs_f64())
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
