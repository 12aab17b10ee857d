//! `pando session`: lists the users of a volume's daemon, and ends their sessions.

use std::path::Path;

use client::{Connection, Opened};
use nix::unistd::{Uid, User};
use serde_json::json;
use wire::{Answer, Call, Failure, FailureKind, Session};

use crate::cli::SessionVerb;
use crate::failure::Result;
use crate::output::Output;
use crate::place::VolumePath;
use crate::session;

pub(crate) fn run(verb: &SessionVerb, output: &mut Output) -> Result<()> {
    match verb {
        SessionVerb::List { path } => {
            list(&VolumePath::whole_volume(path, "session list")?, output)
        }
        SessionVerb::End { path, ids } => {
            end(&VolumePath::whole_volume(path, "session end")?, ids, output)
        }
    }
}

fn list(volume: &Path, output: &mut Output) -> Result<()> {
    for session in of(volume)? {
        output.object(&json!({
            "id": session.id,
            "user": user(session.uid),
            "uid": session.uid,
            "pid": session.pid,
            "request": session.request,
            "holds": session.holds,
            "seconds": session.seconds,
            "silent_seconds": session.silent_seconds,
        }))?;
        output.line(&format!("session {}", text(&session)))?;
    }
    Ok(())
}

fn end(volume: &Path, ids: &[u64], output: &mut Output) -> Result<()> {
    for &id in ids {
        if !has_daemon(volume)? {
            let message = format!("there is no session {id}: no process has the volume open");
            let failure = Failure::new(FailureKind::NotFound, message);
            return Err(failure.hint("there is nothing to end"));
        }
        session::perform(volume, &Call::SessionEnd { id })?;
        output.object(&json!({ "ended": id }))?;
        output.line(&format!("ended session {id}"))?;
    }
    Ok(())
}

/// The sessions of a volume that the caller may see; none if no process has it open.
pub(super) fn of(volume: &Path) -> Result<Vec<Session>> {
    if !has_daemon(volume)? {
        return Ok(Vec::new());
    }
    match session::ask(volume, &Call::Sessions)? {
        Answer::Sessions(sessions) => Ok(sessions),
        other => Err(session::unexpected(&other)),
    }
}

/// Whether a process has the volume open: listing its users is no reason to open it.
fn has_daemon(volume: &Path) -> Result<bool> {
    Ok(!matches!(Connection::open(volume)?, Opened::NoDaemon))
}

/// A session in text form.
pub(super) fn text(session: &Session) -> String {
    let Session { id, uid, pid, seconds, .. } = session;
    let what = match &session.request {
        Some(request) => format!("{request} for {seconds} s"),
        None => format!("idle for {seconds} s"),
    };
    let silent = match session.silent_seconds {
        silent if session.request.is_some() && silent > 1 => format!(", silent for {silent} s"),
        _ => String::new(),
    };
    format!("{id} of {} (process {pid}): {what}{silent}", user(*uid))
}

fn user(uid: u32) -> String {
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    known.map_or_else(|| uid.to_string(), |user| user.name)
}
