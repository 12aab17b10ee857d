//! The copies of the volume's own records: they can be read, and agree with the originals.

use format::kept_twice::UNCOUNTED_KEY;
use store::{Error, Pinned};
use vfs::FsResult;
use volume::error::from_store;
use volume::readable::Scan;
use volume::record_copies::{COPY, differences, is_damage};
use volume::subvol::VOLUME;

use super::look::{self, Look};
use super::table::{may_renew, renews};
use super::{Checker, Edit, Fix, Problem, ProblemKind};

impl Checker<'_, '_> {
    /// Checks the copies. Their absence is reported only if the volume records that it has them: an
    /// older volume gets copies when it is opened for writing.
    pub(super) fn check_copies(&mut self) -> FsResult<()> {
        let has_copies = self.fs.own.noted().has_copies();
        if !exists(self.pin)? {
            if has_copies {
                let what = "the volume's records have no copies".to_owned();
                let problem = Problem::new(ProblemKind::Structure, what);
                self.found(Problem { fix: may_renew(self.fs), ..problem });
            }
            return Ok(());
        }
        let mut scan = Scan::new(self.pin, COPY, &[])?;
        while scan.advance()? {}
        for lost in &scan.lost {
            let what = format!("a copy of the volume's records cannot be read: {}", lost.damage);
            let problem = Problem::new(ProblemKind::Unreadable, what);
            let problem = problem.in_file(&lost.damage.file, lost.damage.offset);
            self.found(Problem { fix: renews(self.fs, &lost.damage), ..problem });
        }
        if !has_copies || !scan.lost.is_empty() {
            return Ok(());
        }
        let mut wrong = Vec::new();
        let from_copies = &self.table.from_copies;
        let compared = differences(self.pin, &mut |key, own, _| {
            if from_copies.contains(key) {
                // The copy is right; the check of the table reported the original.
                return Ok(());
            }
            let edit = match own {
                Some(value) => Edit::Put(COPY, key.to_vec(), value.to_vec()),
                None => Edit::Delete(COPY, key.to_vec()),
            };
            wrong.push((format!("the volume's record {key:02x?} differs from its copy"), edit));
            Ok(())
        });
        match compared {
            // The check of the table reported the damage, and a part proves nothing.
            Err(error) if is_damage(&error) => return Ok(()),
            compared => compared.map_err(from_store)?,
        }
        for (what, edit) in wrong {
            let fix = Fix::Edits("rewrite the copy", vec![edit]);
            self.found(Problem::new(ProblemKind::Structure, what).repaired_by(fix));
        }
        Ok(())
    }
}

impl Checker<'_, '_> {
    /// Whether there is a note that counts were lost.
    pub(super) fn has_note(&self) -> FsResult<bool> {
        Ok(look::exists(self.pin, VOLUME, &UNCOUNTED_KEY)? == Look::Found(()))
    }

    /// Removes the note that counts were lost, once all were counted again and are right.
    pub(super) fn check_note(&mut self) {
        if !self.recounts {
            return;
        }
        let what = "charges and counts were lost with damaged records".to_owned();
        let problem = Problem::new(ProblemKind::Quota, what);
        let are_right = self.charges_are_right
            && self.counts_are_compared
            && self.report.problems.iter().all(|problem| problem.fix.is_none());
        let edits = vec![Edit::Delete(VOLUME, UNCOUNTED_KEY.to_vec())];
        let fix = Fix::Edits("record that they were recounted", edits);
        self.found(Problem { fix: are_right.then_some(fix), ..problem });
    }
}

fn exists(pin: &dyn Pinned) -> FsResult<bool> {
    match pin.scan(COPY, store::KeyRange::all()) {
        Err(Error::NoTree(_)) => Ok(false),
        Err(Error::Corrupt(_) | Error::Missing { .. }) | Ok(_) => Ok(true),
        Err(error) => Err(from_store(error)),
    }
}
