//! A file system that answers protocol messages passed to it directly: no kernel, no mount, no
//! thread. Tests and fuzzers send it messages that no kernel would.

use std::sync::Arc;

use inode::NodeId;
use vfs::FileSystem;

use super::numbers::op;
use super::reply::Reply;
use super::request::Request;
use super::session;
use crate::adapter::Adapter;
use crate::options::MountOptions;

/// A file system behind the protocol. Messages have the format read from `/dev/fuse`, in the byte
/// order of the machine.
pub struct Loopback {
    adapter: Adapter,
    /// Negotiated features.
    features: u64,
    reply: Reply,
}

impl Loopback {
    /// One whose node 1 is the root of `fs`.
    pub fn new(fs: Arc<dyn FileSystem>, options: &MountOptions) -> Loopback {
        let adapter = Adapter::new(fs, NodeId::ROOT, options);
        let features = session::FEATURES;
        Loopback { adapter, features, reply: Reply::default() }
    }

    /// Answers a message, as it would be written to the device; `None` for a malformed request and
    /// a request that needs no answer.
    pub fn answer(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let reply = &mut self.reply;
        if let Some(mut request) = Request::parse(message).filter(|one| one.opcode == op::INIT) {
            reply.clear();
            let offered = session::FEATURES;
            let error = match session::agree(&mut request.arguments, offered, reply) {
                Ok(agreed) => {
                    self.features = agreed.map_or(self.features, |agreed| agreed.features);
                    0
                }
                Err(_) => libc::EPROTO,
            };
            return Some(reply.finish(request.unique, error, 0).to_vec());
        }
        let mut answered = None;
        session::answer(
            &self.adapter,
            self.features,
            message,
            reply,
            |reply, unique, error, body| {
                let head = reply.finish(unique, error, body.len());
                answered = Some([head, body].concat());
            },
        );
        answered
    }
}
