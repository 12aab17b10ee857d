//! Sends what differs between two snapshots of a directory, in the order of a `plan`.

use std::ops::ControlFlow;

use format::stream::Record;
use fs::{Difference, FileSystem, WalkControl};
use inode::permissions::{EXECUTE, READ};
use inode::{FsError, Kind, NodeId};

use crate::attributes;
use crate::contents::{Source, changed};
use crate::error::{At, Error, Result};
use crate::full::{Links, object, sendable};
use crate::job::Job;
use crate::moved::translate;
use crate::out::Out;
use crate::plan::{Arrive, Gathered, Leave, Moved, Plan, Unnamed};
use crate::separated::{self, COPIES};
use crate::walk::{Held, Walk, join};

/// Bytes of memory that a change takes, besides its paths.
const CHANGE_BYTES: usize = 400;

/// Compares two snapshots.
pub(crate) fn compare(job: &Job<'_>, nodes: (NodeId, NodeId)) -> Result<Plan> {
    match planned(job, nodes) {
        // The plan looked names up. That gives a copy its own of what it inherits, under numbers
        // that the comparison did not see. Now it has all of them.
        Err(Error::Fs(FsError::Stale)) => planned(job, nodes),
        done => done,
    }
}

fn planned(job: &Job<'_>, nodes: (NodeId, NodeId)) -> Result<Plan> {
    let mut used = 0;
    let (mut gathered, separated) = differences(job, nodes, &mut used)?;
    if separated > 0 {
        drop(gathered);
        used = 0;
        let again = separated::find(job, nodes, &mut used)?;
        // By the numbers that these walks gave.
        (gathered, _) = differences(job, nodes, &mut used)?;
        gathered.send_again(again);
    }
    gathered.plan(|unnamed, moved| find(job, nodes, (&unnamed, moved), used))
}

/// What differs, and how many files a rollback may have divided (`Compared::separated`). `used`:
/// bytes of memory.
fn differences(
    job: &Job<'_>,
    nodes: (NodeId, NodeId),
    used: &mut usize,
) -> Result<(Gathered, u64)> {
    let mut gathered = Gathered::default();
    let (mut failed, mut closed) = (None, None);
    let mut take = |change: &Difference| {
        let sides = [&change.old, &change.new];
        let paths: usize = sides.into_iter().flatten().map(|(path, _)| path.len()).sum();
        let counted = job.count(used, paths * COPIES + CHANGE_BYTES, "the changes");
        if let Err(error) = counted {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        if let Some((path, attr)) = &change.new
            && attr.kind == Kind::Directory
            && !job.caller.is_root()
            && closed.is_none()
        {
            closed = Some((path.clone(), attr.node))
                .filter(|(_, node)| job.fs.access(job.caller, *node, READ | EXECUTE).is_err());
        }
        gathered.add(change);
        ControlFlow::Continue(())
    };
    let compared = job.fs.compare(job.caller, nodes, job.cancel, &mut take);
    let compared = compared.map_err(|error| match error {
        FsError::Interrupted => Error::Interrupted,
        FsError::InvalidArgument(_) => Error::refused(
            "the two snapshots are not of one directory",
            "name an older snapshot of the same directory after --from",
        ),
        error => error.into(),
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    job.check_wanted()?;
    if let Some((path, _)) = closed {
        // What is below would be left out, or look removed.
        return Err(FsError::AccessDenied).at(&path);
    }
    Ok((gathered, compared.separated))
}

/// Looks for a name that an inode has in both states, and returns it in the state in which no
/// change has one. That happens only where an inode got a name or lost one and nothing else of it
/// shows that. An inode of another subvolume may have the same number, so the inode is compared
/// where its node is known. The path of a name that stays is followed from the one state to the
/// other.
fn find(
    job: &Job<'_>,
    (old, new): (NodeId, NodeId),
    (unnamed, moved): (&Unnamed, &Moved),
    mut used: usize,
) -> Result<Option<Vec<u8>>> {
    let (Unnamed::Old(node) | Unnamed::New(node)) = *unnamed;
    let mut left = vec![Vec::new()];
    let mut walks = (Walk::new(job.fs, job.caller, old), Walk::new(job.fs, job.caller, new));
    while let Some(path) = left.pop() {
        job.check_wanted()?;
        sendable(&path)?;
        used = used.saturating_sub(path.len());
        let directory = walks.0.directory(&path)?;
        let (mut found, mut below) = (Vec::new(), Vec::new());
        let mut take = |entry: &fs::DirEntry<'_>| {
            if entry.kind == Kind::Directory {
                below.push(join(&path, entry.name));
            } else if entry.node.ino() == node.ino() {
                found.push((join(&path, entry.name), entry.node));
            }
            WalkControl::Continue
        };
        job.fs.readdir(job.caller, directory, 0, &mut take).at(&path)?;
        for (before, of_old) in found {
            let Some(now) = translate(moved, &before) else { continue };
            // It may have left.
            let Ok(held) = walks.1.entry(&now) else { continue };
            match unnamed {
                Unnamed::Old(node) if held.node() == *node => return Ok(Some(before)),
                Unnamed::New(node) if of_old == *node && held.node().ino() == node.ino() => {
                    return Ok(Some(now));
                }
                _ => {}
            }
        }
        let waiting: usize = below.iter().map(Vec::len).sum();
        job.count(&mut used, waiting, "the directories that wait")?;
        left.append(&mut below);
    }
    Err(FsError::Stale.into())
}

/// Sends the steps of a plan.
pub(crate) fn send(
    job: &Job<'_>,
    plan: &Plan,
    (old, new): (NodeId, NodeId),
    out: &mut Out<'_>,
) -> Result<()> {
    let mut walks = (Walk::new(job.fs, job.caller, old), Walk::new(job.fs, job.caller, new));
    for (path, leave) in plan.leaves.iter().rev() {
        out.push(&match *leave {
            Leave::Remove { is_directory } => Record::Remove { path, is_directory },
            Leave::Park { number, keeps_name } => Record::Park { path, number, keeps_name },
        })?;
    }
    let mut links = Links::default();
    for (path, arrive) in &plan.arrives {
        job.check_wanted()?;
        match *arrive {
            Arrive::Place { number, keeps_parked } => {
                out.push(&Record::Place { path, number, keeps_parked })?;
            }
            Arrive::New => {
                let held = walks.1.entry(path)?;
                let attr = held.entry.attr;
                if attr.kind != Kind::Directory
                    && attr.nlink > 1
                    && let Some(target) = links.first(job, held.node(), path)?
                {
                    out.push(&Record::Link { path, target })?;
                } else {
                    object(job, (path, &held, &attr), out)?;
                }
            }
        }
    }
    for (path, before) in &plan.contents {
        job.check_wanted()?;
        let (from, to) = (walks.0.entry(before)?, walks.1.entry(path)?);
        out.push(&Record::Open { path })?;
        changed((&source(job, &from), &source(job, &to)), path, out)?;
    }
    // Those of the directory itself last. A receiver keeps them in memory until the end, so a
    // stream that was cut behind them continues before them.
    let all = || plan.attributes.iter();
    for path in all().filter(|path| !path.is_empty()).chain(all().filter(|path| path.is_empty())) {
        job.check_wanted()?;
        let held = walks.1.entry(path)?;
        let of = (&path[..], held.node(), &held.entry.attr);
        attributes::send(job.fs, job.caller, of, out)?;
    }
    Ok(())
}

fn source<'a>(job: &Job<'a>, held: &Held<'_>) -> Source<'a> {
    let size = held.entry.attr.size;
    Source { fs: job.fs, caller: job.caller, node: held.node(), size }
}
