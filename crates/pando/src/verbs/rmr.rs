//! `pando rmr`: removes trees, each detached at once; with `--wait` until the room of their
//! contents is back.

use std::path::Path;
use std::time::Duration;

use device::{Clock, SystemClock};
use serde_json::json;
use wire::{Answer, Background, Call};

use crate::cli::RmrArgs;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::Place;
use crate::session;

pub(crate) fn run(args: &RmrArgs, output: &mut Output) -> Result<()> {
    let mut volumes = Vec::new();
    for path in &args.paths {
        let place = Place::to_change(path)?;
        let snapshots = match session::ask(&place.volume, &Call::Remove { path: &place.inner })? {
            Answer::Removed { snapshots } => snapshots,
            other => return Err(session::unexpected(&other)),
        };
        let mut object = json!({ "snapshots": snapshots });
        output::put_bytes(&mut object, "removed", &place.inner);
        output.object(&object)?;
        output.line(&format!("removed {}", printable(&place.inner)))?;
        if snapshots > 0 {
            let volume = place.volume.display();
            output.remark(&format!(
                "snapshots of it stay, and hold their room: {}\n  \
                 `pando snapshot list {volume} --removed` lists them; \
                 `pando snapshot delete {volume} --number N` deletes one",
                output::number(snapshots)
            ));
        }
        volumes.push(place.volume);
    }
    output.flush()?;
    if args.wait {
        volumes.sort();
        volumes.dedup();
        volumes.iter().try_for_each(|volume| wait(volume, output))?;
    }
    Ok(())
}

/// Shows how far the reclaim is until the room of what was removed is back. It goes on when this
/// is interrupted. What others remove meanwhile is not waited for, once the trees are gone.
fn wait(volume: &Path, output: &mut Output) -> Result<()> {
    let clock = SystemClock::new();
    let bar = output.progress("records reclaimed");
    let (mut first, mut enough) = (None, None);
    loop {
        let background = match session::ask(volume, &Call::Status)? {
            Answer::Status(status) => status.background,
            other => return Err(session::unexpected(&other)),
        };
        let Background { reclaimed, freeing_bytes, freed_bytes, .. } = background;
        let start = *first.get_or_insert(reclaimed);
        bar.set_position(reclaimed.saturating_sub(start));
        if background.trees() > 0 {
            bar.set_message(format!("{} trees left", background.trees()));
        } else {
            bar.set_message(format!("{} to give back", output::size(freeing_bytes)));
        }
        if enough.is_none() && background.trees() == 0 && !background.collecting {
            enough = Some(freed_bytes + freeing_bytes);
        }
        if enough.is_some_and(|enough| freeing_bytes == 0 || freed_bytes >= enough) {
            bar.finish_and_clear();
            return Ok(());
        }
        clock.sleep(Duration::from_millis(50));
    }
}
