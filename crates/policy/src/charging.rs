//! Charges in a plan: what an operation adds to the quotas of directories (`quota`), and to those
//! of users and groups (`owners`).

use std::sync::Arc;

use format::directory_record::DirectoryRecord;
use format::inode_record::InodeRecord;
use format::key;
use format::owner_quota::Owner;
use format::quota::{Charge, Charged};
use inode::FsError;
use ops::plan::Plan;
use vfs::FsResult;
use volume::account::{self, Change, signed};
use volume::error::malformed;
use volume::subvol::VOLUME;
use volume::view::View;

use crate::Governed;
use crate::owners::{Owned, share};

/// Marks an inherited inode as a subvolume's own, because it changed. Only the names that it got
/// with the change are charged: the others are inherited, and may be out of reach.
pub fn take_over(inode: &mut InodeRecord, before: Option<&InodeRecord>, charge: Charge) {
    let inherited = before.map_or(0, |before| before.charged_names);
    inode.charged_names = inode.charged_names.saturating_sub(inherited);
    inode.charge = Some(charge);
}

/// Charges in a plan.
pub struct Charging<'p> {
    fs: &'p Governed,
    /// The plan that charges.
    pub plan: &'p mut Plan,
}

impl<'p> Charging<'p> {
    /// Charges in a plan.
    pub fn of(fs: &'p Governed, plan: &'p mut Plan) -> Charging<'p> {
        Charging { fs, plan }
    }

    /// The volume.
    pub fn fs(&self) -> &'p Governed {
        self.fs
    }

    /// Charges a directory that was created in the trash, and leaves it; returns its mark. One with
    /// such a mark that was inherited is charged to no one, wherever it goes.
    pub(crate) fn charge_out_of_trash(
        &mut self,
        (subvolume, ino): (u64, u64),
        record: &DirectoryRecord,
    ) -> FsResult<Option<Charge>> {
        let own = self.fs.subvols.first_own_ino(subvolume).is_some_and(|first| ino >= first);
        let nobody = |charge: &Charge| own && charge.subvolume == Charge::NOBODY;
        let Some(charge) = record.charge.filter(nobody) else {
            return Ok(record.charge);
        };
        if record.subdirectories != 0 {
            // Those below would stay uncharged.
            return Err(FsError::CrossSubvolume("directories of the trash are charged one by one"));
        }
        self.charge(charge.domain, subvolume, 1, 0)?;
        if self.fs.quotas.owners.is_on() {
            self.charge_new_owned(subvolume, (record.uid, record.gid), 0)?;
        }
        Ok(Some(Charge { subvolume, ..charge }))
    }

    /// Charges a file to a domain that is not that of the place where it was.
    pub(crate) fn move_to_domain(
        &mut self,
        (subvolume, ino): (u64, u64),
        inode: &mut InodeRecord,
        domain: u64,
    ) -> FsResult<()> {
        let known = inode.charge.map_or(Charge::NO_DOMAIN, |charge| charge.domain);
        if known == domain {
            return Ok(());
        }
        let bytes = inode.charged_bytes();
        let own = self.is_own(subvolume, ino, inode.charge);
        if let Some(charge) = inode.charge {
            self.credit(subvolume, charge, bytes);
        }
        let nobody = inode.charge.map_or(Charge::NOBODY, |charge| charge.subvolume);
        if own {
            self.charge(domain, subvolume, 1, signed(bytes))?;
        }
        inode.charge = Some(Charge { domain, subvolume: if own { subvolume } else { nobody } });
        Ok(())
    }

    /// Charges a new inode that is created in a directory, and returns its mark.
    #[inline]
    pub(crate) fn charge_new(
        &mut self,
        subvolume: u64,
        directory: &DirectoryRecord,
        (owned, bytes): (Owned, u64),
    ) -> FsResult<Option<Charge>> {
        if self.fs.quotas.owners.is_on() {
            self.charge_new_owned(subvolume, owned, bytes)?;
        }
        match directory.charge {
            None => Ok(None),
            Some(Charge { domain, .. }) => {
                self.charge(domain, subvolume, 1, signed(bytes))?;
                Ok(Some(Charge { domain, subvolume }))
            }
        }
    }

    /// The mark of an inode that is charged to neither a domain nor owners, although it is created
    /// here; none where nothing is charged.
    pub(crate) fn uncharged(&self, domain: u64) -> Option<Charge> {
        let counts = domain != Charge::NO_DOMAIN || self.fs.quotas.owners.is_on();
        counts.then_some(Charge { domain, subvolume: Charge::NOBODY })
    }

    /// Changes the charges of a subvolume's inodes to a domain.
    #[cold]
    pub fn charge(&mut self, domain: u64, subvolume: u64, inodes: i64, bytes: i64) -> FsResult<()> {
        self.charge_domain((domain, subvolume), (inodes, bytes), false)
    }

    /// Like [`Charging::charge`]; `force`: regardless of the limits.
    pub(crate) fn charge_domain(
        &mut self,
        (domain, subvolume): (u64, u64),
        (inodes, bytes): (i64, i64),
        force: bool,
    ) -> FsResult<()> {
        if (inodes, bytes) == (0, 0) || domain == Charge::NO_DOMAIN {
            return Ok(());
        }
        let quotas = &self.fs.quotas;
        if let Some(known) = quotas.get(domain) {
            let change = Change::take(Arc::clone(&known.account), (inodes, bytes), force)?;
            self.plan.reserve(change);
        }
        quotas.note_charged_in(subvolume, domain);
        let (lanes, used) = account::lanes(inodes, bytes);
        self.plan.batch().merge(VOLUME, &key::quota_charges(domain, subvolume), &lanes[..used]);
        Ok(())
    }

    /// Returns the charge of a directory that is removed.
    #[inline]
    pub fn credit_directory(&mut self, subvolume: u64, ino: u64, record: &DirectoryRecord) {
        if let Some(charge) = record.charge {
            self.credit(subvolume, charge, 0);
        }
        self.credit_owned(subvolume, ino, record.charge, ((record.uid, record.gid), 0));
    }

    /// Returns the charge of an inode that is removed.
    #[inline]
    pub(crate) fn credit_inode(&mut self, subvolume: u64, ino: u64, inode: &InodeRecord) {
        if let Some(charge) = inode.charge {
            self.credit(subvolume, charge, inode.charged_bytes());
        }
        self.credit_owned(subvolume, ino, inode.charge, share(inode));
    }

    /// Returns an inode's charge to a domain, if it was charged in this subvolume.
    #[cold]
    pub(crate) fn credit(&mut self, subvolume: u64, charge: Charge, bytes: u64) {
        if charge.subvolume == subvolume {
            let credited = self.charge(charge.domain, subvolume, -1, -signed(bytes));
            credited.expect("invariant: what shrinks a charge is not refused");
        }
    }

    /// Charges an inode that changed from what was stored before, if anything was. `changed`: its
    /// contents changed, even if their number did not, or it got a name.
    #[inline]
    pub(crate) fn charge_changed(
        &mut self,
        subvolume: u64,
        ino: u64,
        (before, inode): (Option<&InodeRecord>, &mut InodeRecord),
        changed: bool,
    ) -> FsResult<()> {
        if let Some(charge) = inode.charge {
            self.charge_domain_change(subvolume, charge, (before, inode), changed)?;
        }
        if self.fs.quotas.owners.is_on() {
            self.charge_owned_change(subvolume, ino, (before, inode), changed)?;
        }
        Ok(())
    }

    #[cold]
    fn charge_domain_change(
        &mut self,
        subvolume: u64,
        charge: Charge,
        (before, inode): (Option<&InodeRecord>, &mut InodeRecord),
        changed: bool,
    ) -> FsResult<()> {
        if charge.domain == Charge::NO_DOMAIN {
            return Ok(());
        }
        if charge.subvolume == subvolume {
            let before = before.map_or(0, InodeRecord::charged_bytes);
            let more = signed(inode.charged_bytes()) - signed(before);
            return self.charge(charge.domain, subvolume, 0, more);
        }
        if changed {
            take_over(inode, before, Charge { subvolume, ..charge });
            self.charge(charge.domain, subvolume, 1, signed(inode.charged_bytes()))?;
        }
        Ok(())
    }

    /// Adds to the batch that the charges of a subvolume are removed with it.
    pub fn drop_charges(&mut self, subvolume: u64) -> FsResult<()> {
        self.drop_owner_charges(subvolume)?;
        let fs = self.fs;
        let domains = fs.quotas.charged_in.read().get(&subvolume).cloned().unwrap_or_default();
        let mut domains: Vec<u64> = domains.into_iter().collect();
        domains.sort_unstable();
        let view = View::new(&*fs.store, VOLUME);
        for id in domains {
            let key = key::quota_charges(id, subvolume);
            let known = view.read(&key, |bytes| Ok(Charged::decode(bytes).unwrap_or_default()))?;
            let Some(Charged { inodes, bytes }) = known else { continue };
            self.plan.batch().delete(VOLUME, &key);
            if let Some(domain) = fs.quotas.get(id) {
                let account = Arc::clone(&domain.account);
                self.plan.reserve(Change::take(account, (-inodes, -bytes), true)?);
            }
        }
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
