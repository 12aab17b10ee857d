//! The suite on a directory of the operating system, and what only that has.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use device::{Device, LocalDevice};
use testing::device_conformance::DeviceUnderTest;

struct LocalUnderTest;

impl DeviceUnderTest for LocalUnderTest {
    type Guard = tempfile::TempDir;

    fn create() -> (Arc<dyn Device>, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        (Arc::new(LocalDevice::open(directory.path()).unwrap()), directory)
    }
}

testing::device_conformance!(LocalUnderTest);

#[test]
fn a_device_is_opened_on_a_directory_only() {
    let directory = tempfile::tempdir().unwrap();
    assert!(LocalDevice::open(&directory.path().join("absent")).unwrap_err().is_not_found());
    std::fs::write(directory.path().join("file"), b"x").unwrap();
    let error = LocalDevice::open(&directory.path().join("file")).unwrap_err();
    assert_eq!(error.kind, std::io::ErrorKind::NotADirectory);
}

#[test]
fn files_are_for_their_owner_only() {
    let (device, directory) = LocalUnderTest::create();
    device.create("a").unwrap();
    device.create_dir("d").unwrap();
    let mode =
        |name: &str| directory.path().join(name).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("a"), mode("d")), (0o600, 0o700));
}

#[test]
fn names_that_are_not_utf8_are_not_listed() {
    use std::os::unix::ffi::OsStrExt;
    let (device, directory) = LocalUnderTest::create();
    let name = std::ffi::OsStr::from_bytes(&[0xff, b'x']);
    std::fs::write(directory.path().join(name), b"x").unwrap();
    device.create("a").unwrap();
    assert_eq!(device.list("").unwrap(), ["a"]);
}

/// A process that is started has all files of its parent until its program runs, locks among them.
#[test]
fn a_lock_is_released_while_processes_are_started() {
    let (device, _directory) = LocalUnderTest::create();
    let started = AtomicU32::new(0);
    device::scope(|scope| {
        scope.spawn(|| {
            while started.load(Ordering::Relaxed) < 100 {
                assert!(std::process::Command::new("true").status().unwrap().success());
                started.fetch_add(1, Ordering::Relaxed);
            }
        });
        while started.load(Ordering::Relaxed) < 100 {
            drop(device.try_lock("owner").unwrap().expect("nobody else takes it"));
        }
    });
}

#[test]
fn a_lock_is_released_with_the_process_that_held_it() {
    let (device, directory) = LocalUnderTest::create();
    let path = directory.path().join("owner");
    let mut holder = std::process::Command::new("flock")
        .args([path.to_str().unwrap(), "sh", "-c", "echo held; read line"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(holder.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert!(device.try_lock("owner").unwrap().is_none());
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert!(device.try_lock("owner").unwrap().is_some());
}

#[test]
fn a_lock_ends_when_its_file_is_removed() {
    let (device, directory) = LocalUnderTest::create();
    let path = directory.path().join("owner");
    let lock = device.try_lock("owner").unwrap().unwrap();
    assert!(lock.is_there().unwrap());
    std::fs::remove_file(&path).unwrap();
    assert!(!lock.is_there().unwrap());
    // Nor does that make a second holder.
    assert!(device.try_lock("owner").unwrap().is_none());
    drop(lock);
    let other = device.try_lock("owner").unwrap().unwrap();
    assert!(other.is_there().unwrap());
}

/// Where a directory was moved away, and another one is at its path now, that one is let be.
#[test]
#[expect(clippy::disallowed_methods, reason = "somebody else does it, behind the device's back")]
fn a_directory_that_replaced_a_moved_one_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let (here, moved) = (place.path().join("volume"), place.path().join("moved"));
    std::fs::create_dir(&here).unwrap();
    let device = LocalDevice::open(&here).unwrap();
    device.create_dir("d").unwrap();
    device.create("d/old").unwrap().write_at(b"ours", 0).unwrap();
    std::fs::rename(&here, &moved).unwrap();
    std::fs::create_dir_all(here.join("d")).unwrap();
    std::fs::write(here.join("d/old"), b"theirs").unwrap();

    assert_eq!(device.open("d/old").unwrap().len().unwrap(), 4);
    assert_eq!(device.metadata("d/old").unwrap().unwrap().length, 4);
    device.create("d/new").unwrap();
    device.rename("d/old", "d/other").unwrap();
    device.create_dir("e").unwrap();
    device.sync_dir("e").unwrap();
    assert!(device.try_lock("owner").unwrap().is_some());
    assert_eq!(device.list("d").unwrap(), ["new", "other"]);
    assert_eq!(device.list("").unwrap(), ["d", "e", "owner"]);
    device.remove("d/new").unwrap();
    assert!(moved.join("d/other").exists() && !moved.join("d/new").exists());

    let names = |path: &std::path::Path| {
        let read = std::fs::read_dir(path).unwrap();
        read.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    assert_eq!((names(&here), names(&here.join("d"))), (vec!["d".into()], vec!["old".into()]));
    assert_eq!(std::fs::read(here.join("d/old")).unwrap(), b"theirs");
}

/// Names the directory for the test when it runs again, where nothing can be written there.
const READ_ONLY: &str = "PANDO_TEST_READ_ONLY";

#[test]
fn a_read_only_directory_is_read_and_locked_and_reported() {
    if let Some(root) = std::env::var_os(READ_ONLY) {
        return on_a_read_only_disk(std::path::Path::new(&root));
    }
    let directory = tempfile::tempdir().unwrap();
    let device = LocalDevice::open(directory.path()).unwrap();
    device.create("file").unwrap().write_at(b"bytes", 0).unwrap();
    for has_lock_file in [false, true] {
        if has_lock_file {
            drop(device.try_lock("lock").unwrap().unwrap());
        }
        let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" || exit 99
            exec \"$0\" --exact local::a_read_only_directory_is_read_and_locked_and_reported";
        let run = std::process::Command::new("unshare")
            .args(["-m", "sh", "-c", script])
            .args([std::env::current_exe().unwrap().as_path(), directory.path()])
            .env(READ_ONLY, directory.path())
            .output();
        let Ok(run) = run else { return };
        let printed = String::from_utf8_lossy(&run.stdout);
        if !printed.contains("running 1 test") {
            println!("skipped: nothing can be mounted here");
            return;
        }
        assert!(run.status.success(), "{printed}");
    }
}

fn on_a_read_only_disk(root: &std::path::Path) {
    let device = LocalDevice::open(root).unwrap();
    let is_refused = |result: device::Result<()>| {
        assert_eq!(result.unwrap_err().kind, std::io::ErrorKind::ReadOnlyFilesystem);
    };
    let lock = device.try_lock("lock").unwrap().unwrap();
    assert!(device.try_lock("lock").unwrap().is_none(), "there is one holder");
    is_refused(lock.describe("somebody"));
    drop(lock);
    assert!(device.try_lock("lock").unwrap().is_some());
    let file = device.open("file").unwrap();
    let mut bytes = [0; 5];
    assert_eq!((file.read_at(&mut bytes, 0).unwrap(), &bytes), (5, b"bytes"));
    is_refused(file.write_at(b"other", 0));
    is_refused(file.set_len(0));
    is_refused(file.allocate(0, 9000));
    is_refused(file.punch(0, 5).map(drop));
    is_refused(device.create("new").map(drop));
    assert!(device.open("absent").err().unwrap().is_not_found());
}

/// Asserts that a link was found where a directory is expected or is made, and was not followed.
#[track_caller]
fn refused<T>(what: &str, done: device::Result<T>) {
    let error = done.err().unwrap_or_else(|| panic!("{what}: a link was followed"));
    let kinds = [std::io::ErrorKind::NotADirectory, std::io::ErrorKind::AlreadyExists];
    assert!(kinds.contains(&error.kind), "{what}: {error}");
}

/// The superuser, who had somebody else's volume open, made files wherever a link led that was put
/// in the place of one of its directories.
#[test]
fn no_link_on_the_way_is_followed() {
    let (device, directory) = LocalUnderTest::create();
    let elsewhere = tempfile::tempdir().unwrap();
    device.create("here").unwrap();
    std::fs::write(elsewhere.path().join("theirs"), b"x").unwrap();
    std::fs::create_dir(elsewhere.path().join("below")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), directory.path().join("index")).unwrap();
    refused("open", device.open("index/theirs"));
    refused("create", device.create("index/new"));
    refused("create below", device.create("index/below/new"));
    refused("metadata", device.metadata("index/theirs"));
    refused("list", device.list("index"));
    refused("create directory", device.create_dir("index/new"));
    refused("create directory at the link", device.create_dir("index"));
    refused("rename to", device.rename("here", "index/here"));
    refused("rename from", device.rename("index/theirs", "theirs"));
    refused("remove", device.remove("index/theirs"));
    refused("sync", device.sync_dir("index"));
    refused("lock", device.try_lock("index/lock"));
    let mut names: Vec<_> = std::fs::read_dir(elsewhere.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["below", "theirs"]);
    assert_eq!(std::fs::read_dir(elsewhere.path().join("below")).unwrap().count(), 0);
}

#[test]
fn only_the_allowed_link_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let device = LocalDevice::open(directory.path()).unwrap();
    let other = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(other.path(), directory.path().join("other")).unwrap();
    refused("no link was allowed", device.list("other"));
    let device = device.with_link("log");
    refused("another one was allowed", device.list("other"));
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), directory.path().join("log")).unwrap();
    device.create_dir("log").unwrap();
    device.create("log/a").unwrap();
    device.rename("log/a", "log/b").unwrap();
    device.sync_dir("log").unwrap();
    assert_eq!(device.list("log").unwrap(), ["b"]);
    assert!(elsewhere.path().join("b").exists());
    assert!(!device.is_elsewhere("log").unwrap(), "on the same device");
    // Only the log of the volume itself.
    device.create_dir("d").unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), directory.path().join("d/log")).unwrap();
    refused("a link of that name in another directory", device.create("d/log/a"));
}

/// In another user's volume the superuser follows the log only to files of that user.
#[test]
fn root_follows_another_users_log_link_only_to_that_users_files() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let volume = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), volume.path().join("log")).unwrap();
    let give = |path| std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    give(volume.path());
    let device = LocalDevice::open(volume.path()).unwrap().with_link("log");
    let error = device.create("log/a").err().unwrap();
    assert_eq!(error.kind, std::io::ErrorKind::PermissionDenied, "{error}");
    let error = device.list("log").expect_err("the directory is another user's");
    assert_eq!(error.kind, std::io::ErrorKind::PermissionDenied, "{error}");
    give(elsewhere.path());
    device.create("log/a").unwrap();
    assert_eq!(device.list("log").unwrap(), ["a"]);
}
