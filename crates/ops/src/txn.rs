//! A change that is built and committed by hand: by steps that are no operations, and by those that
//! are not plans yet (`xtask/src/tidy/plans.rs` has the list, which may only shrink).

use std::ops::{Deref, DerefMut};

use store::CommitToken;
use vfs::FsResult;

use crate::Ops;
use crate::execute::commit;
use crate::plan::Plan;

/// A plan without operation: its caller holds the locks, and applies effects of its own.
pub struct Txn<'a> {
    fs: &'a Ops,
    /// There until it is dropped.
    plan: Option<Plan>,
}

const THERE: &str = "invariant: a plan is there until its change is dropped";

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if let Some(plan) = self.plan.take() {
            plan.end();
        }
    }
}

impl Deref for Txn<'_> {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        self.plan.as_ref().expect(THERE)
    }
}

impl DerefMut for Txn<'_> {
    fn deref_mut(&mut self) -> &mut Plan {
        self.plan.as_mut().expect(THERE)
    }
}

impl<'a> Txn<'a> {
    /// An empty change, at the present time.
    pub fn new(fs: &'a Ops) -> Txn<'a> {
        let mut plan = Plan::new();
        plan.set_time(fs.env.clock.now());
        Txn { fs, plan: Some(plan) }
    }

    /// An empty change that frees space ([`Plan::removes`]).
    pub fn removing(fs: &'a Ops) -> Txn<'a> {
        let mut txn = Txn::new(fs);
        txn.removes();
        txn
    }

    /// The volume.
    pub fn fs(&self) -> &'a Ops {
        self.fs
    }

    /// Applies the change.
    pub fn commit(&mut self) -> FsResult<CommitToken> {
        let fs = self.fs;
        commit(fs, self)
    }
}
