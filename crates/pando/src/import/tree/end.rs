//! How an import ends: complete, or abandoned so that the same import continues. Directories that
//! this run made get their attributes here.

use std::sync::atomic::Ordering;

use wire::{Answer, Call, Failure, FailureKind, Item};

use super::{Directory, Tree, Visible, borrowed};
use crate::failure::Result;
use crate::import::Outcome;
use crate::{output, session};

impl Tree<'_> {
    /// Ends the import: directories get their attributes, and the whole its name.
    pub(in crate::import) fn finish(&mut self, visible: Visible<'_>) -> Result<()> {
        let whole = matches!(visible, Visible::Whole(_));
        if whole && !self.is_interrupted() {
            // Before directories are closed: the same import may continue.
            self.stream.wait()?;
            self.report_errors()?;
            self.refuse_holes()?;
        }
        let interrupted = self.interrupted;
        if !self.dress_directories(&mut || interrupted.load(Ordering::Relaxed), true)? {
            return self.abandon();
        }
        self.go_to(&[])?;
        // What failed is known only when everything is done.
        self.stream.wait()?;
        self.report_errors()?;
        if let Visible::Whole(name) = visible
            && !self.is_interrupted()
        {
            self.refuse_holes()?;
            self.refuse_leftovers()?;
            match self.stream.request(Call::ImportPublish { name })? {
                Answer::Nothing => {}
                other => return Err(session::unexpected(&other)),
            }
        }
        self.stream.close()?;
        self.outcome.sent = self.stream.take_kept();
        self.report_errors()
    }

    /// Gives directories their attributes. `false`: it was stopped. `ends`: an error that ends an
    /// import ends this.
    fn dress_directories(&mut self, stop: &mut dyn FnMut() -> bool, ends: bool) -> Result<bool> {
        self.finishing = true;
        // A directory follows all that is below it.
        while let Some((path, directory)) = self.attributes.pop_last() {
            if stop() {
                self.attributes.insert(path, directory);
                return Ok(false);
            }
            if !self.go_to(&path)? {
                continue;
            }
            let Directory { attr, xattrs, .. } = directory;
            self.stream.push(&Item::Leave { attr, xattrs: borrowed(&xattrs) })?;
            if let Some(level) = self.levels.pop() {
                self.put_back(level);
            }
            if ends {
                self.report_errors()?;
            }
        }
        Ok(true)
    }

    /// Refuses to show a part as the whole.
    fn refuse_holes(&mut self) -> Result<()> {
        if self.outcome.failed == 0 || self.keep_going {
            return Ok(());
        }
        self.stream.close()?;
        self.report_errors()?;
        Err(holes(&self.outcome, &self.destination))
    }

    /// Refuses to show what an import of something else left below the hidden name.
    fn refuse_leftovers(&mut self) -> Result<()> {
        let top = self.levels.first().map(|level| (Vec::new(), &level.existing));
        let below = self.existing.iter().map(|(path, names)| (path.clone(), names));
        let left = top.into_iter().chain(below).find_map(|(mut path, names)| {
            let (name, _) = names.iter().find(|(_, there)| !there.seen)?;
            path.push(name.clone());
            Some(path.join(&b'/'))
        });
        let Some(left) = left else { return Ok(()) };
        self.stream.close()?;
        self.report_errors()?;
        Err(leftover(&left, &self.destination))
    }

    /// Makes what was sent so far durable, without ending the import. What another run finds it
    /// takes for what was there before, so directories that are only part of a path get their mode
    /// now. Others stay closed: with their own mode they may refuse what is still to come.
    pub(in crate::import) fn abandon(&mut self) -> Result<()> {
        if !self.staged {
            self.attributes.retain(|_, directory| !directory.is_explicit);
            self.dress_directories(&mut || false, false)?;
        }
        self.stream.close()?;
        self.report_errors()
    }

    /// Abandons the import after a failure.
    pub(in crate::import) fn failed(&mut self, failure: Failure) -> Failure {
        if let Err(second) = self.abandon()
            && second.kind != failure.kind
        {
            self.fail(second);
        }
        failure
    }
}

/// The failure about what an import of something else left below the hidden name.
pub(in crate::import) fn leftover(path: &[u8], destination: &[u8]) -> Failure {
    let message = "an earlier import left this, and it is not in what is imported now";
    let hidden = destination.escape_ascii();
    let hint = format!("remove the directory {hidden} of the volume, and run it again");
    Failure::new(FailureKind::Exists, message).at(path).hint(hint)
}

/// The failure about a part, which is not shown as the whole.
pub(in crate::import) fn holes(outcome: &Outcome, destination: &[u8]) -> Failure {
    let was = output::count(outcome.failed, "name was", "names were");
    let message = format!("{was} not imported as a whole, so nothing is visible");
    let hidden = destination.escape_ascii();
    let hint = format!(
        "the same command continues; --keep-going gives the rest its name; `pando rmr` removes the \
         directory {hidden} of the volume"
    );
    Failure::new(outcome.worst.unwrap_or(FailureKind::Other), message).hint(hint)
}
