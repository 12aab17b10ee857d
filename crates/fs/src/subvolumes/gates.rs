//! Passing the gates of several subvolumes: exclusively those that are copied, shared the one
//! where a name is made. Always in the order of their numbers, so that nobody waits in a circle.

use std::sync::Arc;

use device::sync::RwLockWriteGuard;
use inode::FsError;

use super::ledger::Ledger;
use crate::subvol::{Entered, Subvol};
use crate::{Fs, FsResult};

/// Gates that are held.
pub(crate) struct Gates<'a> {
    _held: Vec<Gate<'a>>,
}

enum Gate<'a> {
    Exclusive(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'a, ()>),
    Shared(#[expect(dead_code, reason = "held")] Entered<'a>),
}

impl<'a> Gates<'a> {
    /// Waits until no change of `quiet` is under way and keeps it so, and begins a change of
    /// `changed`, unless that is among them. Who changes what is quiet sees to its heirs before.
    pub(crate) fn pass(
        fs: &Fs,
        ledger: &mut Ledger,
        quiet: &'a [Arc<Subvol>],
        changed: Option<&'a Arc<Subvol>>,
    ) -> FsResult<Gates<'a>> {
        fs.may_change()?;
        let mut order: Vec<(&Arc<Subvol>, bool)> =
            quiet.iter().map(|subvol| (subvol, true)).collect();
        if let Some(subvol) = changed {
            subvol.check_changes()?;
            fs.give_to_heirs(ledger, subvol)?;
            if !quiet.iter().any(|other| other.id == subvol.id) {
                order.push((subvol, false));
            }
        }
        order.sort_by_key(|(subvol, _)| subvol.id);
        order.dedup_by_key(|(subvol, _)| subvol.id);
        let mut held = Vec::with_capacity(order.len());
        for (subvol, exclusive) in order {
            if exclusive {
                let gate = subvol.quiesce();
                if subvol.is_gone() {
                    return Err(FsError::Stale);
                }
                held.push(Gate::Exclusive(gate));
            } else {
                held.push(Gate::Shared(subvol.enter()?));
            }
        }
        Ok(Gates { _held: held })
    }
}
