//! A change that is built and committed by hand: by steps that are no operations, and by those that
//! are not plans yet (`xtask/src/tidy/plans.rs` has the list, which may only shrink).

use std::ops::{Deref, DerefMut};

use store::CommitToken;

use crate::plan::Plan;
use crate::{Fs, FsResult};

/// A plan without operation: its caller holds the locks, and applies effects of its own.
pub(crate) struct Txn<'a> {
    fs: &'a Fs,
    plan: Plan,
}

impl Deref for Txn<'_> {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

impl DerefMut for Txn<'_> {
    fn deref_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }
}

impl<'a> Txn<'a> {
    /// An empty change, at the present time.
    pub(crate) fn new(fs: &'a Fs) -> Txn<'a> {
        let mut plan = Plan::new();
        plan.set_time(fs);
        Txn { fs, plan }
    }

    /// An empty change that frees space ([`Plan::removes`]).
    pub(crate) fn removing(fs: &'a Fs) -> Txn<'a> {
        let mut txn = Txn::new(fs);
        txn.removes();
        txn
    }

    /// The volume.
    pub(crate) fn fs(&self) -> &'a Fs {
        self.fs
    }

    /// Applies the change.
    pub(crate) fn commit(&mut self) -> FsResult<CommitToken> {
        self.plan.commit(self.fs)
    }
}
