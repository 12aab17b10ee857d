//! What one user of this machine, or one client of another, may take of a daemon. A client names
//! its users itself, so it counts as one, and not against a user of this machine who has the same
//! number.
//!
//! Memory is reserved for streams, dumps and comparisons, and for exports over the network. They
//! take it until they end, and go only as fast as their callers read: no limit on searches bounds
//! them. Nothing is reserved for root and the user of the volume, on this machine.

use std::sync::Arc;

use wire::{Failure, FailureKind};

use super::{Session, Sessions};
use crate::daemon::load::{Load, Memory};
use crate::daemon::shares::Taker;
use crate::daemon::stream_terms::MEMORY_OF_USERS;

/// Most of all users of this machine; and of all clients, whatever memory the server has. One user,
/// or client by the name in its certificate, gets half of it, and no more than that.
const RESERVED_MAX: u64 = 2 << 30;
const RESERVED_TO_ONE_MAX: u64 = 512 << 20;

/// Most memory that is reserved for all clients, or for all users.
#[derive(Clone, Copy)]
pub(super) struct Most(u64);

impl Default for Most {
    fn default() -> Most {
        Most(RESERVED_MAX)
    }
}

impl Most {
    fn of_one(self) -> u64 {
        (self.0 / 2).min(RESERVED_TO_ONE_MAX)
    }
}

impl Session {
    /// Whether limits on requests of one user count both together.
    pub(super) fn counts_with(&self, other: &Session) -> bool {
        match (&self.far, &other.far) {
            (Some(own), Some(other)) => own == other,
            (None, None) => self.who.uid == other.who.uid,
            _ => false,
        }
    }

    /// As what these limits count it, for people: who, and a word for its kind.
    pub(super) fn counted_as(&self) -> (String, &'static str) {
        match &self.far {
            Some(client) => (format!("the client {client}"), "client"),
            None => (format!("user {}", self.who.uid), "user"),
        }
    }

    /// Whose shares count what it takes; `None`: nobody's.
    pub(in crate::daemon) fn taker(&self) -> Option<Taker> {
        match &self.far {
            Some(client) => Some(Taker::Client(Arc::clone(client))),
            None => (!self.who.trusted).then_some(Taker::User(self.who.uid)),
        }
    }
}

impl Sessions {
    /// Reserves no more than that, of which one stream gets a quarter at most.
    pub(in crate::daemon) fn reserve_at_most(&mut self, bytes: u64) {
        self.most = Most(bytes.min(RESERVED_MAX));
    }

    /// Most memory of one stream or dump for another machine.
    pub(in crate::daemon) fn most_of_stream(&self) -> u64 {
        self.most.0 / 4
    }

    /// Begins a request of a connection, and returns how much memory it may take.
    pub(in crate::daemon) fn begin_with(
        &mut self,
        id: u64,
        (load, memory): (Load, Memory),
    ) -> Result<u64, Failure> {
        let reserved = self.reservable(id, memory)?;
        self.begin(id, load)?;
        if let (Some(open), Some(reserved)) = (self.open.get_mut(&id), reserved) {
            open.reserved = reserved;
        }
        Ok(reserved.unwrap_or(memory.most))
    }

    /// How much a connection reserves for a request; `None`: nothing. One that does with less gets
    /// half of what is left, so that another one gets something, too.
    fn reservable(&self, id: u64, memory: Memory) -> Result<Option<u64>, Failure> {
        let is_counted = |open: &&Session| memory.most > 0 && !open.is_of_here();
        let Some(open) = self.open.get(&id).filter(is_counted) else { return Ok(None) };
        let is_far = open.far.is_some();
        let most = if is_far { self.most } else { Most::default() };
        // (What a client may have was bounded before.)
        let bounded = |bytes: u64| if is_far { bytes } else { bytes.min(MEMORY_OF_USERS) };
        let [least, wanted] = [memory.least, memory.most].map(bounded);
        let (mut of_one, mut of_all) = (0, 0);
        for (other, of) in &self.open {
            if *other == id || of.far.is_some() != is_far {
                continue;
            }
            of_all = of.reserved.saturating_add(of_all);
            if of.counts_with(open) {
                of_one = of.reserved.saturating_add(of_one);
            }
        }
        let left = most.of_one().saturating_sub(of_one).min(most.0.saturating_sub(of_all));
        if least <= left {
            return Ok(Some(wanted.min(least.max(left / 2))));
        }
        let [of_one, of_all] = [of_one, of_all].map(|taken| least.saturating_add(taken));
        let (name, kind) = open.counted_as();
        let what = if is_far { "dumps, comparisons and exports" } else { "dumps and comparisons" };
        let message = format!(
            "streams, {what} of {name} take {} MiB with this one, and those of all {kind}s {} MiB: \
             the most is {} MiB, and {} MiB",
            of_one >> 20,
            of_all >> 20,
            most.of_one() >> 20,
            most.0 >> 20
        );
        Err(Failure::new(FailureKind::Busy, message)
            .hint("try again when another one has ended, or give them less by --memory"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::super::{Task, Who};
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);
    const STREAM: u64 = 256 << 20;

    fn begin(
        sessions: &mut Sessions,
        client: Option<&str>,
        uid: u32,
    ) -> (u64, Result<u64, Failure>) {
        begin_with(sessions, client, uid, Memory::of(STREAM))
    }

    fn begin_with(
        sessions: &mut Sessions,
        client: Option<&str>,
        uid: u32,
        memory: Memory,
    ) -> (u64, Result<u64, Failure>) {
        let (ours, _) = UnixStream::pair().unwrap();
        let who = Who { uid, pid: 0, trusted: uid == 0 };
        let id = sessions.add(ours, who, client.map(Into::into), NOW).unwrap();
        let task = Task { what: "sending a snapshot", continues: false };
        sessions.set_busy(id, Some(task), NOW);
        let begun = sessions.begin_with(id, (Load::Search, memory));
        // It waits for its client from here on, and is no search any more.
        sessions.end_turn(id);
        (id, begun)
    }

    #[test]
    fn a_client_is_one_whatever_users_it_names_and_takes_nothing_from_users_of_this_machine() {
        let mut sessions = Sessions::default();
        let mut search = |client: Option<&str>, uid| {
            let (ours, _) = UnixStream::pair().unwrap();
            let who = Who { uid, pid: 0, trusted: false };
            let id = sessions.add(ours, who, client.map(Into::into), NOW).unwrap();
            sessions
                .begin_with(id, (Load::Search, Memory::default()))
                .map_err(|failure| failure.message)
        };
        let begun = (0..32).filter(|uid| search(Some("one"), 1000 + uid % 4).is_ok()).count();
        assert_eq!(begun, 8);
        let refused = search(Some("one"), 2000).unwrap_err();
        assert!(refused.contains("the client one has 8 searches"), "{refused}");
        assert!(search(Some("two"), 1000).is_ok());
        let begun = (0..32).filter(|_| search(None, 1000).is_ok()).count();
        assert_eq!(begun, 8, "those of its number on another machine count");
    }

    #[test]
    fn streams_of_a_client_have_a_bounded_memory_whatever_users_it_names() {
        let mut sessions = Sessions::default();
        let mut begun = Vec::new();
        for client in ["one", "two", "three", "four", "five"] {
            for uid in [0, 1000, 1001, 1002] {
                let (id, outcome) = begin(&mut sessions, Some(client), uid);
                begun.extend(outcome.is_ok().then_some((client, id)));
            }
        }
        let of = |client| begun.iter().filter(|(of, _)| *of == client).count();
        assert_eq!(["one", "two", "three", "four", "five"].map(of), [2, 2, 2, 2, 0]);
        // Users of this machine have no part in that, and what ends makes space.
        assert!(begin(&mut sessions, None, 1000).1.is_ok());
        sessions.set_busy(begun[0].1, None, NOW);
        assert!(begin(&mut sessions, Some("five"), 1000).1.is_ok());
        assert_eq!(begin(&mut sessions, Some("five"), 0).1.unwrap_err().kind, FailureKind::Busy);
        // Anything else takes none of it.
        let (ours, _) = UnixStream::pair().unwrap();
        let who = Who { uid: 7, pid: 0, trusted: false };
        let id = sessions.add(ours, who, Some("two".into()), NOW).unwrap();
        assert!(sessions.begin_with(id, (Load::Search, Memory::default())).is_ok());
    }

    /// A user had as many streams as connections, of 256 MiB each.
    #[test]
    fn streams_of_a_user_of_this_machine_have_a_bounded_memory() {
        let mut sessions = Sessions::default();
        let (mut begun, mut refused) = (Vec::new(), Vec::new());
        for uid in [1, 2, 3, 4, 5] {
            for _ in 0..3 {
                let (id, outcome) = begin(&mut sessions, None, uid);
                match outcome {
                    Ok(_) => begun.push((uid, id)),
                    Err(failure) => refused.push(failure),
                }
            }
        }
        let of = |uid| begun.iter().filter(|(of, _)| *of == uid).count();
        assert_eq!([1, 2, 3, 4, 5].map(of), [2, 2, 2, 2, 0]);
        assert!(refused.iter().all(|failure| failure.kind == FailureKind::Busy));
        let first = &refused[0].message;
        assert!(first.contains("dumps and comparisons of user 1 take 768 MiB"), "{first}");
        assert!(first.contains("the most is 512 MiB, and 2048 MiB"), "{first}");
        // Root, clients, and what takes none of it continue.
        assert!(begin(&mut sessions, None, 0).1.is_ok());
        assert!(begin(&mut sessions, Some("one"), 1).1.is_ok());
        let id = refused_once(&mut sessions, 5);
        assert!(sessions.begin_with(id, (Load::Search, Memory::default())).is_ok());
        sessions.set_busy(begun[0].1, None, NOW);
        sessions.set_busy(id, None, NOW);
        assert!(
            sessions.begin_with(id, (Load::Search, Memory::of(u64::MAX))).is_ok(),
            "256 MiB at most"
        );
    }

    /// The third stream of a user failed after 10 s: each took 256 MiB of 512.
    #[test]
    fn streams_that_name_no_memory_share_what_is_left() {
        let memory = Memory { least: 16 << 20, most: STREAM };
        let mut sessions = Sessions::default();
        for client in [None, Some("one")] {
            let (mut given, mut ids) = (Vec::new(), Vec::new());
            let refused = loop {
                match begin_with(&mut sessions, client, 1, memory) {
                    (id, Ok(bytes)) => {
                        given.push(bytes >> 20);
                        ids.push(id);
                    }
                    (_, Err(failure)) => break failure,
                }
            };
            assert_eq!(given, [256, 128, 64, 32, 16, 16], "{client:?}");
            assert_eq!(refused.kind, FailureKind::Busy);
            assert!(refused.message.contains("take 528 MiB with this one"), "{}", refused.message);
            assert!(refused.message.contains("the most is 512 MiB"), "{}", refused.message);
            assert!(refused.hint.contains("give them less by --memory"), "{}", refused.hint);
            // One that names its memory gets that, or nothing.
            let named = begin(&mut sessions, client, 1).1.unwrap_err();
            assert_eq!(named.kind, FailureKind::Busy);
            for id in ids {
                sessions.set_busy(id, None, NOW);
            }
            assert_eq!(begin(&mut sessions, client, 1).1.unwrap(), STREAM);
        }
        assert_eq!(begin_with(&mut sessions, None, 0, memory).1.unwrap(), STREAM, "root");
    }

    /// A connection whose request was refused for its memory: it counts as no search.
    fn refused_once(sessions: &mut Sessions, uid: u32) -> u64 {
        let mut search = |memory| {
            let (ours, _) = UnixStream::pair().unwrap();
            let who = Who { uid, pid: 0, trusted: false };
            let id = sessions.add(ours, who, None, NOW).unwrap();
            (id, sessions.begin_with(id, (Load::Search, Memory::of(memory))))
        };
        let (id, outcome) = search(STREAM);
        assert_eq!(outcome.unwrap_err().kind, FailureKind::Busy);
        let searches = [0; 8].map(&mut search);
        for (other, begun) in searches {
            begun.unwrap();
            sessions.end_turn(other);
        }
        id
    }

    #[test]
    fn all_clients_together_leave_a_quarter_of_searches_and_imports_to_users_of_this_machine() {
        let mut sessions = Sessions::default();
        let mut begin = |client: Option<&str>, uid, load| {
            let (ours, _) = UnixStream::pair().unwrap();
            let who = Who { uid, pid: 0, trusted: false };
            let id = sessions.add(ours, who, client.map(Into::into), NOW).unwrap();
            let task = Task { what: "it", continues: false };
            sessions.set_busy(id, Some(task), NOW);
            sessions.begin_with(id, (load, Memory::default())).map_err(|failure| failure.message)
        };
        for (load, far) in [(Load::Search, 24), (Load::Import, 0)] {
            let clients = ["one", "two", "three", "four"];
            let begun = clients.iter().flat_map(|client| [client; 8]);
            let begun = begun.filter(|client| begin(Some(client), 1000, load).is_ok()).count();
            assert_eq!(begun, far, "{load:?}: searches of all kinds count together");
        }
        let refused = begin(Some("five"), 7, Load::Search).unwrap_err();
        assert!(refused.contains("the most of all clients"), "{refused}");
        let begun = (0..32).filter(|_| begin(None, 1000, Load::Import).is_ok()).count();
        assert_eq!(begun, 8, "a user of this machine has as many as ever");
    }

    #[test]
    fn searches_of_a_user_keep_no_short_request_from_anybody() {
        let mut sessions = Sessions::default();
        let mut begin = |uid, load| {
            let (ours, _) = UnixStream::pair().unwrap();
            let who = Who { uid, pid: 0, trusted: false };
            let id = sessions.add(ours, who, None, NOW).unwrap();
            sessions.begin_with(id, (load, Memory::default())).map_err(|failure| failure.message)
        };
        for uid in 1..=4 {
            assert!((0..8).all(|_| begin(uid, Load::Search).is_ok()));
        }
        let full = begin(5, Load::Search).unwrap_err();
        assert!(full.contains("the most of all users"), "{full}");
        assert!((0..8).all(|_| begin(1, Load::Short).is_ok()));
        let refused = begin(1, Load::Short).unwrap_err();
        assert!(refused.contains("8 reports and copies"), "{refused}");
        assert!(begin(5, Load::Short).is_ok());
    }

    #[test]
    fn streams_have_the_memory_that_the_server_gives_them() {
        let mut sessions = Sessions::default();
        sessions.reserve_at_most(STREAM * 2);
        assert_eq!(sessions.most_of_stream(), STREAM / 2);
        assert!(begin(&mut sessions, Some("one"), 1).1.is_ok());
        let refused = begin(&mut sessions, Some("one"), 2).1.unwrap_err();
        assert!(
            refused.message.contains("the most is 256 MiB, and 512 MiB"),
            "{}",
            refused.message
        );
        assert!(begin(&mut sessions, Some("two"), 1).1.is_ok());
        let refused = begin(&mut sessions, Some("three"), 1).1.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Busy, "{}", refused.message);
    }
}
