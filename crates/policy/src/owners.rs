//! Quotas of users and groups: what the inodes of the volume are charged to their owners.
//!
//! 1. Nothing is counted until the first limit is set. Then everything that exists is counted once.
//!    From then on each batch merges its changes into the records of (subvolume, user) and
//!    (subvolume, group).
//! 2. An inode is charged in the subvolume where it was created. Its number shows that: those that
//!    a copy inherits are below the first of its own. An inherited one is charged to no one, until
//!    its contents are changed; then it is marked with the subvolume, and charged as a whole.
//! 3. Limits are enforced in memory ([`Account`]), to the file and the byte; not for root, like
//!    CAP_SYS_RESOURCE on ext4. The charges of an owner move with `chown`.
//! 4. An index of another file system is charged to no one. Neither are the directories that the
//!    trash creates, until they leave it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use device::Map;
use device::sync::RwLock;
use format::inode_record::InodeRecord;
use format::key;
use format::owner_quota::{Owner, OwnerLimits, OwnerState};
use format::quota::Charged;
use inode::Caller;
use ops::Ops;
use vfs::FsResult;
use volume::account::{Account, UNLIMITED};
use volume::error::from_store;
use volume::subvol::VOLUME;

const OFF: u8 = 0;
const COUNTING: u8 = 1;
const COUNTED: u8 = 2;

/// The accounts of users and groups.
#[derive(Default)]
pub struct Owners {
    state: AtomicU8,
    accounts: RwLock<Map<Owner, Arc<Account>>>,
}

/// Who owns an inode: user and group.
pub type Owned = (u32, u32);

/// The share of an inode that is not a directory: its owners, and what they are charged for it.
#[inline]
pub fn share(inode: &InodeRecord) -> (Owned, u64) {
    ((inode.uid, inode.gid), inode.charged_bytes())
}

impl Owners {
    /// Whether changes are charged.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.state.load(Ordering::Acquire) != OFF
    }

    /// Whether the charges cover everything that exists.
    pub(crate) fn is_counted(&self) -> bool {
        self.state.load(Ordering::Acquire) == COUNTED
    }

    /// Sets the state; nothing is charged when it was off and when it becomes so.
    pub(super) fn set(&self, state: Option<OwnerState>) {
        let state = match state {
            None => OFF,
            Some(OwnerState::Counting) => COUNTING,
            Some(OwnerState::Counted) => COUNTED,
        };
        if state != COUNTED {
            self.accounts.write().clear();
        }
        self.state.store(state, Ordering::Release);
    }

    /// Adds what was there when counting began; from now on the charges cover everything.
    pub(super) fn set_counted(&self, found: &[(Owner, Charged)]) {
        for (owner, charged) in found {
            self.account(*owner).add(charged.inodes, charged.bytes);
        }
        self.set(Some(OwnerState::Counted));
    }

    /// An account, which begins with the first charge.
    pub(super) fn account(&self, owner: Owner) -> Arc<Account> {
        if let Some(account) = self.accounts.read().get(&owner) {
            return Arc::clone(account);
        }
        let mut accounts = self.accounts.write();
        let fresh = || Arc::new(Account::new((UNLIMITED, UNLIMITED)));
        Arc::clone(accounts.entry(owner).or_insert_with(fresh))
    }

    /// Whether any limit of a user or a group is in force.
    pub fn limit(&self, caller: &Caller) -> bool {
        let limited = |owner| self.known(owner).is_some_and(|account| account.is_limited());
        let groups = std::iter::once(&caller.gid).chain(&caller.groups);
        limited(Owner::User(caller.uid)) || groups.copied().map(Owner::Group).any(limited)
    }

    /// Whether a limit of an owner is in force.
    pub fn limited(&self, (user, group): Owned) -> bool {
        let owners = [Owner::User(user), Owner::Group(group)];
        owners.iter().any(|&owner| self.known(owner).is_some_and(|known| known.is_limited()))
    }

    pub(crate) fn known(&self, owner: Owner) -> Option<Arc<Account>> {
        self.accounts.read().get(&owner).map(Arc::clone)
    }

    /// All that have limits or charges, users first, by number.
    pub(crate) fn all(&self) -> Vec<(Owner, Arc<Account>)> {
        let accounts = self.accounts.read();
        let mut all: Vec<_> =
            accounts.iter().map(|(&owner, account)| (owner, Arc::clone(account))).collect();
        all.sort_unstable_by_key(|(owner, _)| *owner);
        all
    }

    /// Reads the accounts of a volume. A record that does not decode limits no one, and does not
    /// prevent opening: a check of the volume reports it. A count that a crash ended is off.
    pub fn load(&self, fs: &Ops) -> FsResult<()> {
        let state = fs.store.get(VOLUME, &key::OWNERS_PREFIX).map_err(from_store)?;
        let state = state.and_then(|bytes| OwnerState::decode(&bytes).ok());
        if state != Some(OwnerState::Counted) {
            return Ok(());
        }
        fs.visit_volume(&key::OWNER_CHARGES_PREFIX, &mut |key, value| {
            if let (Ok((_, owner)), Ok(charged)) =
                (key::parse_owner_charges(key), Charged::decode(value))
            {
                self.account(owner).add(charged.inodes, charged.bytes);
            }
            Ok(())
        })?;
        fs.visit_volume(&key::OWNERS_PREFIX, &mut |key, value| {
            if let (Ok(Some(owner)), Ok(limits)) =
                (key::parse_owner(key), OwnerLimits::decode(value))
            {
                self.account(owner).set_limits((limits.inodes_max, limits.bytes_max));
            }
            Ok(())
        })?;
        self.state.store(COUNTED, Ordering::Release);
        Ok(())
    }
}
