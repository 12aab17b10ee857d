//! Data segments: their files belong to them, and their counts match the pages that extents name.
//!
//! A damaged mark is rewritten if the file is proven to be the segment's. The proof is its other
//! mark, or that what extents name in it can be read. A whole mark that names another segment is
//! kept: it may be all that identifies the file. A second file of a segment is kept as well.

use data::{SegmentFault, SegmentFaultKind};
use format::key;
use vfs::FsResult;
use volume::error::from_store;
use volume::subvol::VOLUME;

use super::{Checker, Edit, Fix, Problem, ProblemKind};

/// What to do about a file that claims to be another segment.
const EXCHANGE: &str = "nothing of it is freed or overwritten: give the files the names \
                        in their headers, or restore this one from a backup";
/// About a mark of an object.
const OBJECT: &str = "an object is never overwritten, and none of its space is freed: what can be \
                      read of it stays readable; restore the object from a backup";
/// About a second file of a segment.
const TWIN: &str = "inspect both, and remove the one that is not the segment's";
/// About a mark that is not rewritten.
const NOT_PROVEN: &str = "it is not rewritten, because nothing else identifies the file: restore \
                          it from a backup, or remove the files whose contents are lost, and \
                          repair again";

impl Checker<'_, '_> {
    /// Checks the files of segments, and the counts of their pages.
    pub(super) fn segments(&mut self) -> FsResult<()> {
        let faults = self.fs.data.check_segments().map_err(from_store)?;
        // If any file has another's name, or is gone, a file in which nothing is named may be it.
        let is_amiss = faults.iter().any(|fault| fault.kind == SegmentFaultKind::Another)
            || self.contents.segments().any(|segment| !self.fs.data.has_segment(segment));
        for fault in &faults {
            let problem = self.of_segment(fault, is_amiss);
            self.found(problem);
        }
        let segments: Vec<u64> = self.contents.segments().collect();
        for segment in segments {
            let live = self.contents.live_pages(segment);
            let counted = match self.fs.data.counted_pages(self.pin, segment) {
                Ok(counted) => counted,
                Err(store::Error::Corrupt(_)) => continue,
                Err(error) => return Err(from_store(error)),
            };
            if counted >= live {
                continue;
            }
            let what = format!("segment {segment:016x}: {live} pages are named, {counted} counted");
            let key = key::segment(segment).to_vec();
            let value = (live as i64).to_le_bytes().to_vec();
            let fix = Fix::Edits("set the count", vec![Edit::Put(VOLUME, key, value)]);
            self.found(Problem::new(ProblemKind::Space, what).repaired_by(fix));
        }
        Ok(())
    }

    /// The problem with a file, and its repair. Nothing repairs the map of a rewritten segment.
    fn of_segment(&self, fault: &SegmentFault, is_amiss: bool) -> Problem {
        let SegmentFault { segment, bad, kind } = fault;
        let is_proven = |is_named: bool| {
            let is_unused =
                self.contents.live_pages(*segment) == 0 && !self.contents.incomplete && !is_amiss;
            is_named || is_unused || self.contents.reads(*segment)
        };
        let (fix, advice) = match kind {
            SegmentFaultKind::Mark { .. } if self.fs.env.objects.is_some() => (None, Some(OBJECT)),
            SegmentFaultKind::Mark { is_named } if is_proven(*is_named) => {
                (Some(Fix::Marks(*segment)), None)
            }
            SegmentFaultKind::Mark { .. } => (None, Some(NOT_PROVEN)),
            SegmentFaultKind::Another => (None, Some(EXCHANGE)),
            SegmentFaultKind::Map | SegmentFaultKind::Unread => (None, None),
            SegmentFaultKind::Twin => (None, Some(TWIN)),
        };
        let problem = Problem::of_damage(ProblemKind::Unreadable, bad);
        let what = match advice {
            Some(advice) => format!("{}; {advice}", problem.what),
            None => problem.what.clone(),
        };
        Problem { what, fix, ..problem.in_file(&bad.file, bad.offset) }
    }
}
