//! Ingesting a sorted run: as one batch, refused where a key is in its range.

use store::{Batch, CommitToken, Cursor, Error, KeyRange, Result, SortedRun, TreeId};

use crate::commit::{Origin, plan};
use crate::core::Core;
use crate::cursor::{Source, TreeCursor};

impl Core {
    /// Puts the entries of a run into a range of a tree that holds no key.
    pub(crate) fn ingest(&self, id: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken> {
        self.tree(id)?;
        let mut batch = Batch::new();
        let (mut first, mut last): (Option<Vec<u8>>, Vec<u8>) = (None, Vec::new());
        while let Some(item) = run.next_entry()? {
            if first.is_some() && item.key <= last.as_slice() {
                return Err(Error::Unsorted(item.key.to_vec()));
            }
            batch.put(id, item.key, item.value);
            batch.check().map_err(|_| Error::RunTooLong)?;
            first.get_or_insert_with(|| item.key.to_vec());
            last.clear();
            last.extend_from_slice(item.key);
        }
        let Some(first) = first else { return Ok(CommitToken(self.log().last())) };
        self.admit(false)?;
        let lsn = {
            // Alone, so that no key comes into the range between looking and putting.
            let _gate = self.gate.write();
            let source = Source::Live(self.tree(id)?);
            let range = KeyRange { from: first, to: None };
            let mut cursor = TreeCursor::new(source, range, self.options.prefix_bytes);
            if let Some(item) = cursor.next()?
                && item.key <= last.as_slice()
            {
                return Err(Error::RangeNotEmpty { tree: id, key: item.key.to_vec() });
            }
            let plan = plan(batch.ops())?;
            self.apply_in_gate(batch.as_bytes(), &plan, Origin::Caller)?
        };
        self.log().committed(lsn)?;
        Ok(CommitToken(lsn))
    }
}
