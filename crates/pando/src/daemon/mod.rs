//! The daemon of a volume: the one process that has the volume open. It holds the volume's lock,
//! listens on its socket, runs its background work, and mounts it if requested.
//!
//! Life of a daemon:
//! 1. `elect`: take the lock, or find that another process holds it.
//! 2. Listen at once, so that commands wait in the socket's queue and not in a loop.
//! 3. Open the volume, mount it, report to the process that started the daemon.
//! 4. `server`: answer until a signal, an unmount, a hand-over or idleness ends the daemon.
//! 5. Leave: accept no new connections, let requests under way end, stop background work, close
//!    the volume. The daemon releases the lock last, so that a successor finds a closed volume.
//!
//! Which module decides what:
//! * `elect`, `start`, `detach`, `door`: who becomes the daemon, with what, behind which lock and
//!   socket
//! * `again`: mounts that the running daemon makes
//! * `accept`, `server`, `event`, `signals`: connections, the state that threads share, what ends
//!   the daemon, what it waits for
//! * `sessions`, `load`, `peer_wait`: connections and requests of a user, what each costs, silent
//!   peers
//! * `admission`: who may use the socket
//! * `connection`, `replies`, `calls`: one connection, what it sends; which function answers which
//!   request
//! * `held`, `find_from`, `mounted`: paths of requests, also in snapshots; mounts below a directory
//! * `find`, `questions`, `list`, `totals`, `history`, `diff`: searches, listings, comparisons, and
//!   how they are cut off
//! * `watch`: whether the caller still waits
//! * `snapshots`, `schedules`, `schedule_calls`, `trash`, `quota`, `restore`: verbs on these
//! * `import`, `export`, `scan`, `streams`, `dump`, `sent`, `staged`, `shares`, `stream_terms`:
//!   streams in and out, what they stage and hold, and each user's part
//! * `check`, `clusters`: checks, collections, the index
//! * `far`, `far_calls`: served volumes: sessions, who owns the volume, what clients may request
//! * `record`, `reported`: traces and metrics
//! * `about`, `accounts`: paths and hints of errors; names of users
//! * `fresh`: a volume in memory, for tests

// A daemon starts and ends.
pub(crate) mod detach;
mod elect;
mod reported;
mod record;
mod signals;

// Connections, and their requests.
mod far;
mod accept;
mod connection;
mod again;
mod admission;
mod far_calls;
mod calls;
mod clients;

// What requests ask for.
mod questions;
mod totals;
mod history;
mod snapshots;
mod schedule_calls;
mod quota;
mod trash;
mod clusters;
mod scan;
mod check;
mod import;
mod list;
mod find;
mod streams;
mod dump;
mod sent;
mod diff;
mod accounts;
mod staged;
mod export;
mod shares;
mod restore;
mod stream_terms;
mod find_from;

// What a connection may cost, and what requests share.
mod mounted;
mod replies;
mod parts;
mod watch;
mod server;
mod start;
mod event;
mod sessions;
mod load;
mod door;
mod peer_wait;
mod held;
mod about;

// What the daemon does unasked.
mod schedules;

#[cfg(test)]
mod fresh;

use device::sync;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::Launch;
use device::{Env, LocalDevice};
use fs::{FileSystem, Fs};
use store::Durability;
use vfs::Observed;
use wire::{Failure, FailureKind};

use crate::failure::{self, Result};
use crate::host::{self, Claim, Store};
use crate::{access, cache_size, index_cache, log_place, metrics, output};
pub(crate) use check::checked;
use door::Door;
use elect::Elected;
pub(crate) use elect::alone;
use event::Event;
pub(crate) use record::{TraceStart, wrapped as traced};
use server::{Server, Silent};
use start::{LAZY_PATIENCE, Settings};
pub(crate) use start::{MountStart, ServeStart, Start};

/// Runs the daemon of a volume until it is time to leave. Calls `report` once with the outcome of
/// the start, unless the start failed: then it returns the failure.
pub(crate) fn run(start: &Start, report: &mut dyn FnMut(&Launch)) -> Result<()> {
    device::raise_descriptor_limit();
    let device = fs::volume_files(&start.volume);
    let device = Arc::new(device.map_err(|error| failure::device(&start.volume, &error))?);
    let env = Env::on(Arc::<LocalDevice>::clone(&device));
    let there = fs::is_volume(&*env.device);
    if !there.map_err(|error| failure::device(&start.volume, &error))? {
        // Checked before the lock is taken, so that no lock file appears in unrelated directories.
        return Err(failure::open(&start.volume, &fs::OpenError::NotAVolume));
    }
    let lock = match elect::elect(start, &env)? {
        Elected::Daemon(lock) => lock,
        Elected::Taken => {
            report(&Launch::Taken);
            return Ok(());
        }
        Elected::MountedAgain { pid } => {
            report(&Launch::Ready { pid });
            return Ok(());
        }
    };
    // Released before the volume's lock, so that a successor finds both free.
    let log = log_place::hold(&start.volume, &*env.clock, log_place::Claim::Write)?;
    let door = Door::open(lock, device.directory())
        .map_err(|error| failure::io("listen in", &start.volume, &error))?;
    let connected = host::connect(&start.volume, env);
    let ended = connected.and_then(|(env, store)| serve_volume(start, &env, store, &door, report));
    door.close().unwrap_or_default();
    drop(log);
    door.release();
    ended
}

/// An open volume.
struct Open {
    fs: Arc<Fs>,
    /// The announcement in its object store.
    claim: Option<Claim>,
    /// Which other host has it open, so that this process only reads it.
    elsewhere: Option<String>,
}

/// Opens the volume. If another host has it open, a process without a mount reads the state that
/// it has now.
fn open(
    start: &Start,
    env: &Env,
    store: Option<&Store>,
    mount: Option<&fuse::MountOptions>,
) -> Result<Open> {
    let failed = |error| failure::open(&start.volume, &error);
    let claim = match store.map(|store| Claim::announce(store, env, start.take_over)).transpose() {
        // Another host has it open, or these keys may only read. Verbs that read need no more.
        Err(why)
            if [FailureKind::Busy, FailureKind::Permission].contains(&why.kind)
                && start.uses_alone().is_none() =>
        {
            let shows = output::time_local(env.clock.now().0);
            let fs = Fs::observe(env, &why.message).map_err(&failed)?;
            let elsewhere = Some(format!("{}; this shows its state of {shows}", why.message));
            return Ok(Open { fs, claim: None, elsewhere });
        }
        claim => claim?,
    };
    match Fs::open(env.clone(), &open_options(start, mount)) {
        Ok(fs) => Ok(Open { fs, claim, elsewhere: None }),
        Err(error) => {
            if let Some(claim) = claim {
                claim.withdraw();
            }
            Err(failed(error))
        }
    }
}

/// A volume with its virtual directories: a volume that nobody mounts needs no `.search`.
fn with_virtual_dirs(fs: &Arc<Fs>, is_mounted: bool) -> Arc<fs::Volume> {
    let shown = fs.with_virtual_dirs();
    Arc::new(if is_mounted {
        shown.with_search(Arc::new(questions::Questions::new(fs)))
    } else {
        shown
    })
}

fn serve_volume(
    start: &Start,
    env: &Env,
    store: Option<Store>,
    door: &Arc<Door>,
    report: &mut dyn FnMut(&Launch),
) -> Result<()> {
    let (events, inbox) = sync::channel();
    let _signals = signals::watch(events.clone())
        .map_err(|error| failure::io("watch signals for", &start.volume, &error))?;
    let options = options(start)?;
    let served = options_of_served(start)?;
    let for_volume = options.as_ref().or(served.as_ref());
    if let Some(mount) = for_volume.filter(|_| store.is_none()) {
        refuse_options_of_stores(mount)?;
    }
    let bound = start.metrics.map(metrics::Bound::bind).transpose()?;
    let hub = start.serve.as_ref().and_then(|serve| serve.metrics.as_ref().zip(Some(&serve.name)));
    let calls = (bound.is_some() || hub.is_some()).then(metrics::Calls::new);
    let Open { fs, claim, elsewhere } = open(start, env, store.as_ref(), for_volume)?;
    // One that only reads serves the command that started it: the next one sees a newer state.
    let idle = if elsewhere.is_some() { Some(Duration::ZERO) } else { start.idle };
    let start = &Start { idle, ..start.clone() };
    // Only a host directory has such a note.
    let is_host = store.is_some();
    if is_host {
        host::set_observed(&*env.device, elsewhere.as_deref());
    }
    let shown = with_virtual_dirs(&fs, options.is_some() || start.serve.is_some());
    let silent = claim.as_ref().map(|claim| Box::new(claim.overdue()) as Silent);
    let server = Server::new(
        start,
        (Arc::clone(&shown), store, silent),
        Arc::clone(&env.clock),
        events.clone(),
        Arc::clone(door),
    );
    let measuring = measure(&server, start, claim.is_some());
    let observed: Arc<dyn FileSystem> = match calls.clone() {
        None => shown,
        Some(calls) => Arc::new(Observed::new(shown, Arc::new(calls), Arc::clone(&env.clock))),
    };
    let hub = hub.zip(calls.as_ref());
    let _shown = hub.map(|((hub, name), calls)| hub.serves(name, calls, reported::source(&server)));
    let answered = measuring.and_then(|()| match bound.zip(calls) {
        None => Ok(()),
        Some((bound, calls)) => {
            bound.serve(&calls, reported::source(&server), Arc::clone(&env.clock))
        }
    });
    let mut recording = None;
    let front = Arc::clone(&observed);
    let served = answered.and_then(|()| match options {
        None => Ok(()),
        Some(options) => {
            let is_index = fs.scan_info()?.is_some();
            let options = alone_if_closed((&start.volume, is_index), lists(start), options);
            let by = (Arc::clone(&env.clock), &*env.random);
            let (front, started) = record::wrapped(start.trace.as_ref(), &options, observed, by)?;
            recording = started;
            let mount = mount(front, &options, events.clone())?;
            server.set_mount(Arc::clone(&mount), Settings::of(start, &options));
            Ok(())
        }
    });
    let (was_made, mut watched) = (served.is_ok(), None);
    let ended = served.and_then(|()| {
        let exported =
            start.serve.as_ref().map(|serve| far::export(serve, front, (&server, &fs), &events));
        let exported = exported.transpose()?;
        let ended = serve(start, &server, &inbox, report);
        // Clients release what they hold before the volume is closed.
        watched = exported.and_then(far::Exported::end);
        ended
    });
    if let Some(recording) = recording {
        recording.end(was_made);
    }
    let closing = host::Closing::begin(env);
    server.end_background();
    if is_host {
        host::set_observed(&*env.device, None);
    }
    let closed = fs.close();
    drop(watched);
    closing.into_iter().for_each(host::Closing::end);
    if let Some(claim) = claim {
        claim.withdraw();
    }
    ended.and(closed.map_err(|error| not_closed(&start.volume, &Failure::from(error))))
}

/// Measures the volume in the background, if this process has a claim on it.
fn measure(server: &Arc<Server>, start: &Start, is_claimed: bool) -> Result<()> {
    let measuring = if is_claimed { server.measure() } else { Ok(()) };
    measuring.map_err(|error| failure::io("start a thread for", &start.volume, &error))
}

fn not_closed(volume: &Path, failure: &Failure) -> Failure {
    let message = format!("closing {}: {failure}", volume.display());
    Failure::new(failure.kind, message).hint("`pando fsck` reports whether the volume is whole")
}

/// Mounts the volume, and sends an event when the mount is gone.
fn mount(
    fs: Arc<dyn FileSystem>,
    options: &fuse::MountOptions,
    events: sync::Sender<Event>,
) -> Result<Arc<fuse::Mount>> {
    let mount = fuse::mount(fs, options).map_err(|error| failure::mount(&error))?;
    let mount = Arc::new(mount);
    let watched = Arc::clone(&mount);
    device::spawn("unmounted", move || {
        let ended = watched.wait();
        // The daemon may have left by itself meanwhile.
        events.send(Event::Unmounted(ended.map_err(|error| error.to_string()))).unwrap_or_default();
    })
    .map_err(|error| failure::thread(&error))?;
    Ok(mount)
}

/// Answers requests until something ends it.
fn serve(
    start: &Start,
    server: &Arc<Server>,
    inbox: &sync::Receiver<Event>,
    report: &mut dyn FnMut(&Launch),
) -> Result<()> {
    server.start()?;
    let pid = std::process::id();
    // Logged first: the command that hears of it may read the log when it has its answer.
    tracing::info!(volume = %start.volume.display(), pid, "the daemon is ready");
    report(&Launch::Ready { pid });
    let reason = server.wait(inbox);
    tracing::info!(volume = %start.volume.display(), ?reason, "the daemon ends");
    match reason {
        Event::HandOver | Event::Idle => {
            server.leave();
            Ok(())
        }
        Event::Signal => {
            unmount(server);
            server.leave();
            Ok(())
        }
        Event::Replaced(why) => {
            // Its clients go to the next server.
            if let Some(serve) = &start.serve {
                serve.server.remove(&serve.name);
            }
            server.leave();
            let message = format!("{}: {why}", host::shown(&start.volume));
            Err(Failure::new(FailureKind::Busy, message).hint("another server may serve it"))
        }
        Event::Unmounted(ended) => {
            // An import runs to its end, while the daemon answers other requests.
            server.keep_serving(inbox);
            server.leave();
            ended.map_err(|message| {
                let failure = Failure::new(FailureKind::Other, message);
                failure.hint("mount the volume again")
            })
        }
    }
}

fn unmount(server: &Server) {
    let Some(mount) = server.mount() else { return };
    match mount.unmount() {
        Ok(fuse::Unmounted::Clean) => {}
        Ok(fuse::Unmounted::Lazy) => {
            if mount.wait_for(LAZY_PATIENCE).is_none() {
                tracing::warn!("unmounting with open files: the daemon received a signal to end");
            }
        }
        Err(error) => tracing::warn!(%error, "not unmounted"),
    }
}

/// The lists of options that a mount was given.
fn lists(start: &Start) -> &[String] {
    start.mount.as_ref().map_or(&[], |mount| &mount.options)
}

fn options(start: &Start) -> Result<Option<fuse::MountOptions>> {
    let Some(mount) = &start.mount else { return Ok(None) };
    let mut options = fuse::MountOptions::new(&start.volume, &mount.mount_point);
    for list in &mount.options {
        options.parse(list).map_err(|error| failure::mount(&error.into()))?;
    }
    Ok(Some(options))
}

/// The options of a mount. An index whose directory is not open to every user is shown to the user
/// of the mount alone. Its directory is closed where one above its source is. Options that have who
/// may use the mount hold in any case.
fn alone_if_closed<S: AsRef<str>>(
    (volume, is_index): (&Path, bool),
    named: &[S],
    mut options: fuse::MountOptions,
) -> fuse::MountOptions {
    if is_index && !access::names_who(named) && !access::is_open_to_all(volume) {
        options.allow_other = false;
    }
    options
}

/// The options of a volume that is served: those of a mount that concern no kernel.
fn options_of_served(start: &Start) -> Result<Option<fuse::MountOptions>> {
    let Some(serve) = &start.serve else { return Ok(None) };
    let mut options = fuse::MountOptions::new(&start.volume, Path::new("/"));
    for list in &serve.options {
        options.parse(list).map_err(|error| failure::mount(&error.into()))?;
    }
    Ok(Some(options))
}

/// Refuses options that only mean something for a volume in an object store.
fn refuse_options_of_stores(mount: &fuse::MountOptions) -> Result<()> {
    let given = [
        ("small-files", mount.small_file_bytes.is_some()),
        ("commit-interval", mount.commit_interval.is_some()),
    ];
    let Some((option, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
    let message = format!("mount option '{option}' is for volumes in object stores");
    Err(Failure::new(FailureKind::Invalid, message).hint("leave the option out"))
}

fn open_options(start: &Start, mount: Option<&fuse::MountOptions>) -> fs::OpenOptions {
    let cache_bytes = start.cache_bytes.unwrap_or_else(cache_size::default_bytes);
    let mut options = fs::OpenOptions { cache_bytes, ..fs::OpenOptions::default() };
    if let Some(mount) = mount {
        if let Some(bytes) = mount.cache_bytes {
            options.cache_bytes = bytes.max(cache_size::CACHE_BYTES_MIN);
        }
        options.small_file_bytes = mount.small_file_bytes;
        options.commit_interval = mount.commit_interval.unwrap_or_default();
        options.merge_bytes_per_second = mount.merge_bytes_per_second.unwrap_or(0);
        options.read_only = mount.read_only;
        if mount.sync || mount.dirsync {
            options.durability = Durability::Sync;
        }
        if mount.atime == fuse::Atime::Never {
            options.atime = fs::Atime::Never;
        }
    }
    if let Some(serve) = &start.serve {
        options.durability = Durability::Settled;
        options.answers = true;
        options.log_buffer_bytes = serve.memory.log_buffer;
        options.data.unsynced_bytes_max = serve.memory.contents;
    }
    options.index = index_cache::options(start.index_bytes, options.cache_bytes);
    options
}
