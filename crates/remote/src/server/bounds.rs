//! The most of everything that clients can make a server keep.

/// Bounds of a server. `pando serve` has [`Bounds::within`] the memory that it is given.
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
    /// Bytes, and number, of requests that wait or run for a client. Two of its sessions with as
    /// many of the longest requests as they may have fit.
    pub request_bytes_of_client: usize,
    /// See above.
    pub requests_of_client: usize,
    /// Sessions of a volume, of all clients.
    pub sessions: usize,
    /// What clients of all volumes share, of which one client takes no more than it leaves: bytes
    /// of requests that wait or run,
    pub request_bytes: usize,
    /// bytes of answers that are made, wait, are kept, or are not read yet,
    pub answer_bytes: usize,
    /// nodes that they hold,
    pub nodes: usize,
    /// and locks, of which each client has its own bound, too.
    pub locks: usize,
}

/// What a connection of a session takes: its threads' stacks, its buffers, and what the allocator
/// keeps for threads.
const CONNECTION_BYTES: u64 = 384 << 10;
/// What a session and the volume take of each node that it holds.
const NODE_BYTES: u64 = 256;
/// What a lock takes.
const LOCK_BYTES: u64 = 256;
/// The least part of any of them: some messages of the greatest length.
const PART_BYTES_MIN: u64 = 8 << 20;

impl Bounds {
    /// Bounds of clients that take so many bytes together, at most, and no more than by default in
    /// number. A quarter is for each of requests, answers, connections, and nodes and locks.
    pub fn within(bytes: u64) -> Bounds {
        let default = Bounds::default();
        let part = (bytes / 4).max(PART_BYTES_MIN);
        let count = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let connections = default.connections.min(count(part / CONNECTION_BYTES));
        Bounds {
            connections,
            connections_of_client: default.connections_of_client.min(connections / 2),
            strangers: default.strangers.min(connections / 4),
            strangers_of_address: default.strangers_of_address.min(connections / 8),
            sessions: 2 * connections,
            sessions_of_client: default.sessions_of_client.min(connections),
            request_bytes: count(part),
            answer_bytes: count(part),
            nodes: count(part / 8 * 7 / NODE_BYTES),
            locks: count(part / 8 / LOCK_BYTES),
            ..default
        }
    }
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
            sessions: 8192,
            request_bytes: 512 << 20,
            answer_bytes: 256 << 20,
            nodes: 16 << 20,
            locks: 1 << 20,
        }
    }
}
