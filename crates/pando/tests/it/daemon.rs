//! Daemons: elected, found, replaced, handed over, idle.

use std::process::Stdio;

use crate::world::{IDLE_SECONDS, PANDO, PATIENCE, World, answer, is_alive, signal, wait_until};

#[test]
fn concurrent_commands_on_a_volume_without_a_daemon_all_work() {
    for round in 0..5 {
        let world = World::new();
        let children: Vec<_> = (0..8)
            .map(|number| {
                let path = world.at(&format!("/s{number}"));
                World::command(&["subvolume", "create", &path])
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for child in children {
            let answer = answer(&child.wait_with_output().unwrap());
            assert_eq!(answer.code, 0, "round {round}: {}", answer.err);
        }
        assert_eq!(world.names("/").len(), 8);
    }
}

#[test]
fn files_of_a_killed_daemon_block_nothing() {
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/s")]);
    world.kill_daemon();
    assert!(world.volume.join("control.sock").exists(), "the dead leave their socket");
    assert_eq!(world.names("/"), ["s"]);
}

#[test]
fn an_idle_daemon_ends() {
    let world = World::new();
    // It names its process: the daemon may end before the command does.
    let mut command = World::command(&["status", world.vol(), "--json"]);
    let reported = answer(&command.env("PANDO_IDLE_SECONDS", "1").output().unwrap());
    let reported: serde_json::Value = serde_json::from_str(&reported.out).unwrap();
    let pid = reported["daemon"]["pid"].as_i64().unwrap() as i32;
    wait_until("the daemon leaves", || !is_alive(pid));
    assert!(!world.volume.join("control.sock").exists());
    assert_eq!(world.daemon(), None);
    world.ok(&["ls", &world.at("/")]);
}

#[test]
fn a_daemon_without_a_mount_yields_to_a_mounting_one() {
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/s")]);
    let before = world.daemon().unwrap();
    if !world.mount() {
        return;
    }
    let after = world.daemon().unwrap();
    assert_ne!(before, after);
    assert!(world.below_mount("s").is_dir());
    wait_until("the one before leaves", || !is_alive(before));
}

#[test]
fn commands_reach_a_daemon_while_mounts_come_and_go() {
    let world = World::new();
    for _ in 0..5 {
        let children: Vec<_> = (0..4)
            .map(|_| {
                World::command(&["ls", &world.at("/")]).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        if !world.mount() {
            return;
        }
        for child in children {
            let answer = answer(&child.wait_with_output().unwrap());
            assert_eq!(answer.code, 0, "{}", answer.err);
        }
        let child = World::command(&["ls", &world.at("/")]).stderr(Stdio::piped()).spawn().unwrap();
        world.umount();
        // It found the mount, or a daemon of its own; a cut connection is reported.
        let answer = answer(&child.wait_with_output().unwrap());
        assert!(answer.code == 0 || answer.err.contains("went away"), "{}", answer.err);
    }
}

#[test]
fn a_volume_deep_down_has_a_socket_too() {
    let world = World::without_volume();
    let mut deep = world.path().to_owned();
    for _ in 0..3 {
        deep.push("x".repeat(100));
    }
    std::fs::create_dir_all(&deep).unwrap();
    let volume = deep.join("volume");
    world.ok(&["format", volume.to_str().unwrap()]);
    world.ok(&["ls", &format!("{}:/", volume.display())]);
    let text = std::fs::read_to_string(volume.join("owner.lock")).unwrap();
    signal(text.trim().parse().unwrap(), rustix::process::Signal::TERM);
    wait_until("the daemon leaves", || !volume.join("control.sock").exists());
}

#[test]
fn garbage_on_the_socket_harms_nobody() {
    use std::io::{Read, Write};
    let world = World::new();
    world.ok(&["ls", &world.at("/")]);
    let socket = world.volume.join("control.sock");
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[0; 8], b"x"] {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(garbage).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answered = Vec::new();
        // Closed, cleanly or not; the daemon must continue.
        drop(stream.read_to_end(&mut answered));
    }
    let pid = world.daemon().unwrap();
    world.ok(&["ls", &world.at("/")]);
    assert_eq!(world.daemon(), Some(pid));
}

/// Regression: such a daemon ended before the command that started it connected. Then the command
/// started another one, for as long as it lost the race.
#[test]
fn a_daemon_without_an_idle_time_serves_the_command_that_started_it() {
    let world = World::new();
    for runs in 1..=5 {
        let mut command = World::command(&["ls", &world.at("/")]);
        assert!(command.env("PANDO_IDLE_SECONDS", "0").status().unwrap().success());
        let log = std::fs::read_to_string(world.volume.join("owner.log")).unwrap();
        assert_eq!(log.matches("the daemon is ready").count(), runs, "{log}");
        wait_until("it ends", || !world.volume.join("control.sock").exists());
    }
}

#[test]
fn a_silent_connection_is_closed() {
    use std::io::Read;
    let world = World::new();
    world.ok(&["ls", &world.at("/")]);
    let socket = world.volume.join("control.sock");
    let mut silent = std::os::unix::net::UnixStream::connect(socket).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(silent.read(&mut [0; 16]).unwrap(), 0, "the daemon ends the connection");
}

/// A volume may be created where another was removed or moved away while its daemon ran. That
/// daemon does not touch the new volume's socket, and its writes stay with its own volume.
#[test]
#[expect(clippy::disallowed_methods, reason = "a user moves a volume")]
fn a_daemon_leaves_a_volume_alone_that_replaced_its_own() {
    for removed in [true, false] {
        let world = World::new();
        world.ok(&["subvolume", "create", &world.at("/old")]);
        let before = world.daemon().unwrap();
        let moved = world.path().join("moved");
        if removed {
            std::fs::remove_dir_all(&world.volume).unwrap();
        } else {
            std::fs::rename(&world.volume, &moved).unwrap();
        }
        world.ok(&["format", world.vol()]);
        world.ok(&["subvolume", "create", &world.at("/new")]);
        let after = world.daemon().unwrap();
        assert_ne!(before, after);
        if !removed {
            // It is found at its new path, and continues.
            let at = format!("{}:/more", moved.display());
            world.ok(&["subvolume", "create", &at]);
            assert_eq!(world.names("/"), ["new"]);
        }
        signal(before, rustix::process::Signal::TERM);
        wait_until("the one before leaves", || !is_alive(before));
        assert!(world.volume.join("control.sock").exists(), "it removed another one's socket");
        assert_eq!(world.names("/"), ["new"]);
        assert_eq!(world.daemon(), Some(after));
        assert!(world.ok(&["fsck", world.vol()]).contains("clean"));
        if !removed {
            let at = format!("{}:/", moved.display());
            assert_eq!(world.ok(&["ls", &at]), "more\nold\n");
            let pid = std::fs::read_to_string(moved.join("owner.lock")).unwrap();
            signal(pid.trim().parse().unwrap(), rustix::process::Signal::TERM);
            wait_until("it leaves", || !moved.join("control.sock").exists());
        }
    }
}

#[test]
fn a_daemon_whose_socket_was_removed_is_reachable_again_soon() {
    let world = World::new();
    world.ok(&["ls", &world.at("/")]);
    let pid = world.daemon().unwrap();
    std::fs::remove_file(world.volume.join("control.sock")).unwrap();
    world.ok(&["ls", &world.at("/")]);
    assert_eq!(world.daemon(), Some(pid));
    // For example a copy that was restored.
    std::fs::remove_file(world.volume.join("control.sock")).unwrap();
    std::fs::write(world.volume.join("control.sock"), b"").unwrap();
    world.ok(&["ls", &world.at("/")]);
    assert_eq!(world.daemon(), Some(pid));
    // After everything was removed, the daemon is not found through what takes its place.
    for entry in std::fs::read_dir(&world.volume).unwrap() {
        let path = entry.unwrap().path();
        let is_directory = path.is_dir();
        if is_directory { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
            .unwrap();
    }
    world.ok(&["format", world.vol()]);
    world.ok(&["subvolume", "create", &world.at("/new")]);
    assert_ne!(world.daemon(), Some(pid));
    // The new daemon has its lock already; the process may be about to end.
    wait_until("the daemon of the removed volume leaves by itself", || !is_alive(pid));
    assert_eq!(world.names("/"), ["new"]);
}

/// A daemon with a long request under way continues for all clients, and a command that needs the
/// volume exclusively reports that request.
#[test]
fn a_command_that_needs_the_volume_exclusively_reports_the_import_that_holds_it() {
    let world = World::new();
    let source = world.path().join("source");
    for directory in 0..40 {
        let directory = source.join(format!("d{directory}"));
        std::fs::create_dir_all(&directory).unwrap();
        for file in 0..500 {
            std::fs::write(directory.join(format!("f{file}")), vec![b'x'; file]).unwrap();
        }
    }
    let mut import = World::command(&["import", source.to_str().unwrap(), &world.at("/copy")])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = import.id().cast_signed();
    wait_until("it has begun", || world.run(&["ls", &world.at("/copy/d0")]).code == 0);
    signal(pid, rustix::process::Signal::STOP);
    let daemon = world.daemon();
    let repair = World::command(&["fsck", "--repair", world.vol()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let clock = device::SystemClock::new();
    device::Clock::sleep(&clock, std::time::Duration::from_secs(2));
    // Others are served while it waits.
    world.ok(&["ls", &world.at("/copy")]);
    world.ok(&["subvolume", "create", &world.at("/more")]);
    let repair = answer(&repair.wait_with_output().unwrap());
    let ended = import.try_wait().unwrap();
    signal(pid, rustix::process::Signal::CONT);
    assert_eq!(ended, None, "the import was over before it was stopped");
    let what = format!("in the middle of an import for process {pid}");
    assert!(repair.code == 6 && repair.err.contains(&what), "{}", repair.err);
    assert_eq!(world.daemon(), daemon);
    assert!(import.wait().unwrap().success());
    world.ok(&["fsck", "--repair", world.vol()]);
    assert_eq!(world.names("/copy").len(), 40);
}

/// Each connection and each cached file takes descriptors: the daemon raises its soft limit.
#[test]
fn a_daemon_uses_all_descriptors_that_it_may() {
    let world = World::new();
    let list = format!("ulimit -Sn 128 && exec \"$0\" ls {}", world.at("/"));
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &list, PANDO]).env("PANDO_IDLE_SECONDS", IDLE_SECONDS);
    let listed = answer(&command.stdin(Stdio::null()).output().unwrap());
    assert_eq!(listed.code, 0, "{}", listed.err);
    let limits = format!("/proc/{}/limits", world.daemon().unwrap());
    let limits = std::fs::read_to_string(limits).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut words = line.split_whitespace();
    let (soft, hard) = (words.next().unwrap(), words.next().unwrap());
    assert!(soft == hard && hard != "128", "{line}");
}
