//! Cutting a damaged log off: what is whole and in order before the damage stays, all behind it is
//! given up. Only for somebody who was told that acknowledged changes are lost by it.
//!
//! What is behind the last whole record is overwritten with zeros first, then later segments go,
//! the last one first. A crash in between leaves a damaged log that is cut off again.
//!
//! The spares go first of all, and the segments that were kept for others than recovery: the
//! numbers that are given up are used again, and these may hold records that were numbered like
//! those to come.
//!
//! A log that begins behind the state is not damaged: it belongs to a later state, whose root was
//! lost. To cut it off would destroy what is whole, so it is refused, with nothing changed.

use std::sync::Arc;

use device::Env;
use format::Corruption;

use super::recover::{Listed, Scan, list, read_segment};
use super::segment::Files;
use super::{Log, LogOptions, Recovery};
use crate::{Error, Lsn, Result};

impl Log {
    /// Refuses, as [`Log::cut_off`] does, a log that begins behind the state: for an engine that
    /// has to change something before it cuts the log off.
    pub fn may_be_cut_off(
        env: &Env,
        directory: &str,
        volume: [u8; 16],
        options: &LogOptions,
        from: Lsn,
    ) -> Result<()> {
        let files = Files::new(Arc::clone(&env.device), directory, volume, options.key);
        if files.device.metadata(directory)?.is_none() {
            return Ok(());
        }
        begin_of(&files, &list(&files)?.firsts, from).map(drop)
    }

    /// Cuts the log off at its first damage behind `from`, which is that of the newest durable
    /// checkpoint. Returns the last record that is left. `certain`: there can be no later
    /// checkpoint, for whatever could describe one was read. Fails, with nothing changed, when the
    /// log is likely that of a later checkpoint.
    pub fn cut_off(
        env: &Env,
        directory: &str,
        volume: [u8; 16],
        options: &LogOptions,
        from: Lsn,
        certain: bool,
    ) -> Result<Lsn> {
        let files = Files::new(Arc::clone(&env.device), directory, volume, options.key);
        if files.device.metadata(directory)?.is_none() {
            files.device.create_dir(directory)?;
        }
        let Listed { mut firsts, kept: superseded, spares } = list(&files)?;
        let begin = begin_of(&files, &firsts, from)?;
        let needed = firsts.split_off(begin.saturating_sub(1));
        let kept = if begin == 0 { None } else { whole(&files, &needed, from)? };
        let reaches = kept.is_some_and(|(_, next, _)| next > from.0 + 1);
        if !certain && !reaches {
            let found = "no such record, and a root that may be of a later state is damaged";
            let path = files.segment_path(needed.first().copied().unwrap_or(from.0 + 1));
            return Err(of_later_state(path, from, found.to_owned()).into());
        }
        for name in &spares {
            files.device.remove(&format!("{directory}/{name}"))?;
        }
        for &first in &superseded {
            files.device.remove(&files.kept_path(first))?;
        }
        files.device.sync_dir(directory)?;
        let Some((count, next, end)) = kept.filter(|&(_, next, _)| next > from.0) else {
            // Nothing of it follows the checkpoint: it begins anew there.
            for &first in needed.iter().rev() {
                files.device.remove(&files.segment_path(first))?;
            }
            files.device.sync_dir(directory)?;
            let spare = files.make_spare(options.segment_bytes)?;
            files.name_spare(from.0 + 1, &spare)?;
            return Ok(from);
        };
        let path = files.segment_path(needed[count - 1]);
        let file = files.device.open(&path)?;
        let rest = file.len()?.saturating_sub(end);
        file.write_at(&vec![0; rest as usize], end)?;
        file.sync_data()?;
        for &first in needed[count..].iter().rev() {
            files.device.remove(&files.segment_path(first))?;
        }
        files.device.sync_dir(directory)?;
        Ok(Lsn(next - 1))
    }
}

/// How many segments begin before the state ends, or with what follows it. Refused where there are
/// later ones and none of these.
fn begin_of(files: &Files, firsts: &[u64], from: Lsn) -> Result<usize> {
    let begin = firsts.partition_point(|&first| first <= from.0 + 1);
    if begin == 0
        && let Some(&first) = firsts.first()
    {
        let found = format!("a log that begins with record {first}, as of a later state");
        return Err(of_later_state(files.segment_path(first), from, found).into());
    }
    Ok(begin)
}

/// How many segments are whole up to where records of them end: their number, the record that
/// would come next, and where it would stand in the last of them.
fn whole(files: &Files, needed: &[u64], from: Lsn) -> Result<Option<(usize, u64, u64)>> {
    let mut pass = |_: Lsn, _: &[u8]| Ok(());
    let recovery = Recovery::default();
    let mut scan = Scan { files, from, replay: &mut pass, recovery, mend: false };
    let mut kept = None;
    let mut next = needed.first().copied().unwrap_or(0);
    for (at, &first) in needed.iter().enumerate() {
        if first != next {
            break;
        }
        let path = files.segment_path(first);
        let file = files.device.open(&path)?;
        let bytes = match read_segment(files, first, &path, file.as_ref()) {
            Ok(bytes) => bytes,
            Err(Error::Corrupt(damage)) => {
                tell(&damage);
                break;
            }
            Err(error) => return Err(error),
        };
        let end = scan.records(&path, &bytes, &mut next)?;
        kept = Some((at + 1, next, end as u64));
    }
    Ok(kept)
}

/// Why a log is not cut off.
fn of_later_state(file: String, from: Lsn, found: String) -> Corruption {
    let expected = format!("record {}, the first behind the state that was found", from.0 + 1);
    Corruption { file, offset: 0, structure: "log", expected, found }
}

fn tell(damage: &Corruption) {
    tracing::warn!(%damage, "the log is cut off before this segment");
}
