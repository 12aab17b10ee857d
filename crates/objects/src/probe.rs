//! Tests whether a server lets one of several creators of a name succeed.
//!
//! All that keeps two openings of a volume apart is that a name is created once. Some servers check
//! the condition and then write, so that creations one after the other are decided and concurrent
//! ones all succeed. So before a volume relies on a server, sixteen threads race for each of five
//! names, through every endpoint.

use std::io;

use device::sync::{Condvar, Mutex};
use device::{Error, Result};

use crate::server::Server;

/// Clients that create a name at once.
const CLIENTS: usize = 16;
/// Names that they race for.
const ROUNDS: usize = 5;

/// The result of a test.
pub(crate) enum Verdict {
    /// One creator of each name succeeded.
    Sound,
    /// The server cannot be used; why.
    Unsound(Error),
}

fn unsound(server: &Server, why: String) -> Verdict {
    let error = io::Error::new(io::ErrorKind::Unsupported, why);
    Verdict::Unsound(Error::new("use as an object store", &server.target.endpoint, error))
}

/// Creates one object twice. An error: the server prevented a verdict.
pub(crate) fn twice(server: &Server, name: &str) -> Result<Verdict> {
    let made = server.make(name, b"first");
    let again = made.as_ref().ok().map(|_| server.make(name, b"second"));
    // Also after an error: the object may have been created, and does no harm.
    let deleted = server.delete(name).or_else(|_| server.delete(name));
    let made = made?;
    let Some(again) = again.transpose()? else { return Ok(Verdict::Sound) };
    Ok(match (made, again) {
        (true, false) => {
            deleted?;
            Verdict::Sound
        }
        (_, true) => unsound(server, OVERWRITES.to_owned()),
        (false, false) => unsound(server, TAKEN.to_owned()),
    })
}

const OVERWRITES: &str = "it overwrites an object when asked to create one only if there is none \
                          (If-None-Match: *), so two hosts could change a volume at once; use a \
                          server that supports conditional creation";
const TAKEN: &str = "it reports of a new name that an object exists";

/// Lets clients race for names. An error: the server prevented a verdict.
pub(crate) fn race(servers: &[&Server], fresh: impl Fn() -> String) -> Result<Verdict> {
    for _ in 0..ROUNDS {
        let name = fresh();
        let verdict = race_for(servers, &name);
        servers[0].delete(&name)?;
        let verdict = verdict?;
        if matches!(verdict, Verdict::Unsound(_)) {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Sound)
}

/// Lets clients race for one name, which is not deleted.
fn race_for(servers: &[&Server], name: &str) -> Result<Verdict> {
    let gate = Gate::default();
    let results: Vec<Result<bool>> = device::scope(|scope| {
        let run = |client: usize| {
            let (server, gate) = (servers[client % servers.len()], &gate);
            let run = move || {
                gate.wait();
                server.make(name, &[client as u8; 100])
            };
            let thread = device::spawn_in(scope, "probe", run);
            thread.map_err(|error| Error::new("start a thread for", name, error))
        };
        let threads: Vec<_> = (0..CLIENTS).map(run).collect();
        gate.open();
        let join = |thread: Result<device::ScopedThread<'_, Result<bool>>>| {
            thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let mut winners = Vec::new();
    for (client, result) in results.into_iter().enumerate() {
        if result? {
            winners.push(client as u8);
        }
    }
    let server = servers[0];
    let why = match winners.as_slice() {
        [] => TAKEN.to_owned(),
        [winner] => {
            let mut bytes = [255; 101];
            let read = server.read_at(name, &mut bytes, 0)?;
            if read == 100 && bytes[..read].iter().all(|byte| byte == winner) {
                return Ok(Verdict::Sound);
            }
            "it keeps the bytes of a different creator from the one that it reported success to"
                .to_owned()
        }
        winners => format!(
            "{} of {CLIENTS} concurrent creations of one name succeeded, so two hosts could change \
             a volume at once; use a server that decides conditional creations \
             (If-None-Match: *) one by one",
            winners.len()
        ),
    };
    Ok(unsound(server, why))
}

/// Lets threads begin together.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn wait(&self) {
        let mut is_open = self.is_open.lock();
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }
}
