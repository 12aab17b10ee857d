//! The operations on a volume under its policies: quotas and the trash.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use format::kept_twice::UNCOUNTED_KEY;
use format::key;
use inode::FsError;
use ops::Ops;
use store::KeyRange;
use vfs::FsResult;
use volume::error::from_store;
use volume::subvol::VOLUME;
use volume::{OpenError, record_copies};

use crate::quota::Quotas;
use crate::trash::Trash;

/// The operations on a volume, and the policies that see their plans.
pub struct Governed {
    ops: Ops,
    /// Limits of directories, users and groups.
    pub quotas: Arc<Quotas>,
    /// Who keeps what is removed.
    pub trash: Arc<Trash>,
}

impl Deref for Governed {
    type Target = Ops;

    #[inline]
    fn deref(&self) -> &Ops {
        &self.ops
    }
}

impl DerefMut for Governed {
    fn deref_mut(&mut self) -> &mut Ops {
        &mut self.ops
    }
}

impl Governed {
    /// Reads the settings of the policies.
    pub fn open(ops: Ops) -> Result<Governed, OpenError> {
        let governed = Governed { ops, quotas: Arc::default(), trash: Arc::default() };
        governed.load_quotas().map_err(OpenError::inconsistent)?;
        governed.trash.load(&governed).map_err(OpenError::inconsistent)?;
        Ok(governed)
    }

    /// Reads the quotas. If damage hides the charges, which have no copy, nothing about quotas is
    /// reported until a repair has recounted.
    fn load_quotas(&self) -> FsResult<()> {
        if let Err(error) = self.quotas.load(self) {
            let scan = |prefix: &[u8]| -> store::Result<()> {
                let mut cursor = self.store.scan(VOLUME, KeyRange::prefix(prefix))?;
                while cursor.next()?.is_some() {}
                Ok(())
            };
            let scanned = scan(&key::QUOTAS_PREFIX).and_then(|()| scan(&key::OWNER_CHARGES_PREFIX));
            if !self.is_worked_around(scanned)? {
                return Err(error);
            }
            self.quotas.set_unknown(error);
        }
        let note = self.store.get(VOLUME, &UNCOUNTED_KEY).map_err(from_store)?;
        if note.is_some() {
            self.own.noted().set_uncounted();
            self.quotas.set_unknown(FsError::Io(record_copies::UNCOUNTED.to_owned().into()));
        }
        Ok(())
    }
}
