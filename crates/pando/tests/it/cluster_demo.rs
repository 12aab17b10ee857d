//! The short form of `make cluster-demo`: etcd, an S3 server, two servers and two mounts, each in a
//! network namespace of its own. One server is killed, one loses its network. The script itself
//! compares what is there with what was written.

use std::process::{Command, Stdio};

use crate::two_servers::may_run;
use crate::world::{PANDO, World, wait_until};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/cluster-demo.sh");

/// Network namespaces, mounts and processes of a demo.
fn left_over(place: &str, namespaces_of: &str) -> Vec<String> {
    let namespaces = std::fs::read_dir("/run/netns").into_iter().flatten();
    let namespaces = namespaces.map(|name| name.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> =
        namespaces.filter(|name| name.starts_with(namespaces_of)).collect();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(place)).map(str::to_owned));
    for process in std::fs::read_dir("/proc").unwrap() {
        let command = process.unwrap().path().join("cmdline");
        let command = std::fs::read(command).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains(place) {
            found.push(command);
        }
    }
    found
}

#[test]
fn a_killed_and_a_disconnected_server_lose_nothing() {
    if !may_run() {
        return;
    }
    let world = World::without_volume();
    let tree = world.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    for number in 0..40 {
        let name = format!("a/{}file{number}", if number % 2 == 0 { "b/" } else { "" });
        std::fs::write(tree.join(name), "x".repeat(number * 300)).unwrap();
    }
    let place = world.path().join("demo");
    std::fs::create_dir(&place).unwrap();
    let mut demo = Command::new(SCRIPT);
    demo.arg(&tree).env("PANDO", PANDO).env("SHORT", "1").env("TMPDIR", &place);
    demo.stdout(Stdio::piped()).stderr(Stdio::piped());
    let demo = demo.spawn().unwrap();
    let namespaces = format!("pando-demo-{}-", demo.id());
    let done = demo.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    testing::run::print_line(&format!("{out}{err}"));
    assert!(done.status.success(), "{}", done.status);
    let table = out.split("what happened").nth(1).expect("a table");
    assert!(table.lines().any(|line| line.starts_with("kill -9 ")), "{table}");
    if out.contains("each a network namespace") {
        assert!(table.lines().any(|line| line.starts_with("no network ")), "{table}");
    } else {
        testing::run::print_line(
            "NOT TESTED: a server without a network, for there are no namespaces",
        );
    }
    // What gets a signal at the end takes a moment.
    let rest = || left_over(place.to_str().unwrap(), &namespaces);
    wait_until("the demo leaves no process, mount or namespace", || rest().is_empty());
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "the demo leaves files");
}
