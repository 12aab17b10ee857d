//! Volumes that are served: two remote mounts on a loopback address, verbs over the network, and
//! certificates, by the program itself.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::certificates::Certificates;
use crate::world::{PANDO, World, answer, is_root, reason, signal, wait_until};

/// A server of a world's volume.
pub(crate) struct Served {
    pub(crate) child: Child,
    /// The URL of the volume.
    pub(crate) url: String,
}

impl Served {
    pub(crate) fn start(world: &World, options: &[&str]) -> Served {
        let mut child = Command::new(PANDO)
            .args(["serve", "--json", "--listen", "127.0.0.1:0"])
            .args(options)
            .arg(format!("vol={}", world.vol()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let printed: serde_json::Value = serde_json::from_str(&line).expect("it serves");
        let url = format!("pando://{}/vol", printed["address"].as_str().unwrap());
        Served { child, url }
    }

    pub(crate) fn below(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        signal(self.child.id() as i32, rustix::process::Signal::TERM);
        self.child.wait().unwrap();
    }
}

/// A remote mount.
pub(crate) struct Mounted(pub(crate) PathBuf);

impl Mounted {
    pub(crate) fn new(world: &World, url: &str, name: &str) -> Mounted {
        let place = world.path().join(name);
        fs::create_dir(&place).unwrap();
        world.ok(&["mount", url, place.to_str().unwrap()]);
        Mounted(place)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        fuse::unmount(&self.0, fuse::InUse::Detached).ok();
    }
}

#[expect(clippy::print_stdout, reason = "prints what is not tested")]
pub(crate) fn may_mount() -> bool {
    if let Some(reason) = reason("SKIP_FUSE") {
        println!("not tested through a mount: SKIP_FUSE={reason}");
        return false;
    }
    is_root()
}

fn lock(file: &fs::File) -> Result<(), std::io::Error> {
    rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .map_err(Into::into)
}

/// The same by fcntl(2), which has a process and not a descriptor as its owner: through two mounts
/// a process has two.
pub(crate) fn lock_of_process(file: &fs::File) -> Result<(), rustix::io::Errno> {
    rustix::fs::fcntl_lock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
}

/// A volume that is served, with two mounts.
pub(crate) fn served_twice(world: &World) -> (Served, Mounted, Mounted) {
    let served = Served::start(world, &[]);
    let [one, two] = ["one", "two"].map(|name| Mounted::new(world, &served.url, name));
    (served, one, two)
}

#[test]
fn two_mounts_see_the_changes_of_each_other() {
    if !may_mount() {
        return;
    }
    let world = World::new();
    let (_served, one, two) = served_twice(&world);
    fs::write(one.path("a"), "first").unwrap();
    assert_eq!(fs::read(two.path("a")).unwrap(), b"first");
    // The same length, and pages that the kernel has.
    fs::write(two.path("a"), "other").unwrap();
    assert_eq!(fs::read(one.path("a")).unwrap(), b"other");
    let moved = Command::new("mv").args([one.path("a"), one.path("b")]).status();
    assert!(moved.unwrap().success());
    let gone = fs::metadata(two.path("a")).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(fs::metadata(two.path("b")).unwrap().len(), 5);
    fs::create_dir_all(one.path("d/e")).unwrap();
    fs::write(two.path("d/e/f"), vec![7; 3 << 20]).unwrap();
    assert_eq!(fs::read(one.path("d/e/f")).unwrap(), vec![7; 3 << 20]);
    let names = |mount: &Mounted| {
        let mut names: Vec<_> = fs::read_dir(mount.path("d/e")).unwrap().flatten().collect();
        names.sort_by_key(|entry| entry.file_name());
        names.len()
    };
    for number in 0..500 {
        fs::write(one.path(&format!("d/e/n{number}")), "").unwrap();
    }
    assert_eq!((names(&one), names(&two)), (501, 501));
    let inode = |mount: &Mounted| fs::metadata(mount.path("d/e/n7")).unwrap().ino();
    assert_eq!(inode(&one), inode(&two));
    // A file without permissions that is open, as git makes them.
    let mut odd = OpenOptions::new();
    odd.write(true).create_new(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut odd, 0o400);
    odd.open(one.path("odd")).unwrap().write_all(b"x").unwrap();
    world.ok(&["umount", one.0.to_str().unwrap()]);
    assert_eq!(fs::read(two.path("odd")).unwrap(), b"x");
}

#[test]
fn appends_locks_and_open_files_hold_across_mounts() {
    if !may_mount() {
        return;
    }
    let world = World::on("lsm");
    let (_served, one, two) = served_twice(&world);
    let append = |mount: &Mounted, letter: u8| {
        let path = mount.path("log");
        move || {
            let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
            for _ in 0..50 {
                file.write_all(&[letter; 10]).unwrap();
            }
        }
    };
    device::scope(|scope| {
        scope.spawn(append(&one, b'a'));
        scope.spawn(append(&two, b'b'));
    });
    let log = fs::read(one.path("log")).unwrap();
    assert_eq!(log.len(), 1000);
    assert!(log.chunks(10).all(|ten| ten.iter().all(|byte| *byte == ten[0])));
    let open = |mount: &Mounted| {
        OpenOptions::new().read(true).write(true).open(mount.path("log")).unwrap()
    };
    let (first, second) = (open(&one), open(&two));
    lock(&first).unwrap();
    let is_busy = |file: &fs::File| lock(file).unwrap_err().raw_os_error() == Some(11);
    assert!(is_busy(&second), "another mount has the lock");
    assert!(is_busy(&open(&one)), "another descriptor has the lock");
    // Locks of both kinds are apart.
    lock_of_process(&first).unwrap();
    let is_taken = |file: &fs::File| {
        use rustix::io::Errno;
        matches!(lock_of_process(file), Err(Errno::AGAIN | Errno::ACCESS))
    };
    assert!(is_taken(&second), "another mount has the lock of a process");
    lock_of_process(&first).unwrap();
    drop(first);
    wait_until("the lock ends with its file", || lock(&second).is_ok());
    wait_until("so does that of a process", || lock_of_process(&second).is_ok());
    assert!(is_taken(&open(&one)), "the first mount has it no more");
    // A mount that dies loses its locks, for its server notices.
    fs::remove_file(one.path("log")).unwrap();
    let mut bytes = [0; 10];
    second.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [log[0]; 10], "it is open");
    assert_eq!(second.metadata().unwrap().nlink(), 0);
}

/// The server distinguishes the users of a machine.
#[test]
fn permissions_hold_on_a_remote_mount() {
    if !may_mount() {
        return;
    }
    let world = World::new();
    let served = Served::start(&world, &[]);
    let one = Mounted::new(&world, &served.url, "one");
    fs::set_permissions(world.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(one.path("closed")).unwrap();
    fs::write(one.path("closed/secret"), "s").unwrap();
    fs::set_permissions(one.path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(one.path("group"), "g").unwrap();
    std::os::unix::fs::chown(one.path("group"), Some(0), Some(4711)).unwrap();
    fs::set_permissions(one.path("group"), fs::Permissions::from_mode(0o640)).unwrap();
    let cat = |groups: &str, path: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1234", "--regid=1234", &format!("--groups={groups}"), "cat"]);
        command.arg(path).stderr(Stdio::null()).output().unwrap().status.success()
    };
    assert!(!cat("1234", &one.path("closed/secret")));
    assert!(!cat("1234", &one.path("group")));
    assert!(cat("1234,4711", &one.path("group")), "a supplementary group");
}

#[test]
fn verbs_work_over_the_network_or_report_that_they_do_not() {
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/d")]);
    let served = Served::start(&world, &[]);
    // Verbs here work as before, and a mount beside the server does not.
    world.ok(&["clone", &world.at("/d"), &world.at("/d/e")]);
    let refused = world.fails(1, &["mount", world.vol(), world.mnt()]);
    assert!(refused.contains("pando://localhost"), "{refused}");
    let url = |path: &str| served.below(path);
    assert_eq!(world.ok(&["ls", &url("/d")]).trim(), "e");
    world.ok(&["snapshot", "create", &url("/d"), "monday"]);
    assert!(world.ok(&["snapshot", "list", &url("/d")]).contains("monday"));
    assert_eq!(world.ok(&["ls", &url("/d@monday")]).trim(), "e");
    world.ok(&["clone", &url("/d@monday"), &url("/f")]);
    let found = world.ok(&["find", &url("/"), "-name", "e"]);
    assert_eq!(found.lines().count(), 2, "{found}");
    world.ok(&["rmr", &url("/f")]);
    for verb in [&["du"][..], &["stat"], &["info"], &["summary"], &["history"]] {
        world.ok(&[verb, &[&url("/d")]].concat());
    }
    assert!(world.ok(&["status", &served.url]).contains("durability  sync"));
    let missing = world.fails(3, &["ls", &url("/none")]);
    assert!(missing.contains(&url("/none")), "{missing}");
    for verb in [&["format"][..], &["session", "list"], &["index", "/etc", "--into"]] {
        let refused = world.fails(1, &[verb, &[&url("/d")]].concat());
        assert!(refused.contains(&format!("pando {}` does not work", verb[0])), "{refused}");
    }
    let unknown = world.fails(3, &["ls", &served.url.replace("/vol", "/other")]);
    assert!(unknown.contains("no volume other"), "{unknown}");
    let nobody = world.fails(1, &["ls", "pando://127.0.0.1:1/vol"]);
    assert!(nobody.contains("cannot connect"), "{nobody}");
}

#[test]
fn certificates_contain_what_a_client_may_do() {
    if !may_mount() {
        return;
    }
    let world = World::new();
    let certificates = Certificates::new(&world, "all", &["--keep-root"]);
    certificates.add("reads", &["--read-only"]);
    let served = Served::start(&world, &certificates.of_server().each_ref().map(String::as_str));
    let run = |client: &str, arguments: &[&str]| certificates.run(client, arguments);
    let place = world.path().join("one");
    fs::create_dir(&place).unwrap();
    let mounted = Mounted(place);
    let at = mounted.0.to_str().unwrap();
    let (works, error) = run("all", &["mount", &served.url, at]);
    assert!(works, "{error}");
    fs::write(mounted.path("f"), "by root").unwrap();
    assert_eq!(fs::metadata(mounted.path("f")).unwrap().uid(), 0);
    world.ok(&["umount", at]);
    let (works, error) = run("reads", &["mount", &served.url, at]);
    assert!(works, "{error}");
    assert_eq!(fs::read_to_string(mounted.path("f")).unwrap(), "by root");
    let refused = fs::write(mounted.path("g"), "").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(30), "{refused}");
    world.ok(&["umount", at]);
    // Without a certificate there is no answer.
    let plain = world.run(&["ls", &served.url]);
    assert_ne!(plain.code, 0);
}

/// What a user reads whose certificate, or whose server's, is too old, of another authority, or for
/// another name; and what to do.
#[test]
fn a_refused_certificate_is_named_with_what_to_do() {
    let (world, other) = (World::new(), World::without_volume());
    let own = Certificates::new(&world, "client", &["--keep-root"]);
    let foreign = Certificates::new(&other, "client", &[]);
    own.add_expired("old");
    let served = Served::start(&world, &own.of_server().each_ref().map(String::as_str));
    let (works, error) = own.run("client", &["ls", &served.url]);
    assert!(works, "{error}");
    // That of another authority, with the right ca.pem.
    let mixed = other.path().join("mixed");
    fs::create_dir(&mixed).unwrap();
    let (ours, theirs) = (own.files("client"), foreign.files("client"));
    fs::copy(&ours.authority, mixed.join("ca.pem")).unwrap();
    fs::copy(&theirs.certificate, mixed.join("client.pem")).unwrap();
    fs::copy(&theirs.key, mixed.join("client.key")).unwrap();
    let run = |certs: &Path, url: &str| {
        let mut command = World::command(&["ls", url]);
        let answer = answer(&command.env("PANDO_CERTS", certs).output().unwrap());
        (answer.code == 4, answer.err)
    };
    let by_name = served.url.replace("127.0.0.1", "localhost");
    let check = |(is_refused, printed): (bool, String), expected: [&str; 2]| {
        assert!(is_refused, "exit code 4: {printed}");
        for text in expected {
            assert!(printed.contains(text), "{text}: {printed}");
        }
    };
    check(
        run(&own.directory_of("old"), &served.url),
        [
            "the server refuses the certificate of this client: it has expired",
            "pando cluster certs DIR --client NAME",
        ],
    );
    check(
        run(&foreign.directory_of("client"), &served.url),
        [
            "the certificate of the server is not of the authority in ca.pem of this client",
            "both sides need the ca.pem of one directory",
        ],
    );
    check(
        run(&mixed, &served.url),
        [
            "the server refuses the certificate of this client: it is not of its authority",
            "both sides need certificates of one directory",
        ],
    );
    check(
        run(&own.directory_of("client"), &by_name),
        [
            "the certificate of the server is for another name",
            "pando cluster certs DIR --server NAME",
        ],
    );
    drop(served);
    own.expire_server();
    let served = Served::start(&world, &own.of_server().each_ref().map(String::as_str));
    check(
        run(&own.directory_of("client"), &served.url),
        ["the certificate of the server is not valid now", "compare the clocks"],
    );
}

/// A server that is killed comes back: mounts connect again, and what it had acknowledged is there.
#[test]
fn what_was_acknowledged_survives_the_death_of_the_server() {
    if !may_mount() {
        return;
    }
    let world = World::new();
    let mut served = Served::start(&world, &[]);
    let one = Mounted::new(&world, &served.url, "one");
    for number in 0..50 {
        fs::write(one.path(&format!("f{number}")), number.to_string()).unwrap();
    }
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let address = served.url.trim_start_matches("pando://").trim_end_matches("/vol").to_owned();
    let again = Command::new(PANDO)
        .args(["serve", "--listen", &address, &format!("vol={}", world.vol())])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    served.child = again;
    for number in 0..50 {
        assert_eq!(
            fs::read_to_string(one.path(&format!("f{number}"))).unwrap(),
            number.to_string()
        );
    }
    fs::write(one.path("after"), "x").unwrap();
}
