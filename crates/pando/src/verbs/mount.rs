//! `pando mount`: becomes the owner of a volume and mounts it; in the background unless asked to
//! stay, and then only after the mount works.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;

use client::Launch;
use serde_json::json;
use wire::{Answer, Call, Failure, FailureKind};

use crate::cli::MountArgs;
use crate::failure::{self, Result};
use crate::output::Output;
use crate::place::Place;
use crate::{owner, session, spawn};

pub(crate) fn run(args: &MountArgs, output: &mut Output) -> Result<()> {
    let volume = Place::volume(&args.voldir)?;
    let mount_point = std::fs::canonicalize(&args.mnt)
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => failure::mount(&fuse::MountError::Missing(args.mnt.clone())),
            _ => failure::io("mount on", &args.mnt, &error),
        })
        .or_else(|failure| dead_mount(&args.mnt).ok_or(failure))?;
    if fuse::asks_for_remount(&args.options) {
        return fuse::remount(&mount_point, &args.options).map_err(|error| failure::mount(&error));
    }
    // Found here rather than in the background, so that wrong usage is told at once.
    let mut checked = fuse::MountOptions::new(&volume, &mount_point);
    for list in &args.options {
        checked.parse(list).map_err(|error| failure::mount(&error.into()))?;
    }
    let launched = if args.foreground {
        let start = owner::Start {
            volume: volume.clone(),
            mount: Some(owner::MountStart {
                mount_point: mount_point.clone(),
                options: args.options.clone(),
            }),
            cache_bytes: args.cache_size,
            index_bytes: args.index_cache,
            idle: None,
        };
        let mut told = Ok(());
        owner::run(&start, &mut |launch| {
            if let Launch::Ready { pid } = launch {
                told = say(output, &volume, &mount_point, *pid).and_then(|()| output.flush());
            }
        })?;
        return told;
    } else {
        let mut extra: Vec<OsString> = vec!["--mount".into(), mount_point.clone().into()];
        let sizes = [("--cache-size", args.cache_size), ("--index-cache", args.index_cache)];
        for (option, bytes) in sizes {
            extra.extend(bytes.into_iter().flat_map(|n| [option.into(), n.to_string().into()]));
        }
        for option in &args.options {
            extra.extend(["-o".into(), OsString::from(option)]);
        }
        spawn::owner(&volume, &extra)?
    };
    match launched {
        Launch::Ready { pid } => {
            say(output, &volume, &mount_point, pid)?;
            if checked.read_only { Ok(()) } else { say_if_read_only(output, &volume) }
        }
        Launch::Taken => Err(Failure::new(
            FailureKind::Busy,
            format!("another process took {} meanwhile", volume.display()),
        )),
        Launch::Failed(failure) => Err(failure),
    }
}

/// A mount point whose server died cannot be canonicalised; the mount takes its remains away.
fn dead_mount(mount_point: &Path) -> Option<std::path::PathBuf> {
    let absolute = std::path::absolute(mount_point).ok()?;
    let found = fuse::find_mount(&absolute)?;
    (found.mount_point == absolute).then_some(absolute)
}

fn say(output: &mut Output, volume: &Path, mount_point: &Path, pid: u32) -> Result<()> {
    output.object(&json!({
        "volume": volume.to_string_lossy(),
        "mount_point": mount_point.to_string_lossy(),
        "pid": pid,
    }))?;
    let (volume, mount_point) = (volume.display(), mount_point.display());
    output.line(&format!("mounted {volume} on {mount_point} (pid {pid})"))
}

/// A volume that takes no changes though nobody asked for that: damage is in their way.
fn say_if_read_only(output: &mut Output, volume: &Path) -> Result<()> {
    // It is mounted all the same.
    let Ok(Answer::Status(status)) = session::ask(volume, &Call::Status) else { return Ok(()) };
    match status.read_only {
        Some(why) => output.line(&format!("READ-ONLY   {why}")),
        None => Ok(()),
    }
}
