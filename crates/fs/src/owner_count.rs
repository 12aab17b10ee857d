//! Counts what is on a volume by its owners, once, when the first of them gets a limit.
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
use format::owner_quota::{Owner, OwnerState};
use format::quota::Charged;
use format::subvolume_record::SubvolumeRecord;
use inode::{FsError, SubvolId};
use store::Pinned;

use crate::account;
use crate::error::{from_store, malformed};
use crate::quota_check::{Counting, Found, count_subvolumes};
use crate::subvol::{Subvol, VOLUME, read_record};
use crate::subvolumes::Gates;
use crate::txn::Txn;
use crate::{Fs, FsResult};

impl Fs {
    /// Counts the volume's inodes by their owners, unless that was done.
    pub(crate) fn count_owners(&self, counting: &mut Counting<'_>) -> FsResult<()> {
        if self.quotas.owners.is_counted() {
            return Ok(());
        }
        let counted = self.begin_count().and_then(|pin| {
            let mut found = Found::owners();
            count_subvolumes(&*pin, &mut found, counting)?;
            self.end_count(&found)
        });
        if counted.is_err() {
            self.quotas.owners.set(None);
        }
        counted
    }

    fn begin_count(&self) -> FsResult<Box<dyn Pinned>> {
        let mut ledger = self.admin.lock();
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
        let _gates = Gates::pass(self, &mut ledger, &subvols, None)?;
        let mut txn = Txn::new(self);
        let old = key::OWNER_CHARGES_PREFIX;
        let end = store::prefix_end(&old).expect("invariant: a tag is below 255");
        txn.batch().delete_range(VOLUME, &old, &end);
        txn.batch().put(VOLUME, &key::OWNERS_PREFIX, &OwnerState::Counting.encode());
        txn.commit()?;
        let pin = self.store.pin().map_err(from_store)?;
        self.quotas.owners.set(Some(OwnerState::Counting));
        Ok(pin)
    }

    fn end_count(&self, found: &Found) -> FsResult<()> {
        let _ledger = self.admin.lock();
        let mut txn = Txn::new(self);
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
                txn.batch().merge(VOLUME, &key, &lanes[..used]);
                added.push((owner, charged));
            }
        }
        txn.batch().put(VOLUME, &key::OWNERS_PREFIX, &OwnerState::Counted.encode());
        txn.batch().check().map_err(|_| FsError::NoSpace)?;
        txn.commit()?;
        for (owner, charged) in added {
            self.quotas.owners.account(owner).add(charged.inodes, charged.bytes);
        }
        self.quotas.owners.set(Some(OwnerState::Counted));
        Ok(())
    }
}
