//! A server that wants to own volumes. It has one lease, under which it advertises itself, and
//! under which the names of the volumes are that it owns.
//!
//! The server calls [`Campaign::renew`] and [`Campaign::step`] several times in the length of its
//! lease, each from its own thread. Questions about many volumes, to a slow coordinator, must not
//! delay the renewal of the lease. When the lease has ended, although the server lives, it begins
//! another one; what another server has taken meanwhile stays that server's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use device::sync::Mutex;

use crate::coordinator::{Coordinator, Error, Item, Lease, Put, Result};
use crate::values::{Advertised, Holder, holder_key, server_key};

/// A server's part in the decisions about volumes.
pub struct Campaign {
    coordinator: Arc<dyn Coordinator>,
    name: String,
    own: Advertised,
    length: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    /// Volumes that this server owns or wants, and what is known of each.
    volumes: BTreeMap<[u8; 16], Standing>,
    /// Volumes whose names this server may have although it does not want them: a call that would
    /// have given one back failed. Each step tries again.
    owed: BTreeSet<[u8; 16]>,
}

/// The state of a volume in the campaign.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Standing {
    /// Not asked yet, or the coordinator did not answer.
    #[default]
    Unknown,
    /// This server should own it.
    Ours,
    /// Another one does.
    Theirs(Holder),
}

impl Campaign {
    /// A server by its name. `length`: how long its names live when it does not.
    pub fn new(
        coordinator: Arc<dyn Coordinator>,
        name: &str,
        own: Advertised,
        length: Duration,
    ) -> Campaign {
        let state = Mutex::default();
        Campaign { coordinator, name: name.to_owned(), own, length, state }
    }

    /// Wants a volume from now on.
    pub fn enter(&self, volume: [u8; 16]) {
        self.state.lock().volumes.entry(volume).or_default();
    }

    /// The state of a volume at the last step.
    pub fn standing(&self, volume: &[u8; 16]) -> Standing {
        self.state.lock().volumes.get(volume).cloned().unwrap_or_default()
    }

    /// Keeps the lease, if there is one.
    pub fn renew(&self) -> Result<()> {
        let known = self.state.lock().lease;
        known.map_or(Ok(()), |lease| match self.coordinator.keep_alive(lease) {
            Err(Error::LeaseEnded) => {
                self.forget_lease(lease);
                Err(Error::LeaseEnded)
            }
            kept => kept,
        })
    }

    /// A lease has ended. (Another thread may have begun the next one.)
    fn forget_lease(&self, lease: Lease) {
        let mut state = self.state.lock();
        if state.lease == Some(lease) && !device::mutated("a lease that ended is kept") {
            tracing::warn!(
                server = %self.name,
                "the lease of this server ended: the coordinator heard nothing in time"
            );
            state.lease = None;
        }
    }

    /// Keeps the lease, or begins one, and asks for each volume that another server does not have.
    /// After an error the standings stay as they were, unless another server has this one's name.
    /// The record of a volume may be unreadable: it stays, and is reported when the rest is done.
    pub fn step(&self) -> Result<()> {
        let lease = match self.lease() {
            // Another server has this one's name, so nothing is this one's any more.
            Err(error @ Error::Refused(_)) => {
                for known in self.state.lock().volumes.values_mut() {
                    *known = Standing::Unknown;
                }
                return Err(error);
            }
            lease => lease?,
        };
        let volumes: Vec<_> = self.state.lock().volumes.keys().copied().collect();
        let mut unread = Ok(());
        for volume in volumes {
            let standing = match self.ask(&volume, lease) {
                // The next step begins another lease.
                Err(Error::LeaseEnded) => {
                    self.forget_lease(lease);
                    return Err(Error::LeaseEnded);
                }
                // The answer may be lost, and the name made.
                Err(error) => {
                    self.state.lock().owed.insert(volume);
                    unread = unread.and(of_one_volume(Err(error))?);
                    continue;
                }
                Ok(standing) => standing,
            };
            let mut state = self.state.lock();
            if let Some(known) = state.volumes.get_mut(&volume) {
                *known = standing;
                state.owed.remove(&volume);
            } else if standing == Standing::Ours {
                // It was left during the question: the name may have been made since.
                state.owed.insert(volume);
            }
        }
        unread.and(self.give_back_owed())
    }

    /// Gives back what this server has and does not want.
    fn give_back_owed(&self) -> Result<()> {
        let owed: Vec<_> = {
            let state = self.state.lock();
            let unwanted = state.owed.iter().filter(|volume| !state.volumes.contains_key(*volume));
            unwanted.copied().collect()
        };
        let mut unread = Ok(());
        for volume in &owed {
            unread = unread.and(of_one_volume(self.give_back(volume))?);
        }
        unread
    }

    /// The lease, which lives.
    fn lease(&self) -> Result<Lease> {
        let known = self.state.lock().lease;
        if let Some(lease) = known {
            match self.coordinator.keep_alive(lease) {
                Err(Error::LeaseEnded) => self.forget_lease(lease),
                kept => return kept.map(|()| lease),
            }
        }
        let lease = self.coordinator.grant(self.length)?;
        let (key, value) = (server_key(&self.name), self.own.encode());
        match self.coordinator.put_if_absent(&key, &value, Some(lease))? {
            Put::Made(_) => {}
            // Of this process, under an earlier lease: it would vanish with that.
            Put::Exists(item) if item.value == value => {
                self.coordinator.remove(&key, item.revision)?;
                self.coordinator.revoke(lease)?;
                return Err(Error::LeaseEnded);
            }
            Put::Exists(item) => {
                self.coordinator.revoke(lease)?;
                let at = Advertised::decode(&item.value).map_or_else(
                    |error| error.to_string(),
                    |other| format!("the one at {}", other.address),
                );
                return Err(Error::Refused(format!(
                    "another server is called {}: {at}; if it ended just now, its name is free \
                     within {} s",
                    self.name,
                    self.length.as_secs()
                )));
            }
        }
        self.state.lock().lease = Some(lease);
        Ok(lease)
    }

    fn ask(&self, volume: &[u8; 16], lease: Lease) -> Result<Standing> {
        let key = holder_key(volume);
        let Advertised { instance, address } = self.own.clone();
        let own = Holder { server: self.name.clone(), instance, address };
        match self.coordinator.put_if_absent(&key, &own.encode(), Some(lease))? {
            Put::Made(_) => Ok(Standing::Ours),
            Put::Exists(item) => {
                let holder = holder_in(&item)?;
                if holder != own {
                    return Ok(Standing::Theirs(holder));
                }
                if item.lease != Some(lease) {
                    // Made under an earlier lease of this process: it would vanish with that.
                    self.coordinator.remove(&key, item.revision)?;
                    return Err(Error::LeaseEnded);
                }
                Ok(Standing::Ours)
            }
        }
    }

    /// Wants a volume no more, and lets others have it.
    pub fn leave(&self, volume: &[u8; 16]) -> Result<()> {
        {
            let mut state = self.state.lock();
            let was = state.volumes.remove(volume);
            // Where it is not known whose the volume is, the name may have been made.
            if matches!(was, Some(Standing::Ours | Standing::Unknown)) {
                state.owed.insert(*volume);
            }
            if !state.owed.contains(volume) {
                return Ok(());
            }
        }
        self.give_back(volume)
    }

    fn give_back(&self, volume: &[u8; 16]) -> Result<()> {
        // Before the question: a name that another thread makes meanwhile stays owed.
        self.state.lock().owed.remove(volume);
        let given = self.remove_own(volume);
        if given.is_err() {
            self.state.lock().owed.insert(*volume);
        }
        given
    }

    /// Removes the name of a volume if this server has it.
    fn remove_own(&self, volume: &[u8; 16]) -> Result<()> {
        let key = holder_key(volume);
        if let Some(item) = self.coordinator.get(&key)?
            && self.is_own(&holder_in(&item)?)
        {
            self.coordinator.remove(&key, item.revision)?;
        }
        Ok(())
    }

    /// Whether a holder is this server.
    pub fn is_own(&self, holder: &Holder) -> bool {
        holder.instance == self.own.instance && holder.server == self.name
    }

    /// Ends the lease: what this server owns is free for others at once.
    pub fn end(&self) -> Result<()> {
        let lease = {
            let mut state = self.state.lock();
            state.volumes.clear();
            state.owed.clear();
            state.lease.take()
        };
        lease.map_or(Ok(()), |lease| self.coordinator.revoke(lease))
    }

    /// Who owns a volume, by the coordinator's word now.
    pub fn holder(&self, volume: &[u8; 16]) -> Result<Option<Holder>> {
        let item = self.coordinator.get(&holder_key(volume))?;
        item.as_ref().map(holder_in).transpose()
    }
}

/// The holder that a record of the coordinator names.
fn holder_in(item: &Item) -> Result<Holder> {
    Holder::decode(&item.value).map_err(|error| Error::Foreign(format!("{}: {error}", item.key)))
}

/// Separates an error that concerns one volume alone, a record that cannot be read, from those that
/// end a step.
fn of_one_volume(done: Result<()>) -> Result<Result<()>> {
    match done {
        Err(error @ Error::Foreign(_)) => Ok(Err(error)),
        done => done.map(Ok),
    }
}
