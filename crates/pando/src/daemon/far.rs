//! The daemon of a volume that is served to other machines: what it passes to the server, and the
//! connections of their users.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use device::sync::Sender;
use fs::{FileSystem, Fs};
use inode::Caller;
use remote::{Export, Lasting, Warrant};
use standby::{Owned, Watched};
use wire::{Failure, FailureKind};

use super::about::Answered;
use super::event::Event;
use super::server::Server;
use super::sessions::Who;
use super::start::ServeStart;
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
    // (0 after an opening that took longer.)
    tracing::info!(seconds = wait.as_secs_f64(), "waiting for answers of the last server");
    clock.sleep(wait);
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
