//! Checks a log that no process has open, and rewrites headers of its segments.
//!
//! A check judges as an opening does. It continues where only a header is damaged, of a segment
//! whose other fields are all known (`beginning`). Such a header is rewritten in place, by one
//! write and a sync. Until that completes, it is as damaged as before, and nothing else is changed.

use std::sync::Arc;

use device::Env;
use format::Corruption;
use format::batch::Ops;

use super::beginning::BadHeader;
use super::recover::{Listed, Replay, Scan, list, split_needed};
use super::segment::Files;
use super::stray::take_strays;
use super::{Log, LogOptions, Recovery};
use crate::{Finding, FindingKind, Lsn, Remedy, Result};

/// The result of checking a log.
#[derive(Debug)]
pub struct Verified {
    /// Defects other than the one that ends it: headers that are damaged where nothing else is, and
    /// files that are ignored.
    pub findings: Vec<Finding>,
    /// How it ends. Where only headers are damaged, this is the result without them.
    pub end: Result<Recovery>,
}

impl Log {
    /// Reads what [`Log::open`] would replay, and judges it as that does, without changing
    /// anything. Intact records are passed to `visit`.
    pub fn verify(
        env: &Env,
        directory: &str,
        volume: [u8; 16],
        options: &LogOptions,
        from: Lsn,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Verified {
        let files = Files::new(Arc::clone(&env.device), directory, volume, options.key);
        let mut whole = |_: Lsn, payload: &[u8]| match Ops::new(payload).find_map(|op| op.err()) {
            Some(malformed) => Err(malformed.located("", 0).into()),
            None => visit(payload),
        };
        verified(&files, options, from, &mut whole)
    }

    /// Rewrites the headers that [`Log::verify`] reports as rewritable. Fails, with nothing
    /// changed, when the log cannot be read.
    pub fn write_headers(
        env: &Env,
        directory: &str,
        volume: [u8; 16],
        options: &LogOptions,
        from: Lsn,
    ) -> Result<()> {
        let files = Files::new(Arc::clone(&env.device), directory, volume, options.key);
        let mut headers = Vec::new();
        let ends = (&mut headers, &mut Vec::new());
        match look(&files, options, from, &mut |_: Lsn, _: &[u8]| Ok(()), ends) {
            // This does not repair other damage, and does not make it worse.
            Ok(_) | Err(crate::Error::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
        for BadHeader { path, header, .. } in headers {
            let file = files.device.open(&path)?;
            file.write_at(&header.encode(), 0)?;
            file.sync_data()?;
            tracing::warn!(path, "rewrote the header of a log segment");
        }
        Ok(())
    }
}

fn verified(files: &Files, options: &LogOptions, from: Lsn, replay: &mut dyn Replay) -> Verified {
    let (mut headers, mut findings) = (Vec::new(), Vec::new());
    let end = look(files, options, from, replay, (&mut headers, &mut findings));
    for BadHeader { damage, .. } in headers {
        findings.push(found(FindingKind::Unreadable, damage, Remedy::RewriteLogHeader));
    }
    Verified { findings, end }
}

/// Reads the log in order, also where headers are damaged.
fn look(
    files: &Files,
    options: &LogOptions,
    from: Lsn,
    replay: &mut dyn Replay,
    (headers, findings): (&mut Vec<BadHeader>, &mut Vec<Finding>),
) -> Result<Recovery> {
    let Listed { mut firsts, .. } = list(files)?;
    let strays = take_strays(files, &mut firsts, from, |_| Ok(()))?;
    let end = split_needed(files, &mut firsts, from).and_then(|needed| {
        let mut scan = Scan::new(files, from, replay, options.segment_bytes);
        (scan.headers, scan.strays) = (Some(headers), &strays);
        scan.segments(&needed)?;
        Ok(scan.recovery)
    });
    findings.extend(strays.iter().map(|stray| {
        let is_missed = end.is_err();
        found(FindingKind::Structure, stray.damage(is_missed), stray.remedy(is_missed))
    }));
    end
}

fn found(kind: FindingKind, bad: Corruption, remedy: Remedy) -> Finding {
    let what = format!("{}: {} instead of {}", bad.structure, bad.found, bad.expected);
    Finding::new(kind, bad.file, bad.offset, what).with(remedy)
}

#[cfg(test)]
pub(super) mod tests;
