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
//!
//! The count of everything that exists, when the first owner gets a limit:
//!
//! 1. While the gates of all subvolumes are held, briefly: the state becomes `Counting`, and a
//!    state of the store is pinned. Every later batch merges its changes into the charges, so that
//!    they are exactly the difference from the pinned state.
//! 2. The pinned state is counted, while other operations run.
//! 3. One commit adds the result to the charges of the subvolumes that still exist, and makes the
//!    state `Counted`.
//!
//! A crash before the third leaves `Counting`, which counts as nothing: the next limit that is set
//! begins again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use device::Map;
use device::sync::RwLock;
use format::directory_record::DirectoryRecord;
use format::inode_record::InodeRecord;
use format::key;
use format::owner_quota::{Owner, OwnerLimits, OwnerState};
use format::quota::{Charge, Charged};
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, FsError, SubvolId};
use ops::execute::execute_alone;
use ops::plan::Plan;
use ops::subvolumes::{Through, execute, execute_with};
use store::{CheckProgress, Pinned};
use vfs::FsResult;
use volume::account::{self, Account, Change, UNLIMITED, signed};
use volume::error::{from_store, malformed};
use volume::subvol::{Subvol, VOLUME, read_record};
use volume::{OwnerQuota, QuotaChange, QuotaLimits};

use crate::Governed;
use crate::quota::{Charging, take_over};
use crate::quota_check::{Counting, UsageTable, count_subvolumes};
use crate::settings::Setting;

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

    fn known(&self, owner: Owner) -> Option<Arc<Account>> {
        self.accounts.read().get(&owner).map(Arc::clone)
    }

    /// All that have limits or charges, users first, by number.
    fn all(&self) -> Vec<(Owner, Arc<Account>)> {
        let accounts = self.accounts.read();
        let mut all: Vec<_> =
            accounts.iter().map(|(&owner, account)| (owner, Arc::clone(account))).collect();
        all.sort_unstable_by_key(|(owner, _)| *owner);
        all
    }

    /// Reads the accounts of a volume. A record that does not decode limits no one, and does not
    /// prevent opening: a check of the volume reports it. A count that a crash ended is off.
    pub fn load(&self, fs: &Governed) -> FsResult<()> {
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

impl Charging<'_> {
    /// Charges a new inode to its owners.
    #[cold]
    pub(crate) fn charge_new_owned(
        &mut self,
        subvolume: u64,
        owned: Owned,
        bytes: u64,
    ) -> FsResult<()> {
        self.move_owned(subvolume, None, Some((owned, bytes)))
    }

    /// Returns the charge of an inode that is removed.
    pub(crate) fn credit_owned(
        &mut self,
        subvolume: u64,
        ino: u64,
        charge: Option<Charge>,
        (owned, bytes): (Owned, u64),
    ) {
        if self.fs().quotas.owners.is_on() && self.is_own(subvolume, ino, charge) {
            let credited = self.move_owned(subvolume, Some((owned, bytes)), None);
            credited.expect("invariant: what shrinks a charge is not refused");
        }
    }

    /// Charges a directory whose owners may have changed.
    pub(crate) fn charge_chown(
        &mut self,
        subvolume: u64,
        ino: u64,
        record: &DirectoryRecord,
        before: Owned,
    ) -> FsResult<()> {
        let after = (record.uid, record.gid);
        let charged = before != after && self.fs().quotas.owners.is_on();
        if charged && self.is_own(subvolume, ino, record.charge) {
            self.move_owned(subvolume, Some((before, 0)), Some((after, 0)))?;
        }
        Ok(())
    }

    /// Charges an inode that changed from what was stored before, if anything was. `changed`: its
    /// contents changed, so it belongs to the subvolume from now on.
    #[cold]
    pub(crate) fn charge_owned_change(
        &mut self,
        subvolume: u64,
        ino: u64,
        (before, inode): (Option<&InodeRecord>, &mut InodeRecord),
        changed: bool,
    ) -> FsResult<()> {
        if changed && !self.is_own(subvolume, ino, inode.charge) {
            let domain = inode.charge.map_or(Charge::NO_DOMAIN, |charge| charge.domain);
            take_over(inode, before, Charge { domain, subvolume });
        }
        let before = before.filter(|before| self.is_own(subvolume, ino, before.charge));
        let before = before.map(share);
        let after = self.is_own(subvolume, ino, inode.charge).then(|| share(inode));
        self.move_owned(subvolume, before, after)
    }

    /// Whether an inode of a subvolume was created in it, or changed since it was inherited. An
    /// inode that is marked as uncharged was not.
    pub fn is_own(&self, subvolume: u64, ino: u64, charge: Option<Charge>) -> bool {
        match charge.map(|charge| charge.subvolume) {
            Some(Charge::NOBODY) => false,
            Some(of) if of == subvolume => true,
            _ => self.fs().subvols.first_own_ino(subvolume).is_some_and(|first| ino >= first),
        }
    }

    /// An inode that was charged to some owners and moves to others, or to none.
    fn move_owned(
        &mut self,
        subvolume: u64,
        before: Option<(Owned, u64)>,
        after: Option<(Owned, u64)>,
    ) -> FsResult<()> {
        let users = |((user, _), bytes): (Owned, u64)| (Owner::User(user), signed(bytes));
        let groups = |((_, group), bytes): (Owned, u64)| (Owner::Group(group), signed(bytes));
        self.move_charge(subvolume, before.map(users), after.map(users))?;
        self.move_charge(subvolume, before.map(groups), after.map(groups))
    }

    fn move_charge(
        &mut self,
        subvolume: u64,
        before: Option<(Owner, i64)>,
        after: Option<(Owner, i64)>,
    ) -> FsResult<()> {
        match (before, after) {
            (Some((one, less)), Some((other, more))) if one == other => {
                self.charge_owner(subvolume, one, (0, more - less))
            }
            _ => {
                if let Some((owner, bytes)) = after {
                    self.charge_owner(subvolume, owner, (1, bytes))?;
                }
                match before {
                    Some((owner, bytes)) => self.charge_owner(subvolume, owner, (-1, -bytes)),
                    None => Ok(()),
                }
            }
        }
    }

    fn charge_owner(
        &mut self,
        subvolume: u64,
        owner: Owner,
        (inodes, bytes): (i64, i64),
    ) -> FsResult<()> {
        if (inodes, bytes) == (0, 0) {
            return Ok(());
        }
        let account = self.fs().quotas.owners.account(owner);
        let change = Change::take(account, (inodes, bytes), self.plan.is_privileged())?;
        self.plan.reserve(change);
        let (lanes, used) = account::lanes(inodes, bytes);
        self.plan.batch().merge(VOLUME, &key::owner_charges(subvolume, owner), &lanes[..used]);
        Ok(())
    }

    /// Adds to the batch that the charges of a subvolume are removed: it is removed, or became an
    /// index.
    pub fn drop_owner_charges(&mut self, subvolume: u64) -> FsResult<()> {
        let fs = self.fs();
        if !fs.quotas.owners.is_on() {
            return Ok(());
        }
        let prefix = key::owner_charges_prefix(subvolume);
        let mut gone = Vec::new();
        fs.visit_volume(&prefix, &mut |key, value| {
            let malformed = |error| malformed(VOLUME, &error);
            let (_, owner) = key::parse_owner_charges(key).map_err(malformed)?;
            gone.push((owner, Charged::decode_change(value).unwrap_or_default()));
            Ok(())
        })?;
        if gone.is_empty() {
            return Ok(());
        }
        let end = store::prefix_end(&prefix).expect("invariant: a tag is below 255");
        self.plan.batch().delete_range(VOLUME, &prefix, &end);
        for (owner, Charged { inodes, bytes }) in gone {
            let account = fs.quotas.owners.account(owner);
            let less = (inodes.saturating_neg(), bytes.saturating_neg());
            self.plan.reserve(Change::take(account, less, true)?);
        }
        Ok(())
    }
}

impl Governed {
    /// Sets the limits of a user or a group. Only root may. The first limit of a volume counts all
    /// of its contents: a walk, during which other operations run.
    pub fn owner_quota_set(
        &self,
        caller: &Caller,
        owner: Owner,
        limits: QuotaLimits,
    ) -> FsResult<()> {
        self.set_owner_limits(caller, (owner, limits.into()), &mut Counting::silent()).map(drop)
    }

    /// Like [`Governed::owner_quota_set`], for some limits only; returns those in force. `progress`
    /// receives how many inodes were counted and an estimate of their total, and may cancel the
    /// count: then no limit is set.
    pub fn owner_quota_set_with_progress(
        &self,
        caller: &Caller,
        owner: Owner,
        change: QuotaChange,
        progress: CheckProgress<'_>,
    ) -> FsResult<QuotaLimits> {
        self.set_owner_limits(caller, (owner, change), &mut Counting::reporting(progress))
    }

    fn set_owner_limits(
        &self,
        caller: &Caller,
        (owner, change): (Owner, QuotaChange),
        counting: &mut Counting<'_>,
    ) -> FsResult<QuotaLimits> {
        if !caller.is_root() {
            return Err(FsError::RootOnly("only root sets quotas"));
        }
        let _setting = self.quotas.setting();
        self.count_owners(counting)?;
        let known = self.quotas.owners.known(owner);
        let before = known.map_or((UNLIMITED, UNLIMITED), |account| account.limits());
        let encoded = account::changed(before, change);
        execute_alone(self, |plan| {
            if encoded == (UNLIMITED, UNLIMITED) {
                plan.batch().delete(VOLUME, &key::owner_limits(owner));
            } else {
                let (inodes_max, bytes_max) = encoded;
                let record = OwnerLimits { inodes_max, bytes_max };
                plan.batch().put(VOLUME, &key::owner_limits(owner), &record.encode());
            }
            plan.effect(self.setting(Setting::OwnerLimits(owner, encoded)));
            Ok(account::decoded(encoded))
        })
    }

    /// The charges of a user or a group; `None`: owners are not counted on this volume. Root, the
    /// user, and members of the group may read them.
    pub fn owner_quota_get(&self, caller: &Caller, owner: Owner) -> FsResult<Option<OwnerQuota>> {
        let own = match owner {
            Owner::User(user) => user == caller.uid,
            Owner::Group(group) => caller.in_group(group),
        };
        if !caller.is_root() && !own {
            return Err(FsError::RootOnly("only root reads the quotas of others"));
        }
        self.quotas.check_known()?;
        if !self.quotas.owners.is_counted() {
            return Ok(None);
        }
        let none = || Arc::new(Account::new((UNLIMITED, UNLIMITED)));
        Ok(Some(info(owner, &self.quotas.owners.known(owner).unwrap_or_else(none))))
    }

    /// All users and groups that have limits or charges. Only root may read it. Empty while owners
    /// are not counted on this volume.
    pub fn owner_quota_list(&self, caller: &Caller) -> FsResult<Vec<OwnerQuota>> {
        if !caller.is_root() {
            return Err(FsError::RootOnly("only root lists quotas"));
        }
        self.quotas.check_known()?;
        if !self.quotas.owners.is_counted() {
            return Ok(Vec::new());
        }
        let all = self.quotas.owners.all();
        let shown =
            |account: &Account| account.limits() != (UNLIMITED, UNLIMITED) || !account.is_unused();
        let all = all.iter().filter(|(_, account)| shown(account));
        Ok(all.map(|(owner, account)| info(*owner, account)).collect())
    }
}

fn info(owner: Owner, account: &Account) -> OwnerQuota {
    let (inodes, bytes) = account.used();
    OwnerQuota { owner, limits: account::decoded(account.limits()), inodes, bytes }
}

impl Governed {
    /// Counts the volume's inodes by their owners, unless that was done.
    pub(crate) fn count_owners(&self, counting: &mut Counting<'_>) -> FsResult<()> {
        if self.quotas.owners.is_counted() {
            return Ok(());
        }
        let counted = self.begin_count().and_then(|pin| {
            let mut found = UsageTable::owners();
            count_subvolumes(&*pin, &mut found, counting)?;
            self.end_count(&found)
        });
        if counted.is_err() {
            self.quotas.owners.set(None);
        }
        counted
    }

    fn begin_count(&self) -> FsResult<Box<dyn Pinned>> {
        let ledger = self.admin.lock();
        let mut ids = Vec::new();
        self.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
            let malformed = |error| malformed(VOLUME, &error);
            let record = SubvolumeRecord::decode(value).map_err(malformed)?;
            if !record.read_only {
                ids.push(key::parse_number(key).map_err(malformed)?);
            }
            Ok(())
        })?;
        let subvols: FsResult<Vec<Arc<Subvol>>> =
            ids.into_iter().map(|id| self.subvol(SubvolId(id))).collect();
        let subvols = subvols?;
        let through = Through { quiet: &subvols, changed: None };
        execute(
            self,
            ledger,
            through,
            |_| Ok(()),
            |_, plan| {
                let old = key::OWNER_CHARGES_PREFIX;
                let end = store::prefix_end(&old).expect("invariant: a tag is below 255");
                plan.batch().delete_range(VOLUME, &old, &end);
                plan.batch().put(VOLUME, &key::OWNERS_PREFIX, &OwnerState::Counting.encode());
                plan.effect(self.setting(Setting::OwnersCounting));
                // No inode changes from here until the state does: the gates are held.
                self.store.pin().map_err(from_store)
            },
        )
    }

    fn end_count(&self, found: &UsageTable) -> FsResult<()> {
        execute_with(self, &mut self.admin.lock(), |_, plan| self.plan_counted(plan, found))
    }

    fn plan_counted(&self, plan: &mut Plan, found: &UsageTable) -> FsResult<()> {
        let mut added: Vec<(Owner, Charged)> = Vec::new();
        let mut last = None;
        for (&(subvolume, owner), &charged) in &found.owners {
            let is_there = match last {
                Some((known, is_there)) if known == subvolume => is_there,
                _ => {
                    let record = read_record(&*self.store, SubvolId(subvolume))?;
                    // One that became an index meanwhile is charged to no one.
                    record.is_some_and(|record| !record.index)
                }
            };
            last = Some((subvolume, is_there));
            if is_there {
                let (lanes, used) = account::lanes(charged.inodes, charged.bytes);
                let key = key::owner_charges(subvolume, owner);
                plan.batch().merge(VOLUME, &key, &lanes[..used]);
                added.push((owner, charged));
            }
        }
        plan.batch().put(VOLUME, &key::OWNERS_PREFIX, &OwnerState::Counted.encode());
        plan.batch().check().map_err(|_| FsError::NoSpace)?;
        plan.effect(self.setting(Setting::OwnersCounted(added)));
        Ok(())
    }
}
