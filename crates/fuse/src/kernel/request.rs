//! A request: the header, the caller, and a cursor over the arguments.
//!
//! The code trusts the kernel to send whole structures, but not blindly. It answers a request that
//! is too short with EIO, as the kernel itself does with a short answer.

use crate::adapter::Who;
use crate::errno::Errno;

use super::numbers::{EXTENSION_GROUPS, REQUEST_HEADER_BYTES};

/// A request.
pub(super) struct Request<'a> {
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) node: u64,
    pub(super) who: Who,
    pub(super) arguments: Arguments<'a>,
    /// The negotiated features: some structures are longer with them.
    pub(super) features: u64,
    /// Supplementary groups of the caller that matter here.
    extensions: &'a [u8],
}

/// Arguments that were not read yet.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a>(&'a [u8]);

const SHORT: Errno = Errno(libc::EIO);

impl<'a> Request<'a> {
    /// Parses a message; `None` if it is no request.
    pub(super) fn parse(message: &'a [u8]) -> Option<Request<'a>> {
        let (header, rest) = message.split_at_checked(REQUEST_HEADER_BYTES)?;
        let mut header = Arguments(header);
        let length = header.u32().ok()? as usize;
        let opcode = header.u32().ok()?;
        let unique = header.u64().ok()?;
        let node = header.u64().ok()?;
        let (uid, gid, pid) = (header.u32().ok()?, header.u32().ok()?, header.u32().ok()?);
        let units = header.u32().ok()? & 0xffff;
        let rest = rest.get(..length.checked_sub(REQUEST_HEADER_BYTES)?)?;
        let at = rest.len().checked_sub(units as usize * 8)?;
        let (arguments, extensions) = rest.split_at(at);
        let who = Who { uid, gid, pid };
        let arguments = Arguments(arguments);
        Some(Request { opcode, unique, node, who, arguments, features: 0, extensions })
    }

    /// The groups of the caller that were sent along: of its supplementary groups, only the one of
    /// the directory in which something is created.
    pub(super) fn groups(&self) -> Vec<u32> {
        let mut rest = Arguments(self.extensions);
        while let (Ok(size), Ok(kind)) = (rest.u32(), rest.u32()) {
            let Some(body) = (size as usize).checked_sub(8).and_then(|n| rest.bytes(n).ok()) else {
                break;
            };
            if kind == EXTENSION_GROUPS {
                let mut body = Arguments(body);
                let count = body.u32().unwrap_or(0);
                return (0..count).map_while(|_| body.u32().ok()).collect();
            }
        }
        Vec::new()
    }
}

#[expect(clippy::host_endian_bytes, reason = "the kernel's structures are in its own order")]
impl<'a> Arguments<'a> {
    pub(super) fn u32(&mut self) -> Result<u32, Errno> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(u32::from_ne_bytes(*bytes))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Errno> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(u64::from_ne_bytes(*bytes))
    }

    pub(super) fn i32(&mut self) -> Result<i32, Errno> {
        Ok(self.u32()? as i32)
    }

    /// Skips this many bytes that mean nothing to us.
    pub(super) fn skip(&mut self, count: usize) -> Result<(), Errno> {
        self.bytes(count).map(|_| ())
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Errno> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// A name, which ends with NUL.
    pub(super) fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(SHORT)?;
        let (name, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(name)
    }
}
