//! The most of everything that clients can make a server keep.

/// Bounds of a server. The numbers of [`Bounds::default`] are those of `pando serve`.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Threads that execute requests.
    pub threads: usize,
    /// Connections at once.
    pub connections: usize,
    /// Those of them that have not identified themselves, and of these those from one address.
    pub strangers: usize,
    /// See above.
    pub strangers_of_address: usize,
    /// Connections of one client, by the name in its certificate.
    pub connections_of_client: usize,
    /// Sessions of a client in a volume: a fraction of those that a volume keeps, which all its
    /// clients share.
    pub sessions_of_client: usize,
    /// Nodes that a client holds, in all its sessions.
    pub nodes_of_client: usize,
    /// Searches of a client at a time.
    pub searches_of_client: usize,
    /// Bytes of answers that are kept for a client; a session that needs more then ends.
    pub kept_bytes_of_client: usize,
    /// Bytes, and number, of requests that wait or run for a client: two of its sessions with as
    /// many of the longest requests as they may have fit.
    pub request_bytes_of_client: usize,
    /// See above.
    pub requests_of_client: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            threads: 48,
            connections: 4096,
            strangers: 64,
            strangers_of_address: 24,
            connections_of_client: 2048,
            sessions_of_client: 1024,
            nodes_of_client: 4 << 20,
            searches_of_client: 4,
            kept_bytes_of_client: 64 << 20,
            request_bytes_of_client: 256 << 20,
            requests_of_client: 4096,
        }
    }
}
