//! `pando format`: makes a volume in a directory that is empty or not there.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use device::Env;
use fs::{Engine, FormatOptions, Fs, Layout};
use serde_json::json;
use wire::{Failure, FailureKind};

use crate::cli::FormatArgs;
use crate::failure::{self, Result};
use crate::output::Output;

pub(crate) fn run(args: &FormatArgs, output: &mut Output) -> Result<()> {
    let engine = Engine::from(args.engine);
    if args.layout.is_some() && engine != Engine::Lsm {
        return Err(Failure::new(FailureKind::Invalid, "--layout belongs to --engine lsm"));
    }
    let layout = args.layout.map(Layout::from).unwrap_or_default();
    let id = make(&args.voldir, args.snapshot_dir.as_bytes(), engine, layout)?;
    output.object(&json!({
        "volume": id,
        "path": args.voldir.to_string_lossy(),
        "format_version": format::volume::VERSION,
        "engine": engine.name(),
        "layout": (engine == Engine::Lsm).then(|| layout.name()),
    }))?;
    output.line(&format!("made volume {id} in {}", args.voldir.display()))
}

/// Makes a volume, and returns its id.
pub(super) fn make(
    voldir: &Path,
    snapshot_dir: &[u8],
    engine: Engine,
    layout: Layout,
) -> Result<String> {
    let made = make_directory(voldir)?;
    let done = format(voldir, snapshot_dir, engine, layout);
    if done.is_err() && made {
        // What we made and could not fill goes away again; a directory with contents stays.
        std::fs::remove_dir(voldir).unwrap_or_default();
    }
    done
}

fn format(voldir: &Path, snapshot_dir: &[u8], engine: Engine, layout: Layout) -> Result<String> {
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
fn make_directory(voldir: &Path) -> Result<bool> {
    match std::fs::DirBuilder::new().mode(0o711).create(voldir) {
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
