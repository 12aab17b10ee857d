//! `pando format`: makes a volume in a directory that is empty or not there.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use device::{Device, Env, LocalDevice};
use fs::{Engine, FormatOptions, Fs, Layout};
use serde_json::json;
use wire::{Failure, FailureKind};

use crate::cli::FormatArgs;
use crate::failure::{self, Result};
use crate::output::Output;
use crate::owner::log_place;

pub(crate) fn run(args: &FormatArgs, output: &mut Output) -> Result<()> {
    let engine = Engine::from(args.engine);
    if args.layout.is_some() && engine != Engine::Lsm {
        return Err(Failure::new(FailureKind::Invalid, "--layout belongs to --engine lsm"));
    }
    let layout = args.layout.map(Layout::from).unwrap_or_default();
    let plan = Plan { engine, layout, log_dir: args.log_dir.as_deref() };
    let id = make(&args.voldir, args.snapshot_dir.as_bytes(), &plan)?;
    output.object(&json!({
        "volume": id,
        "path": args.voldir.to_string_lossy(),
        "format_version": format::volume::VERSION,
        "engine": engine.name(),
        "layout": (engine == Engine::Lsm).then(|| layout.name()),
        "log_dir": args.log_dir.as_deref().map(Path::to_string_lossy),
    }))?;
    output.line(&format!("made volume {id} in {}", args.voldir.display()))
}

/// How a volume is made.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plan<'a> {
    /// The engine.
    pub(super) engine: Engine,
    /// How it lays records out.
    pub(super) layout: Layout,
    /// Where the log is, if not in the volume's directory.
    pub(super) log_dir: Option<&'a Path>,
}

/// Makes a volume, and returns its id.
pub(super) fn make(voldir: &Path, snapshot_dir: &[u8], plan: &Plan<'_>) -> Result<String> {
    let made = make_directory(voldir, 0o711)?;
    let done = match plan.log_dir {
        None => format(voldir, snapshot_dir, plan),
        Some(log_dir) => with_log_in(voldir, log_dir, || format(voldir, snapshot_dir, plan)),
    };
    if done.is_err() && made {
        // What we made and could not fill goes away again; a directory with contents stays.
        std::fs::remove_dir(voldir).unwrap_or_default();
    }
    done
}

/// Has the directory of the log be a link to one that is elsewhere, and is empty, while a volume is
/// made; the link stays if it is.
fn with_log_in(
    voldir: &Path,
    log_dir: &Path,
    make: impl FnOnce() -> Result<String>,
) -> Result<String> {
    let made = make_directory(log_dir, 0o700)?;
    let link = voldir.join(fs::LOG_DIRECTORY);
    let given = if made { give_to_owner_of(voldir, log_dir) } else { Ok(()) };
    let done = given.and_then(|()| {
        // From the look whether it is empty to the end: of two who make volumes one gets it.
        let held = log_place::try_lock(log_dir)?;
        let _held = held.ok_or_else(|| log_place::in_use(log_dir))?;
        link_to_empty(&link, log_dir)?;
        let done = make().and_then(|id| log_place::link_back(voldir, log_dir).map(|()| id));
        if done.is_err() {
            std::fs::remove_file(&link).unwrap_or_default();
            remove_log(log_dir);
        }
        done
    });
    if done.is_err() && made {
        std::fs::remove_dir(log_dir).unwrap_or_default();
    }
    done
}

/// Removes the files of a log, from a directory that was empty; nothing that others put there.
fn remove_log(log_dir: &Path) {
    for left in std::fs::read_dir(log_dir).into_iter().flatten().flatten() {
        let name = left.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".log") || name.starts_with("spare-") {
            std::fs::remove_file(left.path()).unwrap_or_default();
        }
    }
}

/// Gives what the superuser made to whose volume it is for, so that he can still open it.
fn give_to_owner_of(voldir: &Path, directory: &Path) -> Result<()> {
    let failed = |error| failure::io("give to the owner of the volume", directory, &error);
    let owner = std::fs::metadata(voldir).map_err(failed)?;
    if owner.uid() == 0 || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    std::os::unix::fs::chown(directory, Some(owner.uid()), Some(owner.gid())).map_err(failed)
}

fn link_to_empty(link: &Path, log_dir: &Path) -> Result<()> {
    let failed = |error| failure::io("open", log_dir, &error);
    // The link must lead there from anywhere.
    let log_dir = std::fs::canonicalize(log_dir).map_err(failed)?;
    if std::fs::read_dir(&log_dir).map_err(failed)?.next().is_some() {
        let message = format!("{} is not empty", log_dir.display());
        return Err(Failure::new(FailureKind::NotEmpty, message)
            .hint("each volume needs a directory of its own for its log"));
    }
    let directory = log_dir.parent().unwrap_or(&log_dir);
    let synced = LocalDevice::open(directory).and_then(|device| device.sync_dir(""));
    synced.map_err(|error| failure::device(directory, &error))?;
    std::os::unix::fs::symlink(&log_dir, link).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            let message = format!("{} is there already", link.display());
            Failure::new(FailureKind::NotEmpty, message).hint("choose an empty directory")
        }
        _ => failure::io("create", link, &error),
    })
}

fn format(voldir: &Path, snapshot_dir: &[u8], plan: &Plan<'_>) -> Result<String> {
    let Plan { engine, layout, .. } = *plan;
    let env = Env::system(voldir).map_err(|error| failure::device(voldir, &error))?;
    let options = FormatOptions {
        engine,
        layout,
        snapshot_dir: snapshot_dir.to_vec(),
        root_uid: rustix::process::geteuid().as_raw(),
        root_gid: rustix::process::getegid().as_raw(),
        ..FormatOptions::default()
    };
    let id = Fs::format(&env, &options).map_err(|error| {
        let failure = failure::open(voldir, &error);
        match failure.kind {
            FailureKind::Exists => failure.hint("remove it first, or choose another directory"),
            FailureKind::NotEmpty => failure.hint("choose an empty directory"),
            _ => failure,
        }
    })?;
    open_to_search(voldir)?;
    Ok(id.to_string())
}

/// Creates the directory; `false` when it was there.
fn make_directory(voldir: &Path, mode: u32) -> Result<bool> {
    match std::fs::DirBuilder::new().mode(mode).create(voldir) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            if voldir.is_dir() {
                Ok(false)
            } else {
                let message = format!("{} is not a directory", voldir.display());
                Err(Failure::new(FailureKind::NotDirectory, message))
            }
        }
        Err(error) => Err(failure::io("create", voldir, &error)),
    }
}

/// Lets every user reach the socket, and nobody else list or read what is in the directory.
fn open_to_search(voldir: &Path) -> Result<()> {
    std::fs::set_permissions(voldir, PermissionsExt::from_mode(0o711))
        .map_err(|error| failure::io("set the mode of", voldir, &error))
}
