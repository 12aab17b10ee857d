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
    if base.is_some() && options.token.is_some() {
        return Err(Error::refused(
            "the rest of an increment is not sent",
            "an increment begins again: send it without a token",
        ));
    }
    let origins = origins(fs, snapshot)?;
    let bases = base.map(|base| self::origins(fs, base)).transpose()?.unwrap_or_default();
    let skipped = match options.token {
        None => 0,
        Some(token) if origins.contains(&token.origin) => token.applied,
        Some(_) => {
            return Err(Error::refused(
                "the token is of another snapshot",
                "name the snapshot whose stream was cut",
            ));
        }
    };
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
            let mut out = Out::begin(emit, &head, options.dry_run);
            full::send(&job, snapshot, &mut out)?;
            out
        }
        Some(base) => {
            let plan = increment::compare(&job, (base, snapshot))?;
            (head.bytes, head.changes) = plan.expected();
            let mut out = Out::begin(emit, &head, options.dry_run);
            increment::send(&job, &plan, (base, snapshot), &mut out)?;
            out
        }
    };
    out.end()?;
    let (records, bytes) = out.sent();
    Ok(Sent { records, bytes, stream_bytes: out.stream_bytes })
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
