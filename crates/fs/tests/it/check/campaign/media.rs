//! The disks of a volume: one, or one more for the log.

use std::sync::Arc;

use device::{Device, Env};
use testing::{CrashPolicy, SimDevice, SplitDevice};

/// The disks that store a volume.
#[derive(Clone)]
pub(crate) struct Media {
    pub(crate) volume: SimDevice,
    /// That of the log, where it has one of its own.
    pub(crate) log: Option<SimDevice>,
}

impl Media {
    pub(crate) fn new(seed: u64, log_elsewhere: bool) -> Media {
        // A repair opens the volume with options of its own: the disks report a small size, so
        // that its log is.
        let small = |seed| {
            let device = SimDevice::new(seed);
            device.state_size(16 << 20);
            device
        };
        Media { volume: small(seed), log: log_elsewhere.then(|| small(!seed)) }
    }

    pub(crate) fn device(&self) -> Arc<dyn Device> {
        match &self.log {
            None => Arc::new(self.volume.clone()),
            Some(log) => Arc::new(SplitDevice { volume: self.volume.clone(), log: log.clone() }),
        }
    }

    pub(crate) fn env(&self) -> Env {
        Env { device: self.device(), ..testing::sim_env(1).env() }
    }

    /// The disk that a file is on.
    pub(crate) fn of(&self, path: &str) -> &SimDevice {
        match &self.log {
            Some(log) if path.starts_with("log/") => log,
            _ => &self.volume,
        }
    }

    /// The same bytes; nothing is open.
    pub(crate) fn copy(&self) -> Media {
        Media { volume: self.volume.copy(), log: self.log.as_ref().map(SimDevice::copy) }
    }

    /// As a power cut now would leave it.
    pub(crate) fn after_crash(&self, policy: CrashPolicy, seed: u64) -> Media {
        let after = |device: &SimDevice| device.after_crash(policy, seed);
        Media { volume: after(&self.volume), log: self.log.as_ref().map(after) }
    }

    pub(crate) fn files(&self) -> Vec<(String, u64)> {
        let mut all = self.volume.files();
        all.extend(self.log.iter().flat_map(SimDevice::files));
        all.sort();
        all
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.files().iter().any(|(name, _)| name == path)
    }

    pub(crate) fn read(&self, path: &str) -> Vec<u8> {
        self.of(path).read_file(path)
    }
}
