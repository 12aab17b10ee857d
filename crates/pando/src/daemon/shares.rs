//! The memory that requests under way keep, counted by sender. One user or client has a share of
//! it, and all together have a bound. Requests of root and of the user of the volume are not
//! counted.
//!
//! What a request took it gives back when it ends ([`Taken`]), however it ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::sync::Mutex;

/// Who takes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Taker {
    /// A user of this machine.
    User(u32),
    /// A client of another machine, whatever users it names.
    Client(Arc<str>),
}

/// What requests under way have taken, by sender.
pub(super) struct Shares {
    of_one_max: usize,
    of_all_max: usize,
    taken: Mutex<BTreeMap<Taker, usize>>,
}

/// What one request has taken of the share of its sender, until this is dropped.
pub(super) struct Taken<'a> {
    shares: &'a Shares,
    by: Taker,
    amount: usize,
}

/// Bytes that all exports of one user remember of files with several names, as much as a stream may
/// take, and those of all users.
const EXPORTS_OF_ONE: usize = 256 << 20;
const EXPORTS_OF_ALL: usize = 4 * EXPORTS_OF_ONE;

/// Files that imports of one user, or client, hold together, as many as one import may hold, and
/// those of all. Some 200 bytes each.
const IMPORTS_OF_ONE: usize = 1 << 20;
const IMPORTS_OF_ALL: usize = 4 * IMPORTS_OF_ONE;

impl Shares {
    /// The shares in what exports remember, in bytes.
    pub(super) fn of_exports() -> Shares {
        Shares::new(EXPORTS_OF_ONE, EXPORTS_OF_ALL)
    }

    /// The shares in the files that imports hold.
    pub(super) fn of_imports() -> Shares {
        Shares::new(IMPORTS_OF_ONE, IMPORTS_OF_ALL)
    }

    /// Shares of so much each, and so much of all together.
    pub(super) fn new(of_one_max: usize, of_all_max: usize) -> Shares {
        Shares { of_one_max, of_all_max, taken: Mutex::default() }
    }

    /// The share of a request, of which nothing is taken yet.
    pub(super) fn of(&self, by: Taker) -> Taken<'_> {
        Taken { shares: self, by, amount: 0 }
    }

    /// Whether nothing is taken.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.taken.lock().is_empty()
    }
}

impl Taken<'_> {
    /// How much the request has taken.
    pub(super) fn amount(&self) -> usize {
        self.amount
    }

    /// Takes more. `false`: that would exceed a bound, and nothing was taken.
    pub(super) fn take(&mut self, more: usize) -> bool {
        let mut taken = self.shares.taken.lock();
        let own = taken.get(&self.by).copied().unwrap_or_default();
        let all: usize = taken.values().sum();
        // Clients of other machines leave a quarter to users of this one.
        let is_client = |by: &Taker| matches!(by, Taker::Client(_));
        let of_clients = taken.iter().filter(|(by, _)| is_client(by)).map(|(_, amount)| amount);
        let (of_one_max, of_all_max) = (self.shares.of_one_max, self.shares.of_all_max);
        let leaves =
            !is_client(&self.by) || of_clients.sum::<usize>() + more <= of_all_max - of_all_max / 4;
        let fits = own + more <= of_one_max && all + more <= of_all_max && leaves;
        if fits {
            taken.insert(self.by.clone(), own + more);
            self.amount += more;
        }
        fits
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        let left = taken.get(&self.by).copied().unwrap_or_default().saturating_sub(self.amount);
        if left == 0 {
            taken.remove(&self.by);
        } else {
            taken.insert(self.by.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_one_sender_share_a_part_and_give_it_back() {
        let shares = Shares::new(4, 10);
        let of = |user| shares.of(Taker::User(user));
        let (mut first, mut second, mut other) = (of(1), of(1), of(2));
        assert!(first.take(3) && !second.take(2) && second.take(1) && !first.take(1));
        assert!(other.take(4));
        // A client that names user 1 takes nothing of that user.
        let mut client = shares.of(Taker::Client("one".into()));
        assert!(!client.take(3) && client.take(2) && !client.take(1), "10 are taken");
        assert_eq!((first.amount(), second.amount(), client.amount()), (3, 1, 2));
        drop(first);
        assert!(second.take(3) && !second.take(1));
        drop((second, other, client));
        assert!(shares.is_empty());
        let mut clients = ["one", "two", "three"].map(|name| shares.of(Taker::Client(name.into())));
        let took = clients.each_mut().map(|client| client.take(4));
        assert_eq!(took, [true, true, false], "clients leave a quarter");
        assert!(of(1).take(2), "to users of this machine");
    }
}
