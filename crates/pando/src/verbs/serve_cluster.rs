//! `pando serve --etcd`: several servers wait for volumes in object stores; one serves each.
//!
//! A thread keeps this server's lease, and one asks who should own each volume. A thread for each
//! volume runs its daemon while this server should own it, and waits otherwise. The state in etcd
//! only decides who tries: the claim and the seal in the volume's store decide who owns it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::Launch;
use cluster::{Advertised, Campaign, Coordinator, Error, Etcd, EtcdSettings, Standing};
use device::sync::{self, Mutex};
use device::{Clock, Random, SystemClock, SystemRandom};
use remote::Server;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use wire::{Failure, FailureKind};

use crate::cli::EtcdArgs;
use crate::failure::{self, Result};
use crate::output::Output;
use crate::owner::{self, Mandate, Start};

/// How long the names of this server live when it does not.
const LEASE: Duration = Duration::from_secs(3);
/// How often the lease is kept, and a standby server asks.
const STEP_EVERY: Duration = Duration::from_millis(300);
/// Most time for a call, over all members of etcd.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a volume's thread reads the state of its volume.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Pause after a volume could not be opened, or was lost: others go first.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the name of this server may be that of its predecessor.
const NAME_FREE_WITHIN: Duration = Duration::from_secs(8);
/// Variable with the password for etcd.
const PASSWORD: &str = "PANDO_ETCD_PASSWORD";

/// A volume of a cluster.
struct Seat {
    name: String,
    volume: [u8; 16],
    start: Start,
}

/// What all threads share.
struct Shared {
    campaign: Campaign,
    clock: Arc<dyn Clock>,
    server: Arc<Server>,
    ending: AtomicBool,
    /// All volumes are closed: the lease need not live.
    ended: AtomicBool,
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
    let shared = Arc::new(Shared {
        campaign: campaign(args, server, &clock)?,
        clock,
        server: Arc::clone(server),
        ending: AtomicBool::new(false),
        ended: AtomicBool::new(false),
    });
    watch_signals(&shared)?;
    introduce(&shared)?;
    for seat in &seats {
        shared.campaign.enter(seat.volume);
    }
    let (changes, heard) = sync::channel();
    let mut volumes: Vec<(String, [u8; 16], PathBuf)> = Vec::new();
    for seat in seats {
        volumes.push((seat.name.clone(), seat.volume, seat.start.volume.clone()));
        let (shared, changes) = (Arc::clone(&shared), changes.clone());
        let run = move || {
            hold(&shared, seat, &changes);
            changes.send(StateChange::Ended).unwrap_or_default();
        };
        device::spawn("volume", run).map_err(|error| Launch::not_started(&error))?;
    }
    let stepping = {
        let (shared, volumes) = (Arc::clone(&shared), volumes.clone());
        device::spawn("campaign", move || keep(&shared, &volumes, &changes))
            .map_err(|error| failure::thread(&error))?
    };
    let renewing = {
        let shared = Arc::clone(&shared);
        device::spawn("lease", move || renew(&shared)).map_err(|error| failure::thread(&error))?
    };
    let mut left = volumes.len();
    while left > 0 {
        match heard.recv() {
            Ok(StateChange::Ended) => left -= 1,
            Ok(StateChange::Serving(name)) => print_state(&shared, &name, &volumes, None, output)?,
            Ok(StateChange::Standby(name, owner)) => {
                print_state(&shared, &name, &volumes, Some(&owner), output)?;
            }
            Err(_) => break,
        }
    }
    shared.ended.store(true, Ordering::SeqCst);
    for thread in [stepping, renewing] {
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
    if let Err(error) = shared.campaign.end() {
        tracing::warn!(%error, "others wait until the lease of this server ends");
    }
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
    if is_any || remote::Place::parse(&address).is_none() {
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

/// Takes the server's name. One that ended just now may still have it; an etcd that does not
/// answer is waited for.
fn introduce(shared: &Shared) -> Result<()> {
    let begun = shared.clock.monotonic();
    let mut warned = false;
    while !shared.ending.load(Ordering::SeqCst) {
        match shared.campaign.step() {
            Ok(()) => return Ok(()),
            Err(error @ (Error::Refused(_) | Error::Foreign(_)))
                if shared.clock.monotonic().saturating_sub(begun) >= NAME_FREE_WITHIN =>
            {
                return Err(Failure::new(FailureKind::Busy, error.to_string())
                    .hint("give each server its own --name, and check --etcd"));
            }
            Err(error) => {
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(%error, "etcd does not let this server begin; trying again");
                }
            }
        }
        shared.clock.sleep(STEP_EVERY);
    }
    Ok(())
}

fn watch_signals(shared: &Arc<Shared>) -> Result<()> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| failure::thread(&error))?;
    let shared = Arc::clone(shared);
    let watch = move || {
        if signals.forever().next().is_some() {
            shared.ending.store(true, Ordering::SeqCst);
        }
    };
    device::spawn("signals", watch).map(drop).map_err(|error| failure::thread(&error))
}

/// Renews the lease, whatever the questions about volumes wait for.
fn renew(shared: &Shared) {
    while !shared.ended.load(Ordering::SeqCst) {
        // (The other thread reports errors.)
        if let Err(error) = shared.campaign.renew() {
            tracing::debug!(%error, "the lease is not renewed");
        }
        shared.clock.sleep(STEP_EVERY);
    }
}

/// Keeps the lease, and redirects clients to where volumes are that are not served here.
fn keep(
    shared: &Shared,
    volumes: &[(String, [u8; 16], PathBuf)],
    changes: &sync::Sender<StateChange>,
) {
    let mut failed = false;
    let mut owners: Vec<Option<String>> = vec![None; volumes.len()];
    // To the end of the last volume: another server would take one over while it is closed.
    while !shared.ended.load(Ordering::SeqCst) {
        match shared.campaign.step() {
            Ok(()) if std::mem::take(&mut failed) => tracing::info!("etcd answers again"),
            Ok(()) | Err(Error::LeaseEnded) => {}
            Err(error @ Error::Refused(_)) if !std::mem::replace(&mut failed, true) => {
                tracing::error!(%error, "this server takes over nothing until its name is free");
            }
            // What is served continues: the store decides whose it is.
            Err(error) if !std::mem::replace(&mut failed, true) => {
                tracing::warn!(%error, "etcd does not answer: no server takes a volume over");
            }
            Err(_) => {}
        }
        for ((name, volume, _), known) in volumes.iter().zip(&mut owners) {
            let owner = match shared.campaign.standing(volume) {
                Standing::Theirs(owner) => Some(owner),
                Standing::Ours | Standing::Unknown => None,
            };
            let address = owner.as_ref().map(|owner| owner.address.clone());
            shared.server.set_elsewhere(name, address.clone());
            if *known != address {
                if let Some(owner) = owner {
                    let who = format!("{} at {}", owner.server, owner.address);
                    changes.send(StateChange::Standby(name.clone(), who)).unwrap_or_default();
                }
                *known = address;
            }
        }
        shared.clock.sleep(STEP_EVERY);
    }
}

/// Runs the daemon of a volume whenever this server should own it.
fn hold(shared: &Arc<Shared>, seat: Seat, changes: &sync::Sender<StateChange>) {
    let Seat { name, volume, start } = seat;
    let is_ours = || shared.campaign.standing(&volume) == Standing::Ours;
    let is_ending = || shared.ending.load(Ordering::SeqCst);
    let start = start.served_while(Arc::new(Candidate { shared: Arc::clone(shared), volume }));
    while !is_ending() {
        if !is_ours() || !is_still_ours(shared, &volume) {
            shared.clock.sleep(LOOK_EVERY);
            continue;
        }
        if is_ending() {
            break;
        }
        tracing::info!(volume = %name, "this server takes the volume");
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
        let ended = owner::run(&start, &mut report);
        match ended.err().or_else(|| failed.lock().take()) {
            Some(failure) if !is_ending() => {
                tracing::error!(volume = %name, %failure, "the volume is served here no more");
            }
            _ => {}
        }
        leave(shared, &volume);
        if !is_ending() {
            shared.clock.sleep(PAUSE);
            shared.campaign.enter(volume);
        }
    }
    // It is wanted no more, also if another server has it.
    leave(shared, &volume);
}

/// Asks etcd once more who should own a volume: this process may have been stopped since it asked,
/// and its opening takes the volume from another one that lives.
fn is_still_ours(shared: &Shared, volume: &[u8; 16]) -> bool {
    let owner = shared.campaign.owner(volume);
    let owner = owner.inspect_err(|error| tracing::warn!(%error, "cannot ask whose a volume is"));
    owner.is_ok_and(|owner| owner.is_some_and(|owner| shared.campaign.is_own(&owner)))
}

/// Lets others have a volume.
fn leave(shared: &Shared, volume: &[u8; 16]) {
    if let Err(error) = shared.campaign.leave(volume) {
        tracing::warn!(%error, "others wait until this server's lease ends");
    }
}

/// The part of this server in the decision about a volume that it serves.
struct Candidate {
    shared: Arc<Shared>,
    volume: [u8; 16],
}

impl Mandate for Candidate {
    fn deposed(&self) -> Option<String> {
        match self.shared.campaign.standing(&self.volume) {
            Standing::Theirs(owner) => Some(format!("etcd gave the volume to {}", owner.server)),
            Standing::Ours | Standing::Unknown => None,
        }
    }

    fn is_ending(&self) -> bool {
        self.shared.ending.load(Ordering::SeqCst)
    }

    fn give_up(&self) {
        leave(&self.shared, &self.volume);
    }
}

fn print_state(
    shared: &Shared,
    name: &str,
    volumes: &[(String, [u8; 16], PathBuf)],
    owner: Option<&str>,
    output: &mut Output,
) -> Result<()> {
    let volume = volumes.iter().find(|(other, ..)| other == name);
    let volume = volume.map_or_else(String::new, |(.., volume)| crate::host::shown(volume));
    let address = shared.server.address();
    output.object(&json!({
        "name": name,
        "volume": volume,
        "address": address.to_string(),
        "pid": std::process::id(),
        "state": if owner.is_none() { "serving" } else { "standby" },
        "owner": owner,
    }))?;
    output.line(&match owner {
        None => format!("serving {volume} as pando://{address}/{name}"),
        Some(owner) => format!("standing by for {volume}, which {owner} serves"),
    })?;
    output.flush()
}
