//! `pando cat`: the contents of files, mounted or not.

use wire::{Body, Call};

use crate::cli::PathsArg;
use crate::failure::Result;
use crate::output::Output;
use crate::place::{Last, VolumePath};
use crate::session;

pub(crate) fn run(args: &PathsArg, output: &mut Output) -> Result<()> {
    for path in &args.paths {
        let place = VolumePath::reading(path, Last::Target)?;
        session::call(&place, &Call::Read { path: &place.inner }, &mut |body| match body {
            Body::Data(bytes) => output.raw(&bytes.0),
            _ => Ok(()),
        })?;
    }
    Ok(())
}
