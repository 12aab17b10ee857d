//! Several volumes in one server, and host names.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::world::{PANDO, World, signal};

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
    let mut child = Command::new(PANDO)
        .args(["serve", "--json", "--listen", "127.0.0.1:0"])
        .args(options)
        .args([format!("first={}", first.vol()), format!("second={}", second.vol())])
        .env("PANDO_HOST_DIRECTORY", second.hosts())
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
        let refused = crate::world::answer(&command.output().unwrap());
        assert!(refused.code != 0 && refused.err.contains(expected), "{expected}: {refused:?}");
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
        crate::world::answer(&command.env("PANDO_CERTS", dir).output().unwrap())
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
