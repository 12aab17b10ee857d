//! The daemon of a volume that is served to other machines: what it passes to the server, and what
//! its clients may not ask of a daemon.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use device::sync::Sender;
use fs::{FileSystem, Fs};
use inode::Caller;
use remote::{Export, Lasting, Warrant};
use standby::{Owned, Watched};
use wire::{Answer, Call, Failure, FailureKind, FoundOutcome};

use super::about::Answered;
use super::event::Event;
use super::server::Server;
use super::sessions::Who;
use super::start::ServeStart;
use super::stream_terms::MEMORY_OF_USERS;
use crate::failure;

/// A volume that is served; dropping this ends the sessions of its clients.
pub(super) struct Exported {
    serve: ServeStart,
    watched: Option<Watched>,
}

impl Exported {
    /// Ends the sessions; what is returned watches until the volume is closed.
    pub(super) fn end(mut self) -> Option<Watched> {
        let watched = self.watched.take();
        drop(self);
        watched.inspect(Watched::close)
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        self.serve.server.remove(&self.serve.name);
    }
}

/// Serves a volume from now on.
pub(super) fn export(
    serve: &ServeStart,
    front: Arc<dyn FileSystem>,
    (server, fs): (&Arc<Server>, &Arc<Fs>),
    events: &Sender<Event>,
) -> Answered<Exported> {
    let (warrant, watched) = warrant(serve, (server, fs), events)?.unzip();
    let warrant = warrant.map(|owned| owned as Arc<dyn Warrant>);
    let daemon = Arc::downgrade(server);
    let control = move |client: &str, caller| match daemon.upgrade() {
        Some(daemon) => admit(&daemon, client, caller),
        None => Err(io::ErrorKind::NotConnected.into()),
    };
    let name = serve.name.clone();
    let lasting = fs.may_change().is_ok();
    let lasting = lasting.then(|| Arc::<Fs>::clone(fs) as Arc<dyn Lasting>);
    let export = Export { name, fs: front, control: Box::new(control), warrant, lasting };
    if serve.server.add(export) {
        return Ok(Exported { serve: serve.clone(), watched });
    }
    let message = format!("another volume is served as {}", serve.name);
    Err(Failure::new(FailureKind::Exists, message).hint("serve it under a name: NAME=VOLDIR"))
}

/// The right to answer for a volume that other servers can take over. Waits until no predecessor
/// may answer from memory any more.
fn warrant(
    serve: &ServeStart,
    (server, fs): (&Arc<Server>, &Fs),
    events: &Sender<Event>,
) -> Answered<Option<(Arc<Owned>, Watched)>> {
    let Some(mandate) = &serve.mandate else { return Ok(None) };
    let (store, clock) = (Arc::clone(&fs.store), Arc::clone(&fs.env.clock));
    let wait = store.serve_from().saturating_sub(clock.monotonic());
    if !wait.is_zero() {
        tracing::info!(seconds = wait.as_secs_f64(), "waiting for answers of the last owner");
        clock.sleep(wait);
    }
    let events = events.clone();
    // (The daemon may have left by itself meanwhile.)
    let on_end = move |end: standby::End| events.send(end.into()).unwrap_or_default();
    let owned = Owned::new(store, clock, Box::new(on_end));
    let traffic = server.store().map(|(store, _)| Arc::clone(&store.traffic));
    let watched = owned.watch(Arc::clone(mandate), traffic);
    let watched = watched.map_err(|error| failure::thread(&error))?;
    Ok(Some((owned, watched)))
}

/// Opens a connection for a user of another machine; returns its other end.
fn admit(server: &Arc<Server>, client: &str, caller: Caller) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    // (The owner of the volume's directory is a user of this machine.)
    let who = Who { uid: caller.uid, pid: 0, trusted: caller.is_root() };
    server.begin_session(ours, who, Some((client.into(), caller)))?;
    Ok(theirs)
}

/// Refuses what only commands on the daemon's own machine may ask: they name its processes, its
/// mounts and its directories, or keep it busy for everybody.
/// `stream`: most memory of a stream of theirs.
pub(super) fn check(call: &mut Call<'_>, caller: &Caller, stream: u64) -> Answered<()> {
    let what = match call {
        Call::HandOver | Call::ServesMount { .. } => "ending or asking about its daemon",
        Call::Sessions | Call::SessionEnd { .. } => "sessions of its daemon",
        Call::ScanOpen { .. } | Call::Scan { .. } | Call::ScanFlush => "updates of an index",
        // Here they are for root and for the user of this process, which no client acts for by the
        // number alone.
        Call::Declare { .. } if !caller.is_root() => "declaring attributes",
        Call::ClusterLimits { .. } if !caller.is_root() => "limits of the cluster",
        Call::IndexFlush { .. } if !caller.is_root() => "writing an index",
        Call::ScanFollow { .. } if !caller.is_root() => "following a source",
        Call::Check if !caller.is_root() => "a check",
        Call::Collect { .. } if !caller.is_root() => "a collection",
        // It names a directory of this machine and a process.
        Call::ScanInfo if !caller.is_root() => "the source of an index",
        // The memory is this machine's: root of another one has as much as users.
        Call::Send { memory, .. }
        | Call::Dump { memory, .. }
        | Call::Export { memory, .. }
        | Call::Diff { memory, .. } => {
            *memory = (*memory).min(MEMORY_OF_USERS).min(stream);
            return Ok(());
        }
        _ => return Ok(()),
    };
    let message = format!("{what}: not over a network");
    let hint = "run the command on the server; some take a certificate with --keep-root";
    Err(Failure::new(FailureKind::NotSupported, message).hint(hint))
}

/// An answer as users of other machines may see it. What a search read reveals what exists: to the
/// user of this process that is no secret, but no client is that user by the number alone.
pub(super) fn shown(answer: Answer, caller: &Caller) -> Answer {
    match answer {
        Answer::Found(total) if !caller.is_root() => Answer::Found(FoundOutcome {
            clusters: 0,
            clusters_read: 0,
            walked: 0,
            rows_tested: 0,
            ..total
        }),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use inode::Caller;
    use wire::{Answer, Call, FailureKind, FoundOutcome, ScanWatch};

    use super::{MEMORY_OF_USERS, check, shown};

    /// A client need not be this program, which refuses most of them itself: the daemon decides.
    #[test]
    fn what_acts_on_the_daemons_machine_is_refused() {
        let path = &b"/"[..];
        let root = Caller::root();
        let user = Caller { uid: 1000, gid: 1000, ..Caller::root() };
        let open =
            Call::ScanOpen { source: path, started: 0, crosses_mounts: false, keeps_xattrs: false };
        let of_nobody = [
            Call::HandOver,
            Call::ServesMount { device: path },
            Call::Sessions,
            Call::SessionEnd { id: 1 },
            Call::ScanFlush,
            Call::Scan { items: &[] },
            open,
        ];
        for call in of_nobody {
            for caller in [&root, &user] {
                let refused =
                    check(&mut call.clone(), caller, u64::MAX).expect_err(&format!("{call:?}"));
                assert_eq!(refused.kind, FailureKind::NotSupported, "{call:?}");
            }
        }
        let of_root = [
            Call::Check,
            Call::Collect { delete_after: None },
            Call::ScanInfo,
            Call::IndexFlush { path },
            Call::ClusterLimits { directories: Some(1), inodes: None },
            Call::ScanFollow { by: ScanWatch::Inotify, unwatched: 0 },
        ];
        for call in of_root {
            let refused = check(&mut call.clone(), &user, u64::MAX).unwrap_err();
            assert_eq!(refused.kind, FailureKind::NotSupported, "{call:?}");
            assert!(check(&mut call.clone(), &root, u64::MAX).is_ok(), "{call:?}");
        }
        let mut dump = Call::Dump { path, memory: u64::MAX };
        check(&mut dump, &root, u64::MAX).unwrap();
        assert_eq!(dump, Call::Dump { path, memory: MEMORY_OF_USERS });
        check(&mut dump, &root, 32 << 20).unwrap();
        assert_eq!(dump, Call::Dump { path, memory: 32 << 20 });
        let mut export = Call::Export { path, memory: u64::MAX };
        check(&mut export, &root, u64::MAX).unwrap();
        assert_eq!(export, Call::Export { path, memory: MEMORY_OF_USERS });
        let (base, token, hold) = (None, None, None);
        let mut send =
            Call::Send { base, snapshot: path, token, memory: u64::MAX, dry_run: false, hold };
        check(&mut send, &root, u64::MAX).unwrap();
        assert!(matches!(send, Call::Send { memory: MEMORY_OF_USERS, .. }));
        check(&mut Call::Stat { path }, &user, u64::MAX).unwrap();
    }

    /// The number of this process's user is any client's to name.
    #[test]
    fn what_a_search_read_is_shown_to_root_alone() {
        let total = FoundOutcome { matched: 3, walked: 5, rows_tested: 7, ..Default::default() };
        let own = rustix::process::geteuid().as_raw().max(1);
        let user = Caller { uid: own, gid: own, ..Caller::root() };
        let Answer::Found(seen) = shown(Answer::Found(total), &user) else { panic!() };
        assert_eq!((seen.matched, seen.walked, seen.rows_tested), (3, 0, 0));
        let Answer::Found(seen) = shown(Answer::Found(total), &Caller::root()) else { panic!() };
        assert_eq!(seen.walked, 5);
    }
}
