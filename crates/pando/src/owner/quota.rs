//! What is answered about quotas.

use fs::{Fs, QuotaInfo};
use inode::{Caller, FsError};
use wire::{Answer, Failure, Quota, QuotaDifference};

/// Quotas as the wire has them.
pub(super) fn shown(quotas: impl IntoIterator<Item = QuotaInfo>) -> Answer {
    let quota = |quota: QuotaInfo| Quota {
        id: quota.id,
        directory: quota.directory.0,
        files: quota.files,
        bytes: quota.bytes,
        files_max: quota.limits.files,
        bytes_max: quota.limits.bytes,
    };
    Answer::Quotas(quotas.into_iter().map(quota).collect())
}

/// Counts all quotas anew: a walk over the volume, for root.
pub(super) fn check(fs: &Fs, caller: &Caller) -> Result<Answer, Failure> {
    if !caller.is_root() {
        return Err(FsError::NotPermitted("only root checks quotas").into());
    }
    let differences = fs.quota_check()?.into_iter().map(|found| QuotaDifference {
        id: found.id,
        subvolume: found.subvolume,
        recorded: found.recorded,
        found: found.found,
    });
    Ok(Answer::QuotasChecked(differences.collect()))
}
