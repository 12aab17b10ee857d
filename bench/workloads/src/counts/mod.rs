//! `counts`: operations, each done `--files` times and then twice as often, between marks.
//!
//! The instructions of an operation are the difference of the two parts, divided by the number of
//! times. Work that is done once for all of them is in both parts and cancels. `bench/counts.sh`
//! runs this under callgrind, which writes a profile at each mark, and compares with
//! `bench/counts.txt`. Clock and entropy are counters (`steady`), there is one thread, and nothing
//! runs in the background, so that two runs execute the same instructions.

mod far;
mod steady;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use device::Env;
use fs::{FileSystem, FormatOptions, Fs, NewNode, OpenOptions, RenameMode, SyncScope, WalkControl};
use inode::{Caller, Kind, NodeId, SetAttr};
use search::query::Glob;
use serde_json::json;
use store::Durability;
use wire::{Failure, FailureKind};

use super::Run;
use super::engine::{chosen, durability};
use super::files::Name;
use super::name_query;
use super::volume::{broken, caller};
use program::failure::{self, Result};
use program::output::Output;

/// Operations that wait for the disk, or go through the whole volume, are done this much less.
const RARE: u64 = 10;
/// Memory for nodes: all of them stay in it.
const CACHE_BYTES: u64 = 256 << 20;

/// Ends a part: callgrind writes what was counted since the mark before. Its name is an argument
/// of callgrind in `bench/counts.sh`.
#[inline(never)]
fn counts_mark(part: u64) {
    std::hint::black_box(part);
}

/// A temporary volume, and what was counted.
struct Counted<'a> {
    run: &'a Run<'a>,
    path: PathBuf,
    env: Env,
    fs: Option<Arc<Fs>>,
    caller: Caller,
    marks: u64,
    parts: Vec<Part>,
    serving: Option<far::Serving>,
}

/// An operation, and the marks that end the parts in which it was done.
struct Part {
    operation: String,
    /// How often it was done in the first part. The second has twice as many.
    times: u64,
    /// 0: the second part counts whole.
    once: u64,
    twice: u64,
    /// The process whose marks they are: this one, or the one that serves.
    process: u32,
}

pub(super) fn run(run: &Run<'_>, output: &mut Output) -> Result<()> {
    let args = run.args;
    let asked =
        args.index_cache.is_some() || args.no_index || durability(args) != Durability::Async;
    if asked {
        let message = "counts takes --engine and --files, and has a volume of its own";
        return Err(Failure::new(FailureKind::Invalid, message));
    }
    if let Some(volume) = &args.volume {
        return far::serve(volume);
    }
    let mut counted = Counted::make(run)?;
    counted.all()?;
    run.bar.finish_and_clear();
    let engine = chosen(run.args).name();
    for Part { operation, times, once, twice, process } in &counted.parts {
        output.object(&json!({
            "workload": "counts",
            "engine": engine,
            "operation": operation,
            "times": times,
            "once": once,
            "twice": twice,
            "process": process,
        }))?;
        output.line(&format!("{engine}\t{operation}\t{times}\t{once}\t{twice}\t{process}"))?;
    }
    Ok(())
}

impl<'a> Counted<'a> {
    fn make(run: &'a Run<'a>) -> Result<Counted<'a>> {
        let path = std::env::temp_dir().join(format!("pando-counts-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| failure::io("create", &path, &error))?;
        let files = fs::volume_files(&path).map_err(|error| failure::device(&path, &error))?;
        let env = steady::env(Arc::new(files));
        let options = FormatOptions { engine: chosen(run.args), ..FormatOptions::default() };
        let formatted = Fs::format(&env, &options);
        let mut counted = Counted {
            run,
            path,
            env,
            fs: None,
            caller: caller(),
            marks: 0,
            parts: Vec::new(),
            serving: None,
        };
        formatted.map_err(|error| failure::open(&counted.path, &error))?;
        counted.open()?;
        Ok(counted)
    }

    fn open(&mut self) -> Result<()> {
        let options = OpenOptions { cache_bytes: CACHE_BYTES, ..OpenOptions::default() };
        let opened = Fs::open(self.env.clone(), &options);
        self.fs = Some(opened.map_err(|error| failure::open(&self.path, &error))?);
        Ok(())
    }

    fn fs(&self) -> Arc<Fs> {
        Arc::clone(self.fs.as_ref().expect("invariant: it is closed only between two openings"))
    }

    /// Ends a part in each process. The one that serves first: its work for the part has ended.
    fn mark(&mut self) -> Result<()> {
        if let Some(serving) = &mut self.serving {
            serving.mark()?;
        }
        self.marks += 1;
        counts_mark(self.marks);
        Ok(())
    }

    /// Does an operation `times` times for caches to fill, and then counts it.
    fn count(
        &mut self,
        operation: &'static str,
        times: u64,
        mut work: impl FnMut(Range<u64>) -> Result<()>,
    ) -> Result<()> {
        self.run.check()?;
        work(0..times)?;
        self.mark()?;
        let (once, twice) = (self.marks + 1, self.marks + 2);
        let process = std::process::id();
        self.parts.push(Part { operation: operation.to_owned(), times, once, twice, process });
        if let Some(serving) = &self.serving {
            let (operation, process) = (format!("{operation}, server"), serving.id());
            let (once, twice) = (serving.marks + 1, serving.marks + 2);
            self.parts.push(Part { operation, times, once, twice, process });
        }
        work(times..2 * times)?;
        self.mark()?;
        work(2 * times..4 * times)?;
        self.mark()
    }

    fn directory(&self, name: &[u8]) -> Result<NodeId> {
        let made = self.fs().mkdir(&self.caller, NodeId::ROOT, name, 0o755);
        Ok(made.map_err(broken)?.node)
    }

    fn create(&self, directory: NodeId, file: u64) -> Result<()> {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let name = Name::new(b'f', file);
        let fs = self.fs.as_ref().expect("invariant: it is open");
        let made = fs.mknod(&self.caller, directory, name.as_bytes(), &new);
        fs.forget(made.map_err(broken)?.node, 1);
        Ok(())
    }

    /// All of them, each on what those before it left.
    fn all(&mut self) -> Result<()> {
        let times = self.run.args.files;
        let files = self.directory(b"files")?;
        let (fs, who) = (self.fs(), self.caller.clone());
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        self.count("create", times, |range| {
            range.into_iter().try_for_each(|file| {
                let name = Name::new(b'f', file);
                let made = fs.mknod(&who, files, name.as_bytes(), &new).map_err(broken)?;
                fs.forget(made.node, 1);
                Ok(())
            })
        })?;
        let found = |file| fs.lookup(&who, files, Name::new(b'f', file).as_bytes());
        self.count("lookup", times, |range| {
            range.into_iter().try_for_each(|file| {
                fs.forget(found(file).map_err(broken)?.node, 1);
                Ok(())
            })
        })?;
        let held = (0..4 * times).map(|file| Ok(found(file).map_err(broken)?.node));
        let held = held.collect::<Result<Vec<NodeId>>>()?;
        self.count("stat", times, |range| {
            held[range.start as usize..range.end as usize].iter().try_for_each(|node| {
                std::hint::black_box(fs.getattr(&who, *node).map_err(broken)?);
                Ok(())
            })
        })?;
        for node in held {
            fs.forget(node, 1);
        }
        self.count("readdir entry", times, |range| list(&fs, &who, files, range))?;
        self.count("rename", times, |range| {
            range.into_iter().try_for_each(|file| {
                let (old, new) = (Name::new(b'f', file), Name::new(b'r', file));
                let (from, to) = ((files, old.as_bytes()), (files, new.as_bytes()));
                fs.rename(&who, from, to, RenameMode::Replace).map_err(broken)
            })
        })?;
        self.writes(&fs, &who)?;
        let tree = self.directory(b"tree")?;
        (0..times).try_for_each(|file| self.create(tree, file))?;
        self.count("snapshot", times / RARE, |range| {
            range.into_iter().try_for_each(|number| {
                let name = Name::new(b's', number);
                fs.snapshot_create(&who, tree, name.as_bytes()).map(drop).map_err(broken)
            })
        })?;
        fs.index_flush(NodeId::ROOT).map_err(broken)?;
        self.count("find by name", times / RARE, |range| {
            range.into_iter().try_for_each(|file| find(&fs, &who, Name::new(b'r', file).as_bytes()))
        })?;
        self.count("unlink", times, |range| {
            range.into_iter().try_for_each(|file| {
                fs.unlink(&who, files, Name::new(b'r', file).as_bytes()).map_err(broken)
            })
        })?;
        drop(fs);
        self.openings(times)?;
        // Behind the openings, which would have more to open otherwise.
        self.names(times)?;
        if self.run.args.far { self.served(times) } else { Ok(()) }
    }

    /// Second names of files and changes of their modes, and removals of empty directories.
    fn names(&mut self, times: u64) -> Result<()> {
        let (fs, who) = (self.fs(), self.caller.clone());
        let (first, second) = (self.directory(b"first")?, self.directory(b"second")?);
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let made = (0..4 * times).map(|file| {
            let made = fs.mknod(&who, first, Name::new(b'f', file).as_bytes(), &new);
            Ok(made.map_err(broken)?.node)
        });
        let made = made.collect::<Result<Vec<NodeId>>>()?;
        let of = |range: &Range<u64>| &made[range.start as usize..range.end as usize];
        self.count("chmod", times, |range| {
            of(&range).iter().try_for_each(|node| {
                let changes = SetAttr { mode: Some(0o600), ..SetAttr::default() };
                std::hint::black_box(fs.setattr(&who, *node, &changes).map_err(broken)?);
                Ok(())
            })
        })?;
        self.count("link", times, |range| {
            of(&range).iter().zip(range.clone()).try_for_each(|(node, file)| {
                let name = Name::new(b'l', file);
                let linked = fs.link(&who, *node, second, name.as_bytes()).map_err(broken)?;
                fs.forget(linked.node, 1);
                Ok(())
            })
        })?;
        for node in made {
            fs.forget(node, 1);
        }
        for directory in 0..4 * times {
            let name = Name::new(b'd', directory);
            let made = fs.mkdir(&who, second, name.as_bytes(), 0o755).map_err(broken)?;
            fs.forget(made.node, 1);
        }
        self.count("rmdir", times, |range| {
            range.into_iter().try_for_each(|directory| {
                fs.rmdir(&who, second, Name::new(b'd', directory).as_bytes()).map_err(broken)
            })
        })
    }

    /// Writes of 100 bytes at the beginning of an empty file, each made durable.
    fn writes(&mut self, fs: &Fs, who: &Caller) -> Result<()> {
        let times = self.run.args.files / RARE;
        let written = self.directory(b"written")?;
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let made = (0..4 * times).map(|file| {
            let made = fs.mknod(who, written, Name::new(b'f', file).as_bytes(), &new);
            Ok(made.map_err(broken)?.node)
        });
        let made = made.collect::<Result<Vec<NodeId>>>()?;
        self.count("small write + fsync", times, |range| {
            made[range.start as usize..range.end as usize].iter().try_for_each(|node| {
                fs.write(who, *node, 0, &[7; 100]).map_err(broken)?;
                fs.fsync(*node, SyncScope::All).map_err(broken)
            })
        })?;
        for node in made {
            fs.forget(node, 1);
        }
        Ok(())
    }

    /// Openings after a crash with `times` creates in the log, and with twice as many.
    fn openings(&mut self, times: u64) -> Result<()> {
        let mut ends = [0; 3];
        for (creates, end) in [times, times, 2 * times].into_iter().zip(&mut ends) {
            let directory = self.directory(format!("crash{}", self.marks).as_bytes())?;
            self.fs().close().map_err(broken)?;
            self.open()?;
            (0..creates).try_for_each(|file| self.create(directory, file))?;
            self.fs().sync().map_err(broken)?;
            self.fs = None;
            self.mark()?;
            self.open()?;
            self.mark()?;
            *end = self.marks;
            let replayed = self.fs().status().map_err(broken)?.replayed;
            if replayed < creates {
                let message = format!("{replayed} of {creates} changes were replayed");
                return Err(Failure::new(FailureKind::Other, message));
            }
        }
        let [_, once, twice] = ends;
        let process = std::process::id();
        let operation = "open after crash".to_owned();
        self.parts.push(Part { operation, times: 1, once: 0, twice: once, process });
        let operation = "replay of a create".to_owned();
        self.parts.push(Part { operation, times, once, twice, process });
        Ok(())
    }
}

/// Lists entries with attributes, from the start, as many as a range has.
fn list(fs: &Fs, who: &Caller, directory: NodeId, range: Range<u64>) -> Result<()> {
    let mut left = range.end - range.start;
    let listed = fs.readdirplus(who, directory, 0, &mut |entry| {
        if left == 0 {
            return WalkControl::Stop;
        }
        left -= 1;
        if std::hint::black_box(entry.attr).is_some() {
            fs.forget(entry.node, 1);
        }
        WalkControl::Continue
    });
    listed.map_err(broken)
}

/// Searches the whole volume for a name that one file has.
fn find(fs: &Fs, who: &Caller, name: &[u8]) -> Result<()> {
    let other = |message: String| Failure::new(FailureKind::Other, message);
    let glob = Glob::literal(name).map_err(|error| other(error.to_string()))?;
    let outcome = name_query::find(fs, who, glob)?;
    if outcome.matched == 1 && outcome.walked == 0 {
        Ok(())
    } else {
        let (matched, walked) = (outcome.matched, outcome.walked);
        Err(other(format!("a search found {matched} files and walked {walked} directories")))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.fs = None;
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "the volume of the count stays");
        }
    }
}
