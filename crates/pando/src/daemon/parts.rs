//! Lists of any length and with paths of any length, in messages of bounded size. Entries count by
//! their bytes. Of a path that no message holds, the end is sent.

use std::ops::ControlFlow;

use wire::{Body, Bytes, Failure};

/// Bytes of entries in one message, unless one entry has more.
const PART_BYTES: usize = 64 << 10;

/// Longest path that is sent whole: an entry may have two, and a message has more than a MiB.
const PATH_BYTES_MAX: usize = 256 << 10;

/// How much of the end of a longer path is sent.
const END_BYTES: usize = 256;

/// Where parts are sent.
pub(super) trait Sink {
    fn part(&mut self, body: Body) -> Result<(), Failure>;
}

/// Entries to be sent.
pub(super) struct Parts<'a, T> {
    sink: &'a mut dyn Sink,
    body: fn(Vec<T>) -> Body,
    part: Vec<T>,
    bytes: usize,
    broken: Option<Failure>,
}

impl<'a, T> Parts<'a, T> {
    pub(super) fn new(sink: &'a mut dyn Sink, body: fn(Vec<T>) -> Body) -> Parts<'a, T> {
        Parts { sink, body, part: Vec::new(), bytes: 0, broken: None }
    }

    /// Adds an entry of approximately this many bytes.
    pub(super) fn push(&mut self, one: T, bytes: usize) -> Result<(), Failure> {
        if self.bytes + bytes > PART_BYTES {
            self.flush()?;
        }
        self.bytes += bytes;
        self.part.push(one);
        Ok(())
    }

    /// As [`Parts::push`], for a list that ends when sending fails: [`Parts::end`] returns why.
    pub(super) fn offer(&mut self, one: T, bytes: usize) -> ControlFlow<()> {
        match self.push(one, bytes) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => self.fail(failure),
        }
    }

    /// Ends a list that cannot be continued: [`Parts::end`] returns why.
    pub(super) fn fail(&mut self, failure: Failure) -> ControlFlow<()> {
        self.broken = Some(failure);
        ControlFlow::Break(())
    }

    /// Sends something else after what was added.
    pub(super) fn beside(&mut self, body: Body) -> Result<(), Failure> {
        self.flush()?;
        self.sink.part(body)
    }

    /// Sends what was added.
    fn flush(&mut self) -> Result<(), Failure> {
        self.bytes = 0;
        let part = std::mem::take(&mut self.part);
        if part.is_empty() { Ok(()) } else { self.sink.part((self.body)(part)) }
    }

    /// Sends the rest.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        match self.broken.take() {
            Some(failure) => Err(failure),
            None => self.flush(),
        }
    }
}

/// A path as it is sent: of one that no message holds its length and its end, which no other path
/// is shown as.
pub(super) fn fitting(path: Vec<u8>) -> Bytes {
    if path.len() <= PATH_BYTES_MAX {
        return Bytes(path);
    }
    let end = &path[path.len() - END_BYTES..];
    let length = path.len();
    Bytes([format!("//a path of {length} bytes, that ends in ...").as_bytes(), end].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sent(Vec<usize>);

    impl Sink for Sent {
        fn part(&mut self, body: Body) -> Result<(), Failure> {
            let mut frame = Vec::new();
            wire::encode(&wire::Reply { id: 1, body }, &mut frame);
            self.0.push(frame.len());
            Ok(())
        }
    }

    /// A part of five hundred entries had as many bytes as their paths.
    #[test]
    fn parts_are_bounded_by_their_bytes_and_long_paths_by_their_end() {
        let mut sent = Sent(Vec::new());
        let mut parts = Parts::new(&mut sent, Body::Quotas);
        for length in (0..600).map(|_| 3000).chain([PATH_BYTES_MAX, 3 << 20]) {
            let path = fitting([vec![b'd'; length], b"/end".to_vec()].concat());
            let bytes = path.0.len();
            let quota = wire::Quota {
                of: wire::QuotaOf::Directory(1),
                directory: 1,
                path,
                inodes: 1,
                bytes: 1,
                inodes_max: None,
                bytes_max: None,
            };
            assert!(parts.offer(quota, bytes).is_continue());
        }
        parts.end().unwrap();
        assert!(sent.0.len() > 600 * 3000 / PART_BYTES);
        assert!(sent.0.iter().all(|&bytes| bytes < PATH_BYTES_MAX + PART_BYTES), "{:?}", sent.0);
    }

    #[test]
    fn a_path_is_sent_whole_or_with_its_length() {
        assert_eq!(fitting(vec![b'a'; PATH_BYTES_MAX]).0.len(), PATH_BYTES_MAX);
        let long = [vec![b'a'; PATH_BYTES_MAX], b"/last".to_vec()].concat();
        let shown = String::from_utf8(fitting(long).0).unwrap();
        assert!(shown.starts_with("//a path of 262149 bytes"), "{shown}");
        assert!(shown.ends_with("/last") && shown.len() < 400, "{shown}");
    }
}
