//! Answers requests about quotas.

use fs::{Owner, OwnerQuota, QuotaChange, QuotaInfo, Volume};
use inode::{Caller, FsError, NodeId};
use wire::{
    Answer, Body, Bytes, Call, Failure, FailureKind, LimitChange, Quota, QuotaDifference, QuotaOf,
    QuotaOwner,
};

use super::check::report_progress;
use super::held::{Held, at};
use super::parts::{Parts, fitting};
use super::replies::Replies;

/// Approximate bytes of a quota without its path.
const QUOTA_BYTES: usize = 80;

/// Converts a user or a group of the volume to the wire's form.
fn owner(owner: QuotaOwner) -> Owner {
    match owner {
        QuotaOwner::User(user) => Owner::User(user),
        QuotaOwner::Group(group) => Owner::Group(group),
    }
}

fn shown_owner(owner: Owner) -> QuotaOf {
    QuotaOf::Owner(match owner {
        Owner::User(user) => QuotaOwner::User(user),
        Owner::Group(group) => QuotaOwner::Group(group),
    })
}

/// The quotas of directories in the wire's form, with the paths that the caller may see.
pub(super) fn shown(
    fs: &Volume,
    caller: &Caller,
    quotas: &[QuotaInfo],
) -> Result<Vec<Quota>, Failure> {
    let one = |quota: &QuotaInfo| {
        Ok(of_directory(quota, fitting(visible(fs, caller, quota.directory)?.0)))
    };
    quotas.iter().map(one).collect()
}

/// The path of a directory if the caller may reach it, else nothing.
pub(super) fn visible(fs: &Volume, caller: &Caller, node: NodeId) -> Result<Bytes, Failure> {
    let path = fs.path_of(node)?.unwrap_or_default();
    let there = !path.is_empty() && Held::is_seen(fs, caller, &path)?;
    Ok(if there { Bytes(path) } else { Bytes::default() })
}

fn of_directory(quota: &QuotaInfo, path: Bytes) -> Quota {
    Quota {
        of: QuotaOf::Directory(quota.id),
        directory: quota.directory.shown(),
        path,
        inodes: quota.inodes,
        bytes: quota.bytes,
        inodes_max: quota.limits.inodes,
        bytes_max: quota.limits.bytes,
    }
}

fn shown_charges(quota: &OwnerQuota) -> Quota {
    Quota {
        of: shown_owner(quota.owner),
        directory: 0,
        path: Bytes::default(),
        inodes: quota.inodes,
        bytes: quota.bytes,
        inodes_max: quota.limits.inodes,
        bytes_max: quota.limits.bytes,
    }
}

/// What a user or a group is charged.
pub(super) fn of_owner(fs: &Volume, caller: &Caller, of: QuotaOwner) -> Result<Answer, Failure> {
    let found = fs.owner_quota_get(caller, owner(of))?;
    Ok(Answer::Quotas(found.iter().map(shown_charges).collect()))
}

/// Sends all quotas: of directories, users and groups.
pub(super) fn all(fs: &Volume, caller: &Caller, replies: &mut Replies) -> Result<Answer, Failure> {
    let mut parts = Parts::new(replies, Body::Quotas);
    for quota in fs.quota_list(caller)? {
        let path = fitting(visible(fs, caller, quota.directory)?.0);
        let bytes = QUOTA_BYTES + path.0.len();
        parts.push(of_directory(&quota, path), bytes)?;
    }
    for charges in fs.owner_quota_list(caller)?.iter().map(shown_charges) {
        parts.push(charges, QUOTA_BYTES)?;
    }
    parts.end()?;
    Ok(Answer::Nothing)
}

/// Converts a change of limits to the volume's form.
fn change(inodes: LimitChange, bytes: LimitChange) -> QuotaChange {
    let one = |limit| match limit {
        LimitChange::Keep => fs::LimitChange::Keep,
        LimitChange::Remove => fs::LimitChange::Remove,
        LimitChange::Set(most) => fs::LimitChange::Set(most),
    };
    QuotaChange { inodes: one(inodes), bytes: one(bytes) }
}

/// Sets limits of a user, a group or a directory, and returns the limits in effect. The count or
/// charge that this needs runs beside all other work, and the caller sees its progress.
pub(super) fn set(
    fs: &Volume,
    caller: &Caller,
    call: &Call<'_>,
    replies: &mut Replies,
) -> Result<Answer, Failure> {
    let mut gone = None;
    let mut progress = |done, total| report_progress(replies, &mut gone, done, total);
    let set = match *call {
        Call::OwnerQuotaSet { owner: of, inodes, bytes } => {
            let change = change(inodes, bytes);
            let set = fs.owner_quota_set_with_progress(caller, owner(of), change, &mut progress);
            set.map_err(Failure::from)
        }
        Call::QuotaSet { path, inodes, bytes } => {
            let change = change(inodes, bytes);
            // The total is not known in advance.
            let mut progress = |done, _| progress(done, 0);
            at(fs, caller, path, |node| {
                fs.quota_set_with_progress(caller, node, change, &mut progress)
            })
        }
        _ => Err(Failure::new(FailureKind::Protocol, "an unexpected request")),
    };
    if let Some(gone) = gone {
        return Err(gone);
    }
    let limits = set?;
    Ok(Answer::QuotaLimits { inodes: limits.inodes, bytes: limits.bytes })
}

/// Recounts all quotas by a walk over the volume. Only root may do this.
pub(super) fn check(
    fs: &Volume,
    caller: &Caller,
    replies: &mut Replies,
) -> Result<Answer, Failure> {
    if !caller.is_root() {
        return Err(FsError::RootOnly("only root checks quotas").into());
    }
    let mut gone = None;
    let mut progress = |done, total| report_progress(replies, &mut gone, done, total);
    let found = fs.quota_check_with_progress(&mut progress);
    if let Some(gone) = gone {
        return Err(gone);
    }
    let mut parts = Parts::new(replies, Body::QuotasDiffer);
    for found in found? {
        let of = match found.of {
            fs::QuotaOf::Directory(id) => QuotaOf::Directory(id),
            fs::QuotaOf::Owner(owner) => shown_owner(owner),
        };
        let (subvolume, recorded, found) = (found.subvolume, found.recorded, found.found);
        parts.push(QuotaDifference { of, subvolume, recorded, found }, QUOTA_BYTES)?;
    }
    parts.end()?;
    Ok(Answer::Nothing)
}
