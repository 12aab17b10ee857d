//! Reads a request in two parts, by two threads. The one that receives it needs what is before its
//! call; the one that executes it needs the call. So each part is decoded once.

use serde::Deserialize;

use super::call::{Asked, Asker, FsCall};
use crate::codec::{DecodeError, decode_first};

/// The numbers of `Read`, `List`, `GetXattr`, `ListXattr` and `Lock` in an encoding.
const LOOKED_INTO: [u8; 5] = [14, 22, 24, 25, 30];

/// What a request has before its call: [`Asked`] without that.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AskedHead {
    /// Requests whose answers have arrived since the last message that acknowledged some.
    pub acknowledged: Vec<u64>,
    /// The number of a call that changes something, among those of the session; 0: another call.
    pub once: u64,
    /// The calls up to this one of those numbers are not awaited any more.
    pub done: u64,
    /// For whom.
    pub who: Asker,
}

impl AskedHead {
    /// Takes what it acknowledges. Of the groups it keeps one more than `groups_max`, which shows
    /// that they are too many. A request may wait, and then holds no more than its message counts
    /// for. (Lists have several times the bytes of their encoding.)
    pub fn shorten(&mut self, groups_max: usize) -> Vec<u64> {
        self.who.groups.truncate(groups_max + 1);
        self.who.groups.shrink_to_fit();
        std::mem::take(&mut self.acknowledged)
    }

    /// The request, with its call.
    pub fn with(self, call: FsCall<'_>) -> Asked<'_> {
        let AskedHead { acknowledged, once, done, who } = self;
        Asked { acknowledged, once, done, who, call }
    }
}

/// Decodes the body of a request up to its call, and returns the encoded call.
pub fn split_asked(body: &[u8]) -> Result<(AskedHead, &[u8]), DecodeError> {
    decode_first(body)
}

/// Whether a server looks into an encoded call before it executes it: its answer may be long, or
/// its lock may have to wait. A call is looked into also if its number has an unusual encoding.
pub fn is_looked_into(call: &[u8]) -> bool {
    call.first().is_none_or(|first| first & 0x80 != 0 || LOOKED_INTO.contains(first))
}
