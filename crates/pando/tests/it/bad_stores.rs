//! A volume on an S3 server with which something is wrong. Each verb prints what, where and what to
//! do. Nothing is written, and nothing that was acknowledged is lost.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::world::{Answer, World, answer, wait_until};

#[expect(dead_code, reason = "these tests need less of it than those of its crate")]
#[path = "../../../objects/tests/it/server.rs"]
pub(crate) mod server;

use server::{Mishap, Objects};

const URL: &str = "s3://bucket/vol";
const EVERY: [&str; 4] = ["GET", "PUT", "DELETE", "POST"];
const CHANGES: [&str; 3] = ["PUT", "DELETE", "POST"];

/// A volume on a server of its own.
struct Bucket {
    world: World,
    endpoint: String,
    objects: Arc<Objects>,
}

impl Bucket {
    /// An empty bucket.
    fn empty() -> Bucket {
        let (endpoint, objects) = server::start_ordered();
        Bucket { world: World::without_volume(), endpoint, objects }
    }

    /// One with a volume that has a file.
    fn with_volume() -> Bucket {
        let mut bucket = Bucket::empty();
        bucket.ok(&["format", URL]);
        bucket.world.volume = bucket.host_directory();
        bucket.world.url = Some(URL.to_owned());
        let source = bucket.world.path().join("tree");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("file"), b"contents").unwrap();
        bucket.ok(&["import", source.to_str().unwrap(), &at("/tree")]);
        bucket.world.close();
        bucket
    }

    fn host_directory(&self) -> PathBuf {
        std::fs::read_dir(self.world.hosts()).unwrap().next().expect("one").unwrap().path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", "120", env!("CARGO_BIN_EXE_pando")]).args(arguments);
        command.env("PANDO_HOST_DIRECTORY", self.world.hosts());
        command.env("PANDO_IDLE_SECONDS", "1").env("AWS_ENDPOINT_URL", &self.endpoint);
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "the-secret-key");
        command.env("AWS_REGION", "us-east-1").stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Answer {
        answer(&self.command(arguments).output().unwrap())
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let answer = self.run(arguments);
        assert_eq!(answer.code, 0, "{arguments:?}: {}", answer.err);
        answer.out
    }

    /// A verb that fails, and its message.
    fn fails(&self, arguments: &[&str]) -> String {
        let answer = self.run(arguments);
        assert!(![0, 101, 124, 137].contains(&answer.code), "{arguments:?}: {answer:?}");
        assert!(answer.err.contains("pando: "), "{arguments:?}: {}", answer.err);
        assert!(!answer.err.contains("the-secret-key"), "{}", answer.err);
        answer.err
    }

    fn mount(&self) -> bool {
        !std::env::var("SKIP_FUSE").is_ok_and(|reason| !reason.is_empty())
            && !self.ok(&["mount", URL, self.world.mnt()]).is_empty()
    }

    fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.ok(&["--json", "status", URL])).expect("JSON")
    }

    /// Objects of the volume, apart from signs of life.
    fn lasting(&self) -> BTreeMap<String, Vec<u8>> {
        let mut all = self.objects.all();
        all.retain(|name, _| !name.contains("/alive/"));
        all
    }
}

/// A path in the volume.
fn at(path: &str) -> String {
    format!("{URL}:{path}")
}

fn coded(status: u16, code: &str) -> Mishap {
    let text = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
    Mishap::Status(status, text)
}

/// Wrong settings, and servers that are none.
#[test]
fn a_server_that_refuses_is_named_and_nothing_is_written() {
    let bucket = Bucket::with_volume();
    let before = bucket.lasting();
    let html = ("content-type: text/html\r\n", "<html>Please log in</html>");
    let page = |status| Mishap::Answer(status, html.0.to_owned(), html.1.to_owned());
    let region = "x-amz-bucket-region: eu-north-1\r\n".to_owned();
    let late = "date: Thu, 01 Jan 2026 00:20:00 GMT\r\n".to_owned();
    for (mishap, advice) in [
        (coded(404, "NoSuchBucket"), "there is no bucket bucket"),
        (coded(403, "InvalidAccessKeyId"), "AWS_ACCESS_KEY_ID"),
        (coded(403, "SignatureDoesNotMatch"), "AWS_SECRET_ACCESS_KEY"),
        (coded(403, "RequestTimeTooSkewed"), "set the clock"),
        (Mishap::Answer(403, late, String::new()), "timedatectl"),
        (Mishap::Answer(301, region, String::new()), "eu-north-1"),
        (page(200), "web page"),
        (page(404), "web page"),
    ] {
        bucket.objects.always(&EVERY, Some(&mishap));
        for verb in [&["mount", URL, bucket.world.mnt()][..], &["ls", URL], &["fsck", URL]] {
            let failure = bucket.fails(verb);
            assert!(failure.contains(advice) && failure.contains(URL), "{verb:?}: {failure}");
        }
        bucket.objects.always(&[], None);
        assert_eq!(bucket.ok(&["ls", &at("/tree")]), "file\n", "{mishap:?}");
        bucket.world.close();
        let mut after: Vec<_> = bucket.lasting().into_keys().collect();
        after.retain(|name| !before.contains_key(name));
        assert!(after.iter().all(|name| name.contains("/lsm/")), "{after:?}");
    }
    assert_eq!(bucket.ok(&["cat", &at("/tree/file")]), "contents");
}

/// With keys that may only read, verbs that read work, and print the time of that state.
#[test]
fn keys_that_may_only_read_read() {
    let bucket = Bucket::with_volume();
    bucket.objects.always(&CHANGES, Some(&coded(403, "AccessDenied")));
    let before = bucket.objects.all();
    // The second time on a host that has never seen the volume, nor found out about the server.
    for host in ["that formatted it", "without a directory"] {
        for (verb, out) in
            [(&["ls", &at("/tree")][..], "file\n"), (&["cat", &at("/tree/file")], "contents")]
        {
            let read = bucket.run(verb);
            assert_eq!((read.code, read.out.as_str()), (0, out), "{host}: {}", read.err);
            let printed = ["permissions", "its state of"].map(|words| read.err.contains(words));
            assert_eq!(printed, [true, true], "{host}: {}", read.err);
            bucket.world.close();
            if host == "without a directory" {
                bucket.world.lose_host();
            }
        }
        let create = ["subvolume", "create", &at("/new")];
        for verb in [&["mount", URL, bucket.world.mnt()][..], &create] {
            let failure = bucket.fails(verb);
            assert!(failure.contains("permissions"), "{host}: {verb:?}: {failure}");
            bucket.world.close();
        }
        assert_eq!(bucket.objects.all(), before, "{host}: nothing was written");
        bucket.world.lose_host();
    }
}

/// A name of a server with several addresses, of which one answers; and names without any.
#[test]
fn a_server_is_found_at_any_address_of_its_name_and_a_name_without_any_is_named() {
    if !crate::world::is_root() {
        println!("not tested without root: addresses of names (a mount of /etc/hosts)");
        return;
    }
    let bucket = Bucket::with_volume();
    let before = bucket.lasting();
    let port = bucket.endpoint.trim_end_matches('/').rsplit(':').next().unwrap();
    let hosts = bucket.world.path().join("etc-hosts");
    // Nobody listens at the others; the last one is no machine.
    let names = "127.0.0.1 localhost\n127.0.0.77 several.test\n127.0.0.78 several.test\n\
                 127.0.0.1 several.test\n127.0.0.79 dead.test\n127.0.0.80 dead.test\n";
    std::fs::write(&hosts, names).unwrap();
    let run = |host: &str, arguments: &[&str]| {
        let command = bucket.command(arguments);
        let own = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
        let mut within = Command::new("unshare");
        within.args(["--mount", "sh", "-c", own]).arg(&hosts);
        within.arg(command.get_program()).args(command.get_args());
        within.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        within.env("AWS_ENDPOINT_URL", format!("http://{host}:{port}")).stdin(Stdio::null());
        let answer = answer(&within.output().unwrap());
        bucket.world.close();
        // A host stores what it knows of the server by the server's name.
        bucket.world.lose_host();
        answer
    };
    let found = run("several.test", &["ls", &at("/tree")]);
    assert_eq!((found.code, found.out.as_str()), (0, "file\n"), "{}", found.err);
    let unknown = run("no-such-host.invalid", &["ls", &at("/tree")]);
    assert!(![0, 101, 124, 137].contains(&unknown.code), "{unknown:?}");
    for words in ["no-such-host.invalid", "AWS_ENDPOINT_URL"] {
        assert!(unknown.err.contains(words), "{words}: {}", unknown.err);
    }
    let dead = run("dead.test", &["ls", &at("/tree")]);
    assert!(![0, 101, 124, 137].contains(&dead.code), "{dead:?}");
    assert!(dead.err.contains("dead.test") && dead.err.contains("accepts"), "{}", dead.err);
    let mut after: Vec<_> = bucket.lasting().into_keys().collect();
    after.retain(|name| !before.contains_key(name) && !name.contains("/lsm/"));
    assert_eq!(after, Vec::<String>::new(), "something was written");
}

/// A server that is overloaded, or replaced by a page, for some time while the volume is mounted.
#[test]
fn an_outage_of_the_server_costs_nothing() {
    let bucket = Bucket::with_volume();
    if !bucket.mount() {
        return;
    }
    let page = "<html>We are back soon</html>".to_owned();
    let page = Mishap::Answer(503, "content-type: text/html\r\n".to_owned(), page);
    bucket.objects.always(&EVERY, Some(&coded(503, "SlowDown")));
    let path = bucket.world.below_mount("/new");
    std::fs::write(&path, vec![7; 100_000]).unwrap();
    let mut sync = bucket.command(&["sync", URL]).spawn().unwrap();
    wait_until("changes wait", || !bucket.status()["store"]["changes_wait"].is_null());
    bucket.objects.always(&EVERY, Some(&page));
    let why = bucket.status()["store"]["changes_wait"].to_string();
    assert!(why.contains("503") || why.contains("no answer yet"), "{why}");
    let old = bucket.world.below_mount("/tree/file");
    assert_eq!(std::fs::read(old).unwrap(), b"contents", "reads continue");
    assert!(sync.try_wait().unwrap().is_none(), "it waits");
    bucket.objects.always(&[], None);
    assert!(sync.wait().unwrap().success());
    // Synced data is in the store: this host is lost.
    bucket.world.lose_host();
    assert!(bucket.mount());
    assert_eq!(std::fs::read(path).unwrap(), vec![7; 100_000]);
    bucket.ok(&["umount", bucket.world.mnt()]);
}

/// A full store fails syncs with ENOSPC, and a `format` before it made a volume.
#[test]
fn a_full_server_is_reported() {
    let bucket = Bucket::empty();
    let full = coded(507, "StorageFull");
    bucket.objects.always(&["PUT"], Some(&full));
    let failure = bucket.fails(&["format", URL]);
    assert!(failure.contains("full") && failure.contains(URL), "{failure}");
    assert!(bucket.lasting().is_empty());
    bucket.objects.always(&[], None);
    let mut bucket = bucket;
    bucket.ok(&["format", URL]);
    bucket.world.volume = bucket.host_directory();
    if !bucket.mount() {
        return;
    }
    bucket.objects.always(&["PUT"], Some(&full));
    let path = bucket.world.below_mount("/file");
    std::fs::write(&path, b"contents").unwrap();
    let file = std::fs::File::options().read(true).open(&path).unwrap();
    let error = file.sync_all().expect_err("it is full");
    assert_eq!(error.raw_os_error(), Some(28), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"contents");
    bucket.objects.always(&[], None);
    file.sync_all().expect("there is space");
    drop(file);
    bucket.ok(&["umount", bucket.world.mnt()]);
    assert_eq!(bucket.ok(&["cat", &at("/file")]), "contents");
}

/// A prefix with a volume, or with anything else, is not formatted; one of a newer format is not
/// opened, and both name it.
#[test]
fn a_prefix_that_holds_something_else_is_refused() {
    let bucket = Bucket::with_volume();
    let before = bucket.lasting();
    let failure = bucket.fails(&["format", URL]);
    assert!(failure.contains("holds a volume already"), "{failure}");
    assert_eq!(bucket.lasting(), before);
    let other = bucket.fails(&["mount", "s3://bucket/other", bucket.world.mnt()]);
    assert!(other.contains("there is no volume at s3://bucket/other"), "{other}");
    let above = bucket.fails(&["format", "s3://bucket"]);
    assert!(above.contains("vol/"), "a prefix of a volume holds that volume: {above}");
    assert_eq!(bucket.lasting(), before);
    // A later program may have made it longer, too.
    for name in ["volume.pando", "volume.copy"] {
        let mut header = bucket.objects.bytes(name).expect("a header");
        header[8] = 99;
        header.push(0);
        let mut objects = bucket.objects.by_path.lock();
        let found = objects.iter_mut().find(|(path, _)| path.ends_with(name));
        *found.expect("there is such an object").1 = header;
    }
    let before = bucket.lasting();
    for verb in [&["mount", URL, bucket.world.mnt()][..], &["ls", URL], &["fsck", URL]] {
        let newer = bucket.fails(verb);
        assert!(newer.contains("99") && newer.contains("newer"), "{verb:?}: {newer}");
    }
    assert_eq!(bucket.lasting(), before);
}

/// Listing a tree takes few requests on a host that has nothing, and none once it was listed,
/// apart from signs of life.
#[test]
fn listings_ask_the_store_little() {
    let bucket = Bucket::with_volume();
    if !bucket.mount() {
        return;
    }
    for directory in 0..50 {
        let path = bucket.world.below_mount(&format!("/tree/{directory}"));
        std::fs::create_dir(&path).unwrap();
        for file in 0..10 {
            std::fs::write(path.join(format!("{file}")), vec![file; 3000]).unwrap();
        }
    }
    bucket.ok(&["umount", bucket.world.mnt()]);
    bucket.world.lose_host();
    assert!(bucket.mount());
    let list = || {
        let before = bucket.objects.requests();
        let listed = Command::new("ls").arg("-lR").arg(bucket.world.mnt()).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert_eq!(listed.lines().filter(|line| line.starts_with('-')).count(), 501);
        bucket.objects.requests() - before
    };
    // Background work of the opening, and signs of life, come between.
    let cold = list();
    assert!(cold < 50, "{cold} requests for 500 files");
    let warm = list();
    assert!(warm < 30, "{warm} requests for 500 files again");
    bucket.ok(&["umount", bucket.world.mnt()]);
}
