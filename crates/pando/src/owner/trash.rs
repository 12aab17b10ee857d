//! Requests about the trash. A path may name something that no longer exists: the directories that
//! exist are resolved, and the names behind them are looked up in the trash.

use fs::{Follow, FsResult, RestoreOptions, Volume, WalkControl};
use inode::{Caller, FsError, Kind, NodeId};
use wire::{Answer, Body, Bytes, Failure, FailureKind, Removed};

use super::about::about;
use super::connection::Replies;
use super::held::{Held, below};

/// Most directories with a trash of their own that a reply names.
const BELOW_MAX: usize = 100;

/// Most removed entries in one message.
const REMOVED_A_PART: usize = 500;

type Answered<T> = Result<T, Failure>;

/// Sends what was removed at a path or below it.
pub(super) fn list(
    fs: &Volume,
    caller: &Caller,
    path: &[u8],
    replies: &mut Replies,
) -> Answered<Answer> {
    let (held, rest) = split(fs, caller, path)?;
    let setting = fs.trash_get(held.entry.node).map_err(|error| about(error, path))?;
    let home = match &setting {
        Some(setting) => fs.path_of(setting.directory).map_err(|error| about(error, path))?,
        None => None,
    };
    let home = home.unwrap_or_default();
    let home = home.strip_suffix(b"/").unwrap_or(&home);
    let mut failed = None;
    let mut part = Vec::new();
    let mut take = |removed: fs::Removed| {
        let path = [home, b"/", &removed.path.join(&b'/')].concat();
        let (removed, attr) = (removed.removed, (&removed.attr).into());
        part.push(Removed { path: path.into(), removed, attr });
        if part.len() >= REMOVED_A_PART
            && let Err(failure) = replies.part(Body::Removed(std::mem::take(&mut part)))
        {
            failed = Some(failure);
            return WalkControl::Stop;
        }
        WalkControl::Continue
    };
    let listed = fs.trash_list(caller, (held.entry.node, &rest), &mut take);
    let listed_below = |filled| {
        if rest.is_empty() { below_one(fs, caller, &held, filled) } else { Ok(Vec::new()) }
    };
    if let Err(error) = listed {
        return Err(none_but(no_trash(error, path), &listed_below(false).unwrap_or_default()));
    }
    if let Some(failure) = failed {
        return Err(failure);
    }
    if !part.is_empty() {
        replies.part(Body::Removed(part))?;
    }
    let setting = setting.ok_or_else(|| about(FsError::NotFound, path))?;
    let directory = setting.directory.shown();
    // A fault elsewhere does not make this list fail.
    let below = listed_below(true).unwrap_or_default();
    Ok(Answer::Trash(wire::Trash { directory, keep_seconds: setting.keep_seconds, below }))
}

/// Why a directory has no trash to turn off: it has none, or the trash belongs to a directory
/// above.
pub(super) fn not_its_own(fs: &Volume, caller: &Caller, node: NodeId) -> Failure {
    let setting = fs.trash_get(node).ok().flatten();
    let path = setting.and_then(|setting| fs.path_of(setting.directory).ok().flatten());
    let seen = path.filter(|path| Held::exactly(fs, caller, path, Follow::No).is_ok());
    let Some(path) = seen else {
        return Failure::new(
            FailureKind::NotFound,
            "neither it nor a directory above it has a trash",
        )
        .hint("`pando trash on` turns one on");
    };
    let path = path.escape_ascii();
    let message =
        format!("it has no trash of its own: what is removed there goes to that of {path}");
    Failure::new(FailureKind::NotFound, message)
        .hint(format!("`pando trash off` on {path} turns that off for everything below it"))
}

/// Directories below this one that have a trash of their own (optionally only those with something
/// in it) and that the caller may look up.
fn below_one(fs: &Volume, caller: &Caller, held: &Held<'_>, filled: bool) -> FsResult<Vec<Bytes>> {
    let Some(above) = fs.path_of(held.entry.node)? else { return Ok(Vec::new()) };
    let above = above.strip_suffix(b"/").unwrap_or(&above);
    let mut found = Vec::new();
    for (node, has_something) in fs.trash_places()? {
        if found.len() == BELOW_MAX {
            break;
        }
        let Some(path) = fs.path_of(node)?.filter(|_| has_something || !filled) else { continue };
        let rest = path.strip_prefix(above).unwrap_or_default();
        let is_below = rest.len() > 1 && rest.starts_with(b"/");
        if is_below && Held::exactly(fs, caller, &path, Follow::No).is_ok() {
            found.push(Bytes(path));
        }
    }
    Ok(found)
}

/// Reports that a directory has no trash, and names the directories below that have one.
fn none_but(failure: Failure, below: &[Bytes]) -> Failure {
    let Some(first) = below.first().filter(|_| failure.kind == FailureKind::Invalid) else {
        return failure;
    };
    let have = match below.len() {
        1 => format!("{} in the volume has one of its own", first.lossy()),
        more => {
            format!("{more} directories below have one, such as {} in the volume", first.lossy())
        }
    };
    failure.hint(format!("{have}: use that name"))
}

/// Empties the trash of a directory.
pub(super) fn empty(fs: &Volume, caller: &Caller, path: &[u8]) -> Answered<Answer> {
    let held = Held::resolve(fs, caller, path, Follow::Yes)?;
    let gone = fs.trash_empty(caller, held.entry.node).map_err(|error| no_trash(error, path))?;
    Ok(Answer::Emptied(gone))
}

/// An error about the trash of a path.
fn no_trash(error: FsError, path: &[u8]) -> Failure {
    let failure = about(error, path);
    if failure.kind != FailureKind::Invalid {
        return failure;
    }
    failure.hint(
        "name a directory with a trash, or a path below; find them with `pando find -name .trash`",
    )
}

/// Restores what was removed at a path.
pub(super) fn restore(
    fs: &Volume,
    caller: &Caller,
    (path, to): (&[u8], Option<&[u8]>),
    options: &RestoreOptions,
) -> Answered<Answer> {
    let (held, rest) = split(fs, caller, path)?;
    let from = (held.entry.node, &rest[..]);
    let restored = match to {
        None => fs.restore(caller, from, None, options).map_err(|error| about(error, path)),
        Some(to) => below(fs, caller, to, |parent, name| {
            fs.restore(caller, from, Some((parent, name)), options)
        }),
    };
    // An error about the target directory is reported as it is.
    let about_source = |failure: &Failure| [Some(path), to].contains(&Some(&failure.path.0[..]));
    let restored = restored.map_err(|failure| match failure.kind {
        FailureKind::NotFound if about_source(&failure) => {
            let message = "it is not in the trash".to_owned();
            Failure { message, ..failure }
                .at(path)
                .hint("`pando trash list` lists the trash; --since restores earlier removals")
        }
        FailureKind::Exists => {
            failure.hint("nothing is overwritten; choose another path with --to")
        }
        _ => failure,
    })?;
    Ok(Answer::Restored { names: restored.names, left: restored.left })
}

/// The deepest existing directory of a path, and the names behind it.
fn split<'a>(fs: &'a Volume, caller: &Caller, path: &[u8]) -> Answered<(Held<'a>, Vec<Vec<u8>>)> {
    let mut names: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    names.retain(|name| !name.is_empty() && *name != b".");
    if names.contains(&&b".."[..]) {
        let message = "a path that does not exist must not contain '..'";
        let failure = Failure::new(FailureKind::Invalid, message).at(path);
        return Err(failure.hint("write the path without `..`"));
    }
    for length in (0..=names.len()).rev() {
        let prefix = [&b"/"[..], &names[..length].join(&b'/')].concat();
        let follow = if length == names.len() { Follow::No } else { Follow::Yes };
        match Held::exactly(fs, caller, &prefix, follow) {
            Ok(held) if held.entry.attr.kind == Kind::Directory => {
                let held = held.stored(path)?;
                return Ok((held, names[length..].iter().map(|name| name.to_vec()).collect()));
            }
            Ok(_) => {}
            Err(failure) => match failure.kind {
                FailureKind::NotFound | FailureKind::NotDirectory => {}
                _ => return Err(failure),
            },
        }
    }
    Err(about(FsError::NotFound, path))
}
