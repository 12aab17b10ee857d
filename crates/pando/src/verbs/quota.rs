//! `pando quota`: limits on the usage of directories, users and groups, set through the volume's
//! daemon.

use nix::unistd::{Gid, Group, Uid, User};
use serde_json::{Value, json};
use wire::{Answer, Body, Call, Failure, FailureKind, Quota, QuotaDifference, QuotaOf, QuotaOwner};

use crate::cli::{QuotaSetArgs, QuotaVerb};
use crate::failure::Result;
use crate::output::{self, Output, printable, size};
use crate::place::{Last, VolumePath};
use crate::session::{self, Target};

pub(crate) fn run(verb: &QuotaVerb, output: &mut Output) -> Result<()> {
    match verb {
        QuotaVerb::Set(args) => set(args, output),
        QuotaVerb::Get { path, owner } => {
            let (place, answer) = if let Some(owner) = owner.named() {
                let place = VolumePath::all_of_volume(path)?;
                let answer = session::ask(&place.volume, &Call::OwnerQuotaGet { owner })?;
                (place, answer)
            } else {
                let place = VolumePath::locate(path, Last::Target)?;
                let answer = session::ask(&place, &Call::QuotaGet { path: &place.inner })?;
                (place, answer)
            };
            let Answer::Quotas(quotas) = &answer else { return Err(session::unexpected(&answer)) };
            show(&place, quotas, output)?;
            if quotas.is_empty() {
                output.line("no quota")?;
                output.object(&json!({ "quota": null }))?;
            }
            Ok(())
        }
        // One object for each quota.
        QuotaVerb::List { path } => {
            let mut shown = 0;
            let place = VolumePath::all_of_volume(path)?;
            session::call(&place.volume, &Call::QuotaList, &mut |part| {
                if let Body::Quotas(quotas) = part {
                    shown += quotas.len();
                    show(&place, &quotas, output)?;
                }
                Ok(())
            })?;
            if shown == 0 { output.line("no quota") } else { Ok(()) }
        }
        QuotaVerb::Check { path } => {
            let volume = VolumePath::volume(path)?;
            let mut differences = Vec::new();
            counted(&volume, &Call::QuotaCheck, &mut differences, output)?;
            for difference in &differences {
                differs(difference, output)?;
            }
            // The verdict, like the one that ends `fsck`.
            output.object(&json!({
                "path": volume.to_string_lossy(),
                "clean": differences.is_empty(),
                "differences": differences.len(),
            }))?;
            if differences.is_empty() {
                return output.line("all quotas match the files");
            }
            let message = format!("{} differ from the files", differences.len());
            Err(Failure::new(FailureKind::Damaged, message)
                .hint("unmount the volume, and run `pando fsck --repair`"))
        }
    }
}

/// Prints what a check found.
fn differs(difference: &QuotaDifference, output: &mut Output) -> Result<()> {
    let (recorded, found) = (difference.recorded, difference.found);
    let mut object = json!({
        "subvolume": difference.subvolume,
        "inodes_recorded": recorded.0,
        "bytes_recorded": recorded.1,
        "inodes_found": found.0,
        "bytes_found": found.1,
    });
    put_of(&mut object, difference.of);
    output.object(&object)?;
    output.line(&format!(
        "{} in subvolume {}: {} and {} by the record, {} and {} found",
        name_of(difference.of),
        difference.subvolume,
        counted_in(recorded.0, "inode", "inodes"),
        counted_in(recorded.1, "byte", "bytes"),
        found.0,
        found.1
    ))
}

/// A number of a record, which may be negative if that is damaged, with its noun.
fn counted_in(number: i64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Makes a call that counts inodes, takes what differs, and shows progress. If the total is
/// unknown, shows the rate per second.
fn counted(
    target: &impl Target,
    call: &Call<'_>,
    differences: &mut Vec<QuotaDifference>,
    output: &mut Output,
) -> Result<Answer> {
    let bar = output.progress("inodes");
    let answer = session::call(target, call, &mut |part| {
        match part {
            Body::Progress { done, total } => {
                if total > 0 {
                    Output::progress_total(&bar, "inodes", total.max(done));
                }
                bar.set_position(done);
            }
            Body::QuotasDiffer(more) => differences.extend(more),
            _ => {}
        }
        Ok(())
    });
    bar.finish_and_clear();
    answer
}

fn set(args: &QuotaSetArgs, output: &mut Output) -> Result<()> {
    let (inodes, bytes) = args.changes();
    let (mut object, none) = (json!({}), &mut Vec::new());
    let (answer, of) = if let Some(owner) = args.owner.named() {
        let volume = VolumePath::volume_to_change(&args.path)?;
        let answer = counted(&volume, &Call::OwnerQuotaSet { owner, inodes, bytes }, none, output)?;
        put_of(&mut object, QuotaOf::Owner(owner));
        (answer, name_of(QuotaOf::Owner(owner)))
    } else {
        let place = VolumePath::to_change(&args.path, Last::Target)?;
        let path = &place.inner[..];
        let answer = counted(&place, &Call::QuotaSet { path, inodes, bytes }, none, output)?;
        output::put_bytes(&mut object, "quota", place.typed());
        (answer, printable(place.typed()))
    };
    let Answer::QuotaLimits { inodes, bytes } = answer else {
        return Err(session::unexpected(&answer));
    };
    object["inodes_max"] = inodes.into();
    object["bytes_max"] = bytes.into();
    output.object(&object)?;
    output.line(&format!("set the quota of {of}: {}, {}", most(inodes), most_bytes(bytes)))
}

/// A limit on inodes, for people.
fn most(inodes: Option<u64>) -> String {
    let most = |inodes| format!("at most {}", output::count(inodes, "inode", "inodes"));
    inodes.map_or("no limit of inodes".to_owned(), most)
}

/// A limit on bytes, for people.
fn most_bytes(bytes: Option<u64>) -> String {
    bytes.map_or("no limit of bytes".to_owned(), |bytes| format!("at most {}", size(bytes)))
}

/// The subject of a quota, for people: with a name if there is one.
fn name_of(of: QuotaOf) -> String {
    match of {
        QuotaOf::Directory(id) => format!("quota {id}"),
        QuotaOf::Owner(QuotaOwner::User(user)) => {
            let known = User::from_uid(Uid::from_raw(user)).ok().flatten();
            format!("user {}", known.map_or(user.to_string(), |user| user.name))
        }
        QuotaOf::Owner(QuotaOwner::Group(group)) => {
            let known = Group::from_gid(Gid::from_raw(group)).ok().flatten();
            format!("group {}", known.map_or(group.to_string(), |group| group.name))
        }
    }
}

fn put_of(object: &mut Value, of: QuotaOf) {
    let (key, number) = match of {
        QuotaOf::Directory(id) => ("quota", id),
        QuotaOf::Owner(QuotaOwner::User(user)) => ("user", u64::from(user)),
        QuotaOf::Owner(QuotaOwner::Group(group)) => ("group", u64::from(group)),
    };
    object[key] = number.into();
}

/// Prints quotas, with paths in the style of a place.
fn show(place: &VolumePath, quotas: &[Quota], output: &mut Output) -> Result<()> {
    for quota in quotas {
        let Quota { of, directory, ref path, inodes, bytes, inodes_max, bytes_max } = *quota;
        let mut object = json!({
            "inodes": inodes,
            "inodes_max": inodes_max,
            "bytes": bytes,
            "bytes_max": bytes_max,
        });
        put_of(&mut object, of);
        let mut of = name_of(of);
        let path = place.shown(&path.0);
        if directory != 0 {
            object["directory"] = directory.into();
            of = match &path[..] {
                b"" => format!("{of} of inode {directory}"),
                path => printable(path),
            };
        }
        if !path.is_empty() {
            output::put_bytes(&mut object, "path", &path);
        }
        output.object(&object)?;
        let inodes_max = inodes_max.map_or("no limit".to_owned(), |max| max.to_string());
        let bytes_max = bytes_max.map_or("no limit".to_owned(), size);
        output.line(&format!(
            "{of}: {} of {inodes_max}, {} of {bytes_max}",
            output::count(inodes, "inode", "inodes"),
            size(bytes)
        ))?;
    }
    Ok(())
}
