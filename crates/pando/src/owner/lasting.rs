//! What a served volume keeps of the sessions of its clients: `remote::Lasting` over `ops::once`.

use std::sync::Arc;

use fs::{Entry, Fs, FsResult};
use inode::{FsError, Ino, NodeId, Slot};
use remote::{Executed, Lasting, SessionId};
use vfs::Request;

/// The sessions of a volume.
pub(super) struct Sessions(pub(super) Arc<Fs>);

impl Lasting for Sessions {
    fn begin(&self) -> FsResult<SessionId> {
        self.0.begin_session()
    }

    fn sessions(&self) -> FsResult<Vec<SessionId>> {
        Ok(self.0.sessions()?.into_iter().map(|(id, _)| id).collect())
    }

    fn executed(&self, request: &Request) -> FsResult<Option<Executed>> {
        let Some(executed) = self.0.executed(request)? else { return Ok(None) };
        let node = executed.node.map(|(slot, ino)| NodeId::of(Slot(u64::from(slot)), Ino(ino)));
        Ok(Some(Executed { node, number: executed.number }))
    }

    fn confirm(&self, session: &SessionId, done: u64) -> FsResult<u64> {
        self.0.confirm(session, done)
    }

    fn end(&self, sessions: &[SessionId]) -> FsResult<()> {
        self.0.end_sessions(sessions)
    }

    fn find_again(&self, node: NodeId) -> FsResult<Entry> {
        if node.slot().0 == 0 && node != NodeId::ROOT {
            return Err(FsError::Stale);
        }
        self.0.find_again(node)
    }

    fn settle(&self) {
        self.0.await_orphans(false);
    }

    fn key(&self) -> [u8; 16] {
        self.0.proof_key()
    }
}
