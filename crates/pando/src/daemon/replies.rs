//! What a connection sends: the parts and the end of each answer, and why the connection ends.

use std::io::{self, BufWriter, Write};
use std::os::unix::net::UnixStream;

use serde::Serialize;
use wire::{Body, Failure, FailureKind, Reply, encode, write_frame};

use super::parts::Sink;
use super::peer_wait::Outgoing;

/// Where the parts and the end of an answer go.
pub(super) struct Replies {
    writer: BufWriter<Outgoing>,
    id: u32,
    buffer: Vec<u8>,
}

impl Replies {
    /// Answers that go to a peer.
    pub(super) fn new(peer: Outgoing) -> Replies {
        let writer = BufWriter::with_capacity(64 << 10, peer);
        Replies { writer, id: 0, buffer: Vec::new() }
    }

    /// Sends a part, or the end.
    pub(super) fn send(&mut self, body: Body) -> io::Result<()> {
        self.message(&Reply { id: self.id, body })
    }

    /// Sends a message that belongs to no request.
    pub(super) fn message<T: Serialize>(&mut self, message: &T) -> io::Result<()> {
        self.buffer.clear();
        encode(message, &mut self.buffer);
        write_frame(&mut self.writer, &self.buffer)
    }

    /// What is sent from now on answers this request.
    pub(super) fn answer(&mut self, id: u32) {
        self.id = id;
    }

    /// Sends what is in memory still, before a request is read.
    pub(super) fn push(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Reports that the daemon leaves and does nothing more.
    pub(super) fn send_leaving(&mut self) -> io::Result<()> {
        self.id = 0;
        self.send(Body::Leaving)?;
        self.writer.flush()
    }

    /// Reports why the daemon ends the connection.
    pub(super) fn send_end(&mut self, failure: Failure) -> io::Result<()> {
        self.id = 0;
        self.send(Body::Failed(failure))?;
        self.writer.flush()
    }

    /// A second handle of the connection.
    pub(super) fn stream(&self) -> io::Result<UnixStream> {
        device::with_a_descriptor(|| self.writer.get_ref().stream().try_clone())
    }

    /// Sends what is in memory still.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(|error| {
            Failure::new(FailureKind::Interrupted, format!("the caller went away: {error}"))
        })
    }

    /// Sends a part of a request that can fail otherwise too.
    pub(super) fn part(&mut self, body: Body) -> Result<(), Failure> {
        self.send(body).map_err(|error| {
            if error.kind() == io::ErrorKind::InvalidData {
                return too_long(&error);
            }
            Failure::new(FailureKind::Interrupted, format!("the caller went away: {error}"))
        })
    }
}

impl Sink for Replies {
    fn part(&mut self, body: Body) -> Result<(), Failure> {
        Replies::part(self, body)
    }
}

/// Why an answer was not sent that is longer than a message can be.
pub(super) fn too_long(error: &io::Error) -> Failure {
    Failure::new(FailureKind::Other, format!("the answer is too long: {error}"))
        .hint("request less: a directory further down, or fewer paths")
}
