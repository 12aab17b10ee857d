//! Files of the index. If they are damaged, searches are answered from the records.

use search::index::{Home, Of, check_base};
use vfs::FsResult;
use volume::error::from_search;

use super::{Checker, Fix, Problem, ProblemKind};

impl Checker<'_, '_> {
    /// Checks the files of all bases that are complete.
    pub(super) fn check_index(&mut self) -> FsResult<()> {
        let bases: Vec<u64> = self
            .table
            .bases
            .iter()
            .filter(|(_, base)| base.complete)
            .map(|(&tree, _)| tree)
            .collect();
        let of = Of { volume: self.fs.header.volume_id, hash: self.fs.hash };
        let home = Home::of(&self.fs.env);
        for tree in bases {
            let mut found = Vec::new();
            let files = check_base(&home, of, tree, &mut found).map_err(from_search)?;
            // It was replaced meanwhile, and its files with it.
            if !found.is_empty() && upkeep::search_bases::get(self.fs, tree)?.is_none() {
                continue;
            }
            self.report.index_files += files;
            for bad in found {
                let problem = Problem::of_damage(ProblemKind::Index, &bad);
                let problem = problem.in_file(&bad.file, bad.offset);
                let fix = (!bad.unread).then_some(Fix::DropIndex);
                self.found(Problem { fix, ..problem });
            }
            if !self.did(0) {
                return Ok(());
            }
        }
        Ok(())
    }
}
