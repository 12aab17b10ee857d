//! `pando clone`: a writable copy of a directory in constant time.

use serde_json::json;
use wire::Call;

use crate::cli::CloneArgs;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::{self, Last, VolumePath};
use crate::session;

pub(crate) fn run(args: &CloneArgs, output: &mut Output) -> Result<()> {
    let (source, destination) = (
        VolumePath::reading(&args.src, Last::Target)?,
        VolumePath::to_change(&args.dst, Last::New)?,
    );
    let (source, destination) = place::both(source, destination)?;
    session::write_back(&source.volume, &args.src, output)?;
    let call = Call::Clone { source: &source.inner, destination: &destination.inner };
    session::perform(&[&source, &destination], &call)?;
    let mut object = json!({});
    output::put_bytes(&mut object, "source", source.typed());
    output::put_bytes(&mut object, "destination", destination.typed());
    output.object(&object)?;
    let (source, destination) = (printable(source.typed()), printable(destination.typed()));
    output.line(&format!("cloned {source} to {destination}"))
}
