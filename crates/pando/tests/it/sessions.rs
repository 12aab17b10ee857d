//! Limits on what one user may take of a daemon, and who may end sessions. Other users, root and
//! the user that owns the volume always get an answer, can unmount, and mount again.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Connection, Opened};
use device::{Clock, SystemClock};
use testing::SetAtEnd;
use wire::{Answer, Body, Call, FailureKind, Item, Items};

use crate::other_users::Nobody;
use crate::world::{NOBODY, World, is_root, wait_until};

/// Runs a function as the user with that number.
fn as_user<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> T {
    device::scope(|scope| {
        let worker = scope.spawn(move || {
            let (group, id) = (rustix::fs::Gid::from_raw(user), rustix::fs::Uid::from_raw(user));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(id, id, id).unwrap();
            work()
        });
        worker.join().unwrap()
    })
}

fn connect(volume: &Path) -> Option<Connection> {
    match Connection::open(volume).unwrap() {
        Opened::Connected(connection) => Some(connection),
        Opened::Refused(failure) => {
            assert_eq!(failure.kind, FailureKind::Busy);
            let limit = ["64 connections", "224 connections"];
            assert!(limit.iter().any(|limit| failure.message.contains(limit)), "{failure:?}");
            None
        }
        other => panic!("{other:?}"),
    }
}

/// A volume with a world-writable directory.
fn open_to_all() -> World {
    let world = World::new();
    let source = world.source();
    fs::set_permissions(&source, PermissionsExt::from_mode(0o777)).unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/open")]);
    world
}

fn begin_import(connection: &mut Connection, path: &[u8]) {
    let answer = connection.ask(Call::ImportOpen { path, directory: true, staged: false });
    assert!(matches!(answer, Ok(Answer::Entered { .. })), "{answer:?}");
}

/// A mounted volume, and an import of another user into it; `None` where the tests may not mount.
fn mounted_with_import() -> Option<(World, Connection)> {
    if !is_root() {
        return None;
    }
    let world = open_to_all();
    if !world.mount() {
        return None;
    }
    let mut import = as_user(NOBODY, || connect(&world.volume).unwrap());
    begin_import(&mut import, b"/open/copy");
    Some((world, import))
}

/// Imports a directory of empty files with long names: a listing of them fills all buffers between
/// the daemon and its client.
fn import_many(world: &World, files: usize) {
    let source = world.path().join("many");
    fs::create_dir(&source).unwrap();
    for number in 0..files {
        fs::write(source.join(format!("{number:0250}")), b"").unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/many")]);
}

#[test]
fn one_user_gets_a_share_of_connections_and_root_is_answered() {
    if !is_root() {
        return;
    }
    let world = World::new();
    world.ok(&["ls", &world.at("/")]);
    let volume = &world.volume;
    let silent =
        |user| as_user(user, || (0..300).filter_map(|_| connect(volume)).collect::<Vec<_>>());
    let mut held = silent(NOBODY);
    assert_eq!(held.len(), 64);
    world.ok(&["status", world.vol()]);
    let other = as_user(NOBODY - 1, || connect(volume).unwrap().ask(Call::Status));
    assert!(matches!(other, Ok(Answer::Status(_))), "{other:?}");
    let first = held[0].ask(Call::Status);
    assert!(matches!(first, Ok(Answer::Status(_))), "others waited until it ended: {first:?}");
    let more: Vec<_> = (1..4).map(|less| silent(NOBODY - less)).collect();
    assert_eq!(more.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 32]);
    world.ok(&["status", world.vol()]);
    // A command of the user waits for a while, and then names the limit.
    let refused = Nobody::new(&world).run(&["status", world.vol()]);
    assert!(refused.code == 6 && refused.err.contains("64 connections"), "{}", refused.err);
    drop(more);
    drop(held);
    wait_until("they are free again", || as_user(NOBODY, || connect(volume)).is_some());
}

#[test]
fn an_idle_session_ends_by_itself() {
    let world = World::new();
    world.ok(&["ls", &world.at("/")]);
    let mut silent = connect(&world.volume).unwrap();
    let slow = connect(&world.volume).unwrap();
    silent.ask(Call::Status).unwrap();
    // One that sends the length of a request, and then a byte before each time-out, is idle, too.
    let mut stream = slow.stream().unwrap();
    stream.write_all(&100_000_u32.to_le_bytes()).unwrap();
    let ended = AtomicBool::new(false);
    device::scope(|scope| {
        scope.spawn(|| {
            while stream.write_all(&[0]).is_ok() {
                SystemClock::new().sleep(Duration::from_millis(200));
            }
            ended.store(true, Ordering::Relaxed);
        });
        let failure = silent.receive().unwrap_err();
        assert!(failure.message.contains("got no whole request for 60 s"), "{failure:?}");
        let clock = SystemClock::new();
        while !ended.load(Ordering::Relaxed) && clock.monotonic() < Duration::from_secs(20) {
            clock.sleep(Duration::from_millis(50));
        }
        let is_ended = ended.load(Ordering::Relaxed);
        if !is_ended {
            slow.stream().unwrap().shutdown(std::net::Shutdown::Both).unwrap();
        }
        assert!(is_ended, "a request that comes byte by byte keeps its connection");
    });
}

/// Asks repeatedly whether all work is done, without sending any.
#[test]
fn an_idle_import_session_holds_no_volume() {
    let Some((world, mut import)) = mounted_with_import() else { return };
    let ended = AtomicBool::new(false);
    device::scope(|scope| {
        scope.spawn(|| {
            while import.ask(Call::ImportFlush).is_ok() && !ended.load(Ordering::Relaxed) {
                SystemClock::new().sleep(Duration::from_millis(200));
            }
        });
        let _end = SetAtEnd(&ended);
        let clock = SystemClock::new();
        let unmounted = world.run(&["umount", world.mnt()]);
        let took = clock.monotonic();
        // With work, it would wait for 120 s.
        assert!(took < Duration::from_secs(110), "{took:?}: {}", unmounted.err);
        let status = world.status();
        if unmounted.code != 0 {
            assert_eq!(status["daemon"]["mount_point"], serde_json::Value::Null);
            let printed = &unmounted.err;
            assert!(unmounted.code == 6 && printed.contains("pando session end"), "{printed}");
        }
        let clock = SystemClock::new();
        while world.run(&["mount", world.vol(), world.mnt()]).code != 0 {
            assert!(clock.monotonic() < Duration::from_secs(60), "it cannot be mounted");
        }
    });
    world.umount();
}

/// Keeps creating files, so that it is active.
fn continues(mut import: Connection, ended: &AtomicBool) -> String {
    for number in 0.. {
        let mut items = Items::default();
        let name = format!("{number}").into_bytes();
        let attr = wire::ImportAttr { mode: 0o644, owner: None, atime: 0, mtime: 0 };
        items.push(&Item::File { name: &name, attr, xattrs: Vec::new(), data: b"x", hold: 0 });
        let done = import.send(Call::Import { items: items.as_bytes() });
        if let Err(failure) = done.and_then(|_| import.ask(Call::ImportFlush)) {
            return failure.message;
        }
        if ended.load(Ordering::Relaxed) {
            return "the test failed".to_owned();
        }
        SystemClock::new().sleep(Duration::from_millis(100));
    }
    String::new()
}

#[test]
fn root_ends_any_session_while_the_volume_is_in_use() {
    let Some((world, import)) = mounted_with_import() else { return };
    let ended = AtomicBool::new(false);
    let last_words = device::scope(|scope| {
        let at_work = scope.spawn(|| continues(import, &ended));
        let _end = SetAtEnd(&ended);
        let unmounted = world.run(&["umount", world.mnt()]);
        assert_eq!(unmounted.code, 6, "{}", unmounted.err);
        let printed = unmounted.err;
        assert!(printed.contains("an import for") && printed.contains("session end"), "{printed}");
        assert_eq!(world.status()["daemon"]["mount_point"], serde_json::Value::Null);
        assert!(world.names("/open/copy").len() > 1);
        let refused = world.fails(6, &["mount", world.vol(), world.mnt()]);
        assert!(refused.contains("an import for process"), "{refused}");
        let sessions = world.json(&["session", "list", world.vol()]);
        let held: Vec<_> = sessions.iter().filter(|session| session["holds"] == true).collect();
        assert_eq!((held.len(), &held[0]["uid"]), (1, &NOBODY.into()), "{sessions:?}");
        let id = held[0]["id"].to_string();
        let other = as_user(NOBODY - 1, || {
            let call = Call::SessionEnd { id: id.parse().unwrap() };
            connect(&world.volume).unwrap().ask(call).unwrap_err()
        });
        assert_eq!(other.kind, FailureKind::NotFound, "{other:?}");
        world.ok(&["session", "end", world.vol(), &id]);
        at_work.join().unwrap()
    });
    assert!(last_words.contains("user 0 ended this session"), "{last_words}");
    assert!(world.mount());
    assert!(world.below_mount("open/copy/0").exists(), "what it did stays");
    world.umount();
}

/// Neither root nor the daemon's user: a user whose volume a daemon of root serves.
#[test]
fn the_user_that_owns_the_volume_ends_any_session() {
    if !is_root() {
        return;
    }
    let world = World::without_volume();
    let nobody = Nobody::new(&world);
    fs::create_dir(&world.volume).unwrap();
    std::os::unix::fs::chown(&world.volume, Some(NOBODY), Some(NOBODY)).unwrap();
    let formatted = nobody.run(&["format", world.vol()]);
    assert_eq!(formatted.code, 0, "{}", formatted.err);
    world.ok(&["ls", &world.at("/")]);
    let daemon = format!("/proc/{}/status", world.daemon().unwrap());
    let daemon = fs::read_to_string(daemon).unwrap();
    assert!(daemon.contains("\nUid:\t0\t0"), "the daemon is not root's: {daemon}");
    let mut other = as_user(NOBODY - 1, || connect(&world.volume).unwrap());
    assert!(matches!(other.ask(Call::Status), Ok(Answer::Status(_))));
    let sessions = nobody.run(&["session", "list", world.vol(), "--json"]);
    let seen: Vec<serde_json::Value> =
        sessions.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_other = seen.iter().find(|session| session["uid"] == NOBODY - 1);
    let id = of_other.expect("the session of another user")["id"].to_string();
    let ended = nobody.run(&["session", "end", world.vol(), &id]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let failure = other.receive().unwrap_err();
    let ended = format!("user {NOBODY} ended this session");
    assert!(failure.message.contains(&ended), "{failure:?}");
}

/// A client that requests much and reads nothing is cut off.
#[test]
fn a_session_that_waits_for_its_reader_is_ended_too() {
    let world = open_to_all();
    import_many(&world, 5000);
    let mut slow = connect(&world.volume).unwrap();
    slow.send(Call::List { path: b"/many", recursive: false }).unwrap();
    assert!(matches!(slow.receive().unwrap().body, Body::Entries { .. }));
    let sessions = world.json(&["session", "list", world.vol()]);
    let listing = sessions.iter().find(|session| session["request"] == "a search").unwrap();
    world.ok(&["session", "end", world.vol(), &listing["id"].to_string()]);
    let left = world.json(&["session", "list", world.vol()]);
    assert!(left.iter().all(|session| session["id"] != listing["id"]), "{left:?}");
}

/// `pando find | sleep` of a user kept the volume from root for as long as the pipe was open.
#[test]
fn an_unread_search_holds_no_volume() {
    if !is_root() {
        return;
    }
    let world = open_to_all();
    import_many(&world, 8000);
    let nobody = Nobody::new(&world);
    let (begins, program) = nobody.becomes();
    let mut find = Command::new(&begins[0])
        .args(&begins[1..])
        .arg(program)
        .args(["find", &world.at("/many")])
        .env("PANDO_IDLE_SECONDS", "600")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut unread = find.stdout.take().unwrap();
    unread.read_exact(&mut [0]).unwrap();
    // It waits for 20 s at most.
    let mounted = world.run(&["mount", world.vol(), world.mnt()]);
    drop(unread);
    find.wait().unwrap();
    if mounted.err.contains("/dev/fuse") {
        return;
    }
    assert_eq!(mounted.code, 0, "{}", mounted.err);
    world.umount();
}

/// A user begins more searches than allowed, and reads none of them.
#[test]
fn searches_of_one_user_leave_some_to_others() {
    if !is_root() {
        return;
    }
    let world = open_to_all();
    import_many(&world, 4000);
    let begin = |user| {
        let mut connection = as_user(user, || connect(&world.volume).unwrap());
        connection.send(Call::List { path: b"/many/..", recursive: true }).unwrap();
        connection
    };
    let mut held: Vec<_> = (0..8).map(|_| begin(NOBODY)).collect();
    for connection in &mut held {
        assert!(matches!(connection.receive().unwrap().body, Body::Entries { .. }));
    }
    let refused = begin(NOBODY).receive().unwrap().body;
    let Body::Failed(refused) = refused else { panic!("{refused:?}") };
    assert!(refused.message.contains("8 searches and counts"), "{refused:?}");
    assert!(matches!(begin(NOBODY - 1).receive().unwrap().body, Body::Entries { .. }));
    world.ok(&["ls", "-R", &world.at("/open")]);
    drop(held);
    assert!(matches!(begin(NOBODY).receive().unwrap().body, Body::Entries { .. }));
}

/// Regression: a path of many names and `@` signs was tried as a snapshot at each directory above.
#[test]
fn a_long_path_with_many_at_signs_is_resolved_quickly() {
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/d")]);
    let path = |times| format!("/{}x@y{}", "d/../".repeat(times), "@z".repeat(100));
    let clock = SystemClock::new();
    let mut connection = connect(&world.volume).unwrap();
    let long = path(6000);
    let failure = connection.ask(Call::Stat { path: long.as_bytes() }).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Invalid, "{}", failure.message);
    let path = path(2000);
    let failure = connection.ask(Call::Stat { path: path.as_bytes() }).unwrap_err();
    assert_eq!(failure.kind, FailureKind::NotFound);
    // Without a bound it takes minutes of an idle machine; with it some seconds of a slow one.
    assert!(clock.monotonic() < Duration::from_secs(120), "{:?}", clock.monotonic());
}

/// Errors deep in an import are reported in a message of limited size.
#[test]
fn errors_deep_in_an_import_take_little_memory() {
    let world = open_to_all();
    let mut import = connect(&world.volume).unwrap();
    begin_import(&mut import, b"/open/copy");
    let name = [b'd'; 250];
    for _ in 0..4 {
        let mut items = Items::default();
        for _ in 0..500 {
            items.push(&Item::Enter { name: &name });
        }
        import.send(Call::Import { items: items.as_bytes() }).unwrap();
    }
    let mut items = Items::default();
    for _ in 0..200 {
        items.push(&Item::Link { name: b"l", held: 7 });
    }
    import.send(Call::Import { items: items.as_bytes() }).unwrap();
    let Answer::Imported { errors, more } = import.ask(Call::ImportFlush).unwrap() else {
        panic!("another answer");
    };
    let bytes: usize = errors.iter().map(|error| error.path.0.len()).sum();
    assert_eq!(errors.len() as u64 + more, 200);
    assert!(bytes < 100 << 10, "{bytes} bytes of paths");
    assert!(errors[0].path.0.starts_with(b"...") && errors[0].path.0.ends_with(b"/l"));
}

/// Regression: bytes that are no item counted as work, and held the volume while they came.
#[test]
fn an_import_with_an_unknown_item_ends() {
    let Some((world, mut import)) = mounted_with_import() else { return };
    import.send(Call::Import { items: &[0xff] }).unwrap();
    let ended = import.ask(Call::ImportFlush).unwrap_err();
    assert!(ended.message.contains("unknown item"), "{ended:?}");
    wait_until("it is gone", || !world.ok(&["session", "list", world.vol()]).contains("import"));
    world.umount();
}
