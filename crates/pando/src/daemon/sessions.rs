//! The connections to a daemon: their users, their current requests, and the limit on their
//! number.
//!
//! Each connection costs a thread, four descriptors and up to 2 MiB, so their number is bounded.
//! One user gets a part of them. All users together leave some to root and to the user that owns
//! the volume. Those two can always look at the volume, unmount it and end the sessions of others.

mod reserved;

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use wire::{Failure, FailureKind, Followed, ScanWatch};

use super::load::{LIMITS, Load};
use super::peer_wait::PeerWait;

/// Most connections at once.
const CONNECTIONS_MAX: usize = 256;

/// How many of those are reserved for root and the user that owns the volume.
const CONNECTIONS_RESERVED: usize = 32;

/// Most connections of one other user at once.
const CONNECTIONS_OF_USER_MAX: usize = 64;

/// Most connections for users of other machines at once: those of one client, by the name in its
/// certificate, and of all. Whatever users they name, the rest is for users of this machine.
const CONNECTIONS_OF_CLIENT_MAX: usize = 64;
const CONNECTIONS_FAR_MAX: usize = 128;

/// An import that has sent no work for this long no longer keeps the volume from others.
const SILENT_AFTER: Duration = Duration::from_secs(30);

/// Nor does a request that has waited for this long until its peer reads: less than a mount waits
/// for a busy daemon.
const UNREAD_AFTER: Duration = Duration::from_secs(10);

/// The peer of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who {
    /// The user.
    pub(super) uid: u32,
    /// The process.
    pub(super) pid: i32,
    /// Whether it is root, or the user that owns the volume or runs the daemon.
    pub(super) trusted: bool,
}

/// A request under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    /// A description for people.
    pub(super) what: &'static str,
    /// It continues after the mount is gone: otherwise the part not yet done would be missing.
    pub(super) continues: bool,
}

/// The current request of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Busy {
    pub(super) task: Task,
    pub(super) since: Duration,
    /// When the peer last sent work.
    heard: Duration,
}

impl Busy {
    /// Whether the request makes no progress because the peer sends no work.
    fn is_silent(&self, now: Duration) -> bool {
        self.task.continues && now.saturating_sub(self.heard) >= SILENT_AFTER
    }
}

/// A connection.
pub(super) struct Session {
    stream: UnixStream,
    pub(super) who: Who,
    /// The client that has it, if it is for a user of another machine.
    far: Option<Arc<str>>,
    /// When it began, or last ended a request.
    rests_since: Duration,
    pub(super) busy: Option<Busy>,
    /// The load of its current request.
    load: Load,
    /// Whether it is in the middle of an import.
    imports: bool,
    /// Memory that is reserved for its current request: a stream, a dump or a comparison.
    reserved: u64,
    /// The user that ended it, if any.
    ended_by: Option<u32>,
    /// How long its peer keeps it waiting.
    wait: Arc<PeerWait>,
    /// How it follows the source of an index, if it does, and how many directories it cannot
    /// follow.
    follows: Option<(ScanWatch, u64)>,
}

impl Session {
    /// How long its peer keeps it waiting, shared with the thread that writes.
    pub(super) fn wait(&self) -> Arc<PeerWait> {
        Arc::clone(&self.wait)
    }

    /// Whether it is for a user that limits leave some to: on this machine, and trusted.
    fn is_of_here(&self) -> bool {
        self.who.trusted && self.far.is_none()
    }

    /// Whether the current request makes no progress because the peer does not read.
    fn is_unread(&self, now: Duration) -> bool {
        self.wait.waited(now).is_some_and(|waited| waited >= UNREAD_AFTER)
    }

    /// The current request, unless it makes no progress because of its peer.
    fn at_work(&self, now: Duration) -> Option<Busy> {
        self.busy.filter(|busy| !busy.is_silent(now) && !self.is_unread(now))
    }
}

/// All connections.
#[derive(Default)]
pub(super) struct Sessions {
    open: BTreeMap<u64, Session>,
    last_id: u64,
    /// Of memory for streams of other machines.
    most: reserved::Most,
}

impl Sessions {
    /// Whether there was a connection.
    pub(super) fn were_any(&self) -> bool {
        self.last_id > 0
    }

    /// Adds a connection and returns its number, or the limit that it exceeds.
    pub(super) fn add(
        &mut self,
        stream: UnixStream,
        who: Who,
        far: Option<Arc<str>>,
        now: Duration,
    ) -> Result<u64, Failure> {
        self.refuse(who, far.as_deref())?;
        self.last_id += 1;
        let session = Session {
            stream,
            who,
            far,
            rests_since: now,
            busy: None,
            load: Load::Light,
            imports: false,
            reserved: 0,
            ended_by: None,
            wait: Arc::default(),
            follows: None,
        };
        self.open.insert(self.last_id, session);
        Ok(self.last_id)
    }

    fn refuse(&self, who: Who, far: Option<&str>) -> Result<(), Failure> {
        let refused =
            |message: String, hint: &str| Err(Failure::new(FailureKind::Busy, message).hint(hint));
        if let Some(client) = far {
            let of_client = |open: &&Session| open.far.as_deref() == Some(client);
            let own = self.open.values().filter(of_client).count();
            let all = self.open.values().filter(|open| open.far.is_some()).count();
            if own >= CONNECTIONS_OF_CLIENT_MAX || all >= CONNECTIONS_FAR_MAX {
                let message = format!(
                    "the daemon of the volume has {own} connections for the client {client}, and \
                     {all} for all clients: the most is {CONNECTIONS_OF_CLIENT_MAX}, and \
                     {CONNECTIONS_FAR_MAX}"
                );
                return refused(message, "try again when other commands of clients have ended");
            }
        }
        let Who { uid, .. } = who;
        let trusted = who.trusted && far.is_none();
        let is_own = |open: &&Session| open.far.is_none() && open.who.uid == uid;
        let of_user = self.open.values().filter(is_own).count();
        if !trusted && far.is_none() && of_user >= CONNECTIONS_OF_USER_MAX {
            let message = format!(
                "user {uid} has {of_user} connections to the daemon of the volume, the most that \
                 one user may have"
            );
            return refused(message, "wait until other commands of this user have ended");
        }
        let others = self.open.values().filter(|open| !open.is_of_here()).count();
        if !trusted && others >= CONNECTIONS_MAX - CONNECTIONS_RESERVED {
            let message = format!(
                "the daemon of the volume has {others} connections, the most that it takes from \
                 users who are neither root nor the volume's"
            );
            return refused(message, "try again when commands of others have ended");
        }
        if self.open.len() >= CONNECTIONS_MAX {
            let message =
                format!("the daemon of the volume has {CONNECTIONS_MAX} connections, the most");
            return refused(message, "`pando session list` shows them, `session end` ends one");
        }
        Ok(())
    }

    /// Removes a connection that ended.
    pub(super) fn remove(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// Whether there are no connections.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The number of connections.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// A connection by its number, if it still exists.
    pub(super) fn get(&self, id: u64) -> Option<&Session> {
        self.open.get(&id)
    }

    /// Records the current request of a connection, if any.
    pub(super) fn set_busy(&mut self, id: u64, task: Option<Task>, now: Duration) {
        if let Some(open) = self.open.get_mut(&id) {
            open.busy = task.map(|task| Busy { task, since: now, heard: now });
            open.rests_since = now;
            open.load = Load::Light;
            open.imports = false;
            open.reserved = 0;
            open.wait.reset();
        }
    }

    /// Begins a request of a connection, unless its user or client, or all together, have reached
    /// the limit for this load.
    pub(super) fn begin(&mut self, id: u64, load: Load) -> Result<(), Failure> {
        let Some(open) = self.open.get(&id) else { return Ok(()) };
        let trusted = open.is_of_here();
        for (of, what, of_user_max, max) in LIMITS {
            if trusted || load != of && !(of == Load::Search && load.is_search()) {
                continue;
            }
            let counts = |open: &&Session| match of {
                Load::Ordered | Load::Short => open.load == of,
                Load::Import => open.imports,
                Load::Light | Load::Search => open.load.is_search(),
            };
            let under_way = || self.open.values().filter(counts).filter(|open| !open.is_of_here());
            let own = under_way().filter(|other| other.counts_with(open)).count();
            // Clients of other machines leave a quarter to users of this one.
            let max = if open.far.is_some() { max - max / 4 } else { max };
            let of_all = under_way().filter(|other| open.far.is_none() || other.far.is_some());
            let message = if own >= of_user_max {
                let (name, kind) = open.counted_as();
                format!("{name} has {own} {what} under way, the most of one {kind}")
            } else if of_all.count() >= max {
                let kind = if open.far.is_some() { "clients" } else { "users" };
                format!("{max} {what} are under way in the daemon, the most of all {kind}")
            } else {
                continue;
            };
            let hint = "try again when one of them has ended; `pando session list` shows them";
            return Err(Failure::new(FailureKind::Busy, message).hint(hint));
        }
        if let Some(open) = self.open.get_mut(&id) {
            open.load = load;
            open.imports |= load == Load::Import;
        }
        Ok(())
    }

    /// Notes that what a connection is in the middle of costs little from now on.
    pub(super) fn end_turn(&mut self, id: u64) {
        if let Some(open) = self.open.get_mut(&id) {
            open.load = Load::Light;
        }
    }

    /// Records that a connection sent work.
    pub(super) fn heard(&mut self, id: u64, now: Duration) {
        if let Some(open) = self.open.get_mut(&id)
            && let Some(busy) = open.busy.as_mut()
        {
            busy.heard = now;
            // Waits of a long import do not add up over its messages.
            open.wait.reset();
        }
    }

    /// The request that began first among the active ones. A stalled request is not active.
    pub(super) fn first_at_work(&self, now: Duration) -> Option<(u64, Who, Busy)> {
        let busy =
            self.open.iter().filter_map(|(id, open)| Some((*id, open.who, open.at_work(now)?)));
        busy.min_by_key(|(.., busy)| busy.since)
    }

    /// Whether a request is under way that continues after the mount is gone. A stalled request
    /// does not keep the volume from others.
    pub(super) fn continues(&self, now: Duration) -> bool {
        self.open.values().any(|open| open.at_work(now).is_some_and(|busy| busy.task.continues))
    }

    /// Records that a session follows the source of the index.
    pub(super) fn set_follows(&mut self, id: u64, by: ScanWatch, unwatched: u64) {
        if let Some(open) = self.open.get_mut(&id) {
            open.follows = Some((by, unwatched));
        }
    }

    /// The session that follows the source of the index, if any.
    pub(super) fn followed(&self) -> Option<Followed> {
        self.open.values().find_map(|open| {
            let (by, unwatched) = open.follows?;
            Some(Followed { by, pid: open.who.pid, uid: open.who.uid, unwatched })
        })
    }

    /// Ends a connection on behalf of a user. Returns `false` if no connection has that number.
    pub(super) fn end(&mut self, id: u64, by: u32) -> bool {
        let Some(open) = self.open.get_mut(&id) else { return false };
        open.ended_by = Some(by);
        // The daemon reads no more from it, so the request under way is cancelled and the reason
        // is sent.
        open.stream.shutdown(Shutdown::Read).unwrap_or_default();
        true
    }

    /// Closes a connection that does not end because it waits for the peer to read.
    pub(super) fn cut_off(&self, id: u64) {
        if let Some(open) = self.open.get(&id) {
            open.stream.shutdown(Shutdown::Both).unwrap_or_default();
        }
    }

    /// Closes the connections whose peers do not read.
    pub(super) fn cut_off_stalled(&self, now: Duration) {
        for open in self.open.values().filter(|open| open.is_unread(now)) {
            open.stream.shutdown(Shutdown::Both).unwrap_or_default();
        }
    }

    /// The user that ended a connection, if any.
    pub(super) fn ended_by(&self, id: u64) -> Option<u32> {
        self.open.get(&id)?.ended_by
    }

    /// Stops reading from connections: from all of them, or only from idle ones.
    pub(super) fn end_reading(&self, idle_only: bool) {
        for open in self.open.values().filter(|open| !idle_only || open.busy.is_none()) {
            open.stream.shutdown(Shutdown::Read).unwrap_or_default();
        }
    }

    /// The connections that a user may see, except the one that sent the request.
    pub(super) fn shown(&self, to: Who, asks: u64, now: Duration) -> Vec<wire::Session> {
        let shown = |id: u64, open: &Session| {
            let since = open.busy.map_or(open.rests_since, |busy| busy.since);
            let heard = open.busy.map_or(open.rests_since, |busy| busy.heard);
            wire::Session {
                id,
                uid: open.who.uid,
                pid: open.who.pid,
                request: open.busy.map(|busy| busy.task.what.to_owned()),
                holds: open.busy.is_some_and(|busy| busy.task.continues),
                seconds: now.saturating_sub(since).as_secs(),
                silent_seconds: now.saturating_sub(heard).as_secs(),
            }
        };
        let seen = |open: &Session| to.trusted || open.who.uid == to.uid;
        let open = self.open.iter().filter(|(id, open)| **id != asks && seen(open));
        open.map(|(id, open)| shown(*id, open)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);
    const IMPORT: Task = Task { what: "an import", continues: true };

    fn add(sessions: &mut Sessions, uid: u32, trusted: bool) -> Result<u64, Failure> {
        let (ours, _) = UnixStream::pair().unwrap();
        sessions.add(ours, Who { uid, pid: 1, trusted }, None, NOW)
    }

    #[test]
    fn clients_of_other_machines_leave_most_to_users_of_this_one() {
        let mut sessions = Sessions::default();
        let mut far = |client: &str, uid| {
            let (ours, _) = UnixStream::pair().unwrap();
            sessions.add(ours, Who { uid, pid: 0, trusted: uid == 0 }, Some(client.into()), NOW)
        };
        for client in ["one", "two", "three"] {
            // Users, and root; or one with the number of a user of this machine.
            let uid = |n: u32| if client == "two" { 1000 } else { n % 90 };
            let begun = (0..100).filter(|n| far(client, uid(*n)).is_ok()).count();
            assert_eq!(begun, if client == "three" { 0 } else { 64 });
        }
        assert_eq!(far("one", 0).unwrap_err().kind, FailureKind::Busy);
        for n in 0..96_u32 {
            add(&mut sessions, 1000 + n.saturating_sub(63), false).unwrap();
        }
        for _ in 0..32 {
            add(&mut sessions, 0, true).unwrap();
        }
    }

    #[test]
    fn one_user_gets_a_share_and_all_users_leave_some_to_root() {
        let mut sessions = Sessions::default();
        for uid in 1..=4 {
            for _ in 0..64 {
                if add(&mut sessions, uid, false).is_err() {
                    break;
                }
            }
            let refused = add(&mut sessions, uid, false).unwrap_err();
            assert_eq!(refused.kind, FailureKind::Busy);
            let limit = if uid == 4 { "has 224 connections" } else { "has 64 connections" };
            assert!(refused.message.contains(limit), "{}", refused.message);
        }
        assert_eq!(sessions.len(), 224);
        for _ in 0..32 {
            add(&mut sessions, 0, true).unwrap();
        }
        let refused = add(&mut sessions, 0, true).unwrap_err();
        assert!(refused.message.contains("256 connections"), "{}", refused.message);
    }

    #[test]
    fn others_see_their_own_sessions_only() {
        let mut sessions = Sessions::default();
        let [root, one, other] = [(0, true), (1, false), (2, false)]
            .map(|(uid, trusted)| add(&mut sessions, uid, trusted).unwrap());
        let seen = |uid, trusted, asks| {
            let shown = sessions.shown(Who { uid, pid: 1, trusted }, asks, NOW);
            shown.into_iter().map(|session| session.id).collect::<Vec<_>>()
        };
        assert_eq!(seen(0, true, root), [one, other]);
        assert_eq!(seen(1, false, 0), [one]);
        assert!(seen(2, false, other).is_empty());
    }

    #[test]
    fn one_user_gets_a_share_of_running_searches() {
        let mut sessions = Sessions::default();
        let mut begin = |uid, load| {
            let id = add(&mut sessions, uid, uid == 0).unwrap();
            (id, sessions.begin(id, load).map_err(|failure| failure.message))
        };
        let two = [begin(1, Load::Ordered), begin(1, Load::Ordered)];
        assert!(two.iter().all(|(_, begun)| begun.is_ok()));
        let refused = begin(1, Load::Ordered).1.unwrap_err();
        assert!(refused.contains("2 ordered searches"), "{refused}");
        for _ in 0..6 {
            begin(1, Load::Search).1.unwrap();
        }
        let refused = begin(1, Load::Search).1.unwrap_err();
        assert!(refused.contains("8 searches and counts"), "{refused}");
        begin(1, Load::Light).1.unwrap();
        begin(0, Load::Ordered).1.unwrap();
        for uid in [2, 3, 4] {
            for _ in 0..8 {
                begin(uid, Load::Search).1.unwrap();
            }
        }
        let refused = begin(5, Load::Search).1.unwrap_err();
        assert!(refused.contains("32 searches and counts"), "{refused}");
        sessions.set_busy(two[0].0, None, NOW);
        let id = add(&mut sessions, 5, false).unwrap();
        sessions.begin(id, Load::Ordered).unwrap();
    }

    /// Each import keeps levels and files of its own, for as long as it lasts.
    #[test]
    fn one_user_gets_a_share_of_imports() {
        let mut sessions = Sessions::default();
        let mut ids = Vec::new();
        for uid in [1, 2] {
            for number in 0..=8 {
                let id = add(&mut sessions, uid, false).unwrap();
                sessions.set_busy(id, Some(IMPORT), NOW);
                match sessions.begin(id, Load::Import) {
                    Ok(()) => ids.push(id),
                    Err(failure) => {
                        assert!(failure.message.contains("8 imports"), "{}", failure.message);
                        assert_eq!(number, 8);
                    }
                }
                // The import continues with other requests.
                sessions.begin(id, Load::Light).unwrap();
            }
        }
        assert_eq!(ids.len(), 16);
        sessions.set_busy(ids[0], None, NOW);
        let id = add(&mut sessions, 1, false).unwrap();
        sessions.begin(id, Load::Import).unwrap();
    }

    #[test]
    fn a_stalled_import_holds_nothing() {
        let mut sessions = Sessions::default();
        let id = add(&mut sessions, 1, false).unwrap();
        sessions.set_busy(id, Some(IMPORT), NOW);
        let later = NOW + SILENT_AFTER;
        assert!(sessions.continues(NOW) && sessions.first_at_work(NOW).is_some());
        assert!(!sessions.continues(later) && sessions.first_at_work(later).is_none());
        sessions.heard(id, later);
        assert!(sessions.continues(later));
    }

    const MOUNT_WAITS: Duration = Duration::from_secs(20);

    /// A request whose peer does not read its answer, for so long.
    fn unread(sessions: &mut Sessions, waits: Duration) -> (u64, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let who = Who { uid: 1, pid: 1, trusted: false };
        let id = sessions.add(ours, who, None, NOW).unwrap();
        sessions.set_busy(id, Some(Task { what: "a search", continues: true }), NOW);
        sessions.get(id).unwrap().wait().begin(NOW.checked_sub(waits).unwrap());
        theirs.set_nonblocking(true).unwrap();
        (id, theirs)
    }

    /// Whether a peer sees the end of its connection.
    fn is_ended(mut theirs: &UnixStream) -> bool {
        std::io::Read::read(&mut theirs, &mut [0]).is_ok_and(|bytes| bytes == 0)
    }

    #[test]
    fn a_request_whose_answer_is_not_read_holds_nothing() {
        let mut sessions = Sessions::default();
        let (id, _theirs) = unread(&mut sessions, Duration::ZERO);
        let soon = NOW + Duration::from_secs(5);
        assert!(sessions.continues(soon) && sessions.first_at_work(soon).is_some());
        // Before a mount gives up.
        let later = NOW + MOUNT_WAITS / 2;
        assert!(!sessions.continues(later) && sessions.first_at_work(later).is_none());
        sessions.get(id).unwrap().wait().end(later);
        assert!(sessions.continues(later) && sessions.first_at_work(later).is_some());
    }

    #[test]
    fn only_connections_whose_peers_do_not_read_are_cut_off() {
        let mut sessions = Sessions::default();
        let (_, reads) = unread(&mut sessions, Duration::from_secs(1));
        let (_, stalled) = unread(&mut sessions, MOUNT_WAITS);
        sessions.cut_off_stalled(NOW);
        assert!(is_ended(&stalled) && !is_ended(&reads));
    }

    /// The waits of one request are not those of the next, nor those of each message of an import.
    #[test]
    fn waits_of_requests_and_messages_do_not_add_up() {
        for is_message in [true, false] {
            let mut sessions = Sessions::default();
            let (id, _theirs) = unread(&mut sessions, Duration::ZERO);
            let wait = sessions.get(id).unwrap().wait();
            let mut now = NOW;
            for _ in 0..5 {
                now += Duration::from_secs(8);
                wait.end(now);
                if is_message {
                    sessions.heard(id, now);
                } else {
                    sessions.set_busy(id, Some(IMPORT), now);
                }
                wait.begin(now);
            }
            let soon = now + Duration::from_secs(5);
            assert!(sessions.continues(soon), "messages: {is_message}");
        }
    }

    #[test]
    fn a_follower_is_known_while_it_is_connected() {
        let mut sessions = Sessions::default();
        let other = add(&mut sessions, 0, true).unwrap();
        let id = add(&mut sessions, 7, false).unwrap();
        assert_eq!(sessions.followed(), None);
        for (by, unwatched) in [(ScanWatch::Inotify, 3), (ScanWatch::Fanotify, 0)] {
            sessions.set_follows(id, by, unwatched);
            assert_eq!(sessions.followed(), Some(Followed { by, pid: 1, uid: 7, unwatched }));
        }
        // It is idle, and keeps nobody waiting.
        assert!(!sessions.continues(NOW) && sessions.first_at_work(NOW).is_none());
        sessions.remove(other);
        assert!(sessions.followed().is_some());
        sessions.remove(id);
        assert_eq!(sessions.followed(), None);
    }
}
