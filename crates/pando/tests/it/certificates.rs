//! Certificates of a cluster, and commands that run with one of them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use device::{Clock, SystemClock, Timestamp};
use rpc::certificates::{Authority, For};

use crate::world::{PANDO, World};

/// A directory of certificates in a world's.
pub(crate) struct Certificates<'a> {
    world: &'a World,
    directory: PathBuf,
}

impl Certificates<'_> {
    /// Those of a server on this machine, and of a client, with these options.
    pub(crate) fn new<'a>(world: &'a World, client: &str, options: &[&str]) -> Certificates<'a> {
        let made = Certificates { world, directory: world.path().join("certs") };
        made.add(client, &[&["--server", "127.0.0.1"], options].concat());
        made
    }

    /// One more client.
    pub(crate) fn add(&self, client: &str, options: &[&str]) {
        let directory = self.directory.to_str().unwrap();
        let words = ["cluster", "certs", directory, "--client", client];
        self.world.ok(&[&words, options].concat());
    }

    /// One more client, whose certificate has expired days ago.
    pub(crate) fn add_expired(&self, client: &str) {
        let grant = rpc::Grant { keeps_root: true, ..rpc::Grant::all() };
        self.days_ago().make(client, &For::Client(&grant), 1).unwrap();
    }

    /// Replaces the server's certificate by one that has expired.
    pub(crate) fn expire_server(&self) {
        for name in ["server.pem", "server.key"] {
            fs::remove_file(self.file(name)).unwrap();
        }
        let names = ["127.0.0.1".to_owned()];
        self.days_ago().make("server", &For::Server(&names), 1).unwrap();
    }

    /// The authority as it was days ago.
    fn days_ago(&self) -> Authority {
        let now = SystemClock::new().now().0 - 3 * 86_400_000_000_000;
        Authority::in_directory(&self.directory, Timestamp(now)).unwrap()
    }

    /// The directory of a machine that has the certificate of a client.
    pub(crate) fn directory_of(&self, client: &str) -> PathBuf {
        let own = self.world.path().join(client);
        if !own.exists() {
            fs::create_dir(&own).unwrap();
            fs::copy(self.file("ca.pem"), own.join("ca.pem")).unwrap();
            for end in ["pem", "key"] {
                let from = self.file(&format!("{client}.{end}"));
                fs::copy(from, own.join(format!("client.{end}"))).unwrap();
            }
        }
        own
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    /// The options of `pando serve`.
    pub(crate) fn of_server(&self) -> [String; 6] {
        let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|name| self.file(name));
        ["--cert".to_owned(), cert, "--key".to_owned(), key, "--ca".to_owned(), ca]
    }

    /// The files of a client.
    pub(crate) fn files(&self, client: &str) -> rpc::Files {
        let [certificate, key, authority] =
            [&format!("{client}.pem"), &format!("{client}.key"), "ca.pem"]
                .map(|name| self.directory.join(name));
        rpc::Files { certificate, key, authority }
    }

    /// Runs a command as a machine that has the certificate of a client; whether it succeeds, and
    /// what it reports.
    pub(crate) fn run(&self, client: &str, arguments: &[&str]) -> (bool, String) {
        let own = self.directory_of(client);
        let mut command = Command::new(PANDO);
        let command = command.args(arguments).env("PANDO_CERTS", &own).stdin(Stdio::null());
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
