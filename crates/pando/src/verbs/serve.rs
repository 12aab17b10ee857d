//! `pando serve`: serves volumes to other machines. It is the daemon of each of them, in one
//! process, until a signal ends it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::Launch;
use device::sync;
use device::{SystemClock, SystemNet, SystemRandom};
use remote::{Security, Server, Settings};
use rpc::{Files, Grant, ServerTls, Users};
use serde_json::json;
use wire::{Failure, FailureKind};

use crate::cli::ServeArgs;
use crate::daemon::{self, ServeStart};
use crate::failure::{self, Result};
use crate::host::TakeOver;
use crate::loopback;
use crate::metrics::Hub;
use crate::output::Output;
use crate::place::{VolumePath, refuse_path};
use crate::serve_memory;
use crate::verbs::serve_cluster;

/// The result of a volume's thread.
enum Outcome {
    Ready,
    Ended(Result<()>),
}

pub(crate) fn run(args: &ServeArgs, output: &mut Output) -> Result<()> {
    let volumes = volumes(args)?;
    options(args)?;
    let settings = Settings {
        security: security(args)?,
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
        grace: None,
    };
    device::raise_descriptor_limit();
    let memory = serve_memory::divide(args.memory, args.cache_size, args.index_cache)?;
    let server = Server::start_within(&SystemNet, args.listen, settings, memory.bounds());
    let server = server.map_err(|error| {
        let message = format!("cannot listen on {}: {error}", args.listen);
        let failure = Failure::new(failure::io_kind(&error), message);
        if error.kind() == std::io::ErrorKind::InvalidInput {
            return failure.hint("give --cert, --key and --ca; `pando cluster certs` makes them");
        }
        failure.hint("give another address by --listen")
    })?;
    let server = Arc::new(server);
    let names = volumes.iter().map(|(name, _)| name.clone());
    let clock = || Arc::new(SystemClock::new());
    let hub = args.metrics.map(|address| Hub::start(address, names, &server, clock()));
    let hub = hub.transpose()?;
    let count = volumes.len() as u64;
    let share = |bytes: u64| bytes / count;
    let start = |(name, volume): &(String, PathBuf)| {
        let start = daemon::Start {
            volume: volume.clone(),
            mount: None,
            cache_bytes: Some(share(memory.cache)),
            index_bytes: Some(share(memory.index)),
            idle: None,
            metrics: None,
            trace: None,
            take_over: if args.take_over { TakeOver::Yes } else { TakeOver::No },
            serve: Some(ServeStart {
                server: Arc::clone(&server),
                name: name.clone(),
                options: args.options.clone(),
                metrics: hub.clone(),
                memory: memory.of_volume(count),
                mandate: None,
            }),
        };
        (name.clone(), start)
    };
    let starts: Vec<(String, daemon::Start)> = volumes.iter().map(start).collect();
    if !args.etcd.etcd.is_empty() {
        return serve_cluster::run(&args.etcd, &server, starts, output);
    }
    let (sender, heard) = sync::channel();
    for (_, start) in starts {
        let sender = sender.clone();
        let run = move || {
            let mut report = |launch: &Launch| {
                let outcome = match launch {
                    Launch::Ready { .. } => Outcome::Ready,
                    Launch::Taken => Outcome::Ended(Err(taken(&start.volume))),
                    Launch::Failed(failure) => Outcome::Ended(Err(failure.clone())),
                };
                sender.send(outcome).unwrap_or_default();
            };
            let ended = daemon::run(&start, &mut report);
            sender.send(Outcome::Ended(ended)).unwrap_or_default();
        };
        device::spawn("volume", run).map_err(|error| Launch::not_started(&error))?;
    }
    drop(sender);
    wait(&server, &volumes, &heard, output)
}

fn taken(volume: &Path) -> Failure {
    let message = format!("another process has {} open", volume.display());
    Failure::new(FailureKind::Busy, message).hint("`pando umount VOLDIR` ends its daemon")
}

/// Waits until all volumes are closed. One that fails ends the others, as a signal does.
fn wait(
    server: &Server,
    volumes: &[(String, PathBuf)],
    heard: &sync::Receiver<Outcome>,
    output: &mut Output,
) -> Result<()> {
    let (mut ready, mut failed) = (0, Ok(()));
    while let Ok(outcome) = heard.recv() {
        match outcome {
            Outcome::Ready => {
                ready += 1;
                if ready == volumes.len() {
                    print_serving(server.address(), volumes, output)?;
                }
            }
            Outcome::Ended(Err(failure)) if failed.is_ok() => {
                failed = Err(failure);
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::TERM)
                    .unwrap_or_default();
            }
            Outcome::Ended(_) => {}
        }
    }
    failed
}

fn print_serving(
    address: SocketAddr,
    volumes: &[(String, PathBuf)],
    output: &mut Output,
) -> Result<()> {
    for (name, volume) in volumes {
        let volume = crate::host::shown(volume);
        output.object(&json!({
            "name": name,
            "volume": volume,
            "address": address.to_string(),
            "pid": std::process::id(),
        }))?;
        output.line(&format!("serving {volume} as pando://{address}/{name}"))?;
    }
    output.flush()
}

/// The volumes, with their names.
fn volumes(args: &ServeArgs) -> Result<Vec<(String, PathBuf)>> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for argument in &args.volumes {
        let named = argument.split_once('=').filter(|(name, _)| rpc::is_volume_name(name));
        let (name, place) = match named {
            Some((name, place)) => (Some(name), place),
            None => (None, &argument[..]),
        };
        let place = Path::new(place);
        refuse_path(place, "serve")?;
        let last = || place.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = name.unwrap_or_else(last).to_owned();
        let wrong = |message: String| {
            let failure = Failure::new(FailureKind::Invalid, message).at(argument.as_bytes());
            Err(failure.hint("give NAME=VOLDIR"))
        };
        if !rpc::is_volume_name(&name) {
            return wrong(format!("'{name}' cannot name a volume: letters, digits, . _ -"));
        }
        let volume = VolumePath::volume(place)?;
        if found.iter().any(|(other, _)| *other == name) {
            return wrong(format!("two volumes are called {name}"));
        }
        if found.iter().any(|(_, other)| *other == volume) {
            return wrong("the volume is named twice".to_owned());
        }
        found.push((name, volume));
    }
    Ok(found)
}

/// Refuses options of the kernel's mounts, which clients give to their own.
fn options(args: &ServeArgs) -> Result<()> {
    let given = args.options.iter().flat_map(|list| list.split(',')).map(str::trim);
    let mut given = given.filter(|option| !option.is_empty());
    let Some(other) = given.find(|option| !fuse::is_for_served(option)) else { return Ok(()) };
    let name = other.split('=').next().unwrap_or_default();
    let message = format!("'{name}' is not an option of a served volume");
    let known = fuse::names_for_served().join(", ");
    let hint = format!("they are {known}; mounts of clients have others");
    Err(Failure::new(FailureKind::Invalid, message).hint(hint))
}

fn security(args: &ServeArgs) -> Result<Security> {
    let (Some(certificate), Some(key), Some(authority)) = (&args.cert, &args.key, &args.ca) else {
        return Ok(Security::Local(Box::new(who_is_local)));
    };
    let [certificate, key, authority] = [certificate, key, authority].map(Clone::clone);
    let tls = ServerTls::read(&Files { certificate, key, authority });
    tls.map(Security::Tls).map_err(|error| {
        Failure::new(FailureKind::Permission, error.to_string())
            .hint("`pando cluster certs` makes certificates and keys")
    })
}

/// Whose a connection on this machine is, by the kernel's table of connections. Root acts for all
/// users, and the user of this process for itself. Others are refused: the directories above the
/// volume may be closed to them.
fn who_is_local(from: SocketAddr, ours: SocketAddr) -> Option<(String, Grant)> {
    let uid = loopback::user_of(from, ours)?;
    if uid == 0 {
        return Some(("localhost".to_owned(), Grant::all()));
    }
    if uid != rustix::process::geteuid().as_raw() {
        return None;
    }
    let gid = rustix::process::getegid().as_raw();
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups = groups.into_iter().map(|group| group.as_raw()).collect();
    Some((format!("user {uid}"), Grant { users: Users::One { uid, gid, groups }, ..Grant::all() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = include_str!("../../../../docs/guide/serve.md");

    /// The table of mount options decides; help and guide name the same.
    #[test]
    fn options_of_volumes_are_those_of_the_table() {
        let names = fuse::names_for_served();
        assert!(names.len() >= 5 && names.contains(&"merge-rate"), "{names:?}");
        let start = GUIDE.find("`pando serve -o OPTIONS` takes").unwrap();
        let guide = GUIDE[start..].split("\n\n").next().unwrap();
        for name in &names {
            assert!(guide.contains(&format!("`{name}`")), "{name}: {guide}");
        }
        let is_option = |word: &&str| fuse::options_help().contains(&format!("  {word}"));
        for word in guide.split('`').skip(1).step_by(2).filter(is_option) {
            assert!(names.contains(&word), "{word}: {guide}");
        }
        // As `pando mount` takes them.
        for spelt in ["small_files=4K", "norelatime"] {
            assert!(fuse::is_for_served(spelt), "{spelt}");
        }
    }

    #[test]
    fn the_user_of_a_local_connection_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = listener.local_addr().unwrap();
        let stream = std::net::TcpStream::connect(ours).unwrap();
        let (_accepted, from) = listener.accept().unwrap();
        assert_eq!(from, stream.local_addr().unwrap());
        let (_, grant) = who_is_local(from, ours).expect("the kernel knows it");
        let own = rustix::process::geteuid().as_raw();
        match grant.users {
            Users::One { uid, .. } => assert_eq!(uid, own),
            Users::Asserted { .. } => assert_eq!(own, 0),
        }
        // Closed, it is nobody's, and not root's.
        drop(stream);
        assert!(who_is_local(from, ours).is_none());
        let other = SocketAddr::from(([127, 0, 0, 1], 1));
        assert!(who_is_local(other, ours).is_none());
    }
}
