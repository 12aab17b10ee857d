//! Streams of bytes between machines: the only access to the network of what serves volumes and of
//! what uses served ones. A test may put links of its own below both.
//!
//! A link has two directions, which two threads use at the same time. [`Link::close`] ends the
//! waits of both.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// An open connection.
pub trait Link: Send + Sync {
    /// Reads what there is, and waits for the first byte; 0: the other side sends no more.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes everything.
    fn write_all(&self, bytes: &[u8]) -> io::Result<()>;

    /// How long one read, and one write, may wait; `None`: for ever.
    fn set_patience(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()>;

    /// Closes both directions; threads that wait return.
    fn close(&self);

    /// Its address on this machine; `None`: it has none.
    fn local_address(&self) -> Option<SocketAddr> {
        None
    }
}

/// A place where connections arrive.
pub trait Listener: Send + Sync {
    /// Waits for a connection.
    fn accept(&self) -> io::Result<(Arc<dyn Link>, SocketAddr)>;

    /// Where it listens.
    fn address(&self) -> SocketAddr;

    /// Accepts no more; a thread that waits returns an error.
    fn close(&self);
}

/// A network.
pub trait Net: Send + Sync {
    /// The addresses of a host name, or of a number.
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;

    /// Connects.
    fn connect(&self, to: SocketAddr, within: Duration) -> io::Result<Arc<dyn Link>>;

    /// Listens.
    fn listen(&self, at: SocketAddr) -> io::Result<Arc<dyn Listener>>;
}

/// The operating system's TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemNet;

impl Net for SystemNet {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }

    fn connect(&self, to: SocketAddr, within: Duration) -> io::Result<Arc<dyn Link>> {
        Ok(Arc::new(TcpLink::new(TcpStream::connect_timeout(&to, within)?)?))
    }

    fn listen(&self, at: SocketAddr) -> io::Result<Arc<dyn Listener>> {
        Ok(Arc::new(TcpEar(TcpListener::bind(at)?)))
    }
}

struct TcpLink(TcpStream);

impl TcpLink {
    fn new(stream: TcpStream) -> io::Result<TcpLink> {
        // Messages are written whole: waiting for more would only delay them.
        stream.set_nodelay(true)?;
        Ok(TcpLink(stream))
    }
}

impl Link for TcpLink {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&self.0).read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.0).write_all(bytes)
    }

    fn set_patience(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(read)?;
        self.0.set_write_timeout(write)
    }

    fn close(&self) {
        self.0.shutdown(Shutdown::Both).unwrap_or_default();
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.0.local_addr().ok()
    }
}

struct TcpEar(TcpListener);

impl Listener for TcpEar {
    fn accept(&self) -> io::Result<(Arc<dyn Link>, SocketAddr)> {
        let (stream, from) = self.0.accept()?;
        Ok((Arc::new(TcpLink::new(stream)?), from))
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    fn close(&self) {
        rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_ends_the_waits_of_other_threads() {
        let net = SystemNet;
        let listener = net.listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let link = net.connect(listener.address(), Duration::from_secs(60)).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        link.write_all(b"abc").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(theirs.read(&mut buffer).unwrap(), 3);
        crate::scope(|scope| {
            let reads = scope.spawn(|| theirs.read(&mut buffer));
            let accepts = scope.spawn(|| listener.accept().is_err());
            theirs.close();
            listener.close();
            assert_eq!(reads.join().unwrap().unwrap_or(0), 0);
            assert!(accepts.join().unwrap());
        });
    }
}
