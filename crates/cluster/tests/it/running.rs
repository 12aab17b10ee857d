//! An etcd that a test starts, and that ends with it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use cluster::{Etcd, EtcdSettings};
use device::SystemClock;

/// The script that starts and ends it.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/etcd.sh");

/// A running etcd.
pub(crate) struct Running {
    directory: tempfile::TempDir,
    pub(crate) url: String,
    port: u16,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A port that was free a moment ago, with the next ones.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let step = NEXT.fetch_add(3, Ordering::Relaxed);
    20_000 + (std::process::id() % 5_000) as u16 * 2 + step
}

impl Running {
    /// `None`: etcd is not installed.
    pub(crate) fn start(options: &str) -> Option<Running> {
        Running::start_as("http", options)
    }

    /// The same with TLS; the options name certificates.
    #[expect(clippy::print_stderr, reason = "a run prints what was not tested")]
    pub(crate) fn start_as(scheme: &str, options: &str) -> Option<Running> {
        if !Command::new(SCRIPT).arg("path").output().expect("bash").status.success() {
            eprintln!("NOT TESTED: etcd, which is not installed (apt-get install etcd-server)");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        for _ in 0..20 {
            let port = port();
            if let Some(url) = begin(directory.path(), port, (scheme, options)) {
                return Some(Running { directory, url, port });
            }
        }
        panic!("etcd does not start");
    }

    pub(crate) fn stop(&self) {
        let stopped = Command::new(SCRIPT).arg("stop").arg(self.directory.path()).status();
        assert!(stopped.expect("bash").success());
    }

    pub(crate) fn start_again(&self) {
        for _ in 0..50 {
            if begin(self.directory.path(), self.port, ("http", "")).is_some() {
                return;
            }
        }
        panic!("etcd does not start again");
    }

    pub(crate) fn coordinator(&self) -> Etcd {
        coordinator(&[&self.url])
    }

    /// Sends a request that the trait has not.
    pub(crate) fn post(&self, path: &str, body: &str) -> String {
        let mut answer = ureq::post(format!("{}/v3/{path}", self.url))
            .send(body)
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        answer.body_mut().read_to_string().expect("text")
    }
}

fn begin(directory: &Path, port: u16, (scheme, options): (&str, &str)) -> Option<String> {
    let started = Command::new(SCRIPT)
        .arg("start")
        .arg(directory)
        .arg(port.to_string())
        .env("ETCD_OPTIONS", options)
        .env("ETCD_SCHEME", scheme)
        .output()
        .expect("bash");
    let url = String::from_utf8(started.stdout).expect("text");
    started.status.success().then(|| url.trim().to_owned())
}

pub(crate) fn coordinator(endpoints: &[&str]) -> Etcd {
    let endpoints = endpoints.iter().map(|&url| url.to_owned()).collect();
    let settings = EtcdSettings { endpoints, ..EtcdSettings::default() };
    Etcd::new(&settings, Arc::new(SystemClock::new()), Duration::from_secs(6)).expect("addresses")
}
