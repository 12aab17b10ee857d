//! `pando clone`: a writable copy of a directory in constant time, or of a snapshot by its number.

use serde_json::json;
use wire::Call;

use crate::cli::CloneArgs;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::{self, Place};
use crate::session;

pub(crate) fn run(args: &CloneArgs, output: &mut Output) -> Result<()> {
    if let Some(number) = args.snapshot {
        return of_snapshot(args, number, output);
    }
    let (source, destination) = place::both(&args.src, &args.dst)?;
    session::write_back(&source.volume, &args.src, output)?;
    let call = Call::Clone { source: &source.inner, destination: &destination.inner };
    session::perform(&source.volume, &call)?;
    let mut object = json!({});
    output::put_bytes(&mut object, "source", &source.inner);
    output::put_bytes(&mut object, "destination", &destination.inner);
    output.object(&object)?;
    let (source, destination) = (printable(&source.inner), printable(&destination.inner));
    output.line(&format!("cloned {source} to {destination}"))
}

fn of_snapshot(args: &CloneArgs, snapshot: u64, output: &mut Output) -> Result<()> {
    let (volume, destination) = (Place::volume(&args.src)?, Place::locate(&args.dst)?);
    place::check_same(&volume, &destination.volume)?;
    let call = Call::SnapshotClone { snapshot, destination: &destination.inner };
    session::perform(&volume, &call)?;
    let mut object = json!({ "source_subvolume": snapshot });
    output::put_bytes(&mut object, "destination", &destination.inner);
    output.object(&object)?;
    output.line(&format!("cloned snapshot #{snapshot} to {}", printable(&destination.inner)))
}
