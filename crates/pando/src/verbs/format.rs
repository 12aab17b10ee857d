//! `pando format`: creates a volume in a directory that is empty or does not exist.

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use device::{Device, Env, LocalDevice};
use fs::{Engine, FormatOptions, Fs, Layout, OpenError};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use serde_json::json;
use wire::{Failure, FailureKind};

use crate::cli::FormatArgs;
use crate::failure::{self, Result};
use crate::host;
use crate::log_place::{self, LogHeld};
use crate::output::{self, Output};
use crate::place::{VolumePath, refuse_path};

/// How often the directory of a log may vanish while a caller takes it: each time another process
/// has created it, and failed.
const TRIES: usize = 1000;

pub(crate) fn run(args: &FormatArgs, output: &mut Output) -> Result<()> {
    if let Some((url, inner)) = host::url(&args.voldir) {
        return in_store(args, url, &inner, output);
    }
    let engine = args.engine.map(Engine::from).unwrap_or_default();
    if args.layout.is_some() && engine != Engine::Lsm {
        return Err(Failure::new(FailureKind::Invalid, "--layout requires --engine lsm")
            .hint("add --engine lsm, or leave --layout out"));
    }
    let layout = args.layout.map(Layout::from).unwrap_or_default();
    refuse_path(&args.voldir, "format")?;
    let voldir = match VolumePath::split(&args.voldir) {
        Some(place) => place?.volume,
        None => args.voldir.clone(),
    };
    let snapshot_dir = args.snapshot_dir.as_bytes();
    check_name(snapshot_dir)?;
    let inode_home = args.inode_home;
    let plan = Plan { engine, layout, log_dir: args.log_dir.as_deref(), inode_home };
    let id = make(&voldir, snapshot_dir, &plan)?;
    output.object(&json!({
        "volume": id,
        "path": args.voldir.to_string_lossy(),
        "format_version": version(args, format::volume::VERSION_OF_DIRECTORY),
        "engine": engine.name(),
        "layout": (engine == Engine::Lsm).then(|| layout.name()),
        "log_dir": args.log_dir.as_deref().map(Path::to_string_lossy),
    }))?;
    output.line(&format!("made volume {id} in {}", args.voldir.display()))
}

/// Makes a volume in an object store.
fn in_store(args: &FormatArgs, url: &str, inner: &[u8], output: &mut Output) -> Result<()> {
    let refuse = |what: &str| {
        let message = format!("{what} is not possible in an object store");
        Err(Failure::new(FailureKind::Invalid, message).hint("leave the option out"))
    };
    if args.engine.is_some_and(|engine| Engine::from(engine) != Engine::Lsm) {
        return refuse("an engine other than lsm");
    }
    if args.log_dir.is_some() {
        return refuse("--log-dir: the log is in the store, which");
    }
    if inner.iter().any(|&byte| byte != b'/') {
        return Err(Failure::new(FailureKind::Invalid, "`format` takes no path inside a volume")
            .hint("leave out what follows the URL of the volume"));
    }
    let snapshot_dir = args.snapshot_dir.as_bytes();
    check_name(snapshot_dir)?;
    let (directory, env, location) = host::for_format(url)?;
    let layout = args.layout.map_or(Layout::Column, Layout::from);
    let inode_home = args.inode_home;
    let plan = Plan { engine: Engine::Lsm, layout, log_dir: None, inode_home };
    let id = Fs::format(&env, &options(snapshot_dir, &plan))
        .map_err(|error| match error {
            OpenError::NotEmpty(name) => {
                let message = format!("{location} is not empty: it holds {name}");
                Failure::new(FailureKind::NotEmpty, message).hint(
                    "choose another prefix; or, if an earlier `pando format` was interrupted \
                     there, delete its objects",
                )
            }
            OpenError::Device(error) => host::of_store(&location, &error),
            error => failure::open(&args.voldir, &error),
        })?
        .to_string();
    host::finish(&location, &directory, &env)?;
    output.object(&json!({
        "volume": id,
        "path": args.voldir.to_string_lossy(),
        "host_directory": directory.to_string_lossy(),
        "format_version": version(args, format::volume::VERSION_OF_OBJECTS),
        "engine": plan.engine.name(),
        "layout": layout.name(),
    }))?;
    output.line(&format!("made volume {id} in {location}"))
}

/// The version of the format: `of_home_0`, unless the volume's inodes have another home.
fn version(args: &FormatArgs, of_home_0: u32) -> u32 {
    if args.inode_home > 0 { format::volume::VERSION } else { of_home_0 }
}

/// Refuses an invalid name for the directory of snapshots.
fn check_name(snapshot_dir: &[u8]) -> Result<()> {
    let wrong = match snapshot_dir {
        b"" | b"." | b".." => true,
        name => name.contains(&b'/') || name.len() > inode::NAME_BYTES_MAX,
    };
    if !wrong {
        return Ok(());
    }
    let name = output::printable(snapshot_dir);
    let message = format!("--snapshot-dir takes one name, without a slash: not '{name}'");
    Err(Failure::new(FailureKind::Invalid, message).hint("for example .snapshots or .zfs"))
}

/// How to create a volume.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plan<'a> {
    /// The engine.
    pub(super) engine: Engine,
    /// How the engine lays out records.
    pub(super) layout: Layout,
    /// The directory of the log, if it is outside the volume's directory.
    pub(super) log_dir: Option<&'a Path>,
    /// The home of its inodes.
    pub(super) inode_home: u16,
}

/// Creates a volume, and returns its id.
pub(super) fn make(voldir: &Path, snapshot_dir: &[u8], plan: &Plan<'_>) -> Result<String> {
    let made = make_directory(voldir, 0o711)?;
    let done = match plan.log_dir {
        None => format(voldir, snapshot_dir, plan),
        Some(log_dir) => with_log_in(voldir, log_dir, || format(voldir, snapshot_dir, plan)),
    };
    if done.is_err() && made {
        // Removes a directory that was created here and could not be filled; a directory with
        // contents stays.
        std::fs::remove_dir(voldir).unwrap_or_default();
    }
    done
}

/// Runs `make` while the volume's log directory is a link to an empty directory elsewhere; the
/// link stays if a volume was created.
fn with_log_in(
    voldir: &Path,
    log_dir: &Path,
    make: impl FnOnce() -> Result<String>,
) -> Result<String> {
    // Held until the end: of two processes that create volumes, one gets the directory, and may
    // remove it again.
    let (held, made) = take_directory(log_dir, &mut log_place::try_lock)?;
    // Held, too: a user who may rename directories above it cannot have the link made or removed in
    // another one.
    let volume = LocalDevice::open(voldir).map_err(|error| failure::device(voldir, &error));
    let linked = volume.and_then(|volume| {
        if made {
            give_to_owner_of(&volume, log_dir, &held)?;
        }
        link_to_empty((&volume, voldir), log_dir, &held)?;
        Ok(volume)
    });
    let done = linked.and_then(|volume| {
        let done = make();
        if done.is_err() {
            let name = fs::LOG_DIRECTORY;
            rustix::fs::unlinkat(volume.directory(), name, AtFlags::empty()).unwrap_or_default();
            remove_log(&held);
        }
        done
    });
    match &done {
        Err(_) if made => std::fs::remove_dir(log_dir).unwrap_or_default(),
        Err(_) => {}
        // A finished volume is not undone: if there was no space for the link back, the daemon
        // that first opens the volume creates it.
        Ok(_) => log_place::link_back(voldir, log_dir, &held).unwrap_or_default(),
    }
    done
}

/// Creates a directory, or takes an existing one, and locks it; also returns whether it was
/// created here. The holder of the lock may remove the directory: then another directory, or none,
/// has its path when this process gets the lock.
fn take_directory(
    log_dir: &Path,
    lock: &mut dyn FnMut(&Path) -> Result<Option<LogHeld>>,
) -> Result<(LogHeld, bool)> {
    for _ in 0..TRIES {
        let made = make_directory(log_dir, 0o700)?;
        match lock(log_dir) {
            Ok(Some(held)) if held.is_of(log_dir)? => return Ok((held, made)),
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(failure) if failure.kind == FailureKind::NotFound => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(log_place::in_use(log_dir))
}

/// Removes the files of a log from a directory that was empty; removes nothing that others put
/// there.
fn remove_log(held: &LogHeld) {
    for name in held.names().unwrap_or_default() {
        let text = name.to_string_lossy();
        if text.ends_with(".log") || text.starts_with("spare-") {
            held.remove(&name).unwrap_or_default();
        }
    }
}

/// Gives the directory that the superuser created to the user that owns the volume, so that this
/// user can still open it.
fn give_to_owner_of(volume: &LocalDevice, log_dir: &Path, held: &LogHeld) -> Result<()> {
    let above = log_dir.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    LocalDevice::open(above)
        .and_then(|above| volume.give_dir(held.directory(), above.directory()))
        .map_err(|error| failure::device(log_dir, &error))
}

fn link_to_empty(
    (volume, voldir): (&LocalDevice, &Path),
    log_dir: &Path,
    held: &LogHeld,
) -> Result<()> {
    let failed = |error| failure::io("open", log_dir, &error);
    // The link must resolve from any working directory.
    let log_dir = std::fs::canonicalize(log_dir).map_err(failed)?;
    if !held.names().map_err(failed)?.is_empty() {
        let message = format!("{} is not empty", log_dir.display());
        return Err(Failure::new(FailureKind::NotEmpty, message)
            .hint("each volume needs a directory of its own for its log"));
    }
    let directory = log_dir.parent().unwrap_or(&log_dir);
    let synced = LocalDevice::open(directory).and_then(|device| device.sync_dir(""));
    synced.map_err(|error| failure::device(directory, &error))?;
    let link = voldir.join(fs::LOG_DIRECTORY);
    let made = rustix::fs::symlinkat(&log_dir, volume.directory(), fs::LOG_DIRECTORY);
    made.map_err(|error| match error {
        Errno::EXIST => {
            let message = format!("{} already exists", link.display());
            Failure::new(FailureKind::NotEmpty, message).hint("choose an empty directory")
        }
        _ => failure::io("create", &link, &error.into()),
    })
}

fn format(voldir: &Path, snapshot_dir: &[u8], plan: &Plan<'_>) -> Result<String> {
    let failed = |error| failure::device(voldir, &error);
    let device = Arc::new(fs::volume_files(voldir).map_err(failed)?);
    let env = Env::on(Arc::<LocalDevice>::clone(&device));
    let id = Fs::format(&env, &options(snapshot_dir, plan)).map_err(|error| {
        let failure = failure::open(voldir, &error);
        match failure.kind {
            FailureKind::Exists => failure.hint("remove it first, or choose another directory"),
            FailureKind::NotEmpty => failure.hint("choose an empty directory"),
            _ => failure,
        }
    })?;
    // Every user may reach the socket, and only the owner may list or read the directory.
    device.set_mode(0o711).map_err(failed)?;
    Ok(id.to_string())
}

fn options(snapshot_dir: &[u8], plan: &Plan<'_>) -> FormatOptions {
    FormatOptions {
        engine: plan.engine,
        layout: plan.layout,
        snapshot_dir: snapshot_dir.to_vec(),
        root_uid: rustix::process::geteuid().as_raw(),
        root_gid: rustix::process::getegid().as_raw(),
        inode_home: plan.inode_home,
        ..FormatOptions::default()
    }
}

/// Creates the directory; `false` if it existed.
fn make_directory(voldir: &Path, mode: u32) -> Result<bool> {
    for _ in 0..TRIES {
        match std::fs::DirBuilder::new().mode(mode).create(voldir) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(not_made(voldir, &error)),
        }
        if voldir.is_dir() {
            return Ok(false);
        }
        // It may have been removed in between.
        if voldir.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
            break;
        }
    }
    let message = format!("{} is not a directory", voldir.display());
    let failure = Failure::new(FailureKind::NotDirectory, message);
    Err(failure.hint("name an empty directory, or one that does not exist"))
}

/// Why a directory could not be created, with a hint if its parent directories do not exist.
fn not_made(directory: &Path, error: &std::io::Error) -> Failure {
    let failure = failure::io("create", directory, error);
    match directory.parent().filter(|above| !above.as_os_str().is_empty()) {
        Some(above) if error.kind() == ErrorKind::NotFound => {
            failure.hint(format!("create its parent first: `mkdir -p {}`", above.display()))
        }
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn broken() -> Result<String> {
        Err(Failure::new(FailureKind::Other, "no volume today"))
    }

    /// A process that creates the directory of a log and does not get its lock leaves it to the
    /// holder.
    #[test]
    fn a_log_is_removed_only_by_its_exclusive_holder() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        let mut others = None;
        let taken = take_directory(&log, &mut |log| {
            others = log_place::try_lock(log)?;
            log_place::try_lock(log)
        });
        assert!(others.is_some());
        assert_eq!(taken.err().map(|failure| failure.kind), Some(FailureKind::Busy));
        assert!(log.is_dir());
        let voldir = place.path().join("volume");
        std::fs::create_dir(&voldir).unwrap();
        let refused = || with_log_in(&voldir, &log, broken).expect_err("no volume today").kind;
        assert_eq!(refused(), FailureKind::Busy);
        drop(others);
        assert_eq!(refused(), FailureKind::Other, "as `broken` is");
        assert!(log.is_dir(), "it was there before");
        std::fs::remove_dir(&log).unwrap();
        assert_eq!(refused(), FailureKind::Other, "as `broken` is");
        assert!(!log.exists() && std::fs::read_dir(&voldir).unwrap().next().is_none());
    }

    /// The lock of a directory that another process removed and created again is worthless.
    #[test]
    fn a_recreated_log_is_locked_again() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        let mut tries = 0;
        let (held, made) = take_directory(&log, &mut |log| {
            tries += 1;
            let held = log_place::try_lock(log)?;
            match tries {
                1 => {
                    std::fs::remove_dir(log).unwrap();
                    std::fs::create_dir(log).unwrap();
                }
                2 => {
                    std::fs::remove_dir(log).unwrap();
                    return log_place::try_lock(log);
                }
                _ => {}
            }
            Ok(held)
        })
        .unwrap();
        assert_eq!((tries, made), (3, true));
        assert!(log_place::try_lock(&log).unwrap().is_none(), "another may have it as well");
        drop(held);
        assert!(log_place::try_lock(&log).unwrap().is_some());
    }

    /// A volume that was created stays, with its log, if its link back cannot be created.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "somebody else does it, in the middle")]
    fn an_idle_volume_keeps_its_log() {
        let place = tempfile::tempdir().unwrap();
        let (voldir, log) = (place.path().join("volume"), place.path().join("log"));
        std::fs::create_dir(&voldir).unwrap();
        let number = std::fs::metadata(&voldir).unwrap().ino();
        let made = with_log_in(&voldir, &log, || {
            std::fs::write(log.join("0001.log"), "records").unwrap();
            // The link back would point here.
            std::fs::rename(&voldir, place.path().join("moved")).unwrap();
            Ok("id".to_owned())
        });
        assert_eq!(made.unwrap(), "id");
        assert!(log.join("0001.log").exists());
        assert!(place.path().join("moved").join(fs::LOG_DIRECTORY).exists());
        assert!(!log.join(format!("volume.{number}")).exists());
    }
}
