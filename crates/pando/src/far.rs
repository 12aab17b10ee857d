//! Volumes of a server, `pando://HOST[:PORT]/VOLUME[/path]`: how an argument names one, how it is
//! reached, and which verbs do.
//!
//! Such a volume has no directory here. Wherever a volume is named by its directory, its URL
//! without a path replaces that, always with the port.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::Connection;
use device::{Clock, SystemClock, SystemNet};
use remote::{ConnectError, Proof, ServerAddress, Target};
use rpc::{CertificateRefusal, ClientTls, Files};
use wire::remote::Asker;
use wire::{Failure, FailureKind};

use crate::cli::PORT;
use crate::failure::Result;
use crate::loopback;

/// The directory of a client's certificates: `ca.pem`, `client.pem`, `client.key`.
pub(crate) const CERTIFICATES: &str = "PANDO_CERTS";

const SCHEME: &[u8] = b"pando://";

/// Verbs that work over a network.
const VERBS: [&str; 31] = [
    "ls",
    "stat",
    "cat",
    "info",
    "find",
    "du",
    "summary",
    "history",
    "diff",
    "snapshot",
    "clone",
    "rollback",
    "rmr",
    "subvolume",
    "status",
    "sync",
    "trash",
    "restore",
    "quota",
    "import",
    "export",
    "send",
    "receive",
    "dump",
    "load",
    "search",
    "gc",
    "fsck",
    "mount",
    "umount",
    // What `mount` starts.
    "far-mount",
];

/// Whether an argument begins like the URL of a volume of a server.
pub(crate) fn is_url(argument: &OsStr) -> bool {
    argument.as_bytes().starts_with(SCHEME)
}

/// Refuses a verb that does not work over a network, by name.
pub(crate) fn check_verb(arguments: &[std::ffi::OsString]) -> Result<()> {
    let Some(far) = arguments.iter().skip(1).find(|argument| is_url(argument)) else {
        return Ok(());
    };
    let mut words = arguments.iter().skip(1).filter(|word| !word.as_bytes().starts_with(b"-"));
    let verb = words.next().and_then(|verb| verb.to_str()).unwrap_or_default();
    if VERBS.contains(&verb) {
        return Ok(());
    }
    let message = format!("`pando {verb}` does not work over a network");
    let hint = match verb {
        "session" => {
            "run it on the server, with the volume's directory: it shows clients, too, and ends \
             their sessions"
        }
        "index" => {
            "index the tree into a volume on the machine that has the tree, and serve that volume; \
             or `pando import` the tree"
        }
        _ => "run it on the server, or mount the volume and use the files below the mount",
    };
    Err(Failure::new(FailureKind::NotSupported, message).at(far.as_bytes()).hint(hint))
}

/// The URL of the volume, with the port, and the path inside, of an argument that is such a URL.
pub(crate) fn split(argument: &Path) -> Option<Result<(PathBuf, Vec<u8>)>> {
    let rest = argument.as_os_str().as_bytes().strip_prefix(SCHEME)?;
    Some(parse(rest).map_err(|failure| failure.at(argument.as_os_str().as_bytes())))
}

fn invalid(message: &str) -> Failure {
    Failure::new(FailureKind::Invalid, message)
        .hint("expected pando://HOST[:PORT][,HOST[:PORT]...]/VOLUME[/path]")
}

fn parse(rest: &[u8]) -> Result<(PathBuf, Vec<u8>)> {
    let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    let (place, path) = rest.split_at(end);
    let path = path.strip_prefix(b"/").unwrap_or_default();
    let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
    let (volume, inner) = path.split_at(end);
    let place = std::str::from_utf8(place).map_err(|_| invalid("the host is not a name"))?;
    let volume = std::str::from_utf8(volume).unwrap_or_default();
    if !rpc::is_volume_name(volume) {
        return Err(invalid("the URL names no volume"));
    }
    let url = remote::url(&places(place)?, volume);
    let inner = if inner.is_empty() { b"/".to_vec() } else { inner.to_vec() };
    Ok((PathBuf::from(url), inner))
}

/// Where servers of the volume may be: hosts with commas between.
fn places(text: &str) -> Result<Vec<ServerAddress>> {
    let place = |text| {
        host_and_port(text).map(|(host, port)| ServerAddress { host: host.to_owned(), port })
    };
    text.split(',').map(place).collect()
}

fn host_and_port(place: &str) -> Result<(&str, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) =
                rest.split_once(']').ok_or_else(|| invalid("`[` without `]` in the address"))?;
            (host, port.strip_prefix(':'))
        }
        None => match place.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => {
                return Err(invalid("an address with colons is written [ADDRESS]"));
            }
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    if host.is_empty() {
        return Err(invalid("the URL names no host"));
    }
    let port = port.map_or(Ok(PORT), str::parse);
    Ok((host, port.map_err(|_| invalid("the port is not a number"))?))
}

/// The target of a URL of a volume.
pub(crate) fn target(volume: &Path) -> Result<Target> {
    let wrong = || invalid("not a volume of a server").at(volume.as_os_str().as_bytes());
    let text = volume.to_str().and_then(|text| text.strip_prefix("pando://")).ok_or_else(wrong)?;
    let (place, name) = text.split_once('/').ok_or_else(wrong)?;
    let places = places(place)?;
    let proof = proof(&places)?;
    Ok(Target { places, volume: name.to_owned(), proof })
}

/// The certificates of this client. Without any, servers on this machine can be reached, if they
/// are of root or of the same user.
fn proof(places: &[ServerAddress]) -> Result<Proof> {
    let given = std::env::var_os(CERTIFICATES).filter(|given| !given.is_empty());
    let is_here = places.iter().all(|ServerAddress { host, .. }| {
        host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    });
    let directory = match given {
        Some(given) => PathBuf::from(given),
        None if is_here => return Ok(Proof::Local(loopback::check_server)),
        None => default_directory(),
    };
    let files = Files {
        certificate: directory.join("client.pem"),
        key: directory.join("client.key"),
        authority: directory.join("ca.pem"),
    };
    let tls = ClientTls::read(&files).map_err(|error| {
        Failure::new(FailureKind::Permission, error.to_string()).hint(format!(
            "a client needs ca.pem, client.pem and client.key in {} or in the directory that \
             {CERTIFICATES} names; `pando cluster certs` makes them",
            default_directory().display()
        ))
    })?;
    Ok(Proof::Tls(tls))
}

fn default_directory() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/etc/pando/certs");
    }
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map_or_else(PathBuf::new, PathBuf::from);
    config.unwrap_or_else(|| home().join(".config")).join("pando/certs")
}

/// Why a server cannot be reached, for people.
pub(crate) fn unreachable(volume: &Path, error: &ConnectError) -> Failure {
    if let ConnectError::Broken(broken) = error
        && let Some(refusal) = broken.refusal()
    {
        let (why, hint) = certificate(refusal);
        let message = format!("{}: {why} ({error})", volume.display());
        return Failure::new(FailureKind::Permission, message).hint(hint);
    }
    let kind = match error {
        ConnectError::Refused(failure) => failure.kind,
        ConnectError::Unknown(..) => FailureKind::NotFound,
        ConnectError::Plain(_) | ConnectError::Certificates(_) | ConnectError::Untrusted(..) => {
            FailureKind::Permission
        }
        _ => FailureKind::Other,
    };
    let hint = match error {
        ConnectError::Refused(why) if !why.hint.is_empty() => &why.hint[..],
        ConnectError::Refused(_) => "the server's log has more",
        ConnectError::Unreachable(..) => {
            "check that `pando serve` runs there and listens on that address"
        }
        ConnectError::Untrusted(..) => {
            "without certificates only a server of root or of the same user is trusted: end that \
             process, or serve with certificates (`pando cluster certs`)"
        }
        ConnectError::Unknown(..) => "check the host's name",
        ConnectError::Plain(_) | ConnectError::Certificates(_) => {
            "`pando cluster certs` makes certificates; PANDO_CERTS names their directory"
        }
        _ => {
            "a server with certificates is reached with certificates only, and one without only \
             without; its log may have more"
        }
    };
    Failure::new(kind, format!("{}: {error}", volume.display())).hint(hint)
}

/// Why a certificate was refused, for people, and what to do.
fn certificate(refusal: CertificateRefusal) -> (&'static str, &'static str) {
    use CertificateRefusal::{
        OwnAuthority, OwnMissing, OwnTime, TheirAuthority, TheirName, TheirTime,
    };
    match refusal {
        TheirTime => (
            "the certificate of the server is not valid now",
            "compare the clocks; a new one: remove server.pem and server.key, run `pando cluster \
             certs DIR --server NAME` there, and start the server again",
        ),
        TheirAuthority => (
            "the certificate of the server is not of the authority in ca.pem of this client",
            "both sides need the ca.pem of one directory of `pando cluster certs`, and \
             certificates that were made there",
        ),
        TheirName => (
            "the certificate of the server is for another name",
            "use a name for which it was made, or make one with `pando cluster certs DIR --server \
             NAME` for each name and address by which clients reach the server",
        ),
        OwnTime => (
            "the server refuses the certificate of this client: it has expired",
            "a new one: remove the old files, and run `pando cluster certs DIR --client NAME` in \
             the directory of the authority",
        ),
        OwnAuthority => (
            "the server refuses the certificate of this client: it is not of its authority",
            "both sides need certificates of one directory of `pando cluster certs`",
        ),
        OwnMissing => (
            "the server requires a certificate of its clients",
            "`pando cluster certs DIR --client NAME` makes one; PANDO_CERTS names its directory",
        ),
    }
}

/// The user for whom this process sends requests.
fn asker() -> Asker {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Asker {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(|group| group.as_raw()).collect(),
        umask: 0,
        ends: 0,
    }
}

/// Connects to the daemon of a volume of a server.
pub(crate) fn connect(volume: &Path) -> Result<Connection> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let carried = remote::control(&SystemNet, &clock, &target(volume)?, asker());
    let carried = carried.map_err(|error| unreachable(volume, &error))?;
    Connection::over(carried.stream, volume)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Option<(String, String)> {
        let (volume, inner) = split(Path::new(url))?.ok()?;
        Some((volume.display().to_string(), String::from_utf8(inner).ok()?))
    }

    #[test]
    fn a_url_names_a_host_a_volume_and_a_path() {
        let expected = |volume: &str, inner: &str| Some((volume.to_owned(), inner.to_owned()));
        assert_eq!(parsed("pando://h/v"), expected("pando://h:7440/v", "/"));
        assert_eq!(parsed("pando://h:1/v/a/b:c"), expected("pando://h:1/v", "/a/b:c"));
        assert_eq!(parsed("pando://[::1]:9/v/"), expected("pando://[::1]:9/v", "/"));
        assert_eq!(parsed("pando://[::1]/v"), expected("pando://[::1]:7440/v", "/"));
        for wrong in ["pando://", "pando://h", "pando://h/", "pando://:1/v", "pando://h:x/v"] {
            assert!(split(Path::new(wrong)).is_some_and(|split| split.is_err()), "{wrong}");
        }
        assert!(split(Path::new("pando://::1/v")).is_some_and(|split| split.is_err()));
        assert!(split(Path::new("/pando://h/v")).is_none());
        let two = "pando://127.0.0.1:1,[::1]:7440/v";
        assert_eq!(parsed("pando://127.0.0.1:1,[::1]/v/x"), expected(two, "/x"));
        for wrong in ["pando://a,/v", "pando://,a/v"] {
            assert!(split(Path::new(wrong)).is_some_and(|split| split.is_err()), "{wrong}");
        }
        let target = target(Path::new(two)).unwrap();
        let place = |host: &str, port| ServerAddress { host: host.to_owned(), port };
        assert_eq!(target.places, [place("127.0.0.1", 1), place("::1", 7440)]);
        assert_eq!((target.to_string(), &target.volume[..]), (two.to_owned(), "v"));
    }
}
