//! What runs too long is ended. Its test then fails and prints why, and the whole run does not hang
//! silently.
//!
//! A command has [`LONGEST`]. A test has [`LONGEST_TEST`] from its world on. Then each process
//! with the world's directory in its arguments is killed. A call to a mount without a daemon
//! fails; a far mount would wait for its servers forever.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, SystemClock};
use rustix::process::Signal;

use crate::world::signal;

/// Longest run time of a command, on a slow and busy machine.
pub(crate) const LONGEST: Duration = Duration::from_secs(600);
/// The same of a test, except in a campaign.
const LONGEST_TEST: Duration = Duration::from_secs(840);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Command(i32),
    /// The directory of a world.
    World(PathBuf),
}

/// Something that is ended if it runs too long. (A process more for each command, as `timeout` is,
/// would cost a tenth of what they cost.)
pub(crate) struct Limited(Subject);

/// What runs, with its end by the clock of the thread that ends it; and whether that was done.
static RUNNING: Mutex<BTreeMap<Subject, (Duration, bool)>> = Mutex::new(BTreeMap::new());

impl Limited {
    pub(crate) fn command(pid: i32) -> Limited {
        Limited::begin(Subject::Command(pid), LONGEST)
    }

    pub(crate) fn world(directory: &Path) -> Limited {
        let most = if testing::run::slow() { Duration::MAX } else { LONGEST_TEST };
        Limited::begin(Subject::World(directory.to_owned()), most)
    }

    fn begin(subject: Subject, most: Duration) -> Limited {
        static CLOCK: LazyLock<SystemClock> = LazyLock::new(|| {
            drop(device::spawn("limits", || {
                loop {
                    CLOCK.sleep(Duration::from_secs(5));
                    let now = CLOCK.monotonic();
                    for (subject, (until, is_ended)) in RUNNING.lock().iter_mut() {
                        if now > *until && !*is_ended {
                            end(subject);
                            *is_ended = true;
                        }
                    }
                }
            }));
            SystemClock::new()
        });
        let until = CLOCK.monotonic().saturating_add(most);
        RUNNING.lock().insert(subject.clone(), (until, false));
        Limited(subject)
    }

    /// Whether it was ended.
    pub(crate) fn end(self) -> bool {
        RUNNING.lock().get(&self.0).is_some_and(|(_, is_ended)| *is_ended)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        RUNNING.lock().remove(&self.0);
    }
}

/// Prints a line that no test's result takes: this thread is of none.
fn print(line: &str) {
    writeln!(std::io::stderr(), "{line}").unwrap_or_default();
}

fn end(subject: &Subject) {
    match subject {
        Subject::Command(pid) => signal(*pid, Signal::KILL),
        Subject::World(directory) => {
            print(&format!("not within {LONGEST_TEST:?}: the test of {}", directory.display()));
            kill_all_of(directory, |arguments| print(&format!("killed: {arguments}")));
        }
    }
}

/// Kills each process with this directory in its arguments.
pub(crate) fn kill_all_of(directory: &Path, report: impl Fn(&str)) {
    let directory = directory.to_str().unwrap();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        if arguments.contains(directory) {
            report(&arguments);
            signal(pid, Signal::KILL);
        }
    }
}

/// A world whose test waits for something that never comes has its daemons killed.
#[test]
fn what_is_in_the_directory_of_a_test_that_never_ends_is_killed() {
    let world = crate::world::World::without_volume();
    let mut waits = std::process::Command::new("tail");
    waits.arg("-f").arg(world.path().join("none")).arg("/dev/null");
    let mut waits = waits.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // A process that has just begun may not have its arguments yet.
    let mut ended = None;
    crate::world::wait_until("it is killed", || {
        end(&Subject::World(world.path().to_owned()));
        ended = waits.try_wait().unwrap();
        ended.is_some()
    });
    let status = ended.unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::KILL.as_raw()));
}

/// `scripts/test.sh` runs all tests so.
#[test]
fn a_run_that_prints_no_result_is_ended_and_what_hangs_is_named() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let run = |silent: &str, tests: &str| {
        let mut command = std::process::Command::new("bash");
        command.args(["-c", ". scripts/watched.sh; watched \"$@\"", "bash"]);
        command.arg(log.path()).args(["bash", "-c", tests]).env("SILENT", silent);
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).stdin(Stdio::null());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let hangs = "echo 'crates/a: test b::c has been running for over 60 seconds'; sleep 5000";
    let (code, out) = run("1", hangs);
    assert_eq!(code, Some(128 + Signal::TERM.as_raw()), "{out}");
    assert!(out.contains("\nHANGS: test crates/a: b::c\n"), "{out}");
    // It prints something each time, and so is not ended.
    let slow = "for at in 1 2 3 4; do sleep 0.7; echo line; done; exit 7";
    assert_eq!(run("2", slow), (Some(7), "line\n".repeat(4)));
}
