//! `Fs` as what keeps the sessions of clients: `vfs::Lasting` over `ops::once`.

use inode::{FsError, Ino, NodeId, Slot};
use ops::Ops;
use vfs::{Entry, Executed, FsResult, Lasting, Request, SessionId};

use crate::Fs;

impl Lasting for Fs {
    fn begin(&self) -> FsResult<SessionId> {
        self.begin_session()
    }

    fn sessions(&self) -> FsResult<Vec<SessionId>> {
        Ok(Ops::sessions(self)?.into_iter().map(|(id, _)| id).collect())
    }

    fn executed(&self, request: &Request) -> FsResult<Option<Executed>> {
        let Some(executed) = Ops::executed(self, request)? else { return Ok(None) };
        let node = executed.node.map(|(slot, ino)| NodeId::of(Slot(u64::from(slot)), Ino(ino)));
        Ok(Some(Executed { node, number: executed.number }))
    }

    fn confirm(&self, session: &SessionId, done: u64) -> FsResult<u64> {
        Ops::confirm(self, session, done)
    }

    fn end(&self, sessions: &[SessionId]) -> FsResult<()> {
        self.end_sessions(sessions)
    }

    fn find_again(&self, node: NodeId) -> FsResult<Entry> {
        // Of slot 0 there is the root alone: what virtual directories show is not found again.
        if node.slot().0 == 0 && node != NodeId::ROOT {
            return Err(FsError::Stale);
        }
        Ops::find_again(self, node)
    }

    fn settle(&self) {
        self.await_orphans(false);
    }

    fn keep_orphans(&self) {
        self.await_orphans(true);
    }

    fn key(&self) -> [u8; 16] {
        self.proof_key()
    }
}
