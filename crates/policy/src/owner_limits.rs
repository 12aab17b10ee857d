//! Sets and reports the limits of users and groups.
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

use format::key;
use format::owner_quota::{Owner, OwnerLimits, OwnerState};
use format::quota::Charged;
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, FsError, SubvolId};
use ops::execute::execute_alone;
use ops::plan::Plan;
use ops::subvolumes::{Through, execute, execute_with};
use store::{CheckProgress, Pinned};
use vfs::FsResult;
use volume::account::{self, Account, UNLIMITED};
use volume::error::{from_store, malformed};
use volume::subvol::{Subvol, VOLUME, read_record};
use volume::{OwnerQuota, QuotaChange, QuotaLimits};

use crate::Governed;
use crate::quota_check::{Counting, UsageTable, count_subvolumes};
use crate::settings::Setting;

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
