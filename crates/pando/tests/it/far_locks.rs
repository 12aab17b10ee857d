//! Locks of ranges, by fcntl(2), of processes in two mounts of a served volume. They are those of a
//! process, and those of an open file description (OFD).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use device::sync::{Receiver, channel};

use crate::far::{may_mount, served_twice};
use crate::world::{PATIENCE, World};

/// Opens files and locks ranges of them, as each line of its input requests. It prints how that
/// ended: `ok`, the name of an error, or what is locked.
const PROGRAM: &str = r#"
import errno, fcntl, os, struct, sys
COMMANDS = {
    "set": fcntl.F_SETLK, "wait": fcntl.F_SETLKW, "get": fcntl.F_GETLK,
    "ofd-set": fcntl.F_OFD_SETLK, "ofd-wait": fcntl.F_OFD_SETLKW, "ofd-get": fcntl.F_OFD_GETLK,
}
KINDS = {"read": fcntl.F_RDLCK, "write": fcntl.F_WRLCK, "none": fcntl.F_UNLCK}
NAMES = {number: name for name, number in KINDS.items()}
LAYOUT = "hhqqi4x"
path, files = sys.argv[1], {}
for line in sys.stdin:
    verb, name, *rest = line.split()
    try:
        if verb == "close":
            os.close(files.pop(name))
            print("ok", flush=True)
            continue
        if name not in files:
            files[name] = os.open(path, os.O_RDWR)
        kind, start, length = KINDS[rest[0]], int(rest[1]), int(rest[2])
        lock = struct.pack(LAYOUT, kind, os.SEEK_SET, start, length, 0)
        found = struct.unpack(LAYOUT, fcntl.fcntl(files[name], COMMANDS[verb], lock))
        if verb.endswith("get"):
            kind = NAMES[found[0]]
            print(kind if kind == "none" else f"{kind} {found[2]} {found[3]}", flush=True)
        else:
            print("ok", flush=True)
    except OSError as error:
        # (This number has two names.)
        is_loop = error.errno == errno.EDEADLK
        print("EDEADLK" if is_loop else errno.errorcode[error.errno], flush=True)
"#;

/// A process that locks ranges of a file.
struct Locker {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
}

impl Locker {
    fn of(path: &Path) -> Locker {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let (requests, printed) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, answers) = channel();
        let read = move || {
            let mut lines = BufReader::new(printed).lines().map_while(Result::ok);
            while lines.next().is_some_and(|line| sender.send(line).is_ok()) {}
        };
        device::spawn("answers", read).unwrap();
        Locker { child, requests, answers }
    }

    /// Requests `VERB FILE KIND START LENGTH`, or `close FILE`. A file is opened at its first use.
    fn request(&mut self, request: &str) {
        writeln!(self.requests, "{request}").unwrap();
    }

    fn answer(&mut self) -> String {
        self.answers.recv_timeout(PATIENCE).expect("an answer of a process that locks")
    }

    #[track_caller]
    fn check(&mut self, request: &str, expected: &str) {
        self.request(request);
        assert_eq!(self.answer(), expected, "{request}");
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn ranges_that_processes_lock_hold_across_mounts() {
    if !may_mount() {
        return;
    }
    let world = World::new();
    let (_served, one, two) = served_twice(&world);
    std::fs::write(one.path("f"), "x").unwrap();
    let mut first = Locker::of(&one.path("f"));
    let mut beside = Locker::of(&one.path("f"));
    let mut other = Locker::of(&two.path("f"));
    first.check("set a write 0 10", "ok");
    for locker in [&mut beside, &mut other] {
        locker.check("set a write 5 10", "EAGAIN");
        locker.check("set a read 9 1", "EAGAIN");
        locker.check("get a read 5 10", "write 0 10");
    }
    other.check("set a write 10 10", "ok");
    first.check("set a write 0 11", "EAGAIN");
    first.check("get a write 0 0", "write 10 10");
    // A part is given back.
    first.check("set a none 3 3", "ok");
    other.check("set a write 3 3", "ok");
    other.check("get a write 0 0", "write 0 3");
    // Readers share, and keep a writer out.
    first.check("set a read 100 10", "ok");
    other.check("set a read 105 10", "ok");
    first.check("set a write 105 1", "EAGAIN");
    first.check("set a write 100 5", "ok");
    // One waits for the other, through its own mount.
    other.request("wait a write 0 3");
    first.check("set a none 0 3", "ok");
    assert_eq!(other.answer(), "ok");
    beside.check("set a read 0 1", "EAGAIN");
    // Two that wait for each other: one of them is refused, and gives up.
    first.check("set a write 200 1", "ok");
    other.check("set a write 300 1", "ok");
    first.request("wait a write 300 1");
    other.request("wait a write 200 1");
    let end = |locker: &mut Locker| {
        let answer = locker.answer();
        if answer == "EDEADLK" {
            locker.check("close a", "ok");
        }
        answer
    };
    let mut answers = device::scope(|scope| {
        let one = scope.spawn(|| end(&mut first));
        [end(&mut other), one.join().unwrap()]
    });
    answers.sort();
    assert_eq!(answers, ["EDEADLK", "ok"]);
    // Another descriptor of the process that is closed ends its locks, by POSIX.
    first.check("set b read 400 1", "ok");
    first.check("close b", "ok");
    other.check("set a write 100 10", "ok");
    // A process that dies loses them; another one waits for that.
    beside.request("wait a write 100 10");
    drop(other);
    assert_eq!(beside.answer(), "ok");
}

#[test]
fn locks_of_open_file_descriptions_hold_across_mounts() {
    if !may_mount() {
        return;
    }
    let world = World::on("lsm");
    let (_served, one, two) = served_twice(&world);
    std::fs::write(one.path("f"), "x").unwrap();
    let mut first = Locker::of(&one.path("f"));
    let mut other = Locker::of(&two.path("f"));
    first.check("ofd-set a write 0 10", "ok");
    // Another description of the same process is another owner, and so is the process itself.
    first.check("ofd-set b write 5 1", "EAGAIN");
    first.check("set b write 5 1", "EAGAIN");
    other.check("ofd-set a write 5 1", "EAGAIN");
    other.check("set a read 5 1", "EAGAIN");
    other.check("ofd-get a read 5 1", "write 0 10");
    other.check("ofd-set a write 10 5", "ok");
    first.check("ofd-set b write 12 1", "EAGAIN");
    // That another descriptor is closed ends no such lock.
    first.check("close b", "ok");
    other.check("ofd-set a write 0 10", "EAGAIN");
    other.request("ofd-wait a write 0 10");
    first.check("ofd-set a none 0 5", "ok");
    first.check("ofd-set a none 5 5", "ok");
    assert_eq!(other.answer(), "ok");
    // The last descriptor of the file is closed, and the process lives.
    first.request("ofd-wait a write 0 15");
    other.check("close a", "ok");
    assert_eq!(first.answer(), "ok");
    // A process dies, and with it the last descriptor.
    other.request("ofd-wait a write 0 15");
    drop(first);
    assert_eq!(other.answer(), "ok");
}
