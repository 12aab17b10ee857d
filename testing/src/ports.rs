//! Ports of the loopback address for servers that tests start, and on which nobody listens.
//!
//! A port that the kernel chose and that was given back may be chosen again at once, by any of the
//! tests that run beside. Those given here are outside of the range from which kernels choose.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// The kernel chooses above: 32,768 is its least one unless an administrator changed it.
const RANGE: std::ops::Range<u16> = 12_000..32_000;

/// Returns a port on which nobody listens, and that no bind to port 0 is given.
///
/// Each call returns another one; processes begin at places of their own.
///
/// # Panics
///
/// All are in use.
#[must_use]
pub fn unused_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let size = RANGE.end - RANGE.start;
    let first = std::process::id().wrapping_mul(61) % u32::from(size);
    for _ in 0..size {
        let next = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = RANGE.start + ((first + next) % u32::from(size)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("every port of {RANGE:?} is in use");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_not_given_twice_nor_while_it_is_in_use() {
        let first = unused_port();
        let listener = TcpListener::bind(("127.0.0.1", first)).unwrap();
        let others: Vec<u16> = (0..100).map(|_| unused_port()).collect();
        assert!(others.iter().all(|port| RANGE.contains(port) && *port != first));
        let one = listener.local_addr().unwrap().port();
        assert_eq!(one, first);
        let refused = std::net::TcpStream::connect(("127.0.0.1", others[0])).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}
