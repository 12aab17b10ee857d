//! How a store is opened: what a user chooses, and what the process gives.

use std::sync::Arc;
use std::time::Duration;

use device::{Blobs, Clock, Random, SystemClock, SystemConfig, SystemRandom, UserConfig};

use crate::traffic::Traffic;

/// How requests name the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// In the host's name at Amazon, in the path elsewhere.
    #[default]
    Auto,
    /// In the path: `http://server/bucket/name`.
    Path,
    /// In the host's name: `http://bucket.server/name`.
    VirtualHost,
}

/// How opening tests that of several clients that create one name only one succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Probe {
    /// Sixteen clients race for each of five names, through every endpoint, and the rules of the
    /// bucket are checked. Done when a volume is made, and at a host's first opening.
    Race,
    /// One object is created twice.
    #[default]
    Trust,
}

/// What a user chooses. The default takes all from the environment and the files of AWS's tools.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Servers' addresses, such as `https://store.example:9000`. The first one serves; a racing
    /// probe uses all.
    pub endpoints: Vec<String>,
    /// The region that requests are signed for.
    pub region: Option<String>,
    /// How requests name the bucket.
    pub style: Style,
    /// The profile in the files of AWS's tools.
    pub profile: Option<String>,
    /// A file of the certificates that sign the server's, in PEM.
    pub ca_bundle: Option<String>,
    /// Maximum time without sent or received data, after which a request is repeated.
    pub silence: Duration,
    /// Maximum time over all repeats of a request.
    pub deadline: Duration,
    /// Uses a shared directory on a file system that is not tested.
    pub any_file_system: bool,
    /// How the store is tested.
    pub probe: Probe,
}

impl Settings {
    /// The default `silence`.
    pub const SILENCE: Duration = Duration::from_secs(30);
    /// The default `deadline`.
    pub const DEADLINE: Duration = Duration::from_secs(60);
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            endpoints: Vec::new(),
            region: None,
            style: Style::Auto,
            profile: None,
            ca_bundle: None,
            silence: Settings::SILENCE,
            deadline: Settings::DEADLINE,
            any_file_system: false,
            probe: Probe::Trust,
        }
    }
}

/// What the process gives.
#[derive(Clone)]
pub struct Seams {
    /// Pauses between repeats.
    pub clock: Arc<dyn Clock>,
    /// Names of probes, and the length of pauses.
    pub random: Arc<dyn Random>,
    /// Environment variables and configuration files.
    pub config: Arc<dyn UserConfig>,
}

impl Seams {
    /// Those of the operating system.
    pub fn system() -> Seams {
        Seams {
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom),
            config: Arc::new(SystemConfig),
        }
    }
}

/// An open store.
pub struct Opened {
    /// The objects.
    pub blobs: Arc<dyn Blobs>,
    /// The same objects, for requests that must be answered soon or fail: signs of life.
    pub soon: Arc<dyn Blobs>,
    /// The requests so far, and whether the store answers.
    pub traffic: Arc<Traffic>,
    /// What a user should know: rules of the bucket that cost money or space.
    pub warnings: Vec<String>,
}
