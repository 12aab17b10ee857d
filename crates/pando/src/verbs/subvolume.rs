//! `pando subvolume create`: an empty directory with a tree of its own.

use serde_json::json;
use wire::Call;

use crate::cli::SubvolumeVerb;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::{Last, VolumePath};
use crate::session;

pub(crate) fn run(verb: &SubvolumeVerb, output: &mut Output) -> Result<()> {
    let SubvolumeVerb::Create { path } = verb;
    let place = VolumePath::to_change(path, Last::New)?;
    session::perform(&place, &Call::SubvolumeCreate { path: &place.inner, umask: umask() })?;
    let mut object = json!({});
    output::put_bytes(&mut object, "created", place.typed());
    output.object(&object)?;
    output.line(&format!("made subvolume {}", printable(place.typed())))
}

/// The file mode creation mask; reading it means setting it.
fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}
