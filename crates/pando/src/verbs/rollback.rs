//! `pando rollback`: makes a directory again what one of its snapshots holds.

use std::os::unix::ffi::OsStrExt;

use serde_json::json;
use wire::Call;

use crate::cli::RollbackArgs;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::Place;
use crate::session;

pub(crate) fn run(args: &RollbackArgs, output: &mut Output) -> Result<()> {
    let place = Place::to_change(&args.dir)?;
    let snapshot = args.snapshot.as_bytes();
    session::perform(&place, &Call::Rollback { path: &place.inner, snapshot })?;
    let mut object = json!({});
    output::put_bytes(&mut object, "path", place.typed());
    output::put_bytes(&mut object, "snapshot", snapshot);
    output.object(&object)?;
    output.line(&format!("{} is again {}", printable(place.typed()), printable(snapshot)))
}
