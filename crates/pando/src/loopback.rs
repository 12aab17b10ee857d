//! Whose process is at the other end of a connection on this machine, by the kernel's table of
//! connections. Ports are not reserved for a user, so both sides of a connection without
//! certificates ask this.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};

/// The user whose process has the far end of a connection open; `None`: nobody has.
pub(crate) fn user_of(far: SocketAddr, near: SocketAddr) -> Option<u32> {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        // A line at a time: with thousands of connections the table is long.
        let table = BufReader::new(File::options().read(true).open(table).ok()?)
            .lines()
            .map_while(Result::ok);
        table.skip(1).find_map(|line| user_in(&line, far, near))
    })
}

/// Why the server at the far end of a connection is not trusted. Root and the own user are: a
/// server of any other user could show this process any file.
pub(crate) fn check_server(far: SocketAddr, near: SocketAddr) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    match user_of(far, near) {
        Some(user) if user == 0 || user == own => Ok(()),
        Some(user) => Err(format!("user {user} listens there, who is not trusted with files")),
        None => Err("no process has the connection open".to_owned()),
    }
}

/// The user of a line of the kernel's table, if it is the far end of this connection and a process
/// has it open. (The table shows root as the user of a connection that its process has closed.)
fn user_in(line: &str, far: SocketAddr, near: SocketAddr) -> Option<u32> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [_, local, remote, ESTABLISHED, _, _, _, uid, _, inode, ..] = words[..] else {
        return None;
    };
    let is = |word: &str, address| forms(address).iter().any(|form| form == word);
    let matches = is(local, far) && is(remote, near) && inode != "0";
    matches.then(|| uid.parse().ok()).flatten()
}

/// The state of a connection that is open on both sides, in the kernel's table.
const ESTABLISHED: &str = "01";

/// An address as the tables of both versions write it: a socket of the newer one may have a
/// connection of the older.
fn forms(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => vec![
            format!("{}:{port:04X}", words(&v4.octets())),
            format!("{}:{port:04X}", words(&v4.to_ipv6_mapped().octets())),
        ],
        IpAddr::V6(v6) => vec![format!("{}:{port:04X}", words(&v6.octets()))],
    }
}

/// Words of an address, each in this machine's order.
#[expect(clippy::host_endian_bytes, reason = "the kernel's table is in its own order")]
fn words(octets: &[u8]) -> String {
    let word = |bytes: &[u8]| {
        let bytes: [u8; 4] = bytes.try_into().unwrap_or_default();
        format!("{:08X}", u32::from_ne_bytes(bytes))
    };
    octets.chunks(4).map(word).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_users_of_both_ends_are_found_while_they_are_open() {
        let own = rustix::process::geteuid().as_raw();
        for at in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(at) else { continue };
            let port = listener.local_addr().unwrap().port();
            let host = if at == "[::1]:0" { "[::1]" } else { "127.0.0.1" };
            let stream = TcpStream::connect(format!("{host}:{port}")).unwrap();
            let (server, client) = (stream.peer_addr().unwrap(), stream.local_addr().unwrap());
            assert_eq!(user_of(server, client), None, "{at}: nobody has accepted it");
            let (accepted, from) = listener.accept().unwrap();
            assert_eq!(user_of(from, accepted.local_addr().unwrap()), Some(own), "{at}");
            assert_eq!(user_of(server, client), Some(own), "{at}");
            assert_eq!(check_server(server, client), Ok(()), "{at}");
            drop(accepted);
            assert_eq!(user_of(server, client), None, "{at}: it is closed");
        }
    }

    #[test]
    fn another_user_who_listens_is_not_trusted() {
        let line = |uid| {
            format!(
                "0: {}:1D10 {}:9C40 01 00000000:00000000 00:00000000 00000000 {uid} 0 4711 1",
                words(&[127, 0, 0, 1]),
                words(&[127, 0, 0, 1])
            )
        };
        let far = SocketAddr::from(([127, 0, 0, 1], 7440));
        let near = SocketAddr::from(([127, 0, 0, 1], 40000));
        assert_eq!(user_in(&line(1000), far, near), Some(1000));
        assert_eq!(user_in(&line(1000), near, far), None);
    }
}
