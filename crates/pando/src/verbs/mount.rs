//! `pando mount`: starts the daemon of a volume and mounts it. Runs in the background unless asked
//! to stay in the foreground, and detaches only after the mount works.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use client::Launch;
use serde_json::json;
use wire::{Answer, Call, Failure, FailureKind};

use crate::cli::MountArgs;
use crate::daemon::TraceStart;
use crate::failure::{self, Result};
use crate::host::{self, TakeOver};
use crate::output::Output;
use crate::place::VolumePath;
use crate::verbs::mount_far;
use crate::{access, daemon, far, session, spawn};

pub(crate) fn run(args: &MountArgs, output: &mut Output) -> Result<()> {
    // (The source of a mount that mount(8) shows need not be a URL as it is typed.)
    if far::is_url(args.voldir.as_os_str()) && fuse::asks_for_remount(&args.options) {
        return remount(&mount_point(args)?, &args.options);
    }
    if let Some(url) = far::split(&args.voldir) {
        return mount_far::run(args, url?, &mount_point(args)?, output);
    }
    let volume = VolumePath::volume(&args.voldir)?;
    let inner = inner(&args.voldir)?;
    let mount_point = mount_point(args)?;
    if fuse::asks_for_remount(&args.options) {
        return remount(&mount_point, &args.options);
    }
    // Checked here and not in the background, so that wrong usage is reported at once.
    let mut checked = fuse::MountOptions::new(&volume, &mount_point);
    for list in &args.options {
        checked.parse(list).map_err(|error| failure::mount(&error.into()))?;
    }
    let mut options = args.options.clone();
    options.extend(subdir(args, inner, &mut checked)?);
    let trace = args.trace.as_deref().map(|file| TraceStart::at(file, args.trace_limit));
    let trace = trace.transpose()?;
    let launched = if args.foreground {
        let start = daemon::Start {
            volume: volume.clone(),
            mount: Some(daemon::MountStart {
                mount_point: mount_point.clone(),
                foreground: true,
                options,
            }),
            cache_bytes: args.cache_size,
            index_bytes: args.index_cache,
            idle: None,
            metrics: args.metrics,
            trace,
            take_over: if args.take_over { TakeOver::Yes } else { TakeOver::No },
            serve: None,
        };
        let mut printed = Ok(());
        daemon::run(&start, &mut |launch| {
            if let Launch::Ready { pid } = launch {
                printed = print_mounted(output, &volume, &mount_point, *pid)
                    .and_then(|()| output.flush());
            }
        })?;
        return printed;
    } else {
        let mut extra: Vec<OsString> = vec!["--mount".into(), mount_point.clone().into()];
        let sizes = [("--cache-size", args.cache_size), ("--index-cache", args.index_cache)];
        for (option, bytes) in sizes {
            extra.extend(bytes.into_iter().flat_map(|n| [option.into(), n.to_string().into()]));
        }
        if let Some(address) = args.metrics {
            extra.extend(["--metrics".into(), address.to_string().into()]);
        }
        extra.extend(trace.iter().flat_map(TraceStart::arguments));
        extra.extend(args.take_over.then(|| "--take-over".into()));
        for option in options {
            extra.extend(["-o".into(), OsString::from(option)]);
        }
        spawn::daemon(&volume, &extra)?
    };
    match launched {
        Launch::Ready { pid } => {
            print_mounted(output, &volume, &mount_point, pid)?;
            remark_if_alone(output, &volume, args, &checked);
            if checked.read_only { Ok(()) } else { warn_if_read_only(output, &volume) }
        }
        Launch::Taken => Err(Failure::new(
            FailureKind::Busy,
            format!("another process took {} meanwhile", volume.display()),
        )
        .hint("`pando status VOLUME` shows it; run the command again when it has ended")),
        Launch::Failed(failure) => Err(failure),
    }
}

fn remount(mount_point: &Path, options: &[String]) -> Result<()> {
    fuse::remount(mount_point, options).map_err(|error| failure::mount(&error))
}

/// The mount point, without symbolic links.
fn mount_point(args: &MountArgs) -> Result<PathBuf> {
    std::fs::canonicalize(&args.mnt)
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => failure::mount(&fuse::MountError::Missing(args.mnt.clone())),
            _ => failure::io("mount on", &args.mnt, &error),
        })
        .or_else(|failure| dead_mount(&args.mnt).ok_or(failure))
}

/// The directory that `VOLDIR:/inner` names; `None` for the root, and for an argument that names
/// no such directory.
fn inner(voldir: &Path) -> Result<Option<PathBuf>> {
    let Some(place) = VolumePath::split(voldir) else { return Ok(None) };
    let inner = place?.inner;
    let below = inner.iter().position(|&byte| byte != b'/');
    let below = below.map(|at| PathBuf::from(OsStr::from_bytes(&inner[at..])));
    Ok(below.map(|path| path.components().collect()))
}

/// The directory to mount, as an option: the one named behind the volume, unless the options name
/// one, too.
fn subdir(
    args: &MountArgs,
    inner: Option<PathBuf>,
    checked: &mut fuse::MountOptions,
) -> Result<Option<String>> {
    let Some(inner) = inner else { return Ok(None) };
    let wrong = |message: String| {
        let failure = Failure::new(FailureKind::Invalid, message);
        let failure = failure.at(args.voldir.as_os_str().as_bytes());
        Err(failure.hint("name the volume without a path, and give the directory as -o subdir=DIR"))
    };
    if let Some(given) = &checked.subdir {
        let given: PathBuf = given.components().collect();
        if given == inner {
            return Ok(None);
        }
        return wrong(format!("the options name another directory, subdir={}", given.display()));
    }
    let Some(text) = inner.to_str().filter(|text| !text.contains(',')) else {
        return wrong("a path with a comma, or that is not UTF-8, cannot be mounted".to_owned());
    };
    let option = format!("subdir={text}");
    checked.parse(&option).map_err(|error| failure::mount(&error.into()))?;
    Ok(Some(option))
}

/// A mount point whose server died cannot be canonicalised; the mount removes the dead mount.
fn dead_mount(mount_point: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(mount_point).ok()?;
    let found = fuse::find_mount(&absolute)?;
    (found.mount_point == absolute).then_some(absolute)
}

fn print_mounted(output: &mut Output, volume: &Path, mount_point: &Path, pid: u32) -> Result<()> {
    output.object(&json!({
        "volume": host::shown(volume),
        "mount_point": mount_point.to_string_lossy(),
        "pid": pid,
    }))?;
    let (volume, mount_point) = (host::shown(volume), mount_point.display());
    output.line(&format!("mounted {volume} on {mount_point} (pid {pid})"))
}

/// Remarks that other users may not use the mount of an index, although root's mounts let them.
fn remark_if_alone(
    output: &mut Output,
    volume: &Path,
    args: &MountArgs,
    checked: &fuse::MountOptions,
) {
    let may_be = checked.allow_other && !access::names_who(&args.options);
    if may_be
        && !access::is_open_to_all(volume)
        && let Ok(Answer::ScanInfo(Some(_))) = session::ask(volume, &Call::ScanInfo)
    {
        output.remark(&format!(
            "{} is an index that is not open to every user: the mount is for you alone\n       \
             `-o allow_other` lets others in",
            volume.display()
        ));
    }
}

/// Warns that a volume is read-only although nobody requested that: damage blocks changes.
fn warn_if_read_only(output: &mut Output, volume: &Path) -> Result<()> {
    // The volume is mounted in any case.
    let Ok(Answer::Status(status)) = session::ask(volume, &Call::Status) else { return Ok(()) };
    match status.read_only {
        Some(why) => output.line(&format!("READ-ONLY   {why}")),
        None => Ok(()),
    }
}
