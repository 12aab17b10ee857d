//! A volume in a temporary directory, a mount point beside it, and the binary to use with them.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use device::{Clock, SystemClock};
use serde_json::Value;
use tempfile::TempDir;

use crate::limits::{self, LONGEST, Limited};

/// The binary under test.
pub(crate) const PANDO: &str = env!("CARGO_BIN_EXE_pando");

/// What [`World::on`] takes for a volume in an object store, instead of an engine.
pub(crate) const OBJECTS: &str = "objects";

/// How long a daemon stays without a request, in seconds. A test that asks for its process ID must
/// not pause for this long between two commands. The daemon is ended with its world.
pub(crate) const IDLE_SECONDS: &str = "600";

/// How long a test waits for something that must happen soon, on a slow and busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// An ordinary user.
pub(crate) const NOBODY: u32 = 65534;

/// A volume, and where it may be mounted. Mounts and daemons end with it.
pub(crate) struct World {
    directory: TempDir,
    /// Its directory; that of this host, if the volume is in an object store.
    pub(crate) volume: PathBuf,
    /// Its URL, if it is in an object store.
    pub(crate) url: Option<String>,
    pub(crate) mount_point: PathBuf,
    /// Kills its processes if its test never ends.
    _limited: Limited,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The engines of a test whose claim is of what is above them: one, or with `PANDO_SLOW` both.
pub(crate) fn engines(one: &'static str) -> Vec<&'static str> {
    if testing::run::slow() { vec!["btree", "lsm"] } else { vec![one] }
}

impl World {
    /// A fresh volume.
    pub(crate) fn new() -> World {
        let world = World::without_volume();
        world.ok(&["format", world.volume.to_str().unwrap()]);
        world
    }

    /// The same on an engine.
    pub(crate) fn on(engine: &str) -> World {
        if engine == OBJECTS {
            return World::in_store();
        }
        let world = World::without_volume();
        world.format(engine);
        world
    }

    /// A fresh volume in an object store: a directory that hosts share.
    pub(crate) fn in_store() -> World {
        let mut world = World::without_volume();
        let store = world.path().join("store");
        std::fs::create_dir(&store).unwrap();
        let url = format!("file://{}", store.display());
        world.ok(&["format", &url]);
        let mut hosts = std::fs::read_dir(world.hosts()).unwrap();
        world.volume = hosts.next().expect("a host directory").unwrap().path();
        world.url = Some(url);
        world
    }

    /// The directory of the host's directories of volumes in object stores.
    pub(crate) fn hosts(&self) -> PathBuf {
        self.path().join("hosts")
    }

    /// Loses the host: its daemon dies, and so does everything on its disk.
    pub(crate) fn lose_host(&self) {
        assert!(self.url.is_some(), "the volume is in an object store");
        if let Some(pid) = self.daemon().filter(|&pid| is_alive(pid)) {
            signal(pid, rustix::process::Signal::KILL);
            wait_until("the daemon is gone", || !is_alive(pid));
        }
        if self.volume.exists() {
            std::fs::remove_dir_all(&self.volume).unwrap();
        }
    }

    /// Creates the volume.
    pub(crate) fn format(&self, engine: &str) {
        self.ok(&["format", "--engine", engine, self.vol()]);
    }

    /// The same without the volume.
    pub(crate) fn without_volume() -> World {
        World::below(&std::env::temp_dir())
    }

    /// The same somewhere else.
    pub(crate) fn below(place: &Path) -> World {
        let directory = tempfile::Builder::new().prefix("pando-it-").tempdir_in(place).unwrap();
        // Other users must be able to reach its contents.
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let volume = directory.path().join("volume");
        let mount_point = directory.path().join("mnt");
        std::fs::create_dir(&mount_point).unwrap();
        let limited = Limited::world(directory.path());
        World { directory, volume, url: None, mount_point, _limited: limited }
    }

    /// The directory that everything is in.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A new directory beside the volume, for what is imported.
    pub(crate) fn source(&self) -> PathBuf {
        let source = self.path().join("source");
        std::fs::create_dir(&source).unwrap();
        source
    }

    /// A path argument inside the volume.
    pub(crate) fn at(&self, inner: &str) -> String {
        format!("{}:{inner}", self.vol())
    }

    /// The volume as an argument: its directory, or its URL.
    pub(crate) fn vol(&self) -> &str {
        self.url.as_deref().unwrap_or_else(|| self.volume.to_str().unwrap())
    }

    /// The mount point as an argument.
    pub(crate) fn mnt(&self) -> &str {
        self.mount_point.to_str().unwrap()
    }

    /// A path below the mount.
    pub(crate) fn below_mount(&self, inner: &str) -> PathBuf {
        self.mount_point.join(inner.trim_start_matches('/'))
    }

    /// The command, not started.
    pub(crate) fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
        let mut command = Command::new(PANDO);
        command.args(arguments).env("PANDO_IDLE_SECONDS", IDLE_SECONDS).stdin(Stdio::null());
        command
    }

    /// Runs the binary, which must end at some time. If one waits forever, its test fails with the
    /// daemon's log, and the whole run does not hang silently.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Answer {
        let mut command = World::command(arguments);
        command.env("PANDO_HOST_DIRECTORY", self.hosts());
        // Ctrl-C on a terminal ends the tests, which then end what they started.
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let limited = Limited::command(child.id().cast_signed());
        let output = child.wait_with_output().unwrap();
        assert!(!limited.end(), "not within {LONGEST:?}");
        answer(&output)
    }

    /// Runs the binary, which must succeed; returns what it printed.
    pub(crate) fn ok<S: AsRef<OsStr> + std::fmt::Debug>(&self, arguments: &[S]) -> String {
        let answer = self.run(arguments);
        assert_eq!(answer.code, 0, "{arguments:?}: {}", answer.err);
        answer.out
    }

    /// Runs the binary, which must fail with this code; returns its message.
    pub(crate) fn fails<S: AsRef<OsStr> + std::fmt::Debug>(
        &self,
        code: i32,
        arguments: &[S],
    ) -> String {
        let answer = self.run(arguments);
        assert_eq!(answer.code, code, "{arguments:?}: {} {}", answer.out, answer.err);
        assert!(answer.err.starts_with("pando: "), "{arguments:?}: {:?}", answer.err);
        answer.err
    }

    /// Runs a verb with `--json`, and parses each line.
    pub(crate) fn json<S: AsRef<OsStr> + std::fmt::Debug>(&self, arguments: &[S]) -> Vec<Value> {
        let mut all: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
        all.push(OsStr::new("--json"));
        self.ok(&all).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The status of the volume.
    pub(crate) fn status(&self) -> Value {
        self.json(&["status", self.vol()]).remove(0)
    }

    /// The names in a directory, as `ls -a` lists them.
    pub(crate) fn names(&self, inner: &str) -> Vec<String> {
        let listed = self.ok(&["ls", "-a", &self.at(inner)]);
        listed.lines().map(str::to_owned).collect()
    }

    /// Mounts the volume, which must work; `false` if the machine is known not to mount.
    pub(crate) fn mount(&self) -> bool {
        self.mount_with(&[])
    }

    /// The same, with options.
    #[expect(clippy::print_stdout, reason = "prints what is not tested")]
    pub(crate) fn mount_with(&self, options: &[&str]) -> bool {
        if let Some(reason) = reason("SKIP_FUSE") {
            println!("not tested through a mount: SKIP_FUSE={reason}");
            return false;
        }
        let mut arguments = vec!["mount", self.vol(), self.mnt()];
        arguments.extend(options);
        self.ok(&arguments);
        true
    }

    /// Unmounts it again.
    pub(crate) fn umount(&self) {
        self.ok(&["umount", self.mnt()]);
    }

    /// The process ID of the volume's daemon.
    pub(crate) fn daemon(&self) -> Option<i32> {
        let text = std::fs::read_to_string(self.volume.join("owner.lock")).ok()?;
        text.trim().parse().ok()
    }

    /// Ends the daemon, if there is one, and waits until it has closed the volume.
    pub(crate) fn close(&self) {
        if let Some(pid) = self.daemon().filter(|&pid| is_alive(pid)) {
            signal(pid, rustix::process::Signal::TERM);
            wait_until("the daemon ends", || !is_alive(pid));
        }
    }

    /// The regular files of the volume directory, and below.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        fn below(directory: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    below(&path, found);
                } else if path.is_file() {
                    found.push(path);
                }
            }
        }
        let mut found = Vec::new();
        below(&self.volume, &mut found);
        found
    }

    /// Kills the daemon like a crash, and waits until it is gone.
    pub(crate) fn kill_daemon(&self) {
        let pid = self.daemon().expect("a daemon");
        signal(pid, rustix::process::Signal::KILL);
        wait_until("the daemon is gone", || !is_alive(pid));
    }
}

impl Drop for World {
    #[expect(clippy::print_stdout, reason = "what the daemon of a failed test printed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.volume.join("owner.log")).unwrap_or_default();
            println!("the daemon's log:\n{log}");
        }
        for _ in 0..4 {
            // Once for each mount; nothing more can be done for a failed test.
            let mounted = fuse::find_mount(&self.mount_point)
                .is_some_and(|found| found.mount_point == self.mount_point);
            if !mounted || fuse::unmount(&self.mount_point, fuse::InUse::Detached).is_err() {
                break;
            }
        }
        if let Some(pid) = self.daemon()
            && is_alive(pid)
        {
            signal(pid, rustix::process::Signal::TERM);
            let clock = SystemClock::new();
            while is_alive(pid) && clock.monotonic() < Duration::from_secs(10) {
                clock.sleep(Duration::from_millis(5));
            }
        }
        // What a test left, such as the daemon of another host: it would wait for a store that is
        // gone as long as it lives.
        limits::kill_all_of(self.path(), |_| ());
    }
}

/// The result of a finished command.
pub(crate) fn answer(output: &Output) -> Answer {
    Answer {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Sends a signal; the process may be gone. It must not ignore SIGINT: a shell without job control
/// lets its background jobs do so, and the test would wait forever.
pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    if signal == rustix::process::Signal::INT {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let is_ignored = ignored.is_some_and(|mask| mask & 1 << (signal.as_raw() - 1) != 0);
        assert!(!is_ignored, "{pid} ignores SIGINT: run the tests in the foreground, or `set -m`");
    }
    let process = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(process, signal).unwrap_or_default();
    if signal == rustix::process::Signal::STOP {
        // One thread takes the signal and stops the others: until it gets a processor, they run on.
        wait_until("all threads have stopped", || {
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
            let state = |thread: std::fs::DirEntry| {
                let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
                stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next())
            };
            threads.flatten().filter_map(state).all(|state| matches!(state, 'T' | 'Z' | 'X'))
        });
    }
}

/// Whether a process runs, that is, any of its threads: the first may end before those that still
/// hold the process's files.
pub(crate) fn is_alive(pid: i32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    tasks.flatten().any(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, after)| after.chars().next());
        !matches!(state, None | Some('Z' | 'X'))
    })
}

/// Function of a shell in a mount namespace of its own: unmounts there what other tests mounted,
/// except for one. A copy of a mount keeps its daemon, and a test beside this could not unmount.
pub(crate) const LEAVE_OTHER_MOUNTS: &str = r#"
leave_other_mounts() {
  while read -r _ at type _; do
    [ "$type" != fuse.pando ] || [ "$at" = "${1:-}" ] || umount -l "$at" 2> /dev/null || true
  done < /proc/self/mounts
}
"#;

/// Waits for something that must happen soon. What takes long to ask is asked less often: a
/// command each five milliseconds would take a processor for as long as the wait lasts.
pub(crate) fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    loop {
        let before = clock.monotonic();
        if happened() {
            return;
        }
        let now = clock.monotonic();
        assert!(now < PATIENCE, "not within {PATIENCE:?}: {what}");
        let pause = 4 * now.saturating_sub(before);
        clock.sleep(pause.clamp(Duration::from_millis(5), Duration::from_millis(150)));
    }
}

/// A copy of the binary that other users can reach. Another process creates it. A file that this
/// process has open for writing is also open in any process that another test starts just then.
/// Such a file cannot be executed.
pub(crate) fn copy_program(to: &Path) {
    assert!(Command::new("cp").arg(PANDO).arg(to).status().unwrap().success());
    std::fs::set_permissions(to, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Whether tests may become other users and mount.
#[expect(clippy::print_stdout, reason = "prints what is not tested")]
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let reason = reason("SKIP_ROOT").or_else(|| reason("SKIP_FUSE")).expect(
            "this takes root: run the tests as root, or set SKIP_ROOT=REASON where that cannot be",
        );
        println!("not tested: it takes root ({reason})");
    }
    root
}

/// Why something is not tested, if the variable gives a reason; an empty one gives none.
pub(crate) fn reason(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|reason| !reason.is_empty())
}
