//! Sends a snapshot: all of it, or what differs from an older one.

use std::sync::atomic::AtomicBool;

use format::stream::{Head, Origin};
use fs::Fs;
use inode::{Caller, NodeId};

use crate::error::{Error, Result};
use crate::job::Job;
use crate::out::{Emit, Out};
use crate::token::Token;
use crate::{full, increment};

/// How a snapshot is sent.
#[derive(Debug, Clone)]
pub struct SendOptions {
    /// Most bytes of memory for what is to be sorted or remembered.
    pub memory: usize,
    /// Where a stream that was cut continues.
    pub token: Option<Token>,
    /// Whether the stream is only measured.
    pub dry_run: bool,
    /// About how many bytes of contents and how many inodes there are, if that is known.
    pub expected: (u64, u64),
}

impl Default for SendOptions {
    fn default() -> SendOptions {
        SendOptions { memory: 256 << 20, token: None, dry_run: false, expected: (0, 0) }
    }
}

/// What was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Records, without the first and the last.
    pub records: u64,
    /// Bytes of contents in them.
    pub bytes: u64,
    /// Bytes of the stream; of a dry run, an estimate.
    pub stream_bytes: u64,
}

/// Sends a snapshot, whose root is given, to a function that returns `false` when nobody reads on.
/// `base`: the root of an older snapshot of the same directory, which the receiver has.
pub fn send(
    fs: &Fs,
    caller: &Caller,
    (base, snapshot): (Option<NodeId>, NodeId),
    options: &SendOptions,
    (cancel, emit): (&AtomicBool, Emit<'_>),
) -> Result<Sent> {
    let origins = origins(fs, snapshot)?;
    let bases = base.map(|base| self::origins(fs, base)).transpose()?.unwrap_or_default();
    if let Some(token) = &options.token {
        check_token(token, &origins, base.is_some().then_some(&bases[..]))?;
    }
    let skipped = options.token.map_or(0, |token| token.applied);
    let steps = options.token.and_then(|token| token.since).map(|since| since.steps);
    let snapshot_info = match fs.snapshot_of_root(snapshot)? {
        Some(number) => fs.snapshot_info(number)?,
        None => return Err(not_a_snapshot()),
    };
    let job = Job { fs, caller, memory: options.memory, cancel };
    let mut head = Head {
        created: snapshot_info.created.0,
        skipped,
        bytes: options.expected.0,
        changes: options.expected.1,
        name: &snapshot_info.name,
        origins,
        bases,
    };
    let mut out = match base {
        None => {
            let mut out = Out::begin(emit, &head, steps, options.dry_run);
            full::send(&job, snapshot, &mut out)?;
            out
        }
        Some(base) => {
            let plan = increment::compare(&job, (base, snapshot))?;
            (head.bytes, head.changes) = plan.expected();
            let mut out = Out::begin(emit, &head, steps, options.dry_run);
            increment::send(&job, &plan, (base, snapshot), &mut out)?;
            out
        }
    };
    out.end()?;
    let (records, bytes) = out.sent();
    Ok(Sent { records, bytes, stream_bytes: out.stream_bytes })
}

/// Refuses a token of another stream. `bases`: the identities of an increment's base.
fn check_token(token: &Token, origins: &[Origin], bases: Option<&[Origin]>) -> Result<()> {
    if !origins.contains(&token.origin) {
        return Err(Error::refused(
            "the token is of another snapshot",
            "name the snapshot whose stream was interrupted",
        ));
    }
    match (token.since, bases) {
        (None, None) => Ok(()),
        (Some(since), Some(bases)) if bases.contains(&since.base) => Ok(()),
        (Some(_), Some(_)) => Err(Error::refused(
            "the token is of an increment from another base",
            "name that base after --from",
        )),
        (Some(_), None) => {
            Err(Error::refused("the token is of an increment", "name its base after --from"))
        }
        (None, Some(_)) => Err(Error::refused(
            "the token is of a complete stream, and not of an increment",
            "leave --from out",
        )),
    }
}

fn origins(fs: &Fs, snapshot: NodeId) -> Result<Vec<Origin>> {
    let number = fs.snapshot_of_root(snapshot)?.ok_or_else(not_a_snapshot)?;
    Ok(fs.origins(number)?)
}

fn not_a_snapshot() -> Error {
    Error::refused(
        "only a snapshot is sent: what is sent must not change",
        "take one with `pando snapshot create DIR NAME`, and send DIR@NAME",
    )
}
