//! `pando serve --etcd`: several servers wait for volumes in object stores; one serves each.
//!
//! `standby` decides when; here are etcd, the daemons of the volumes, signals, and what is printed.
//! The state in etcd only decides who tries: the claim and the seal in the volume's store decide
//! who owns it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::Launch;
use cluster::{Advertised, Campaign, Coordinator, Etcd, EtcdSettings, Holder};
use device::sync::{self, Mutex};
use device::{Clock, Random, SystemClock, SystemRandom};
use remote::Server;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use standby::Standby;
use wire::{Failure, FailureKind};

use crate::cli::EtcdArgs;
use crate::daemon::{self, Start};
use crate::failure::{self, Result};
use crate::output::Output;

/// How long the names of this server live when it does not.
const LEASE: Duration = Duration::from_secs(3);
/// Most time for a call, over all members of etcd.
const PATIENCE: Duration = Duration::from_secs(2);
/// Variable with the password for etcd.
const PASSWORD: &str = "PANDO_ETCD_PASSWORD";

/// A volume of a cluster.
struct Seat {
    name: String,
    volume: [u8; 16],
    start: Start,
}

/// A change that a thread reports.
enum StateChange {
    Serving(String),
    Standby(String, String),
    Ended,
}

/// Waits for volumes, and serves those that this server should own, until a signal.
pub(super) fn run(
    args: &EtcdArgs,
    server: &Arc<Server>,
    starts: Vec<(String, Start)>,
    output: &mut Output,
) -> Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let seats = starts.into_iter().map(|(name, start)| seat(name, start));
    let seats = seats.collect::<Result<Vec<Seat>>>()?;
    let standby = Standby::new(campaign(args, server, &clock)?, clock);
    watch_signals(&standby)?;
    standby.introduce().map_err(|error| {
        Failure::new(FailureKind::Busy, error.to_string())
            .hint("give each server its own --name, and check --etcd")
    })?;
    let (changes, heard) = sync::channel();
    let volumes: Vec<_> = seats.iter().map(|seat| (seat.name.clone(), seat.volume)).collect();
    let shown: BTreeMap<String, PathBuf> =
        seats.iter().map(|seat| (seat.name.clone(), seat.start.volume.clone())).collect();
    let on_step = redirect(Arc::clone(server), changes.clone());
    let threads = standby.start(volumes, on_step).map_err(|error| failure::thread(&error))?;
    let mut left = seats.len();
    for seat in seats {
        let (standby, changes) = (Arc::clone(&standby), changes.clone());
        let run = move || {
            hold(&standby, seat, &changes);
            changes.send(StateChange::Ended).unwrap_or_default();
        };
        device::spawn("volume", run).map_err(|error| Launch::not_started(&error))?;
    }
    while left > 0 {
        let address = server.address();
        match heard.recv() {
            Ok(StateChange::Ended) => left -= 1,
            Ok(StateChange::Serving(name)) => print_state(address, &name, &shown, None, output)?,
            Ok(StateChange::Standby(name, holder)) => {
                print_state(address, &name, &shown, Some(&holder), output)?;
            }
            Err(_) => break,
        }
    }
    threads.end();
    Ok(())
}

fn seat(name: String, start: Start) -> Result<Seat> {
    let device = fs::volume_files(&start.volume);
    let device = device.map_err(|error| failure::device(&start.volume, &error))?;
    let host = fs::host_directory(&device).map_err(|error| failure::open(&start.volume, &error))?;
    let Some(host) = host else {
        let message = format!("{} is on a disk of this machine", start.volume.display());
        return Err(Failure::new(FailureKind::Invalid, message)
            .hint("servers take over volumes in object stores: s3://... or file:///SHARED"));
    };
    Ok(Seat { name, volume: host.volume, start })
}

fn campaign(args: &EtcdArgs, server: &Server, clock: &Arc<dyn Clock>) -> Result<Campaign> {
    let wrong = |message: String, hint: &str| {
        Failure::new(FailureKind::Invalid, message).hint(hint.to_owned())
    };
    let name = args.name.clone().unwrap_or_default();
    if !cluster::is_server_name(&name) {
        let message = format!("'{name}' cannot name a server: letters, digits, . _ -");
        return Err(wrong(message, "give another --name"));
    }
    let address = args.advertise.clone().unwrap_or_else(|| server.address().to_string());
    let is_any = server.address().ip().is_unspecified() && args.advertise.is_none();
    if is_any || remote::ServerAddress::parse(&address).is_none() {
        let message = format!("clients cannot connect to {address}");
        return Err(wrong(
            message,
            "give --advertise HOST:PORT, by which clients reach this server",
        ));
    }
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).map_err(|error| failure::io("read", path, &error))
    };
    let certificate = match (&args.etcd_cert, &args.etcd_key) {
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        _ => None,
    };
    let user = args.etcd_user.clone();
    let user = user.map(|user| (user, std::env::var(PASSWORD).unwrap_or_default()));
    let settings = EtcdSettings {
        endpoints: args.etcd.clone(),
        user,
        authorities: args.etcd_ca.as_ref().map(read).transpose()?,
        certificate,
    };
    let etcd = Etcd::new(&settings, Arc::clone(clock), PATIENCE);
    let etcd = etcd.map_err(|error| wrong(error.to_string(), "see `pando serve --help`"))?;
    let mut instance = [0; 16];
    SystemRandom.fill(&mut instance);
    let instance = format!("{:032x}", u128::from_be_bytes(instance));
    let etcd: Arc<dyn Coordinator> = Arc::new(etcd);
    Ok(Campaign::new(etcd, &name, Advertised { instance, address }, LEASE))
}

fn watch_signals(standby: &Arc<Standby>) -> Result<()> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| failure::thread(&error))?;
    let standby = Arc::clone(standby);
    let watch = move || {
        if signals.forever().next().is_some() {
            standby.end();
        }
    };
    device::spawn("signals", watch).map(drop).map_err(|error| failure::thread(&error))
}

/// Called with a volume's name and the other server that should own it, if any.
type OnStep = dyn Fn(&str, Option<&Holder>) + Send + Sync;

/// Redirects clients to where volumes are that are not served here, and reports it.
fn redirect(server: Arc<Server>, changes: sync::Sender<StateChange>) -> Box<OnStep> {
    let known: Mutex<BTreeMap<String, String>> = Mutex::default();
    Box::new(move |name, holder| {
        let address = holder.map(|holder| holder.address.clone());
        server.set_elsewhere(name, address.clone());
        let mut known = known.lock();
        let before = match &address {
            Some(address) => known.insert(name.to_owned(), address.clone()),
            None => known.remove(name),
        };
        if let Some(holder) = holder.filter(|_| before != address) {
            let who = format!("{} at {}", holder.server, holder.address);
            changes.send(StateChange::Standby(name.to_owned(), who)).unwrap_or_default();
        }
    })
}

/// Runs the daemon of a volume whenever this server should own it.
fn hold(standby: &Arc<Standby>, seat: Seat, changes: &sync::Sender<StateChange>) {
    let Seat { name, volume, start } = seat;
    standby.hold((name.clone(), volume), &mut |mandate| {
        let start = start.clone().served_while(Arc::clone(mandate));
        let failed = Mutex::new(None);
        let mut report = |launch: &Launch| match launch {
            Launch::Ready { .. } => {
                changes.send(StateChange::Serving(name.clone())).unwrap_or_default();
            }
            Launch::Taken => {
                let message = "another process of this machine has the volume open";
                let failure = Failure::new(FailureKind::Busy, message)
                    .hint("`pando umount VOLUME` on this machine ends that process");
                *failed.lock() = Some(failure);
            }
            Launch::Failed(failure) => *failed.lock() = Some(failure.clone()),
        };
        let ended = daemon::run(&start, &mut report);
        let failure = ended.err().or_else(|| failed.lock().take());
        failure.map_or(Ok(()), |failure| Err(failure.to_string()))
    });
}

fn print_state(
    address: SocketAddr,
    name: &str,
    volumes: &BTreeMap<String, PathBuf>,
    holder: Option<&str>,
    output: &mut Output,
) -> Result<()> {
    let volume = volumes.get(name).map_or_else(String::new, |volume| crate::host::shown(volume));
    output.object(&state_object(address, (name, &volume), holder))?;
    output.line(&match holder {
        None => format!("serving {volume} as pando://{address}/{name}"),
        Some(holder) => format!("standing by for {volume}, which {holder} serves"),
    })?;
    output.flush()
}

/// What a server does for a volume: it serves it, or waits for the server that has it.
fn state_object(
    address: SocketAddr,
    (name, volume): (&str, &str),
    holder: Option<&str>,
) -> serde_json::Value {
    json!({
        "name": name,
        "volume": volume,
        "address": address.to_string(),
        "pid": std::process::id(),
        "state": if holder.is_none() { "serving" } else { "standby" },
        "server": holder,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An owner is a user. The key had that name.
    #[test]
    fn a_state_names_the_server_that_has_the_volume() {
        let address = ([127, 0, 0, 1], 7).into();
        let of = |holder| state_object(address, ("v", "s3://b/v"), holder);
        let (serving, standby) = (of(None), of(Some("two at h:1")));
        assert_eq!((&serving["state"], &serving["server"]), (&"serving".into(), &json!(null)));
        assert_eq!(
            (&standby["state"], &standby["server"]),
            (&"standby".into(), &"two at h:1".into())
        );
        let keys: Vec<&String> = standby.as_object().into_iter().flat_map(|it| it.keys()).collect();
        assert!(!keys.iter().any(|key| key.contains("owner")), "{keys:?}");
    }
}
