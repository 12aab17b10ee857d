//! Requests about the trash. A path may name something that no longer exists. The directories that
//! exist are resolved, and the names behind them are looked up in the trash.

use std::ops::ControlFlow;

use fs::{Follow, RestoreOptions, Volume, WalkControl};
use inode::{Caller, FsError, Kind, NodeId};
use wire::{Answer, Body, Bytes, Failure, FailureKind, Removed};

use super::about::about;
use super::held::{Held, below, names};
use super::parts::{Parts, fitting};
use super::replies::Replies;

/// Most directories with a trash of their own that a reply names.
const BELOW_MAX: usize = 100;

/// How long a new trash keeps what is removed.
const KEEP_SECONDS: u64 = 7 * 86_400;

/// Approximate bytes of a removed entry without its path.
const REMOVED_BYTES: usize = 160;

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
    let mut parts = Parts::new(replies, Body::Removed);
    let mut take = |removed: fs::Removed| {
        let path = fitting([home, b"/", &removed.path.join(&b'/')].concat());
        let bytes = REMOVED_BYTES + path.0.len();
        let (removed, attr) = (removed.removed, (&removed.attr).into());
        match parts.offer(Removed { path, removed, attr }, bytes) {
            ControlFlow::Continue(()) => WalkControl::Continue,
            ControlFlow::Break(()) => WalkControl::Stop,
        }
    };
    let listed = fs.trash_list(caller, (held.entry.node, &rest), &mut take);
    let listed_below = |filled| {
        if rest.is_empty() { below_one(fs, caller, &held, filled) } else { Ok(Vec::new()) }
    };
    if let Err(error) = listed {
        let failure = no_trash(error, path);
        if failure.kind != FailureKind::Invalid {
            return Err(failure);
        }
        return Err(none_but(failure, &listed_below(false)?));
    }
    let setting = setting.ok_or_else(|| about(FsError::NotFound, path))?;
    let directory = setting.directory.shown();
    // A fault elsewhere ends no list, and the list is not all there is to see.
    let below = match listed_below(true) {
        Ok(below) => below,
        Err(failure) => {
            parts.beside(Body::Skipped(failure))?;
            Vec::new()
        }
    };
    parts.end()?;
    Ok(Answer::Trash(wire::Trash { directory, keep_seconds: setting.keep_seconds, below }))
}

/// Turns the trash of a directory on or off. If no time is given,
/// the one that holds there stays: its own, or that of a directory above.
pub(super) fn set(
    fs: &Volume,
    caller: &Caller,
    path: &[u8],
    (on, keep_seconds): (bool, Option<u64>),
) -> Answered<Answer> {
    let held = Held::resolve(fs, caller, path, Follow::Yes)?;
    let node = held.entry.node;
    let keep_seconds = if on {
        let setting = fs.trash_get(node).map_err(|error| about(error, path))?;
        let before = setting.map(|setting| setting.keep_seconds);
        Some(keep_seconds.or(before).unwrap_or(KEEP_SECONDS))
    } else {
        None
    };
    fs.trash_set(caller, node, keep_seconds).map_err(|error| match error {
        FsError::NotFound => not_its_own(fs, caller, node).at(path),
        error => about(error, path),
    })?;
    let Some(keep_seconds) = keep_seconds else { return Ok(Answer::Nothing) };
    let (directory, below) = (node.shown(), Vec::new());
    Ok(Answer::Trash(wire::Trash { directory, keep_seconds, below }))
}

/// Why a directory has no trash to turn off: it has none, or the trash belongs to a directory
/// above.
pub(super) fn not_its_own(fs: &Volume, caller: &Caller, node: NodeId) -> Failure {
    let setting = fs.trash_get(node).ok().flatten();
    let path = setting.and_then(|setting| fs.path_of(setting.directory).ok().flatten());
    let seen = path.filter(|path| Held::is_seen(fs, caller, path).unwrap_or(false));
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
fn below_one(fs: &Volume, caller: &Caller, held: &Held<'_>, filled: bool) -> Answered<Vec<Bytes>> {
    let unread = |error| {
        let failure = Failure::from(error);
        let message = format!("the directories that have a trash: {}", failure.message);
        Failure { message, ..failure }
    };
    let Some(above) = fs.path_of(held.entry.node).map_err(unread)? else { return Ok(Vec::new()) };
    let above = above.strip_suffix(b"/").unwrap_or(&above);
    let mut found = Vec::new();
    for (node, has_something) in fs.trash_places().map_err(unread)? {
        if found.len() == BELOW_MAX {
            break;
        }
        let path = fs.path_of(node).map_err(unread)?;
        let Some(path) = path.filter(|_| has_something || !filled) else { continue };
        let rest = path.strip_prefix(above).unwrap_or_default();
        if rest.len() > 1 && rest.starts_with(b"/") && Held::is_seen(fs, caller, &path)? {
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

/// The deepest existing directory of a path, and the names behind it. It is sought by halves: of
/// the beginnings of a path, those that exist are the shorter ones.
fn split<'a>(fs: &'a Volume, caller: &Caller, path: &[u8]) -> Answered<(Held<'a>, Vec<Vec<u8>>)> {
    let names: Vec<&[u8]> = names(path).collect();
    if names.contains(&&b".."[..]) {
        let message = "a path that does not exist must not contain '..'";
        let failure = Failure::new(FailureKind::Invalid, message).at(path);
        return Err(failure.hint("write the path without `..`"));
    }
    let directory = |length: usize| {
        let prefix = [&b"/"[..], &names[..length].join(&b'/')].concat();
        let follow = if length == names.len() { Follow::No } else { Follow::Yes };
        match Held::exactly(fs, caller, &prefix, follow) {
            Ok(held) if held.entry.attr.kind == Kind::Directory => Ok(Some(held)),
            Ok(_) => Ok(None),
            Err(failure) => match failure.kind {
                FailureKind::NotFound | FailureKind::NotDirectory => Ok(None),
                _ => Err(failure),
            },
        }
    };
    let found = |held: Held<'a>, length: usize| {
        Ok((held.stored(path)?, names[length..].iter().map(|name| name.to_vec()).collect()))
    };
    if let Some(held) = directory(names.len())? {
        return found(held, names.len());
    }
    let mut deepest = (directory(0)?.ok_or_else(|| about(FsError::NotFound, path))?, 0);
    let mut beyond = names.len();
    while deepest.1 + 1 < beyond {
        let middle = usize::midpoint(deepest.1, beyond);
        match directory(middle)? {
            Some(held) => deepest = (held, middle),
            None => beyond = middle,
        }
    }
    found(deepest.0, deepest.1)
}
