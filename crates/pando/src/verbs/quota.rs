//! `pando quota`: limits on what directories hold, asked of the volume's owner.

use serde_json::json;
use wire::{Answer, Call, Failure, FailureKind, Quota};

use crate::cli::QuotaVerb;
use crate::failure::Result;
use crate::output::{self, Output, printable, size};
use crate::place::Place;
use crate::session;

pub(crate) fn run(verb: &QuotaVerb, output: &mut Output) -> Result<()> {
    match verb {
        QuotaVerb::Set(args) => {
            let place = Place::locate(&args.dir)?;
            let (path, files, bytes) = (&place.inner[..], args.files, args.bytes);
            session::perform(&place.volume, &Call::QuotaSet { path, files, bytes })?;
            let mut object = json!({ "files_max": files, "bytes_max": bytes });
            output::put_bytes(&mut object, "quota", &place.inner);
            output.object(&object)?;
            output.line(&format!("set the quota of {}", printable(&place.inner)))
        }
        QuotaVerb::Get { path } => {
            let place = Place::locate(path)?;
            show(&session::ask(&place.volume, &Call::QuotaGet { path: &place.inner })?, output)
        }
        QuotaVerb::List { path } => {
            show(&session::ask(&Place::volume(path)?, &Call::QuotaList)?, output)
        }
        QuotaVerb::Check { path } => {
            let answer = session::ask(&Place::volume(path)?, &Call::QuotaCheck)?;
            let Answer::QuotasChecked(differences) = &answer else {
                return Err(session::unexpected(&answer));
            };
            for difference in differences {
                let (recorded, found) = (difference.recorded, difference.found);
                output.object(&json!({
                    "quota": difference.id,
                    "subvolume": difference.subvolume,
                    "files_recorded": recorded.0,
                    "bytes_recorded": recorded.1,
                    "files_found": found.0,
                    "bytes_found": found.1,
                }))?;
                output.line(&format!(
                    "quota {} in subvolume {}: {} files and {} bytes by the record, \
                     {} and {} found",
                    difference.id, difference.subvolume, recorded.0, recorded.1, found.0, found.1
                ))?;
            }
            if differences.is_empty() {
                return output.line("all quotas are as counted");
            }
            let message = format!("{} differ from what was counted", differences.len());
            Err(Failure::new(FailureKind::Damaged, message))
        }
    }
}

fn show(answer: &Answer, output: &mut Output) -> Result<()> {
    let Answer::Quotas(quotas) = answer else { return Err(session::unexpected(answer)) };
    for quota in quotas {
        let Quota { id, directory, files, bytes, files_max, bytes_max } = *quota;
        output.object(&json!({
            "quota": id,
            "directory": directory,
            "files": files,
            "files_max": files_max,
            "bytes": bytes,
            "bytes_max": bytes_max,
        }))?;
        let files_max = files_max.map_or("no limit".to_owned(), |max| max.to_string());
        let bytes_max = bytes_max.map_or("no limit".to_owned(), size);
        output.line(&format!(
            "quota {id} of inode {directory}: {files} files of {files_max}, {} of {bytes_max}",
            size(bytes)
        ))?;
    }
    if quotas.is_empty() { output.line("no quota") } else { Ok(()) }
}
