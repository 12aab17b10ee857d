//! `pando search`: sets which extended attributes the index of a volume holds and how large its
//! clusters become, and writes the index.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::json;
use wire::{Answer, Call, Failure, FailureKind};

use crate::cli::SearchVerb;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::{Last, VolumePath};
use crate::session;

pub(crate) fn run(verb: &SearchVerb, output: &mut Output) -> Result<()> {
    match verb {
        SearchVerb::Declare { path, names } => declare(path, names, true, output),
        SearchVerb::Undeclare { path, names } => declare(path, names, false, output),
        SearchVerb::List { path } => list(path, output),
        SearchVerb::Limits { path, directories, inodes } => {
            limits(path, *directories, *inodes, output)
        }
        SearchVerb::Flush { paths } => paths.iter().try_for_each(|path| flush(path, output)),
    }
}

fn declare(path: &Path, names: &[OsString], searchable: bool, output: &mut Output) -> Result<()> {
    let volume = VolumePath::volume_to_change(path)?;
    let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    if let Some(name) = names.iter().find(|name| !name.contains(&b'.')) {
        let what = format!("{} is not the name of an extended attribute", printable(name));
        let hint = "include the namespace, such as user.project";
        return Err(Failure::new(FailureKind::Invalid, what).hint(hint));
    }
    session::perform(&volume, &Call::Declare { names: names.clone(), searchable })?;
    for name in names {
        let mut object = json!({ "searchable": searchable });
        output::put_bytes(&mut object, "name", name);
        output.object(&object)?;
        let name = printable(name);
        let done = if searchable {
            format!("the index holds {name}: searches by it read the index")
        } else {
            format!("the index no longer holds {name}: searches by it read every file's attributes")
        };
        output.line(&done)?;
    }
    Ok(())
}

fn list(path: &Path, output: &mut Output) -> Result<()> {
    let volume = VolumePath::volume(path)?;
    let names = match session::ask(&volume, &Call::Searchable)? {
        Answer::Searchable(names) => names,
        other => return Err(session::unexpected(&other)),
    };
    for name in names {
        let mut object = json!({});
        output::put_bytes(&mut object, "name", &name.0);
        output.object(&object)?;
        output.line(&printable(&name.0))?;
    }
    Ok(())
}

fn limits(
    path: &Path,
    directories: Option<u32>,
    inodes: Option<u32>,
    output: &mut Output,
) -> Result<()> {
    let asks = directories.is_none() && inodes.is_none();
    let volume = if asks { VolumePath::volume(path)? } else { VolumePath::volume_to_change(path)? };
    let answer = session::ask(&volume, &Call::ClusterLimits { directories, inodes })?;
    let Answer::ClusterLimits { directories, inodes } = answer else {
        return Err(session::unexpected(&answer));
    };
    output.object(&json!({ "directories": directories, "inodes": inodes }))?;
    let directories = output::count(directories.into(), "directory", "directories");
    let inodes = output::count(inodes.into(), "inode", "inodes");
    output.line(&format!("a cluster has at most {directories} and {inodes}"))
}

fn flush(path: &Path, output: &mut Output) -> Result<()> {
    let place = VolumePath::locate(path, Last::Target)?;
    session::perform(&place, &Call::IndexFlush { path: &place.inner })?;
    let mut object = json!({});
    output::put_bytes(&mut object, "flushed", place.typed());
    output.object(&object)?;
    output.line(&format!("the index has all of {}", printable(place.typed())))
}
