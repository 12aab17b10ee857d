//! The same operations by a client of a server, over a loopback connection. Those of the volume
//! itself have the durability of a served volume, so the difference is what the two sides of the
//! network add.
//!
//! The server is a process of its own, which callgrind counts apart. `counts --volume VOLDIR`
//! serves that volume, ends a part at each line of its standard input, and ends with that input.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use device::Env;
use fs::{FileSystem, Fs, OpenOptions};
use inode::{Caller, NodeId};
use program::failure::{self, Result};
use store::Durability;
use wire::{Failure, FailureKind};

use super::{CACHE_BYTES, Counted, counts_mark, steady};
use crate::Run;
use crate::engine::chosen;
use crate::files::Name;
use crate::served;
use crate::volume::broken;

fn open(env: &Env, path: &Path) -> Result<Arc<Fs>> {
    let options = OpenOptions {
        cache_bytes: CACHE_BYTES,
        durability: Durability::Settled,
        answers: true,
        ..OpenOptions::default()
    };
    Fs::open(env.clone(), &options).map_err(|error| failure::open(path, &error))
}

/// Serves a volume, and ends a part of the count at each line that it reads.
pub(super) fn serve(path: &Path) -> Result<()> {
    let files = fs::volume_files(path).map_err(|error| failure::device(path, &error))?;
    let fs = open(&steady::env(Arc::new(files)), path)?;
    let server = served::serve(&fs, steady::waiting())?;
    let lines = |error| failure::io("talk to the other process of", path, &error);
    let mut answer = std::io::stdout();
    writeln!(answer, "{}", server.address().port()).map_err(lines)?;
    for (line, part) in std::io::stdin().lines().zip(1..) {
        line.map_err(lines)?;
        counts_mark(part);
        writeln!(answer, "{part}").map_err(lines)?;
    }
    server.remove(served::VOLUME);
    drop(server);
    fs.close().map_err(broken)
}

/// The process that serves.
pub(super) struct Serving {
    process: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    pub(super) marks: u64,
    port: u16,
}

impl Serving {
    fn start(run: &Run<'_>, path: &Path) -> Result<Serving> {
        let cannot = |error| failure::io("start a process for", path, &error);
        let program = std::env::current_exe().map_err(cannot)?;
        let mut command = Command::new(program);
        command.args(["counts", "--quiet", "--engine", chosen(run.args).name(), "--volume"]);
        let started = command.arg(path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = started.map_err(cannot)?;
        let (to, from) = (process.stdin.take(), process.stdout.take());
        let from = from.ok_or_else(|| ended("has no output"))?;
        let mut serving = Serving { process, to, from: BufReader::new(from), marks: 0, port: 0 };
        let port = serving.answer()?;
        serving.port = u16::try_from(port).map_err(|_| ended("named no port"))?;
        Ok(serving)
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    fn answer(&mut self) -> Result<u64> {
        let mut line = String::new();
        let read = self.from.read_line(&mut line);
        read.ok().and_then(|_| line.trim().parse().ok()).ok_or_else(|| ended("ended"))
    }

    /// Ends a part there.
    pub(super) fn mark(&mut self) -> Result<()> {
        let to = self.to.as_mut().ok_or_else(|| ended("ended"))?;
        to.write_all(b"mark\n").map_err(|_| ended("reads nothing"))?;
        self.marks = self.answer()?;
        Ok(())
    }

    /// Waits until its volume is closed.
    fn end(mut self) -> Result<()> {
        self.to = None;
        match self.process.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(ended("failed")),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn ended(how: &str) -> Failure {
    Failure::new(FailureKind::Other, format!("the process that serves {how}"))
}

impl Counted<'_> {
    /// Creations and stats of the volume, and by a client of a server.
    pub(super) fn served(&mut self, times: u64) -> Result<()> {
        self.fs().close().map_err(broken)?;
        self.fs = Some(open(&self.env, &self.path)?);
        let (fs, who) = (self.fs(), self.caller.clone());
        let durable = self.directory(b"durable")?;
        self.count("durable create", times, |range| {
            range.into_iter().try_for_each(|file| {
                let made = create(&*fs, &who, durable, file)?;
                if let Some(position) = fs.unsettled() {
                    fs.settle(position).map_err(broken)?;
                }
                fs.forget(made, 1);
                Ok(())
            })
        })?;
        fs.close().map_err(broken)?;
        drop(fs);
        self.fs = None;
        let serving = Serving::start(self.run, &self.path)?;
        let client = served::mount(serving.port, 1, &steady::waiting())?
            .pop()
            .ok_or_else(|| ended("has no client"))?;
        self.serving = Some(serving);
        let far = Arc::clone(&client.far);
        self.count("remote create", times, |range| {
            range.into_iter().try_for_each(|file| {
                let made = create(&*far, &who, client.directory, file)?;
                far.forget(made, 1);
                Ok(())
            })
        })?;
        let made = create(&*far, &who, client.directory, 4 * times)?;
        self.count("remote stat", times, |range| {
            range.into_iter().try_for_each(|_| {
                std::hint::black_box(far.getattr(&who, made).map_err(broken)?);
                Ok(())
            })
        })?;
        client.remote.end();
        self.serving.take().map_or(Ok(()), Serving::end)
    }
}

fn create(fs: &dyn FileSystem, who: &Caller, directory: NodeId, file: u64) -> Result<NodeId> {
    let made = fs.create(who, directory, Name::new(b'f', file).as_bytes(), (0o644, 1));
    Ok(made.map_err(broken)?.node)
}
