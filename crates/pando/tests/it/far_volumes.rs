//! Several volumes in one server, and host names.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::bad_stores::server;
use crate::world::{PANDO, World, answer, signal};

/// A server, ended with this.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        signal(self.0.id() as i32, rustix::process::Signal::TERM);
        self.0.wait().unwrap();
    }
}

/// Serves two volumes, in a directory and in a store; returns their URLs.
fn two_volumes(first: &World, second: &World, options: &[&str]) -> (Served, [String; 2]) {
    let mut command = Command::new(PANDO);
    command.env("PANDO_HOST_DIRECTORY", second.hosts());
    serve(command, [first.vol(), second.vol()], options)
}

/// Serves two volumes by a command; returns their URLs.
fn serve(mut command: Command, volumes: [&str; 2], options: &[&str]) -> (Served, [String; 2]) {
    let mut child = command
        .args(["serve", "--json", "--listen", "127.0.0.1:0"])
        .args(options)
        .args([format!("first={}", volumes[0]), format!("second={}", volumes[1])])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let urls = ["first", "second"].map(|name| {
        let line = lines.next().expect("a line for each volume").unwrap();
        let report: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(report["name"], name);
        format!("pando://{}/{name}", report["address"].as_str().unwrap())
    });
    (Served(child), urls)
}

#[test]
fn a_server_has_several_volumes() {
    let (first, second) = (World::new(), World::in_store());
    second.close();
    let (served, [one, two]) = two_volumes(&first, &second, &[]);
    first.ok(&["subvolume", "create", &format!("{one}/of the first")]);
    first.ok(&["subvolume", "create", &format!("{two}/of the second")]);
    assert_eq!(first.ok(&["ls", &one]).trim(), "of the first");
    assert_eq!(first.ok(&["ls", &two]).trim(), "of the second");
    first.ok(&["snapshot", "create", &format!("{two}/of the second"), "monday"]);
    // Nothing goes from one to the other by one command.
    let refused = first.run(&["clone", &format!("{one}/of the first"), &format!("{two}/copy")]);
    assert_ne!(refused.code, 0, "{refused:?}");
    let names = first.ok(&["status", "--json", &one]) + &first.ok(&["status", "--json", &two]);
    assert_eq!(names.lines().count(), 2, "{names}");
    let missing = first.fails(3, &["ls", &one.replace("/first", "/third")]);
    assert!(missing.contains("no volume third"), "{missing}");
    drop(served);
    // Both are closed, and have what was made.
    assert_eq!(first.names("/"), ["of the first"]);
    assert_eq!(second.names("/"), ["of the second"]);
    // Two of one name, and one volume twice, are refused.
    let [one, two] = [first.vol(), second.vol()];
    for (words, expected) in [
        ([format!("a={one}"), format!("a={two}"), "--json".into()], "two volumes are called a"),
        ([format!("a={one}"), format!("b={one}"), "--json".into()], "the volume is named twice"),
    ] {
        let mut command = World::command(&["serve", "--listen", "127.0.0.1:0"]);
        command.args(&words).env("PANDO_HOST_DIRECTORY", second.hosts());
        let refused = answer(&command.output().unwrap());
        assert!(refused.code != 0 && refused.err.contains(expected), "{expected}: {refused:?}");
    }
}

/// Each below a prefix of one bucket: what one changes, removes and collects is its own.
#[test]
fn a_server_has_several_volumes_of_one_store() {
    const VOLUMES: [&str; 2] = ["s3://bucket/one", "s3://bucket/two"];
    let (endpoint, objects) = server::start_ordered();
    let world = World::without_volume();
    let command = || {
        let mut command = World::command::<&str>(&[]);
        command.env("AWS_ENDPOINT_URL", &endpoint).env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "the-secret-key");
        command.env("PANDO_HOST_DIRECTORY", world.hosts());
        command
    };
    let ok = |arguments: &[&str]| {
        let answer = answer(&command().args(arguments).output().unwrap());
        assert_eq!(answer.code, 0, "{arguments:?}: {}", answer.err);
        answer.out
    };
    let source = world.source();
    for (name, bytes) in [("f", 300_000), ("g", 10)] {
        std::fs::write(source.join(name), vec![name.as_bytes()[0]; bytes]).unwrap();
    }
    for volume in VOLUMES {
        ok(&["format", volume]);
    }
    let (served, [one, two]) = serve(command(), VOLUMES, &[]);
    for url in [&one, &two] {
        ok(&["import", "-q", source.to_str().unwrap(), &format!("{url}/tree")]);
        ok(&["snapshot", "create", &format!("{url}/tree"), "monday"]);
    }
    ok(&["rmr", &format!("{one}/tree/f")]);
    ok(&["subvolume", "create", &format!("{one}/of the first")]);
    let below = |prefix: &str| -> usize {
        let prefix = format!("/bucket/{prefix}/");
        objects.by_path.lock().keys().filter(|key| key.starts_with(&prefix)).count()
    };
    let all = objects.by_path.lock().len();
    let (first, second) = (below("one"), below("two"));
    assert!(first > 0 && second > 0 && all == first + second, "{all}: {first}, {second}");
    drop(served);
    // In the other order.
    let (served, [two, one]) = serve(command(), [VOLUMES[1], VOLUMES[0]], &[]);
    assert_eq!(ok(&["ls", &one]), "of the first\ntree\n");
    assert_eq!(ok(&["ls", &two]), "tree\n");
    assert_eq!(ok(&["ls", &format!("{one}/tree")]), "g\n");
    assert_eq!(ok(&["ls", &format!("{two}/tree")]), "f\ng\n");
    ok(&["rmr", "--wait", &format!("{one}/tree")]);
    assert_eq!(ok(&["cat", &format!("{two}/tree@monday/f")]), "f".repeat(300_000));
    drop(served);
    for volume in VOLUMES {
        ok(&["gc", "--delete", "--grace", "0s", volume]);
        ok(&["fsck", volume]);
    }
    assert_eq!(ok(&["cat", &format!("{}:/tree/f", VOLUMES[1])]), "f".repeat(300_000));
    for volume in VOLUMES {
        ok(&["umount", volume]);
    }
}

#[test]
fn a_certificate_is_for_some_volumes_of_a_server() {
    let (first, second) = (World::new(), World::in_store());
    second.close();
    let certs = first.path().join("certs");
    let dir = certs.to_str().unwrap();
    first.ok(&["cluster", "certs", dir, "--server", "127.0.0.1", "--server", "localhost"]);
    first.ok(&["cluster", "certs", dir, "--client", "client", "--keep-root", "--volumes", "first"]);
    let [cert, key, ca] =
        ["server.pem", "server.key", "ca.pem"].map(|name| format!("{dir}/{name}"));
    let tls = ["--cert", &cert, "--key", &key, "--ca", &ca];
    let (_served, [one, two]) = two_volumes(&first, &second, &tls);
    let run = |arguments: &[&str]| {
        let mut command = World::command(arguments);
        answer(&command.env("PANDO_CERTS", dir).output().unwrap())
    };
    assert_eq!(run(&["ls", &one]).code, 0);
    let refused = run(&["ls", &two]);
    assert!(refused.code == 3 && refused.err.contains("no volume second"), "{refused:?}");
    // A name with several addresses, of which the server listens on one.
    let by_name = one.replace("127.0.0.1", "localhost");
    let answer = run(&["ls", &by_name]);
    assert_eq!(answer.code, 0, "{answer:?}");
    // One without any address.
    let unknown = run(&["ls", &one.replace("127.0.0.1", "no-such-host.invalid")]);
    assert_eq!(unknown.code, 3, "{unknown:?}");
    for expected in ["no-such-host.invalid", "is not known", "check the host's name"] {
        assert!(unknown.err.contains(expected), "{expected}: {unknown:?}");
    }
}
