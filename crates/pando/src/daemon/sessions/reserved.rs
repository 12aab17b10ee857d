//! What clients of other machines may take of a daemon. A client names its users itself, so it
//! counts as one, and not against a user of this machine who has the same number.
//!
//! Memory is reserved for streams and dumps. They take it until they end, and go only as fast as
//! their clients read: no limit on searches bounds them.

use wire::{Failure, FailureKind};

use super::{Session, Sessions};
use crate::daemon::load::Load;

/// Most of all clients, whatever memory the server has. One client, by the name in its certificate,
/// gets half of it, and no more than that.
const RESERVED_MAX: u64 = 2 << 30;
const RESERVED_TO_CLIENT_MAX: u64 = 512 << 20;

/// Most memory that is reserved for all clients.
pub(super) struct Most(u64);

impl Default for Most {
    fn default() -> Most {
        Most(RESERVED_MAX)
    }
}

impl Most {
    fn of_client(&self) -> u64 {
        (self.0 / 2).min(RESERVED_TO_CLIENT_MAX)
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

    /// Begins a request of a connection that may take so much memory.
    pub(in crate::daemon) fn begin_with(
        &mut self,
        id: u64,
        (load, memory): (Load, u64),
    ) -> Result<(), Failure> {
        self.begin(id, load)?;
        self.reserve(id, memory)
    }

    fn reserve(&mut self, id: u64, memory: u64) -> Result<(), Failure> {
        let Some(client) = self.open.get(&id).and_then(|open| open.far.clone()) else {
            return Ok(());
        };
        let others = self.open.iter().filter(|(other, open)| **other != id && open.reserved > 0);
        let (mut of_client, mut of_all) = (memory, memory);
        for (_, open) in others {
            of_all = of_all.saturating_add(open.reserved);
            if open.far.as_ref() == Some(&client) {
                of_client = of_client.saturating_add(open.reserved);
            }
        }
        if memory > 0 && (of_client > self.most.of_client() || of_all > self.most.0) {
            let (one, all) = (self.most.of_client() >> 20, self.most.0 >> 20);
            let message = format!(
                "streams, dumps and exports of the client {client} take {} MiB with this one, and \
                 those of all clients {} MiB: the most is {one} MiB, and {all} MiB",
                of_client >> 20,
                of_all >> 20
            );
            return Err(Failure::new(FailureKind::Busy, message)
                .hint("try again when another one has ended, or give it less --memory"));
        }
        if let Some(open) = self.open.get_mut(&id) {
            open.reserved = memory;
        }
        Ok(())
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
    ) -> (u64, Result<(), Failure>) {
        let (ours, _) = UnixStream::pair().unwrap();
        let who = Who { uid, pid: 0, trusted: uid == 0 };
        let id = sessions.add(ours, who, client.map(Into::into), NOW).unwrap();
        let task = Task { what: "sending a snapshot", continues: false };
        sessions.set_busy(id, Some(task), NOW);
        let begun = sessions.begin_with(id, (Load::Search, STREAM));
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
            sessions.begin_with(id, (Load::Search, 0)).map_err(|failure| failure.message)
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
        assert!(sessions.begin_with(id, (Load::Search, 0)).is_ok());
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
            sessions.begin_with(id, (load, 0)).map_err(|failure| failure.message)
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
