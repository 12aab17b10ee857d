//! The daemon of a volume that is served to other machines: what it passes to the server, and what
//! its clients may not ask of a daemon.

use std::sync::Arc;

use fs::FileSystem;
use remote::Export;
use wire::{Call, Failure, FailureKind};

use super::ServeStart;
use super::about::Answered;
use super::server::Server;

/// A volume that is served; dropping this ends the sessions of its clients.
pub(super) struct Exported(ServeStart);

impl Drop for Exported {
    fn drop(&mut self) {
        self.0.server.remove(&self.0.name);
    }
}

/// Serves a volume from now on.
pub(super) fn export(
    serve: &ServeStart,
    fs: Arc<dyn FileSystem>,
    server: &Arc<Server>,
) -> Answered<Exported> {
    let daemon = Arc::downgrade(server);
    let control = move |caller| match daemon.upgrade() {
        Some(daemon) => daemon.admit_far(caller),
        None => Err(std::io::ErrorKind::NotConnected.into()),
    };
    let export = Export { name: serve.name.clone(), fs, control: Box::new(control) };
    if serve.server.add(export) {
        return Ok(Exported(serve.clone()));
    }
    let message = format!("another volume is served as {}", serve.name);
    Err(Failure::new(FailureKind::Exists, message))
}

/// Refuses what only commands on the daemon's own machine may ask: they name its processes, its
/// mounts and its directories, or keep it busy for everybody.
pub(super) fn check(call: &Call<'_>) -> Answered<()> {
    let what = match call {
        Call::HandOver | Call::ServesMount { .. } => "ending or asking about its daemon",
        Call::Sessions | Call::SessionEnd { .. } => "sessions of its daemon",
        Call::ScanOpen { .. } | Call::Scan { .. } | Call::ScanFlush => "updates of an index",
        Call::Check => "a check",
        Call::Collect { .. } => "a collection",
        _ => return Ok(()),
    };
    let message = format!("{what}: not over a network");
    Err(Failure::new(FailureKind::NotSupported, message).hint("run the command on the server"))
}
