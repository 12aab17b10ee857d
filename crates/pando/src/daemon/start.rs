//! What a daemon is started to do.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use standby::Mandate;

use super::record::TraceStart;
use crate::host::TakeOver;
use crate::metrics::Hub;
use crate::serve_memory::OfVolume;

/// How long open files may delay the end of a mount after a signal.
pub(super) const LAZY_PATIENCE: Duration = Duration::from_secs(5);

/// What a daemon is started to do.
#[derive(Clone)]
pub(crate) struct Start {
    /// The volume directory.
    pub(crate) volume: PathBuf,
    /// Where to mount it, if at all.
    pub(crate) mount: Option<MountStart>,
    /// Memory for cached nodes, in bytes, unless the mount's options set it.
    pub(crate) cache_bytes: Option<u64>,
    /// Memory for the index, in bytes; 0 disables the index.
    pub(crate) index_bytes: Option<u64>,
    /// How long an unmounted daemon stays without a request; `None` means for ever.
    pub(crate) idle: Option<Duration>,
    /// Where to answer scrapes of metrics, if at all.
    pub(crate) metrics: Option<SocketAddr>,
    /// Where to record the calls of the mount, if at all.
    pub(crate) trace: Option<TraceStart>,
    /// Whether to replace a daemon on another host.
    pub(crate) take_over: TakeOver,
    /// The server to serve it by, if other machines are to use it.
    pub(crate) serve: Option<ServeStart>,
}

/// How a volume is served to other machines.
#[derive(Clone)]
pub(crate) struct ServeStart {
    /// The server.
    pub(crate) server: Arc<remote::Server>,
    /// What its clients call the volume.
    pub(crate) name: String,
    /// Lists of options, comma-separated.
    pub(crate) options: Vec<String>,
    /// The metrics of the server, if it has any.
    pub(crate) metrics: Option<Arc<Hub>>,
    /// What the volume may take of the server's memory, beside caches.
    pub(crate) memory: OfVolume,
    /// Whether this server should own the volume, if other servers can take it over.
    pub(crate) mandate: Option<Arc<dyn Mandate>>,
}

impl Start {
    /// The same for a volume that this server should own until it is deposed: it replaces whatever
    /// process had it, for the servers have agreed.
    pub(crate) fn served_while(self, mandate: Arc<dyn Mandate>) -> Start {
        let serve = self.serve.map(|serve| ServeStart { mandate: Some(mandate), ..serve });
        Start { take_over: TakeOver::Agreed, serve, ..self }
    }

    /// The purpose for which the volume is opened, if that needs the volume alone.
    pub(super) fn uses_alone(&self) -> Option<&'static str> {
        match (&self.mount, &self.serve) {
            (Some(_), _) => Some("a mount"),
            (None, Some(_)) => Some("a server"),
            (None, None) => None,
        }
    }
}

/// A mount to make.
#[derive(Debug, Clone)]
pub(crate) struct MountStart {
    /// Where.
    pub(crate) mount_point: PathBuf,
    /// Whether the caller waits for the end of the daemon.
    pub(crate) foreground: bool,
    /// Lists of options, comma-separated.
    pub(crate) options: Vec<String>,
}

/// What a mount and its daemon were started with.
pub(super) struct Settings {
    options: fuse::MountOptions,
    index: Option<u64>,
    metrics: Option<SocketAddr>,
    traces: bool,
}

impl Settings {
    /// Those of a daemon, with the options of its mount.
    pub(super) fn of(start: &Start, options: &fuse::MountOptions) -> Settings {
        Settings {
            options: with_cache(options.clone(), start.cache_bytes),
            index: start.index_bytes,
            metrics: start.metrics,
            traces: start.trace.is_some(),
        }
    }

    /// Those that a mount asks for.
    pub(super) fn asked(
        options: fuse::MountOptions,
        cache: Option<u64>,
        (index, metrics, traces): (Option<u64>, Option<SocketAddr>, bool),
    ) -> Settings {
        Settings { options: with_cache(options, cache), index, metrics, traces }
    }

    /// The options of the mount.
    pub(super) fn options(&self) -> &fuse::MountOptions {
        &self.options
    }

    /// The first setting that differs, under the name that `pando mount` gives it.
    pub(super) fn difference(&self, other: &Settings) -> Option<&'static str> {
        let Settings { options, index, metrics, traces } = self;
        let same = [
            ("--index-cache", *index == other.index),
            ("--metrics", *metrics == other.metrics),
            // One trace is of one mount.
            ("--trace", !traces && !other.traces),
        ];
        let first = || same.into_iter().find(|(_, same)| !same).map(|(name, _)| name);
        options.difference(&other.options).or_else(first)
    }
}

/// `cache-size` and `--cache-size` are the same.
fn with_cache(mut options: fuse::MountOptions, cache: Option<u64>) -> fuse::MountOptions {
    options.cache_bytes = options.cache_bytes.or(cache);
    options
}
