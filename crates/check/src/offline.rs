//! Checks a volume that no process has open, in the state that opening would produce, with the log
//! replayed. Nothing on disk changes: whatever opening writes stays in memory.

use std::sync::Arc;

use device::{Env, Overlay};
use format::volume::{Home, VolumeHeader};
use opening::engine::SUPERBLOCKS;
use opening::header;
use opening::header::{HeaderFault, Headers};
use store::{CheckProgress, CheckReport, Finding, FindingKind};
use volume::error::from_store;
use volume::{OpenError, OpenOptions};

use super::unread::PastUnread;
use super::{AboveSnapshots, Checks};
use super::{Problem, ProblemKind, VolumeReport};

/// Reads and verifies everything in a volume that no process has open. Nothing is changed. The
/// caller keeps others from opening it meanwhile. Whatever prevents opening is a problem in the
/// report; so is what the disk cannot read. Fails if there is no volume, or a newer one, or for
/// lack of a resource that has nothing to do with the volume.
pub fn check_offline(
    env: &Env,
    above_snapshots: AboveSnapshots,
    progress: CheckProgress<'_>,
) -> Result<VolumeReport, OpenError> {
    let headers = Headers::read(&*env.device)?;
    let right = headers.right(&*env.device)?;
    let bad = headers.faults(right.as_ref());
    let opening = headers.opening();
    if let Ok(header) = &opening
        && header.home != Home::Directory
    {
        let (right, bad) = header::examine(env, header)?;
        return match right {
            Ok(right) => check_as(env, (&right, above_snapshots), bad, progress),
            Err(error) => refused(error, CheckReport::default(), bad),
        };
    }
    let header = match (right, opening) {
        (_, Err(error @ OpenError::NewerFormat { .. })) => return Err(error),
        (Some(right), _) | (None, Ok(right)) => right,
        // There was a volume: its store exists.
        (None, Err(OpenError::NotAVolume)) if env.device.metadata(SUPERBLOCKS[0])?.is_some() => {
            let file = format::volume::FILE.to_owned();
            let error = OpenError::Missing { file, record: None };
            return refused(error, CheckReport::default(), bad);
        }
        (None, Err(error)) => return refused(error, CheckReport::default(), bad),
    };
    check_as(env, (&header, above_snapshots), bad, progress)
}

/// An environment in which nothing reaches the disk, not even a sync, which a failing disk may
/// refuse, and nothing the object store.
pub fn overlaid(env: &Env) -> Env {
    let objects = env.objects.as_ref().map(|objects| objects.overlaid(Arc::clone(&env.clock)));
    Env { device: Arc::new(Overlay::new(Arc::clone(&env.device))), objects, ..env.clone() }
}

/// The same to show a volume that another process has open: what is read of the object store stays
/// in the cache. A check does without one.
pub fn observed(env: &Env) -> Env {
    let objects = env.objects.as_ref().map(|objects| objects.observed(Arc::clone(&env.clock)));
    Env { device: Arc::new(Overlay::new(Arc::clone(&env.device))), objects, ..env.clone() }
}

/// Checks a volume with a header, apart from the header's files: `bad` lists what is wrong with
/// them.
fn check_as(
    env: &Env,
    (header, above_snapshots): (&VolumeHeader, AboveSnapshots),
    bad: Vec<HeaderFault>,
    progress: CheckProgress<'_>,
) -> Result<VolumeReport, OpenError> {
    let looked = overlaid(env);
    if env.objects.is_some() {
        opening::engine::make_directories(&*looked.device)?;
    }
    let store = match opening::engine::inspect(&looked, header, progress) {
        Ok(report) => report,
        Err(error) => return refused(error, CheckReport::default(), bad),
    };
    if store.stopped {
        return Ok(VolumeReport { store, stopped: true, ..VolumeReport::default() });
    }
    let over = overlaid(env);
    let options = OpenOptions { read_only: true, index: None, ..OpenOptions::default() };
    let fs = match super::open(over, header.clone(), &options, |store| store) {
        Ok(fs) => fs,
        Err(error) => {
            let mut report = refused(error, store, bad)?;
            report_cut(&looked, header, &mut report);
            return Ok(report);
        }
    };
    let checked = fs.store.pin().map_err(from_store).and_then(|pin| {
        let pin = PastUnread::new(&*pin);
        let checks = Checks::of(&fs, above_snapshots);
        let expected = checks.expected_bytes(&pin)?;
        let done = store.bytes;
        checks.check_state(&pin, store, (done, done.saturating_add(expected)), progress)
    });
    checked.map_err(OpenError::inconsistent)
}

/// Reports what truncating the log costs, if the log is damaged.
fn report_cut(env: &Env, header: &VolumeHeader, report: &mut VolumeReport) {
    let is_damaged = report.problems.iter().any(|problem| problem.fix == Some(super::Fix::Log));
    if is_damaged && !report.unread {
        let cost = opening::engine::cost_of_cut(env, header);
        report.log_cut = Some(cost.map_err(|error| error.to_string()));
    }
}

/// A volume that cannot be opened: the reason is a problem, besides what the store found and what
/// is wrong with its headers.
fn refused(
    error: OpenError,
    store: CheckReport,
    headers: Vec<HeaderFault>,
) -> Result<VolumeReport, OpenError> {
    let of_header = headers.iter().any(|fault| fault.file == format::volume::FILE);
    let mut report = VolumeReport::default();
    for fault in headers {
        report.add(Problem::of_header(fault));
    }
    let headers_count = report.problems_count;
    for finding in &store.findings {
        report.add(Problem::of_store(finding));
    }
    let is_reported = |file: &str, offset| {
        store.findings.iter().any(|finding| finding.file == file && finding.offset == offset)
    };
    report.unread |= store.unread;
    let problem = match error {
        // It is not known what could be read of the rest; that was checked.
        OpenError::Device(error) if error.is_unread() => {
            let is_read_error = |found: &&Finding| found.kind == FindingKind::ReadError;
            if store.findings.iter().filter(is_read_error).any(|found| found.file == error.path) {
                None
            } else {
                let what = format!("cannot be read: {}", error.message);
                let problem = Problem::new(ProblemKind::ReadError, what);
                Some(problem.in_file(&error.path, error.offset.unwrap_or(0)))
            }
        }
        OpenError::Damaged(bad) | OpenError::HeaderDamaged(bad)
            if of_header && bad.file == format::volume::FILE =>
        {
            None
        }
        OpenError::Damaged(bad) if is_reported(&bad.file, bad.offset) => None,
        OpenError::Damaged(bad) | OpenError::HeaderDamaged(bad) => {
            let what = format!("{}: {} instead of {}", bad.structure, bad.found, bad.expected);
            let problem = Problem::new(ProblemKind::Unreadable, what);
            Some(problem.in_file(&bad.file, bad.offset))
        }
        OpenError::Missing { file, record } => {
            let what = match record {
                Some(record) => format!("the file with record {record} is missing"),
                None => "the file is missing".to_owned(),
            };
            let problem = Problem::new(ProblemKind::Unreadable, what);
            Some(problem.in_file(&file, 0))
        }
        OpenError::Inconsistent(failure) => {
            let (file, offset) = *failure.place.unwrap_or_default();
            Some(Problem::new(ProblemKind::Structure, failure.what).in_file(&file, offset))
        }
        other => return Err(other),
    };
    report.problems_count = report.problems_count.max(headers_count + store.findings_count);
    report.store = store;
    if let Some(mut problem) = problem {
        if problem.file.starts_with("log") && !report.unread {
            problem.fix = Some(super::Fix::Log);
        }
        report.add(problem);
    }
    Ok(report)
}
