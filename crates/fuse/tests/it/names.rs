//! Names: create, link, rename, remove; errors as the kernel's callers see them.

use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use rustix::fs::{CWD, Mode, RenameFlags};
use rustix::io::Errno;

use crate::rig::mounted;

fn number(error: &std::io::Error) -> Option<i32> {
    error.raw_os_error()
}

#[test]
fn hard_links_share_a_file() {
    let Some(rig) = mounted("") else { return };
    rig.write("a", b"text");
    std::fs::create_dir(rig.path("d")).unwrap();
    std::fs::hard_link(rig.path("a"), rig.path("d/b")).unwrap();
    let (a, b) = (std::fs::metadata(rig.path("a")), std::fs::metadata(rig.path("d/b")));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!((a.ino(), a.nlink()), (b.ino(), 2));
    std::fs::remove_file(rig.path("a")).unwrap();
    assert_eq!(std::fs::metadata(rig.path("d/b")).unwrap().nlink(), 1);
    assert_eq!(rig.read("d/b"), b"text");
}

#[test]
fn symbolic_links_and_special_files() {
    let Some(rig) = mounted("dev") else { return };
    rig.write("target", b"reached");
    symlink("target", rig.path("link")).unwrap();
    assert_eq!(std::fs::read_link(rig.path("link")).unwrap().to_str(), Some("target"));
    assert_eq!(rig.read("link"), b"reached");
    let fifo = rig.path("fifo");
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::from(0o640), 0).unwrap();
    assert!(std::fs::metadata(&fifo).unwrap().file_type().is_fifo());
    let device = rig.path("null");
    let numbers = rustix::fs::makedev(1, 3);
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(CWD, &device, kind, Mode::from(0o666), numbers).unwrap();
    assert_eq!(std::fs::metadata(&device).unwrap().rdev(), numbers);
    assert_eq!(std::fs::read(&device).unwrap(), b"", "it is /dev/null");
    let socket = std::os::unix::net::UnixListener::bind(rig.path("socket")).unwrap();
    assert!(std::fs::metadata(rig.path("socket")).unwrap().file_type().is_socket());
    drop(socket);
}

#[test]
fn renames_replace_refuse_and_exchange() {
    let Some(rig) = mounted("") else { return };
    rig.write("a", b"A");
    rig.write("b", b"B");
    let (a, b) = (rig.path("a"), rig.path("b"));
    let refused = rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::NOREPLACE);
    assert_eq!(refused, Err(Errno::EXIST));
    rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
    assert_eq!((rig.read("a"), rig.read("b")), (b"B".to_vec(), b"A".to_vec()));
    let refused = rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::WHITEOUT);
    assert_eq!(refused, Err(Errno::OPNOTSUPP), "this file system's own answer");
    std::fs::rename(&a, &b).unwrap();
    assert_eq!(rig.read("b"), b"B");
    assert!(!a.exists());
    std::fs::create_dir(rig.path("d")).unwrap();
    std::fs::rename(&b, rig.path("d/b")).unwrap();
    assert_eq!(rig.read("d/b"), b"B");
}

#[test]
fn errors_have_their_numbers() {
    let Some(rig) = mounted("") else { return };
    let missing = std::fs::metadata(rig.path("no")).unwrap_err();
    assert_eq!(number(&missing), Some(libc::ENOENT));
    std::fs::create_dir_all(rig.path("d/e")).unwrap();
    let full = std::fs::remove_dir(rig.path("d")).unwrap_err();
    assert_eq!(number(&full), Some(libc::ENOTEMPTY));
    let again = std::fs::create_dir(rig.path("d")).unwrap_err();
    assert_eq!(number(&again), Some(libc::EEXIST));
    let long = std::fs::write(rig.path(&"n".repeat(256)), b"").unwrap_err();
    assert_eq!(number(&long), Some(libc::ENAMETOOLONG));
    rig.write(&"n".repeat(255), b"fits");
    assert_eq!(rig.read(&"n".repeat(255)), b"fits");
}

#[test]
fn the_umask_of_the_caller_is_applied_once() {
    let Some(rig) = mounted("") else { return };
    let status = std::process::Command::new("sh")
        .args(["-c", "umask 027; touch f; mkdir d; mkfifo p; umask 0; touch g"])
        .current_dir(rig.path(""))
        .status()
        .unwrap();
    assert!(status.success());
    for (name, mode) in [("f", 0o640), ("d", 0o750), ("p", 0o640), ("g", 0o666)] {
        assert_eq!(std::fs::metadata(rig.path(name)).unwrap().mode() & 0o7777, mode, "{name}");
    }
}

#[test]
fn a_file_that_appears_before_it_is_created_is_opened() {
    // The kernel believes that the name is free; another process has taken it since.
    let Some(rig) = mounted("") else { return };
    let free = std::fs::metadata(rig.path("raced")).unwrap_err();
    assert_eq!(free.kind(), std::io::ErrorKind::NotFound);
    rig.fs.put_behind(inode::NodeId::ROOT, b"raced", b"first");
    let file = std::fs::File::options().create(true).append(true).open(rig.path("raced")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5);
    rig.fs.put_behind(inode::NodeId::ROOT, b"raced2", b"first");
    let exclusive = std::fs::File::create_new(rig.path("raced2")).unwrap_err();
    assert_eq!(number(&exclusive), Some(libc::EEXIST));
}

#[test]
fn look_ups_are_forgotten() {
    let Some(rig) = mounted("") else { return };
    for file in 0..200 {
        rig.write(&format!("f{file}"), b"");
    }
    for entry in std::fs::read_dir(rig.path("")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    rig.eventually("only the root is left", |fs| fs.nodes() == 1);
}
