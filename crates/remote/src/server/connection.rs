//! One connection: TLS, hello, then requests until it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::{Clock, Link};
use rpc::{Channel, ChannelError, Grant};
use wire::remote::{
    FEATURE_TAKEN_OVER, FEATURES, FrameKind, FsFailure, REMOTE_MAGIC, REMOTE_VERSION,
    REMOTE_VERSION_MIN, Reclaim, RemoteHello, RemoteWelcome, Resume, Use, put_head, split_head,
};
use wire::{FRAME_BYTES_MAX, Failure, FailureKind, decode, encode};

use super::calls;
use super::control::{SILENCE_MAX, Term};
use super::outbox::Connection;
use super::pongs::pong_frame;
use super::pool::Pool;
use super::request::{Received, Request};
use super::session::{Arrived, NotClaimed, REQUESTS_MAX, Session};
use super::volume::{Adding, Served};
use super::{Counted, Security, Shared, control};

/// How long a connection may take to prove who it is, and to send its hello.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// How often a client hears of the server while what it claims is looked for.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// Longest hello.
const HELLO_BYTES_MAX: usize = 16 << 10;

/// Finds out who is at the other end of a connection, and serves it to its end.
///
/// A session has a thread of its own, which this one starts. A thread keeps until its end the
/// memory that finding out the client takes, and a session lasts.
pub(super) fn serve(
    shared: &Arc<Shared>,
    link: Arc<dyn Link>,
    from: SocketAddr,
    mut counted: Counted,
) {
    let clock = Arc::clone(&shared.settings.clock);
    let closing = Arc::clone(&link);
    match greet(shared, link, from, clock) {
        Ok((channel, client, grant, hello)) => {
            let served = if counted.is_known(&client) {
                welcome(shared, &channel, client, grant, hello)
            } else {
                Err(Failure::new(FailureKind::Busy, "this client has too many connections")
                    .hint("end mounts and commands of other machines with its certificate"))
            };
            let own = Arc::clone(shared);
            let end = move |served: Result<(), Failure>| {
                if let Err(failure) = served {
                    tracing::info!(%from, %failure, "refused a client");
                    own.refused.fetch_add(1, Ordering::Relaxed);
                    refuse(&channel, &failure);
                }
                closing.close();
                drop(counted);
            };
            let welcomed = match served {
                Ok(Some(welcomed)) => welcomed,
                Ok(None) => return end(Ok(())),
                Err(failure) => return end(Err(failure)),
            };
            let own = Arc::clone(shared);
            let unserved = Arc::clone(&welcomed.connection);
            let exchange = move || end(welcomed.exchange(&own));
            if let Err(error) = device::spawn("serve-session", exchange) {
                tracing::warn!(%error, "cannot serve a connection");
                unserved.close();
            }
        }
        // Anybody can cause this.
        Err(failure) => {
            tracing::debug!(%from, %failure, "a connection was not a client's");
            shared.refused.fetch_add(1, Ordering::Relaxed);
            closing.close();
        }
    }
}

/// Sends the reason of an end.
fn refuse(channel: &Channel, failure: &Failure) {
    let mut frame = Vec::new();
    put_head(FrameKind::Refused, 0, &mut frame);
    encode(failure, &mut frame);
    channel.send(&frame).unwrap_or_default();
}

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn protocol(message: impl ToString) -> Failure {
    Failure::new(FailureKind::Protocol, message.to_string())
}

type Greeted = (Arc<Channel>, String, Grant, RemoteHello);

/// Finds out who the other side is, and reads its hello.
fn greet(
    shared: &Shared,
    link: Arc<dyn Link>,
    from: SocketAddr,
    clock: Arc<dyn Clock>,
) -> Result<Greeted, Failure> {
    let channel = match &shared.settings.security {
        Security::Tls(tls) => {
            let tls = tls.accept().map_err(protocol)?;
            Channel::encrypted(link, clock, tls, HELLO_WITHIN).map_err(protocol)?
        }
        Security::Local(_) => Channel::plain(link, clock).map_err(protocol)?,
    };
    let mut frame = Vec::new();
    channel.receive(&mut frame, HELLO_BYTES_MAX, HELLO_WITHIN).map_err(protocol)?;
    let hello: RemoteHello = match split_head(&frame) {
        Some((FrameKind::Hello, 0, body)) => decode(body).map_err(protocol)?,
        _ => return Err(protocol("its first message is not a hello")),
    };
    if hello.magic != REMOTE_MAGIC {
        return Err(protocol("its first message is of a different protocol"));
    }
    let known = match &shared.settings.security {
        Security::Tls(_) => channel.granted(),
        // (If the connection was reset before this, another process may have the other end's
        // address by now. Then the welcome cannot be sent, and no request is read.)
        Security::Local(who) => who(from, shared.listener.address()),
    };
    let Some((client, grant)) = known else {
        let message = match &shared.settings.security {
            Security::Tls(_) => "the certificate of this client grants nothing",
            Security::Local(_) => {
                "without certificates a server is for root and for the user who runs it"
            }
        };
        let failure = Failure::new(FailureKind::Permission, message)
            .hint("`pando cluster certs` makes certificates for clients");
        refuse(&channel, &failure);
        return Err(failure);
    };
    Ok((Arc::new(channel), client, grant, hello))
}

/// A connection of a session, and what its client gets first.
struct Welcomed {
    session: Arc<Session>,
    connection: Arc<Connection>,
    hello: RemoteHello,
    welcome: RemoteWelcome,
    /// Found out before: to read a certificate takes a large part of a stack, which a session's
    /// thread would keep.
    term: Term,
}

/// Answers a hello, and serves a command; a session is returned, to be served.
fn welcome(
    shared: &Arc<Shared>,
    channel: &Arc<Channel>,
    client: String,
    grant: Grant,
    hello: RemoteHello,
) -> Result<Option<Welcomed>, Failure> {
    let version = hello.version.min(REMOTE_VERSION);
    if version < hello.version_min.max(REMOTE_VERSION_MIN) {
        let message = format!(
            "the server speaks versions {REMOTE_VERSION_MIN} to {REMOTE_VERSION} of the protocol, \
             this client {} to {}",
            hello.version_min, hello.version
        );
        return Err(protocol(message).hint("use one version of pando on both machines"));
    }
    let name = hello.volume.lossy();
    // Only clients that may use a volume learn that it exists.
    let volume = shared.volumes.lock().get(&name).cloned().filter(|_| grant.has_volume(&name));
    let Some(volume) = volume else {
        let elsewhere = shared.elsewhere.lock().get(&name).cloned();
        if let Some(address) = elsewhere.filter(|_| grant.has_volume(&name)) {
            let mut frame = Vec::new();
            put_head(FrameKind::Moved, 0, &mut frame);
            frame.extend_from_slice(address.as_bytes());
            channel.send(&frame).unwrap_or_default();
            return Ok(None);
        }
        let message = format!("this server has no volume {name} for this client");
        return Err(Failure::new(FailureKind::NotFound, message)
            .hint("use a name of `pando serve` that the certificate has"));
    };
    // Before it waits for the store, for its session would be ended meanwhile.
    let continuing = hello.resume.and_then(|resume| volume.continuing(resume.secret));
    if !volume.may_answer() {
        let message = "another server has taken the volume over";
        return Err(Failure::new(FailureKind::Leaving, message).hint("connect again"));
    }
    let takes_over = if volume.may_be_taken_over() { FEATURE_TAKEN_OVER } else { 0 };
    let features = (FEATURES & !FEATURE_TAKEN_OVER) | takes_over;
    let mut welcome = RemoteWelcome {
        magic: REMOTE_MAGIC,
        version,
        features: hello.features & features,
        session: Resume { session: 0, secret: [0; 16], attempt: 0 },
        resumed: false,
        reclaims: false,
        requests_max: REQUESTS_MAX as u32,
        silence_seconds: SILENCE_MAX.as_secs() as u32,
        read_only: grant.read_only,
    };
    if hello.use_for == Use::Control {
        if grant.read_only {
            let message = "this client may only read, and verbs may change something";
            return Err(Failure::new(FailureKind::Permission, message)
                .hint("use the mount, or a certificate without --read-only"));
        }
        let caller = grant.caller(&hello.who).map_err(|refusal| {
            Failure::new(FailureKind::Permission, refusal.to_string())
                .hint("use a certificate that names this user, from `pando cluster certs`")
        })?;
        let stream = (volume.control)(&client, caller).map_err(|error| {
            Failure::new(FailureKind::Other, format!("cannot reach the daemon: {error}"))
                .hint("try again when the volume is mounted on the server")
        })?;
        send_welcome(channel, &welcome)?;
        let term = Term::of(channel, &shared.settings.clock);
        let usage = volume.usage(&client.into());
        control::carry(&volume, (channel, term), &stream, usage).map_err(protocol)?;
        return Ok(None);
    }
    let client: Arc<str> = client.into();
    let (session, resumed) = session(shared, &volume, &client, grant, &hello)?;
    drop(continuing);
    let attempt = hello.resume.filter(|_| resumed).map_or(0, |resume| resume.attempt);
    welcome.session = Resume { session: session.id, secret: session.secret, attempt };
    welcome.resumed = resumed;
    welcome.reclaims = session.must_claim(attempt);
    let usage = Arc::clone(&session.usage);
    let pool = Arc::clone(&shared.pool);
    let connection = Connection::new(Arc::clone(channel), usage, pool);
    let term = Term::of(channel, &shared.settings.clock);
    Ok(Some(Welcomed { session, connection, hello, welcome, term }))
}

impl Welcomed {
    /// Serves the connection to its end.
    fn exchange(self, shared: &Arc<Shared>) -> Result<(), Failure> {
        let Welcomed { session, connection, hello, welcome, term } = self;
        let served = exchange(shared, (&session, &connection), (&hello, &welcome), &term);
        // (Its thread ends. The reason of an end is still sent.)
        connection.end();
        served
    }
}

/// Serves the requests of a connection of a session.
fn exchange(
    shared: &Arc<Shared>,
    (session, connection): (&Arc<Session>, &Arc<Connection>),
    (hello, welcome): (&RemoteHello, &RemoteWelcome),
    term: &Term,
) -> Result<(), Failure> {
    // Before it is attached: no answer goes out ahead of the welcome.
    send_welcome(&connection.channel, welcome)?;
    if !session.attach(connection, welcome.session.attempt, &hello.awaits) {
        let message = "the session has ended, or has a newer connection";
        return Err(Failure::new(FailureKind::Leaving, message).hint("connect again"));
    }
    let attempt = welcome.session.attempt;
    let ended = receive(shared, session, (connection, attempt), term);
    session.detach(connection, shared.settings.clock.monotonic());
    match ended {
        Ok(()) => {
            session.volume.end(session);
            Ok(())
        }
        Err(ChannelError::Closed | ChannelError::Broken(_)) => Ok(()),
        Err(error) => Err(protocol(error)),
    }
}

fn send_welcome(channel: &Channel, welcome: &RemoteWelcome) -> Result<(), Failure> {
    let mut frame = Vec::new();
    put_head(FrameKind::Welcome, 0, &mut frame);
    encode(welcome, &mut frame);
    channel.send(&frame).map_err(protocol)
}

/// The session that a client continues, or a new one.
fn session(
    shared: &Shared,
    volume: &Arc<Served>,
    client: &Arc<str>,
    grant: Grant,
    hello: &RemoteHello,
) -> Result<(Arc<Session>, bool), Failure> {
    if let Some(Resume { session, secret, .. }) = hello.resume
        && let Some(session) = volume.session(session)
        && constant_time_eq(&session.secret, &secret)
        && session.client == *client
        // A certificate that was replaced may grant less.
        && session.grant == grant
    {
        return Ok((session, true));
    }
    let random = &shared.settings.random;
    // One from before this process, which its client alone can name.
    let of_before = hello.resume.filter(|resume| {
        volume.grace.as_ref().is_some_and(|grace| grace.continues(&resume.secret))
            && !device::mutated("no session from before the restart is continued")
    });
    let own = || {
        let mut secret = [0; 16];
        random.fill(&mut secret);
        (secret, false)
    };
    // Before the volume keeps it: what is refused leaves nothing there.
    if of_before.is_none() && !volume.may_add(client) {
        return Err(too_many(client, volume));
    }
    let (secret, is_kept) = match (&of_before, &volume.lasting) {
        (Some(resume), _) => (resume.secret, true),
        (None, Some(lasting)) => match lasting.begin() {
            Ok(secret) => (secret, true),
            // Files can be read, and removed, in a full volume; and other clients have nothing to
            // do with how many sessions some have.
            Err(error) => {
                tracing::warn!(%error, "a session begins that no other process can continue");
                own()
            }
        },
        (None, None) => own(),
    };
    let known = |id: &u64| volume.session(*id).is_none();
    let id = of_before.map(|resume| resume.session).filter(known);
    let id = id.unwrap_or_else(|| random.next_u64());
    let now = shared.settings.clock.monotonic();
    let is_of_before = of_before.is_some();
    let (own, kinds) = ((id, secret), (is_of_before, is_kept));
    let session = Session::new(own, kinds, Arc::clone(client), grant, Arc::clone(volume), now);
    let session = Arc::new(session);
    let failure = match volume.add(&session) {
        Adding::Added => {
            let what = if is_of_before { "continues" } else { "has begun" };
            tracing::info!(%client, volume = %volume.name, "a client {what} a session");
            return Ok((session, is_of_before));
        }
        Adding::Known(session) => return Ok((session, true)),
        Adding::Taken => Failure::new(FailureKind::Leaving, "another session has this number")
            .hint("connect again"),
        Adding::TooMany => too_many(client, volume),
        Adding::Ended => Failure::new(FailureKind::Leaving, "the volume is being closed")
            .hint("try again when it is served again"),
    };
    if !is_of_before {
        session.end_for_good();
    }
    Err(failure)
}

fn too_many(client: &str, volume: &Served) -> Failure {
    let most = volume.bounds.sessions_of_client;
    let message = if volume.has_all_sessions() {
        format!("the volume has {} sessions, the most of all clients", volume.bounds.sessions)
    } else {
        format!("the client {client} has {most} sessions, the most")
    };
    Failure::new(FailureKind::Busy, message).hint("unmount what is not used")
}

fn constant_time_eq(one: &[u8; 16], other: &[u8; 16]) -> bool {
    one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Receives requests until the connection ends; `Ok`: the client closed it in order.
fn receive(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    (connection, attempt): (&Arc<Connection>, u64),
    term: &Term,
) -> Result<(), ChannelError> {
    let mut frame = Vec::new();
    let _present = shared.pool.present(&session.client);
    loop {
        let mut admitted = Admitted { pool: &shared.pool, client: &session.client, bytes: 0 };
        // While it waits nothing is received: it ends if nobody wants it any more, and its client
        // hears that the server is there.
        let mut shows = alive(&shared.settings.clock, connection);
        let mut continues = || {
            shows();
            session.is_on(connection) && term.check().is_ok()
        };
        let mut admit = |bytes| admitted.admit(bytes, &mut continues);
        let channel = &connection.channel;
        channel.receive_admitted(&mut frame, FRAME_BYTES_MAX, SILENCE_MAX, &mut admit)?;
        term.check()?;
        match split_head(&frame) {
            Some((FrameKind::Request, id, body)) if id > 0 => {
                // Before it is counted, whenever it runs: what it acknowledges may make the space
                // for it.
                let asked = Received::of(session, body);
                // Before it is the session's: what gives up is not under way.
                if admitted.bytes == 0 {
                    admitted.admit(frame.len(), &mut continues)?;
                }
                match session.arrive(id, connection) {
                    Arrived::New(cancel) => {
                        let request = Request {
                            session: Arc::clone(session),
                            connection: Arc::clone(connection),
                            id,
                            message: std::mem::take(&mut frame),
                            asked,
                            cancel,
                        };
                        shared.pool.put(&session.client, admitted.pass(), Box::new(request));
                    }
                    Arrived::Known => {}
                    Arrived::Superseded => return Err(ChannelError::Closed),
                    Arrived::Repeated => {
                        return Err(broken("a request is repeated more than once on a connection"));
                    }
                    Arrived::TooMany => return Err(broken("more requests than may be in flight")),
                }
            }
            Some((FrameKind::Ping, number, body)) => {
                let have: Vec<u64> = decode(body).map_err(|error| broken(&error.to_string()))?;
                session.acknowledge(&have);
                if session.usage.answers.was_pressed() {
                    shared.pool.look_again();
                }
                pong(&session.volume, connection, number);
            }
            Some((FrameKind::Cancel, id, _)) => {
                if session.give_up(id) {
                    let frame = calls::frame(id, Err(FsFailure::Interrupted));
                    session.answered(id, frame, false);
                }
                // One that has not begun ends at once.
                shared.pool.look_again();
            }
            // Here, so that requests that follow find what the session holds.
            Some((FrameKind::Reclaim, _, body)) => {
                claim(shared, session, (connection, attempt), body)?;
            }
            Some((FrameKind::Bye, ..)) => return Ok(()),
            _ => return Err(broken("a message that a client does not send in this state")),
        }
    }
}

/// What a client claims that it held before this process served the volume.
fn claim(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    (connection, attempt): (&Arc<Connection>, u64),
    body: &[u8],
) -> Result<(), ChannelError> {
    let reclaim: Reclaim = decode(body).map_err(|error| broken(&error.to_string()))?;
    let clock = &shared.settings.clock;
    let mut alive = alive(clock, connection);
    match session.reclaim(&reclaim, attempt, (&**clock, &mut alive)) {
        Ok(()) => {
            // Locks of others may have waited for it.
            shared.pool.look_again();
            Ok(())
        }
        Err(NotClaimed::Superseded) => Err(ChannelError::Closed),
        Err(NotClaimed::Ends(reason)) => {
            tracing::warn!(client = %session.client, reason, "a session ends");
            session.volume.end(session);
            Err(broken(reason))
        }
    }
}

/// Shows a client now and then that the server works for it, while no ping is answered. It sends a
/// pong to no ping, which shows nothing else.
fn alive<'a>(clock: &'a Arc<dyn Clock>, connection: &'a Arc<Connection>) -> impl FnMut() + use<'a> {
    let mut last = clock.monotonic();
    move || {
        let now = clock.monotonic();
        if now.saturating_sub(last) >= ALIVE_EVERY {
            last = now;
            connection.send(pong_frame(0));
        }
    }
}

/// Answers a ping: with the first pong after an answer its client knows that this process owned the
/// volume when the answer arrived.
fn pong(volume: &Arc<Served>, connection: &Arc<Connection>, number: u64) {
    if volume.is_known_to_be_ours() {
        connection.send_pong(pong_frame(number));
    } else if volume.pongs.put(connection, number) {
        let own = Arc::clone(volume);
        let answer = move || own.pongs.answer(|| own.may_answer());
        if let Err(error) = device::spawn("serve-pong", answer) {
            tracing::warn!(%error, "cannot answer pings");
            volume.pongs.drop_all();
        }
    }
}

/// Bytes of a message that were admitted, and are not those of a request yet.
struct Admitted<'a> {
    pool: &'a Pool,
    client: &'a Arc<str>,
    bytes: usize,
}

impl Admitted<'_> {
    fn admit(
        &mut self,
        bytes: usize,
        continues: &mut dyn FnMut() -> bool,
    ) -> Result<(), ChannelError> {
        if !self.pool.admit(self.client, bytes, continues) {
            return Err(ChannelError::Closed);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// They are a request's from now on.
    fn pass(&mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.pool.dismiss(self.client, self.bytes);
        }
    }
}

fn broken(text: &str) -> ChannelError {
    ChannelError::Unexpected(text.to_owned())
}
