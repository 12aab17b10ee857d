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
use device::{Clock, SystemClock, SystemNet, SystemRandom};
use remote::{Remote, RemoteFs};
use serde_json::json;
use vfs::FileSystem;
use wire::{Failure, FailureKind};

use crate::cli::{FarMountArgs, MountArgs};
use crate::daemon::{self, TraceStart, detach};
use crate::failure::{self, Result};
use crate::far;
use crate::output::Output;

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
    refuse(args, std::env::args_os())?;
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
    let trace = args.trace.as_deref().map(|file| TraceStart::at(file, args.trace_limit));
    let trace = trace.transpose()?;
    if args.foreground {
        return serve((&volume, mount_point), &options, trace.as_ref(), &mut |pid| {
            print_mounted(output, &volume, mount_point, pid).and_then(|()| output.flush())
        });
    }
    let mut arguments: Vec<OsString> = vec!["far-mount".into()];
    for option in &options {
        arguments.extend(["-o".into(), OsString::from(option)]);
    }
    arguments.extend(trace.iter().flat_map(TraceStart::arguments));
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
        Launch::Taken => unreachable!("invariant: no other process has this mount"),
    }
}

/// The process in the background.
pub(crate) fn background(args: &FarMountArgs) -> Result<()> {
    detach::leave_session();
    let mut report = LaunchReport::new(std::io::stdout());
    let trace = args.trace.clone().map(|file| TraceStart { file, limit: args.trace_limit });
    let ended = serve((&args.volume, &args.mnt), &args.options, trace.as_ref(), &mut |pid| {
        report.send(&Launch::Ready { pid });
        detach::close_report();
        Ok(())
    });
    if let Err(failure) = &ended {
        report.send(&Launch::Failed(failure.clone()));
    }
    ended
}

/// Refuses options that mean nothing here. `arguments`: the command line, for the sizes of caches
/// may come from the environment, where they are for other volumes.
fn refuse(args: &MountArgs, arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let sizes = ["--cache-size", "--index-cache"];
    let is_size = |argument: &OsString, size: &str| {
        let rest = argument.as_encoded_bytes().strip_prefix(size.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"="))
    };
    let given: Vec<OsString> = arguments.take_while(|argument| argument != "--").collect();
    let of_caches = sizes.map(|size| (size, given.iter().any(|one| is_size(one, size))));
    let others = [("--take-over", args.take_over), ("--metrics", args.metrics.is_some())];
    let mut all = of_caches.into_iter().chain(others);
    let Some((option, _)) = all.find(|(_, given)| *given) else { return Ok(()) };
    let message = format!("{option} does not apply to a volume of a server");
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
    ];
    let Some((option, _)) = changed.into_iter().find(|(_, changed)| *changed) else {
        return Ok(options);
    };
    let message = format!("mount option '{option}' does not apply to a volume of a server");
    Err(Failure::new(FailureKind::Invalid, message).hint("leave the option out"))
}

/// Connects, mounts, and serves until it is unmounted.
fn serve(
    (volume, mount_point): (&Path, &Path),
    options: &[String],
    trace: Option<&TraceStart>,
    ready: &mut dyn FnMut(u32) -> Result<()>,
) -> Result<()> {
    let mut options = options_of(volume, mount_point, options)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let target = far::target(volume)?;
    let remote = Remote::connect(Arc::new(SystemNet), Arc::clone(&clock), target, None)
        .map_err(|error| far::unreachable(volume, &error))?;
    options.read_only |= remote.is_read_only();
    let fs: Arc<dyn FileSystem> = Arc::new(RemoteFs::new(Arc::clone(&remote)));
    let recorded = daemon::traced(trace, &options, fs, (clock, &SystemRandom));
    let recorded = recorded.inspect_err(|_| remote.end());
    let (fs, recording) = recorded?;
    let mount = fuse::mount(fs, &options).map_err(|error| failure::mount(&error));
    let was_made = mount.is_ok();
    let ended = mount.and_then(|mount| until_unmounted(&Arc::new(mount), mount_point, ready));
    if let Some(recording) = recording {
        recording.end(was_made);
    }
    remote.end();
    ended
}

/// Reports that the mount is there, and waits until it is not, or a signal ends it.
fn until_unmounted(
    mount: &Arc<fuse::Mount>,
    mount_point: &Path,
    ready: &mut dyn FnMut(u32) -> Result<()>,
) -> Result<()> {
    let watched = Arc::clone(mount);
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
    mount.wait().map_err(|error| failure::mount(&error))
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

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::cli::{Cli, Verb};

    fn parsed(more: &[&str]) -> (MountArgs, Vec<OsString>) {
        let line = [&["pando", "mount", "pando://host/vol", "/mnt"], more].concat();
        let matches = Cli::command().try_get_matches_from(&line).unwrap();
        let cli = Cli::from_arg_matches(&matches).unwrap();
        let Verb::Mount(args) = cli.verb else { panic!("another verb") };
        (args, line.into_iter().map(OsString::from).collect())
    }

    /// Each option of `pando mount` is decided here: a new one fails until it is in a list.
    #[test]
    fn each_option_is_used_or_refused() {
        let used = [
            "voldir",
            "mnt",
            "foreground",
            "options",
            "trace",
            "trace_limit",
            "json",
            "quiet",
            "help",
            "version",
        ];
        let refused: [(&str, &[&str]); 4] = [
            ("take_over", &["--take-over"]),
            ("cache_size", &["--cache-size=512M"]),
            ("index_cache", &["--index-cache", "80M"]),
            ("metrics", &["--metrics", "127.0.0.1:9478"]),
        ];
        let mut command = Cli::command();
        // Verbs have their arguments from here on.
        command.build();
        let mount = command.find_subcommand("mount").unwrap();
        for argument in mount.get_arguments() {
            let id = argument.get_id().as_str();
            let words = refused.iter().find(|(name, _)| *name == id).map(|(_, words)| *words);
            assert!(words.is_some() != used.contains(&id), "{id} is in no list");
        }
        for (name, words) in refused {
            let (args, line) = parsed(words);
            let failure = refuse(&args, line.into_iter()).expect_err(name);
            assert!(failure.message.contains("does not apply to a volume of a server"), "{name}");
        }
        let (args, line) = parsed(&["-f", "-o", "ro", "--trace", "/file", "--trace-limit", "1G"]);
        refuse(&args, line.into_iter()).unwrap();
    }

    /// The same of the options of `-o`.
    #[test]
    fn each_mount_option_is_used_or_refused() {
        let used = [
            "ro",
            "rw",
            "allow_other",
            "noallow_other",
            "relatime",
            "subdir=d",
            "sync",
            "async",
            "dirsync",
            "suid",
            "nosuid",
            "dev",
            "nodev",
            "exec",
            "noexec",
            "threads=2",
            "clone_fd",
            "noclone_fd",
            "snapshot-inodes=alike",
            "fsname=x",
            "trace_opens",
        ];
        let refused = [
            "noatime",
            "attr-timeout=1",
            "entry-timeout=1",
            "negative-timeout=1",
            "remount",
            "cache-size=512M",
            "merge-rate=1M",
            "small-files=4K",
            "commit-interval=1",
        ];
        let name = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
        let listed: Vec<String> = used.iter().chain(&refused).map(|option| name(option)).collect();
        for line in fuse::options_help().lines().filter(|line| line.starts_with("  ")) {
            let options = line.trim_start().split("  ").next().unwrap_or_default();
            for option in options.split(", ") {
                assert!(listed.contains(&name(option)), "{option} is in no list");
            }
        }
        let with = |option: &str| {
            options_of(Path::new("pando://host/vol"), Path::new("/mnt"), &[option.to_owned()])
        };
        for option in used {
            with(option).expect(option);
        }
        for option in refused {
            let refused = with(option).expect_err("accepted, and ignored");
            assert_eq!(refused.kind, FailureKind::Invalid, "{option}: {refused:?}");
        }
    }
}
