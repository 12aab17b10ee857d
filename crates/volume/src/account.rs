//! An account of a quota directory, a user, or a group. It has its limits, what is charged against
//! them, and what is reserved for batches in progress.
//!
//! A batch reserves its growth here, where the limits are, before it is committed. So no two
//! writers can both get the last byte. What shrinks counts once it is committed. An abandoned batch
//! returns its reservation.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use format::quota::{BYTES_AT, Charged, INODES_AT};
use inode::FsError;
use store::{Lane, MergeKind};
use vfs::FsResult;

use crate::{LimitChange, QuotaChange, QuotaLimits};

/// No limit, as records have it.
pub const UNLIMITED: u64 = u64::MAX;

/// Limits, and what is charged.
pub struct Account {
    inodes_max: AtomicU64,
    bytes_max: AtomicU64,
    inodes: AtomicI64,
    bytes: AtomicI64,
}

/// The change that a batch makes to an account.
pub struct Change {
    account: Arc<Account>,
    inodes: i64,
    bytes: i64,
}

impl Account {
    /// An account to which nothing is charged; limits as records have them.
    pub fn new((inodes_max, bytes_max): (u64, u64)) -> Account {
        Account {
            inodes_max: AtomicU64::new(inodes_max),
            bytes_max: AtomicU64::new(bytes_max),
            inodes: AtomicI64::new(0),
            bytes: AtomicI64::new(0),
        }
    }

    /// Adds to what is charged, regardless of the limits.
    pub fn add(&self, inodes: i64, bytes: i64) {
        if inodes != 0 {
            self.inodes.fetch_add(inodes, Ordering::AcqRel);
        }
        if bytes != 0 {
            self.bytes.fetch_add(bytes, Ordering::AcqRel);
        }
    }

    /// Reserves the growth of a batch: all of it, or none. `force`: regardless of the limits.
    fn reserve(&self, inodes: i64, bytes: i64, force: bool) -> FsResult<()> {
        if force {
            self.add(inodes, bytes);
            return Ok(());
        }
        take(&self.inodes, &self.inodes_max, inodes)?;
        take(&self.bytes, &self.bytes_max, bytes).inspect_err(|_| self.add(-inodes, 0))
    }

    /// The limits, as records have them.
    pub fn limits(&self) -> (u64, u64) {
        (self.inodes_max.load(Ordering::Acquire), self.bytes_max.load(Ordering::Acquire))
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limits() != (UNLIMITED, UNLIMITED)
    }

    /// Sets the limits, after the commit that did.
    pub fn set_limits(&self, (inodes_max, bytes_max): (u64, u64)) {
        self.inodes_max.store(inodes_max, Ordering::Release);
        self.bytes_max.store(bytes_max, Ordering::Release);
    }

    /// Inodes and bytes that are charged.
    pub fn used(&self) -> (u64, u64) {
        let read = |count: &AtomicI64| count.load(Ordering::Acquire).max(0) as u64;
        (read(&self.inodes), read(&self.bytes))
    }

    /// Whether nothing is charged to it.
    pub fn is_unused(&self) -> bool {
        let read = |count: &AtomicI64| count.load(Ordering::Acquire);
        (read(&self.inodes), read(&self.bytes)) == (0, 0)
    }
}

fn take(used: &AtomicI64, most: &AtomicU64, more: i64) -> FsResult<()> {
    if more == 0 {
        return Ok(());
    }
    let most = i64::try_from(most.load(Ordering::Acquire)).unwrap_or(i64::MAX);
    let grown = |used: i64| used.checked_add(more).filter(|grown| *grown <= most);
    let taken = used.fetch_update(Ordering::AcqRel, Ordering::Acquire, grown);
    taken.map(drop).map_err(|_| FsError::QuotaExceeded)
}

impl Change {
    /// Reserves the growth of a batch. `force`: regardless of the limits.
    pub fn take(
        account: Arc<Account>,
        (inodes, bytes): (i64, i64),
        force: bool,
    ) -> FsResult<Change> {
        account.reserve(inodes.max(0), bytes.max(0), force)?;
        Ok(Change { account, inodes, bytes })
    }

    /// After the commit: releases what shrank for others to use.
    pub fn committed(&self) {
        self.account.add(self.inodes.min(0), self.bytes.min(0));
    }

    /// Nothing was committed: releases what was reserved.
    pub fn given_up(&self) {
        self.account.add(-self.inodes.max(0), -self.bytes.max(0));
    }
}

/// The lanes of a merge that changes a record of charges, and how many of them are used.
pub fn lanes(inodes: i64, bytes: i64) -> ([Lane; 2], usize) {
    let lane = |offset, operand| Lane { offset, kind: MergeKind::Add, operand };
    let (inodes_lane, bytes_lane) = (lane(INODES_AT, inodes), lane(BYTES_AT, bytes));
    match (inodes, bytes) {
        (0, _) => ([bytes_lane, inodes_lane], 1),
        (_, 0) => ([inodes_lane, bytes_lane], 1),
        _ => ([inodes_lane, bytes_lane], 2),
    }
}

/// Bytes that an inode stores. A damaged record may claim more than can exist.
pub fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Limits after a change, as records have them.
pub fn changed((inodes, bytes): (u64, u64), change: QuotaChange) -> (u64, u64) {
    let one = |before, change| match change {
        LimitChange::Keep => before,
        LimitChange::Remove => UNLIMITED,
        LimitChange::Set(most) => most,
    };
    (one(inodes, change.inodes), one(bytes, change.bytes))
}

/// Limits as callers have them.
pub fn decoded((inodes_max, bytes_max): (u64, u64)) -> QuotaLimits {
    let limit = |max| (max != UNLIMITED).then_some(max);
    QuotaLimits { inodes: limit(inodes_max), bytes: limit(bytes_max) }
}

/// One more inode with its bytes.
pub fn count(charged: &mut Charged, bytes: u64) {
    charged.inodes += 1;
    charged.bytes = charged.bytes.saturating_add_unsigned(bytes);
}
