//! The volume of a benchmark: its own, in a temporary directory, or a given one, in which it uses
//! a directory of its own. Either is removed at the end, however the run ends.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{DirectDevice, Env, Lock};
use format::volume::{EngineKind, VolumeHeader};
use fs::{Engine, FileSystem, FormatOptions, Fs, OpenOptions};
use inode::{Caller, Ends, Enforce, FsError, NodeId};
use store::Store;
use wire::{Failure, FailureKind};

use super::engine::{chosen, durability, other_engine};
use super::tap::Tap;
use crate::cli::BenchArgs;
use program::Background;
use program::failure::{self, Result};
use program::log_place::{self, Claim, LogHeld};
use program::{cache_size, index_cache};

/// An open volume of a benchmark.
pub(super) struct Volume {
    path: PathBuf,
    temporary: bool,
    env: Env,
    options: OpenOptions,
    fs: Option<Arc<Fs>>,
    tap: Option<Arc<Tap>>,
    background: Option<Background>,
    directory: NodeId,
    name: String,
    tapped: bool,
    // Released in this order.
    log: Option<LogHeld>,
    lock: Option<Box<dyn Lock>>,
}

/// The caller of a benchmark: root, with the permission checks of a mount.
pub(super) fn caller() -> Caller {
    Caller {
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        umask: 0,
        pid: 0,
        enforce: Enforce::Kernel,
        ends: Ends::NONE,
    }
}

/// An error of the volume under test.
pub(super) fn broken(error: FsError) -> Failure {
    let failure = Failure::from(error);
    let message = format!("the volume under test: {}", failure.message);
    Failure { message, ..failure }
}

impl Volume {
    /// Creates and opens it.
    pub(super) fn make(args: &BenchArgs) -> Result<Volume> {
        let temporary = args.volume.is_none();
        let name = format!("bench-{}", std::process::id());
        let path = match &args.volume {
            Some(path) => path.clone(),
            None => std::env::temp_dir().join(format!("pando-{name}")),
        };
        let cache_bytes = args.cache_size.unwrap_or_else(cache_size::default_bytes);
        let index = if args.no_index { Some(0) } else { args.index_cache };
        let fresh = format_where_absent(&path, args)?;
        let env = environment(&path, args)?;
        let mut volume = Volume {
            path,
            temporary: temporary && fresh,
            env,
            options: OpenOptions {
                durability: durability(args),
                cache_bytes,
                index: index_cache::options(index, cache_bytes),
                ..OpenOptions::default()
            },
            fs: None,
            tap: None,
            background: None,
            directory: NodeId::ROOT,
            name,
            tapped: args.yardstick,
            log: None,
            lock: None,
        };
        volume.take_lock()?;
        volume.open()?;
        let made = volume.fs().mkdir(&caller(), NodeId::ROOT, volume.name.as_bytes(), 0o755);
        volume.directory = made.map_err(broken)?.node;
        Ok(volume)
    }

    fn take_lock(&mut self) -> Result<()> {
        let lock = self.env.device.try_lock("owner.lock");
        let lock = lock.map_err(|error| failure::device(&self.path, &error))?;
        if lock.is_none() {
            let message = format!("{} is in use by another process", self.path.display());
            return Err(Failure::new(FailureKind::Busy, message)
                .hint("unmount it, or end its daemon: `pando umount VOLDIR`"));
        }
        // A volume without its log must be neither opened nor cleaned by this process.
        self.log = log_place::hold(&self.path, &*self.env.clock, Claim::Write)?;
        self.lock = lock;
        Ok(())
    }

    /// Opens it, and starts the background work of a daemon.
    pub(super) fn open(&mut self) -> Result<()> {
        self.open_alone()?;
        let background = Background::default();
        background.start(self.fs()).map_err(|error| {
            Failure::new(FailureKind::Other, format!("cannot start a thread: {error}"))
        })?;
        self.background = Some(background);
        Ok(())
    }

    /// Opens it without background work.
    pub(super) fn open_alone(&mut self) -> Result<()> {
        let (env, options) = (self.env.clone(), &self.options);
        let opened = if self.tapped {
            Fs::open_through(env, options, |store| {
                let tap = Arc::new(Tap::new(store));
                self.tap = Some(Arc::clone(&tap));
                tap
            })
        } else {
            Fs::open(env, options)
        };
        self.fs = Some(opened.map_err(|error| failure::open(&self.path, &error))?);
        Ok(())
    }

    /// Opens it without background work; returns its store, for inspection.
    pub(super) fn open_watched(&mut self) -> Result<Arc<dyn Store>> {
        let mut watched = None;
        let opened = Fs::open_through(self.env.clone(), &self.options, |store| {
            watched = Some(Arc::clone(&store));
            store
        });
        self.fs = Some(opened.map_err(|error| failure::open(&self.path, &error))?);
        Ok(watched.expect("invariant: opening goes through the store"))
    }

    /// The volume's directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file system.
    pub(super) fn fs(&self) -> &Arc<Fs> {
        self.fs.as_ref().expect("invariant: it is closed only between two openings")
    }

    /// The tap that records its record operations.
    pub(super) fn tap(&self) -> Option<&Arc<Tap>> {
        self.tap.as_ref()
    }

    /// The engine of the volume.
    pub(super) fn engine(&self) -> &'static str {
        engine_of(&self.path).unwrap_or_default().name()
    }

    /// Its name, in the root.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The benchmark's directory.
    pub(super) fn directory(&self) -> NodeId {
        self.directory
    }

    /// Drops it as a crash does: changes that are not durable are lost.
    pub(super) fn crash(&mut self) {
        self.end_background();
        self.fs = None;
    }

    /// Ends background work.
    pub(super) fn end_background(&mut self) {
        if let Some(background) = self.background.take() {
            background.end();
        }
    }

    /// Closes it and returns how many bytes were written since it was opened, and how many bytes
    /// it occupies.
    pub(super) fn close(&mut self) -> Result<(u64, u64)> {
        self.end_background();
        let fs = Arc::clone(self.fs());
        fs.close().map_err(broken)?;
        let written = fs.status().map_err(broken)?.written_bytes;
        Ok((written, disk_bytes(&self.path)))
    }

    fn clean(&mut self) -> Result<()> {
        if self.temporary {
            self.crash();
            return std::fs::remove_dir_all(&self.path)
                .map_err(|error| failure::io("remove", &self.path, &error));
        }
        self.crash();
        self.tapped = false;
        self.open_alone()?;
        let root = NodeId::ROOT;
        self.fs().rmr(&caller(), root, self.name.as_bytes()).map_err(broken)?;
        self.fs().close().map_err(broken)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.lock.is_some()
            && let Err(failure) = self.clean()
        {
            tracing::warn!(%failure, "the volume of the benchmark stays");
        }
    }
}

/// The operating system's environment, past its page cache if requested.
fn environment(path: &Path, args: &BenchArgs) -> Result<Env> {
    let files = fs::volume_files(path).map_err(|error| failure::device(path, &error))?;
    Ok(if args.direct {
        Env::on(Arc::new(DirectDevice::over(files)))
    } else {
        Env::on(Arc::new(files))
    })
}

/// The engine of a volume; `None` if its header cannot be read, for which opening gives the
/// reason.
fn engine_of(path: &Path) -> Option<Engine> {
    let header = std::fs::read(path.join(format::volume::FILE)).ok()?;
    Some(match VolumeHeader::decode(&header).ok()?.engine {
        EngineKind::Btree => Engine::Btree,
        EngineKind::Lsm => Engine::Lsm,
    })
}

/// Creates a volume if none exists; `true` if it did. An existing volume must have the requested
/// engine.
pub(super) fn format_where_absent(path: &Path, args: &BenchArgs) -> Result<bool> {
    if path.join(format::volume::FILE).exists() {
        return match engine_of(path) {
            Some(held) if args.engine.is_some() && held != chosen(args) => {
                Err(other_engine(path, held))
            }
            _ => Ok(false),
        };
    }
    match std::fs::DirBuilder::new().mode(0o711).create(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(failure::io("create", path, &error));
        }
        _ => {}
    }
    let env = Env::system(path).map_err(|error| failure::device(path, &error))?;
    let options = FormatOptions { engine: chosen(args), ..FormatOptions::default() };
    Fs::format(&env, &options).map_err(|error| failure::open(path, &error))?;
    Ok(true)
}

/// Bytes that a directory's files occupy.
fn disk_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = walkdir::WalkDir::new(path).into_iter().filter_map(std::result::Result::ok);
    let occupied = entries.filter_map(|entry| entry.metadata().ok());
    occupied.map(|found| found.blocks() * 512).sum()
}

/// Ensures that nothing of a directory's files is in memory; returns how.
pub(super) fn drop_caches(path: &Path) -> Result<&'static str> {
    rustix::fs::sync();
    if std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
        return Ok("drop_caches");
    }
    for entry in walkdir::WalkDir::new(path) {
        let entry = entry.map_err(|error| {
            let message = format!("cannot list the volume under test: {error}");
            Failure::new(FailureKind::Other, message)
        })?;
        if entry.file_type().is_file() {
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::open(entry.path(), flags, rustix::fs::Mode::empty())
                .and_then(|file| rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed))
                .map_err(|error| failure::io("advise on", entry.path(), &error.into()))?;
        }
    }
    Ok("fadvise")
}
