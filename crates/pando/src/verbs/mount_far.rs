//! `pando mount pando://HOST/VOLUME MNT`: mounts a volume of a server. The process that serves the
//! mount has no volume open; it asks the server about everything.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use client::{Launch, LaunchReport};
use device::{Clock, SystemClock, SystemNet};
use remote::{Remote, RemoteFs};
use serde_json::json;
use vfs::FileSystem;
use wire::{Failure, FailureKind};

use crate::cli::{FarMountArgs, MountArgs};
use crate::failure::{self, Result};
use crate::far;
use crate::output::Output;
use crate::owner::detach;

/// Threads that read requests of the kernel; others wait for the server.
const THREADS: usize = 4;
/// How long open files may delay the end after a signal.
const LAZY_PATIENCE: Duration = Duration::from_secs(5);

/// Mounts, in the background unless asked to stay.
pub(crate) fn run(
    args: &MountArgs,
    url: (PathBuf, Vec<u8>),
    mount_point: &Path,
    output: &mut Output,
) -> Result<()> {
    let (volume, inner) = url;
    refuse(args)?;
    let mut options = args.options.clone();
    if inner.iter().any(|&byte| byte != b'/') {
        let inner = String::from_utf8(inner).ok().filter(|inner| !inner.contains(','));
        let inner = inner.ok_or_else(|| {
            let message = "a path with a comma, or that is not UTF-8, cannot be mounted";
            Failure::new(FailureKind::Invalid, message)
                .hint("mount a directory above it, or rename it")
        })?;
        options.push(format!("subdir={}", inner.trim_matches('/')));
    }
    options_of(&volume, mount_point, &options)?;
    if args.foreground {
        return serve(&volume, mount_point, &options, &mut |pid| {
            print_mounted(output, &volume, mount_point, pid).and_then(|()| output.flush())
        });
    }
    let mut arguments: Vec<OsString> = vec!["far-mount".into()];
    for option in &options {
        arguments.extend(["-o".into(), OsString::from(option)]);
    }
    arguments.extend(["--".into(), volume.clone().into(), mount_point.into()]);
    let (log, log_path) = log(mount_point);
    let program = std::env::current_exe().map_err(|error| Launch::not_started(&error))?;
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|error| Launch::not_started(&error))?;
    let mut report = child.stdout.take().expect("invariant: standard output is piped");
    match Launch::read(&mut report) {
        Launch::Ready { pid } => {
            print_mounted(output, &volume, mount_point, pid)?;
            if let Some(path) = log_path {
                output.remark(&format!("its log is {}", path.display()));
            }
            Ok(())
        }
        Launch::Failed(failure) => {
            child.wait().map_err(|error| Launch::not_started(&error))?;
            Err(failure)
        }
        Launch::Taken => unreachable!("invariant: no other process has a far mount"),
    }
}

/// The process in the background.
pub(crate) fn background(args: &FarMountArgs) -> Result<()> {
    detach::leave_session();
    let mut report = LaunchReport::new(std::io::stdout());
    let ended = serve(&args.volume, &args.mnt, &args.options, &mut |pid| {
        report.send(&Launch::Ready { pid });
        detach::close_report();
        Ok(())
    });
    if let Err(failure) = &ended {
        report.send(&Launch::Failed(failure.clone()));
    }
    ended
}

/// Refuses options that mean nothing here.
fn refuse(args: &MountArgs) -> Result<()> {
    let given = [
        ("--take-over", args.take_over),
        ("--metrics", args.metrics.is_some()),
        ("--trace", args.trace.is_some()),
    ];
    let Some((option, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
    let message = format!("{option} is not for a volume of a server");
    Err(Failure::new(FailureKind::Invalid, message).hint("leave it out"))
}

/// The options of the mount. The kernel keeps no names and attributes, for others change them.
fn options_of(volume: &Path, mount_point: &Path, lists: &[String]) -> Result<fuse::MountOptions> {
    let defaults = fuse::MountOptions::new(volume, mount_point);
    let mut options = fuse::MountOptions {
        attr_timeout: Duration::ZERO,
        entry_timeout: Duration::ZERO,
        negative_timeout: Duration::ZERO,
        threads: THREADS,
        remote: true,
        ..defaults.clone()
    };
    for list in lists {
        options.parse(list).map_err(|error| failure::mount(&error.into()))?;
    }
    let changed = [
        ("attr-timeout", !options.attr_timeout.is_zero()),
        ("entry-timeout", !options.entry_timeout.is_zero()),
        ("negative-timeout", !options.negative_timeout.is_zero()),
        ("cache-size", options.cache_bytes.is_some()),
        ("merge-rate", options.merge_bytes_per_second.is_some()),
        ("small-files", options.small_file_bytes.is_some()),
        ("commit-interval", options.commit_interval.is_some()),
        ("noatime", options.atime != defaults.atime),
        ("trace_opens", options.trace_opens),
    ];
    let Some((option, _)) = changed.into_iter().find(|(_, changed)| *changed) else {
        return Ok(options);
    };
    let message = format!("mount option '{option}' is not for a volume of a server");
    Err(Failure::new(FailureKind::Invalid, message).hint("leave the option out"))
}

/// Connects, mounts, and serves until it is unmounted.
fn serve(
    volume: &Path,
    mount_point: &Path,
    options: &[String],
    ready: &mut dyn FnMut(u32) -> Result<()>,
) -> Result<()> {
    let mut options = options_of(volume, mount_point, options)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let target = far::target(volume)?;
    let remote = Remote::connect(Arc::new(SystemNet), clock, target, None)
        .map_err(|error| far::unreachable(volume, &error))?;
    options.read_only |= remote.is_read_only();
    let fs: Arc<dyn FileSystem> = Arc::new(RemoteFs::new(Arc::clone(&remote)));
    let mount = fuse::mount(fs, &options).map_err(|error| failure::mount(&error));
    let mount = match mount {
        Ok(mount) => Arc::new(mount),
        Err(failure) => {
            remote.end();
            return Err(failure);
        }
    };
    let watched = Arc::clone(&mount);
    let signals = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGHUP,
    ]);
    let mut signals =
        signals.map_err(|error| failure::io("watch signals for", mount_point, &error))?;
    let unmounting = move || {
        if signals.forever().next().is_none() {
            return;
        }
        match watched.unmount() {
            Ok(fuse::Unmounted::Clean) => {}
            Ok(fuse::Unmounted::Lazy) => {
                if watched.wait_for(LAZY_PATIENCE).is_none() {
                    tracing::warn!("ending with open files");
                    std::process::exit(1);
                }
            }
            Err(error) => tracing::warn!(%error, "not unmounted"),
        }
    };
    device::spawn("signals", unmounting).map_err(|error| Launch::not_started(&error))?;
    ready(std::process::id())?;
    let ended = mount.wait().map_err(|error| failure::mount(&error));
    remote.end();
    ended
}

fn print_mounted(output: &mut Output, volume: &Path, mount_point: &Path, pid: u32) -> Result<()> {
    output.object(&json!({
        "volume": volume.to_string_lossy(),
        "mount_point": mount_point.to_string_lossy(),
        "pid": pid,
    }))?;
    let (volume, mount_point) = (volume.display(), mount_point.display());
    output.line(&format!("mounted {volume} on {mount_point} (pid {pid})"))
}

/// Where the process in the background logs: below /run for root, below the user's directory
/// there for others; nowhere if that cannot be.
fn log(mount_point: &Path) -> (Stdio, Option<PathBuf>) {
    let nowhere = || (Stdio::null(), None);
    let above = if rustix::process::geteuid().is_root() {
        PathBuf::from("/run")
    } else {
        match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(above) => PathBuf::from(above),
            None => return nowhere(),
        }
    };
    let directory = above.join("pando");
    if DirBuilder::new().mode(0o700).recursive(true).create(&directory).is_err() {
        return nowhere();
    }
    let name: String =
        mount_point.to_string_lossy().chars().map(|c| if c == '/' { '-' } else { c }).collect();
    let path = directory.join(format!("mount{name}.log"));
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    opened.map_or_else(|_| nowhere(), |file| (Stdio::from(file), Some(path)))
}
