//! Matches are sent as they are found. The first arrives while a search continues. A daemon waits
//! for a slow reader instead of buffering results, and a search ends when its caller leaves.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Duration;

use device::{Clock, SystemClock};
use rustix::process::Signal;

use crate::world::{World, signal, wait_until};

/// So many that their paths fit in no pipe and no socket.
const FILES: usize = 20_000;

/// Fills the volume with empty files.
fn fill(world: &World) {
    let source = world.path().join("source");
    for file in 0..FILES {
        let directory = source.join(format!("directory-{}", file / 1000));
        if file % 1000 == 0 {
            fs::create_dir_all(&directory).unwrap();
        }
        fs::write(directory.join(format!("a-file-with-a-name-of-the-usual-length-{file}")), "")
            .unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/all")]);
}

/// Whether the daemon of a volume serves a connection at present: each has a thread, and its
/// helper threads have the same name.
pub(crate) fn is_serving(world: &World) -> bool {
    let Some(owner) = world.daemon() else { return false };
    let Ok(tasks) = fs::read_dir(format!("/proc/{owner}/task")) else { return false };
    let mut names =
        tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.any(|name| name.trim() == "connection")
}

/// A search for everything, whose output is not read yet.
fn all(world: &World) -> Child {
    let mut command = World::command(&["find", &world.at("/")]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn matches_are_streamed_and_end_with_their_reader() {
    let world = World::new();
    fill(&world);
    let whole = world.ok(&["find", &world.at("/")]).lines().count();
    // The root, `/all`, and the directories in it.
    assert_eq!(whole, FILES + FILES / 1000 + 2);

    let mut slow = all(&world);
    let mut lines = BufReader::new(slow.stdout.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    assert_eq!(first.trim_end(), world.at("/"));
    // Neither the command nor the daemon buffers more than fits in the pipe and the socket,
    // however long it lasts.
    let clock = SystemClock::new();
    for _ in 0..10 {
        clock.sleep(Duration::from_millis(30));
        assert!(is_serving(&world), "the daemon waits for the reader");
        assert!(slow.try_wait().unwrap().is_none(), "the command waits for the reader");
    }
    // Other clients are not blocked meanwhile.
    assert_eq!(world.ok(&["find", &world.at("/"), "-maxdepth", "0"]).lines().count(), 1);
    let rest = lines.lines().count();
    assert_eq!(rest + 1, whole);
    assert!(slow.wait().unwrap().success());

    // Ctrl-C, and a reader that goes away like `head`.
    let mut interrupted = all(&world);
    let mut lines = BufReader::new(interrupted.stdout.take().unwrap());
    lines.read_line(&mut first).unwrap();
    signal(i32::try_from(interrupted.id()).unwrap(), Signal::INT);
    assert!(!interrupted.wait().unwrap().success());
    wait_until("the search ends with Ctrl-C", || !is_serving(&world));
    let mut left = all(&world);
    let mut lines = BufReader::new(left.stdout.take().unwrap());
    lines.read_line(&mut first).unwrap();
    drop(lines);
    left.wait().unwrap();
    let mut printed = String::new();
    left.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(!printed.contains("panicked"), "{printed}");
    wait_until("the search ends with its reader", || !is_serving(&world));
}
