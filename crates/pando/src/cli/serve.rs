//! Serving volumes to other machines, certificates for that, and mounts of such volumes.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use program::{cache_size, index_cache};

use crate::environment::{CACHE_SIZE, INDEX_CACHE};
use crate::metrics;
use crate::serve_memory;

/// The help of `pando serve -o`.
fn serve_options() -> String {
    let names = fuse::names_for_served().join(", ");
    format!("Options of the volumes, comma-separated: {names}, as of `pando mount`")
}

pub(super) const SERVE_HELP: &str = "\
A client reaches a volume as pando://HOST[:PORT]/NAME, with `pando mount` and with verbs. Every
change is durable before it is answered. Clients prove who they are by certificates, which name
the users for whom they may ask (`pando cluster certs`); without --cert, --key and --ca the server
listens on loopback addresses only, to root and to the user who runs it.

While a volume is served here, it has no other mount; mount pando://localhost/NAME instead.

Examples:
  pando serve /data/vol                                  # on this machine: pando://localhost/vol
  pando serve --listen 0.0.0.0:7440 --cert server.pem --key server.key --ca ca.pem \\
      home=/data/home s3://bucket/archive
  pando serve --etcd http://etcd1:2379,http://etcd2:2379 --name files1 --advertise files1:7440 \\
      --listen 0.0.0.0:7440 --cert server.pem --key server.key --ca ca.pem s3://bucket/archive
  # The same with --name files2 on another machine; clients: pando://files1,files2/archive";

pub(super) const CLUSTER_HELP: &str = "\
Examples:
  pando cluster certs /etc/pando/certs --server files.example.org --server 10.0.0.7
  pando cluster certs /etc/pando/certs --client build1 --uids 1000,1001 --gids 1000,100
  pando cluster certs /etc/pando/certs --client backup --keep-root --read-only --volumes home";

/// The port that is listened on, and connected to, unless another is given.
pub(crate) const PORT: u16 = 7440;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Volumes: directories or URLs, each with the name that clients use, unless that is the last
    /// part of it
    #[arg(required = true, value_name = "[NAME=]VOLDIR")]
    pub(crate) volumes: Vec<String>,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7440")]
    pub(crate) listen: SocketAddr,
    /// The server's certificate, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["key", "ca"])]
    pub(crate) cert: Option<PathBuf>,
    /// The private key of the certificate
    #[arg(long, value_name = "FILE", requires_all = ["cert", "ca"])]
    pub(crate) key: Option<PathBuf>,
    /// The certificate of the authority from which certificates of clients must come
    #[arg(long, value_name = "FILE", requires_all = ["cert", "key"])]
    pub(crate) ca: Option<PathBuf>,
    /// Memory of the server, such as 4G, for caches, changes that are not durable yet, and clients;
    /// default: half of all memory
    #[arg(long, value_name = "SIZE", value_parser = serve_memory::parse)]
    pub(crate) memory: Option<u64>,
    /// Part of it for cached nodes of all volumes, such as 512M; default: 7/16
    #[arg(long, value_name = "SIZE", value_parser = cache_size::parse, env = CACHE_SIZE)]
    pub(crate) cache_size: Option<u64>,
    /// Part of it for search indexes of all volumes, such as 80M; 0: none, and searches walk;
    /// default: 1/16
    #[arg(long, value_name = "SIZE", value_parser = index_cache::parse, env = INDEX_CACHE)]
    pub(crate) index_cache: Option<u64>,
    #[arg(short = 'o', value_name = "OPTIONS", help = serve_options())]
    pub(crate) options: Vec<String>,
    /// Serve volumes in object stores that another host has open, or had when it died
    #[arg(long, conflicts_with = "etcd")]
    pub(crate) take_over: bool,
    /// Answer scrapes of Prometheus there: of the server, and of each volume by a label
    #[arg(long, value_name = "HOST:PORT", value_parser = metrics::parse)]
    pub(crate) metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) etcd: EtcdArgs,
}

// How servers agree that take over from each other. (Documentation here would be the help's text of
// the verb.)
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for servers that take over from each other")]
pub(crate) struct EtcdArgs {
    /// Members of etcd, by which servers agree on who serves a volume in an object store
    #[arg(long, value_name = "URL", value_delimiter = ',', requires = "name")]
    pub(crate) etcd: Vec<String>,
    /// The name of this server, unique among the servers of this etcd
    #[arg(long, value_name = "NAME", requires = "etcd")]
    pub(crate) name: Option<String>,
    /// Where clients reach this server; default: where it listens
    #[arg(long, value_name = "HOST:PORT", requires = "etcd")]
    pub(crate) advertise: Option<String>,
    /// The authority of etcd's certificates, in PEM; default: public ones
    #[arg(long, value_name = "FILE", requires = "etcd")]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// The certificate of this program for etcd, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["etcd", "etcd_key"])]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// The private key of that certificate
    #[arg(long, value_name = "FILE", requires_all = ["etcd", "etcd_cert"])]
    pub(crate) etcd_key: Option<PathBuf>,
    /// The user of etcd; its password is in PANDO_ETCD_PASSWORD
    #[arg(long, value_name = "NAME", requires = "etcd")]
    pub(crate) etcd_user: Option<String>,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum ClusterVerb {
    /// Make an authority if there is none, and certificates of servers and clients
    #[command(after_help = CLUSTER_HELP)]
    Certs(CertsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CertsArgs {
    /// Directory of the authority and of what it signs; it is created if it does not exist
    pub(crate) dir: PathBuf,
    /// Names and addresses by which clients reach the server; makes server.pem and server.key
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Vec<String>,
    /// Name of a client; makes NAME.pem and NAME.key
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Option<String>,
    /// Users for whom the client may ask: `all`, or numbers
    #[arg(long, value_name = "UIDS", requires = "client", default_value = "all")]
    pub(crate) uids: String,
    /// Groups that it may name: `all`, or numbers; default: with --uids the same numbers
    #[arg(long, value_name = "GIDS", requires = "client")]
    pub(crate) gids: Option<String>,
    /// One user for whom all calls of the client are made: UID:GID
    #[arg(long, value_name = "UID:GID", requires = "client", conflicts_with_all = ["uids", "gids"])]
    pub(crate) squash_to: Option<String>,
    /// Root of the client is root in the volume; otherwise it is nobody (65534)
    #[arg(long, requires = "client")]
    pub(crate) keep_root: bool,
    /// The client changes nothing
    #[arg(long, requires = "client")]
    pub(crate) read_only: bool,
    /// Volumes that the client may use, by name; default: all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "client")]
    pub(crate) volumes: Vec<String>,
    /// How long certificates of servers and clients are valid
    #[arg(long, value_name = "DAYS", default_value_t = 365)]
    pub(crate) days: u32,
}

#[derive(Debug, Args)]
pub(crate) struct FarMountArgs {
    /// URL of the volume
    pub(crate) volume: PathBuf,
    /// Where to mount it
    pub(crate) mnt: PathBuf,
    /// Record all calls of the mount there
    #[arg(long)]
    pub(crate) trace: Option<PathBuf>,
    /// Longest trace
    #[arg(long, requires = "trace")]
    pub(crate) trace_limit: Option<u64>,
    /// Mount options
    #[arg(long, short = 'o', value_delimiter = ',')]
    pub(crate) options: Vec<String>,
}
