//! `pando sync`: makes everything in a volume durable.

use serde_json::json;
use wire::Call;

use crate::cli::VolumeArg;
use crate::failure::Result;
use crate::output::Output;
use crate::place::VolumePath;
use crate::session;

pub(crate) fn run(args: &VolumeArg, output: &mut Output) -> Result<()> {
    let volume = VolumePath::whole_volume(&args.path, "sync")?;
    session::write_back(&volume, &args.path, output)?;
    session::perform(&volume, &Call::Sync)?;
    output.object(&json!({ "synced": volume.to_string_lossy() }))
}
