//! Starts a daemon in the background: this program again, with the hidden verb `daemon`, which
//! first reports on its standard output how the start went.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

use client::Launch;
use device::LocalDevice;

use crate::environment;
use crate::failure::Result;

/// The daemon's log in the volume directory.
pub(crate) const LOG_FILE: &str = "owner.log";

/// When a log is longer than this, a new daemon truncates it.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// How long a daemon without a mount stays idle, in seconds, unless `PANDO_IDLE_SECONDS` sets it.
const IDLE_SECONDS: &str = "30";

/// Starts a daemon; `extra` are additional arguments.
pub(crate) fn daemon(volume: &Path, extra: &[OsString]) -> Result<Launch> {
    environment::check(extra)?;
    let program = std::env::current_exe().map_err(|error| Launch::not_started(&error))?;
    let idle = std::env::var_os(environment::IDLE_SECONDS).unwrap_or_else(|| IDLE_SECONDS.into());
    let mut child = Command::new(program)
        .arg("daemon")
        .arg("--idle-seconds")
        .arg(idle)
        .args(extra)
        .arg(OsStr::new("--"))
        .arg(volume)
        // The daemon outlives the command: it must not keep the command's directory busy.
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file(volume))
        .spawn()
        .map_err(|error| Launch::not_started(&error))?;
    let mut report = child.stdout.take().expect("invariant: standard output is piped");
    let launch = Launch::read(&mut report);
    if !matches!(launch, Launch::Ready { .. }) {
        // It ends by itself; waiting leaves no zombie behind.
        child.wait().map_err(|error| Launch::not_started(&error))?;
    }
    Ok(launch)
}

/// The log; `/dev/null` when it cannot be written, because that must not keep a volume from
/// opening.
fn log_file(volume: &Path) -> Stdio {
    let opened = LocalDevice::open(volume).and_then(|it| it.append(LOG_FILE, LOG_BYTES_MAX));
    opened.map_or_else(|_| Stdio::null(), Stdio::from)
}
