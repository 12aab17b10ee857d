//! Objects of a bucket are imported: keys become paths by rules, and what is no path is named. The
//! same import continues, and a volume's own objects are refused.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use device::{Clock, SystemClock};
use serde_json::Value;

use crate::bad_stores::server::{self, Mishap, Objects};
use crate::export::new_file;
use crate::full_disk::SmallDisk;
use crate::world::{Answer, World, answer, engines, wait_until};

/// A volume on this disk, and a bucket beside it.
struct Import {
    world: World,
    endpoint: String,
    objects: Arc<Objects>,
}

impl Import {
    fn on(engine: &str) -> Import {
        let (endpoint, objects) = server::start_ordered();
        Import { world: World::on(engine), endpoint, objects }
    }

    /// On a disk of its own.
    fn below(disk: &Path, engine: &str) -> Import {
        let (endpoint, objects) = server::start_ordered();
        let world = World::below(disk);
        world.format(engine);
        Import { world, endpoint, objects }
    }

    fn put(&self, key: &str, bytes: &[u8]) {
        self.objects.by_path.lock().insert(format!("/bucket/{key}"), bytes.to_vec());
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", "120", crate::world::PANDO, "--json", "import"]);
        command.args(words).env("PANDO_IDLE_SECONDS", "1").env("AWS_ENDPOINT_URL", &self.endpoint);
        command.env("PANDO_HOST_DIRECTORY", self.world.hosts());
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "the-secret-key");
        command.env("AWS_REGION", "us-east-1").env("RUST_LOG", "off").stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Answer {
        answer(&self.command(words).output().unwrap())
    }

    /// The mode of a path, if that exists.
    fn mode(&self, path: &str) -> Option<String> {
        let path = self.world.at(path);
        let words = ["--json", "stat", &path];
        let stat = answer(&Command::new(crate::world::PANDO).args(words).output().unwrap());
        let stat: Value = serde_json::from_str(stat.out.lines().next().unwrap_or("0")).unwrap();
        stat["mode"].as_str().map(str::to_owned)
    }

    /// A directory of the system that others may not enter.
    fn closed(&self) -> PathBuf {
        let path = self.world.path().join("own");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        path
    }

    fn done(&self, words: &[&str]) -> Value {
        let answer = self.run(words);
        assert_eq!(answer.code, 0, "{words:?}: {}", answer.err);
        serde_json::from_str(&answer.out).unwrap()
    }
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut contents = vec![0; bytes];
    random.fill(&mut contents);
    contents
}

#[test]
fn objects_become_files_by_their_keys() {
    for engine in engines("btree") {
        let import = Import::on(engine);
        let long = noise(1, 9_000_000);
        let deep = format!("p/{}", "d/".repeat(60));
        import.put("p/a", b"contents");
        import.put("p/dir/b", &long);
        import.put("p/dir/sub/.c", &noise(2, 100_000));
        import.put("p/empty", b"");
        import.put("p/marker/", b"");
        import.put("p/", b"");
        import.put(&format!("{deep}e"), b"deep");
        import.put("other", b"is not below it");
        import.put("pp/other", b"is not below it");
        for file in 0..1500 {
            import.put(&format!("p/many/{file:04}"), format!("{file}").as_bytes());
        }
        let to = import.world.at("/new");
        let before = import.objects.requests();
        let done = import.done(&["--verify", "s3://bucket/p", &to]);
        assert_eq!(
            (done["failed"].as_u64(), done["differ"].as_u64()),
            (Some(0), Some(0)),
            "{done}"
        );
        assert!(import.objects.requests() - before < 1550, "a request for each, and a few");
        let read = |path: &str| {
            let path = import.world.at(&format!("/new/{path}"));
            let read = Command::new(crate::world::PANDO).args(["cat", &path]).output().unwrap();
            assert!(read.status.success(), "{path}");
            read.stdout
        };
        assert_eq!(read("a"), b"contents");
        assert!(read("dir/b") == long && read("dir/sub/.c") == noise(2, 100_000));
        assert_eq!((read("empty"), read("many/1499")), (vec![], b"1499".to_vec()));
        assert_eq!(read(&format!("{}e", &deep[2..])), b"deep");
        let names = import.world.names("/new");
        assert_eq!(names, ["a", "d", "dir", "empty", "many", "marker"]);
        let stat = import.world.json(&["stat", &import.world.at("/new/a")]);
        let times = stat[0].to_string();
        assert!(times.contains(&server::MODIFIED[..19]), "{times}");
        // The same again reads nothing, in a list of directories as in the objects of one.
        let before = import.objects.requests();
        let again = import.done(&["s3://bucket/p/", &to]);
        assert_eq!((again["bytes"].as_u64(), again["imported"].as_u64()), (Some(0), Some(0)));
        assert!(import.objects.requests() - before < 10);
        // What differs is replaced: only that is read.
        import.put("p/dir/b", b"other contents");
        let third = import.done(&["s3://bucket/p/", &to]);
        assert_eq!((third["bytes"].as_u64(), third["imported"].as_u64()), (Some(14), Some(1)));
        assert_eq!(read("dir/b"), b"other contents");
    }
}

#[test]
fn keys_that_are_no_paths_are_left_out_and_named() {
    let import = Import::on("btree");
    let too_long = format!("p/{}", "n".repeat(256));
    let wrong = ["p/x//y", "p//z", "p/../up", "p/a/./b", "p/k/below", "p/k/far/below", &too_long];
    for key in wrong {
        import.put(key, b"wrong");
    }
    import.put("p/full/", b"a directory with contents");
    import.put("p/k", b"a file");
    import.put("p/k-between", b"1");
    import.put("p/k.between", b"2");
    import.put("p/good/file", b"good");
    import.put("p/replaced", b"while it is listed");
    import.objects.replaced.lock().insert("/bucket/p/replaced".to_owned());
    let to = import.world.at("/new");
    let done = import.run(&["s3://bucket/p", &to]);
    assert_eq!(done.code, 2, "{}", done.err);
    let result: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(result["failed"].as_u64(), Some(wrong.len() as u64 + 2), "{}", done.err);
    for key in wrong.iter().chain(&["p/full/", "p/replaced"]) {
        assert!(done.err.contains(key), "{key}: {}", done.err);
    }
    assert!(done.err.contains("changed or was removed"), "{}", done.err);
    assert_eq!(import.world.names("/new"), ["good", "k", "k-between", "k.between"]);
    assert_eq!(import.world.names("/new/good"), ["file"]);
    // As a whole nothing is visible, unless the rest is wanted.
    let whole = import.world.at("/whole");
    let refused = import.run(&["--appear", "whole", "s3://bucket/p", &whole]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    import.world.fails(3, &["stat", &whole]);
    import.run(&["--appear", "whole", "--keep-going", "s3://bucket/p", &whole]);
    assert_eq!(import.world.names("/whole"), ["good", "k", "k-between", "k.between"]);
}

#[test]
fn a_store_that_fails_leaves_what_continues() {
    let import = Import::on("lsm");
    let to = import.world.at("/new");
    for (status, code, words) in [
        (404, "NoSuchBucket", "there is no bucket"),
        (403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
    ] {
        let text = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
        import.objects.always(&["GET"], Some(&Mishap::Status(status, text)));
        let failed = import.run(&["s3://bucket/p", &to]);
        assert!(failed.code != 0 && failed.err.contains(words), "{}", failed.err);
        assert!(!failed.err.contains("the-secret-key"));
        import.objects.always(&[], None);
    }
    let none = import.run(&["s3://bucket/p", &to]);
    assert_eq!(none.code, 3, "{}", none.err);
    import.world.fails(3, &["stat", &to]);
    for file in 0..40 {
        import.put(&format!("p/{file:02}"), &noise(file, 300_000));
    }
    // Answers that are lost or cut are requested again.
    for mishap in [Mishap::LostAnswer, Mishap::ShortBody, Mishap::LostRequest, Mishap::ShortPart] {
        import.objects.order("GET", mishap);
    }
    let part = import.world.at("/part");
    assert_eq!(import.done(&["--verify", "s3://bucket/p", &part])["imported"].as_u64(), Some(40));
    // One request has no answer: the import is interrupted, and continues.
    for ended in ["-INT", "-KILL"] {
        import.world.ok(&["rmr", "--wait", &part]);
        let mut child = slow(&import, &part);
        wait_until("some of it is there", || {
            let listed =
                answer(&Command::new(crate::world::PANDO).args(["ls", &part]).output().unwrap());
            listed.out.lines().count() > 3
        });
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([ended, &pid]).status().unwrap().success());
        child.wait().unwrap();
        import.objects.silent.lock().clear();
        let rest = import.done(&["--verify", "s3://bucket/p", &part]);
        let counted = ["imported", "unchanged"].map(|name| rest[name].as_u64().unwrap());
        assert!(counted[1] > 2 && counted[0] > 0, "{rest}");
        assert_eq!(import.world.names("/part").len(), 40);
    }
}

/// An import of which one request is not answered.
/// A disk that is full meanwhile: what is there is whole, and the same command completes the rest.
#[test]
fn a_full_disk_ends_an_import_which_continues_with_space() {
    for engine in engines("lsm") {
        let Some(disk) = SmallDisk::of(32) else { return };
        let import = Import::below(disk.path(), engine);
        for number in 0..48_u64 {
            import.put(&format!("p/f{number:02}"), &noise(number, 1 << 20));
        }
        let to = import.world.at("/d");
        let words = ["s3://bucket/p", &to];
        let full = import.run(&words);
        assert_eq!(full.code, 7, "{engine}: {} {}", full.out, full.err);
        assert!(full.err.contains("space"), "{engine}: {}", full.err);
        let copy = disk.path().with_extension("copy");
        let export = |complete: bool| {
            import.world.ok(&["export", &to, copy.to_str().unwrap()]);
            let mut there = 0;
            for entry in std::fs::read_dir(&copy).unwrap() {
                let path = entry.unwrap().path();
                let number = path.file_name().unwrap().to_str().unwrap()[1..].parse().unwrap();
                let bytes = std::fs::read(&path).unwrap();
                assert!(bytes == noise(number, 1 << 20), "{engine}: {}", path.display());
                there += 1;
            }
            std::fs::remove_dir_all(&copy).unwrap();
            assert!(if complete { there == 48 } else { there < 48 }, "{engine}: {there}");
        };
        if import.world.names("/").contains(&"d".to_owned()) {
            export(false);
        }
        let grown = ["-o", "remount,size=400m"];
        let grown = Command::new("mount").args(grown).arg(disk.path()).status().unwrap();
        assert!(grown.success());
        wait_until("there is space again", || import.run(&words).code == 0);
        export(true);
        import.world.close();
        import.world.ok(&["fsck", import.world.vol()]);
    }
}

fn slow(import: &Import, to: &str) -> Child {
    import.objects.silent.lock().insert("/bucket/p/20".to_owned());
    let mut command = Command::new(crate::world::PANDO);
    command.args(["import", "--memory", "1M", "s3://bucket/p", to]);
    for (name, value) in import.command(&[]).get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn a_volumes_own_objects_are_not_imported() {
    let import = Import::on("btree");
    let mut format = import.command(&[]);
    let (envs, url) = (
        format
            .get_envs()
            .map(|(name, value)| (name.to_owned(), value.unwrap().to_owned()))
            .collect::<Vec<_>>(),
        "s3://bucket/a/vol",
    );
    format = Command::new(crate::world::PANDO);
    let formatted = format.args(["format", url]).envs(envs).output().unwrap();
    assert!(formatted.status.success(), "{}", String::from_utf8_lossy(&formatted.stderr));
    import.put("a/file", b"beside it");
    let to = import.world.at("/new");
    for source in ["s3://bucket/a/vol", "s3://bucket/a/vol/lsm", "s3://bucket/a", "s3://bucket"] {
        let refused = import.run(&[source, &to]);
        assert_eq!(refused.code, 2, "{source}: {}", refused.err);
        assert!(refused.err.contains("s3://bucket/a/vol is a volume"), "{source}: {}", refused.err);
    }
    for (words, hint) in [
        (&["--format", "tar", "s3://bucket/a"][..], "pipe the object"),
        (&["s3:bucket/a"], "s3://BUCKET"),
        (&["s3://KEY:hunter2@bucket/a"], "AWS_ACCESS_KEY_ID"),
    ] {
        let refused = import.run(&[words, &[&to]].concat());
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains(hint) && !refused.err.contains("hunter2"), "{}", refused.err);
    }
}

/// Long objects are read within the memory that is given.
#[test]
fn memory_is_bounded() {
    let import = Import::on("btree");
    import.put("p/long", &noise(1, 60 << 20));
    let to = import.world.at("/new");
    let mut command = Command::new("/usr/bin/env");
    let words = ["--memory", "1M", "s3://bucket/p", &to];
    let plain = import.command(&words);
    command
        .args(plain.get_args().skip(2))
        .envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let peak_file = import.world.path().join("peak");
    command.stdout(new_file(&peak_file));
    let child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut child = child;
    let (clock, mut peak) = (SystemClock::new(), 0);
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or_default());
        clock.sleep(Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success());
    assert!((500..48 << 10).contains(&peak), "{peak} KiB");
    assert!(std::fs::metadata(&peak_file).unwrap().size() > 0);
}

/// Objects have no modes: what is made obeys the umask, and a directory that exists keeps its own.
#[test]
fn modes_are_those_of_the_umask_and_of_what_exists() {
    let import = Import::on("btree");
    import.put("p/", b"");
    import.put("p/marker/", b"");
    import.put("p/implied/file", b"contents");
    let mode = |path: &str| {
        let stat = import.world.json(&["stat", &import.world.at(path)]).remove(0);
        stat["mode"].as_str().unwrap().to_owned()
    };
    let (to, kept) = (import.world.at("/new"), import.world.at("/kept"));
    let with_umask = |umask: &str, to: &str| {
        let plain = import.command(&["s3://bucket/p", to]);
        let words: Vec<&str> =
            plain.get_args().skip(2).map(|word| word.to_str().unwrap()).collect();
        let script = format!("umask {umask} && exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).args(words);
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let done = answer(&command.output().unwrap());
        assert_eq!(done.code, 0, "{}", done.err);
    };
    with_umask("077", &to);
    let paths = ["/new", "/new/marker", "/new/implied", "/new/implied/file"];
    assert_eq!(paths.map(mode), ["0700", "0700", "0700", "0600"]);
    // The directories of this one exist, closed to others.
    let source = import.world.path().join("closed");
    std::fs::create_dir_all(source.join("marker")).unwrap();
    for path in [&source.join("marker"), &source] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o710)).unwrap();
    }
    import.world.ok(&["import", source.to_str().unwrap(), &kept]);
    with_umask("022", &kept);
    let paths = ["/kept", "/kept/marker", "/kept/implied", "/kept/implied/file"];
    assert_eq!(paths.map(mode), ["0710", "0710", "0755", "0644"]);
    // The file is where its key names it, although a directory follows it in the list.
    assert_eq!(import.world.names("/kept/marker"), Vec::<String>::new());
    import.put("p/marker/inner", b"2");
    import.put("p/implied/more", b"3");
    with_umask("022", &kept);
    let lists = ["implied", "marker"].map(|name| import.world.names(&format!("/kept/{name}")));
    assert_eq!(lists, [vec!["file", "more"], vec!["inner"]]);
}

/// Keys may be limited to a prefix, objects may have any type, and some may not be read.
#[test]
fn objects_of_others_are_imported_with_keys_for_their_prefix() {
    let import = Import::on("btree");
    *import.objects.lists_below.lock() = "site/docs/".to_owned();
    for name in ["a", "index.html", "locked", "strange", "z"] {
        import.put(&format!("site/docs/{name}"), name.as_bytes());
    }
    import.objects.pages.lock().insert("/bucket/site/docs/index.html".to_owned());
    let refused = |status, code: &str| {
        let text = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
        Mishap::Status(status, text)
    };
    let unreadable =
        [("locked", refused(400, "InvalidRequest")), ("strange", refused(405, "MethodNotAllowed"))];
    for (name, mishap) in unreadable {
        import.objects.unreadable.lock().insert(format!("/bucket/site/docs/{name}"), mishap);
    }
    let to = import.world.at("/new");
    let done = import.run(&["s3://bucket/site/docs", &to]);
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.err.contains("InvalidRequest") && done.err.contains("MethodNotAllowed"));
    assert_eq!(import.world.names("/new"), ["a", "index.html", "z"], "{}", done.err);
    assert_eq!(import.world.ok(&["cat", &import.world.at("/new/index.html")]), "index.html");
    // What keys may not list is refused where it is the prefix itself.
    let refused = import.run(&["s3://bucket/site", &to]);
    assert!(refused.code != 0 && refused.err.contains("permissions"), "{}", refused.err);
    // A page without a tag is a proxy's.
    let page = "content-type: text/html\r\n".to_owned();
    let page = Mishap::Answer(200, page, "<html>log in</html>".to_owned());
    import.objects.unreadable.lock().insert("/bucket/site/docs/a".to_owned(), page);
    let ended = import.run(&["s3://bucket/site/docs", &import.world.at("/other")]);
    assert!(ended.code != 0 && ended.err.contains("web page"), "{}", ended.err);
}

/// However an import ended, the continued one knows the directories that are not finished from
/// those that were there before.
#[test]
fn however_an_import_ended_no_directory_stays_closed() {
    let import = Import::on("btree");
    import.put("p/marker/", b"");
    for file in 0..40 {
        import.put(&format!("p/d/e/{file:02}"), &noise(file, 300_000));
    }
    let modes =
        |to: &str| ["", "/d", "/d/e", "/marker"].map(|inner| import.mode(&format!("{to}{inner}")));
    import.done(&["s3://bucket/p", &import.world.at("/whole")]);
    let whole = modes("/whole");
    assert!(whole.iter().all(Option::is_some) && whole[0].as_deref() != Some("0700"), "{whole:?}");
    for end in ["-INT", "-KILL", "daemon"] {
        let to = import.world.at("/part");
        import.objects.silent.lock().insert("/bucket/p/d/e/20".to_owned());
        let mut child = slow(&import, &to);
        wait_until("some of it is there", || {
            let path = import.world.at("/part/d/e");
            let listed = Command::new(crate::world::PANDO).args(["ls", &path]).output().unwrap();
            answer(&listed).out.lines().count() > 3
        });
        if end == "daemon" {
            import.world.ok(&["sync", import.world.vol()]);
            import.world.kill_daemon();
        } else {
            let pid = child.id().to_string();
            assert!(Command::new("kill").args([end, &pid]).status().unwrap().success());
        }
        import.objects.silent.lock().clear();
        child.wait().unwrap();
        if end == "-INT" {
            assert_eq!(whole[..3], modes("/part")[..3]);
        } else {
            assert_eq!(modes("/part")[2].as_deref(), Some("4700"), "it is marked");
        }
        // A directory that was there before belongs to no import, and stays closed.
        import.world.ok(&["import", import.closed().to_str().unwrap(), &format!("{to}/d/own")]);
        import.put("p/d/own/file", b"contents");
        import.done(&["--verify", "s3://bucket/p", &to]);
        assert_eq!(whole, modes("/part"), "{end}");
        assert_eq!(import.mode("/part/d/own").as_deref(), Some("0700"), "{end}");
        import.world.ok(&["rmr", "--wait", &to]);
    }
}

/// A store that has lost an object answers with a failure each time. Only the object is left out,
/// if the option requests that. Nothing is left out while the store does not answer at all.
#[test]
fn a_lost_object_is_left_out_and_an_outage_is_not() {
    let import = Import::on("lsm");
    for name in ["a", "lost", "z"] {
        import.put(&format!("p/{name}"), name.as_bytes());
    }
    let text = "<Error><Code>InternalError</Code><Message>no</Message></Error>".to_owned();
    let lost = Mishap::Status(500, text);
    import.objects.unreadable.lock().insert("/bucket/p/lost".to_owned(), lost.clone());
    let to = import.world.at("/new");
    let done = import.run(&["--keep-going", "s3://bucket/p", &to]);
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.err.contains("p/lost") && done.err.contains("InternalError"), "{}", done.err);
    assert_eq!(import.world.names("/new"), ["a", "z"]);
    import.objects.unreadable.lock().clear();
    let rest = import.done(&["--keep-going", "s3://bucket/p", &to]);
    assert_eq!((rest["imported"].as_u64(), rest["unchanged"].as_u64()), (Some(1), Some(2)));
    // The store fails for longer than reads are repeated, and comes back.
    import.world.ok(&["rmr", "--wait", &to]);
    import.objects.unreadable.lock().insert("/bucket/p/lost".to_owned(), lost.clone());
    let before = import.objects.requests();
    let mut command = import.command(&["--keep-going", "s3://bucket/p", &to]);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("objects are read", || import.objects.requests() > before + 6);
    import.objects.always(&["GET"], Some(&lost));
    import.objects.unreadable.lock().clear();
    SystemClock::new().sleep(Duration::from_secs(8));
    import.objects.always(&[], None);
    let done = answer(&running.wait_with_output().unwrap());
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(import.world.names("/new"), ["a", "lost", "z"]);
}
