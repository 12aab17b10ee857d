//! The superuser in another user's directory: what that user planted there is neither opened nor
//! given away.

use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use device::{Device, LocalDevice};
use rustix::fs::{CWD, FileType, Mode};

const NOBODY: u32 = 65534;

/// A directory of nobody's, and a file of root's beside it.
fn theirs() -> Option<(tempfile::TempDir, LocalDevice, std::path::PathBuf)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("theirs");
    std::fs::create_dir(&directory).unwrap();
    chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
    let secret = place.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let device = LocalDevice::open(&directory).unwrap();
    Some((place, device, secret))
}

fn plant(kind: FileType, at: &Path) {
    let number = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, at, kind, Mode::from_raw_mode(0o666), number).unwrap();
}

#[test]
fn another_users_planted_file_is_refused_and_unchanged() {
    let Some((place, device, secret)) = theirs() else { return };
    let at = place.path().join("theirs/name");
    let plants: [(&str, &dyn Fn()); 5] = [
        ("hard links", &|| std::fs::hard_link(&secret, &at).unwrap()),
        ("symbolic link", &|| symlink(&secret, &at).unwrap()),
        ("FIFO", &|| plant(FileType::Fifo, &at)),
        ("socket", &|| plant(FileType::Socket, &at)),
        ("device", &|| plant(FileType::CharacterDevice, &at)),
    ];
    for (what, plant) in plants {
        plant();
        let tried = [
            device.open("name").map(drop),
            device.append("name", 1).map(drop),
            device.read("name", 10).map(drop),
            device.try_lock("name").map(drop),
        ];
        for tried in tried {
            let error = tried.expect_err(what);
            assert_eq!(error.kind, ErrorKind::PermissionDenied, "{what}: {error}");
            assert!(error.message.contains(what), "{what}: {error}");
        }
        let error = device.create("name").err().unwrap();
        assert_eq!(error.kind, ErrorKind::AlreadyExists, "{what}: {error}");
        let found = secret.metadata().unwrap();
        assert_eq!((found.uid(), found.mode() & 0o7777, found.len()), (0, 0o600, 6), "{what}");
        let found = at.symlink_metadata().unwrap();
        assert!(found.uid() == 0 && (found.is_file() || !found.file_type().is_dir()), "{what}");
        std::fs::remove_file(&at).unwrap();
    }
}

#[test]
fn only_a_just_created_file_is_given_away() {
    let Some((place, device, _)) = theirs() else { return };
    let directory = place.path().join("theirs");
    let owner = |name: &str| directory.join(name).symlink_metadata().unwrap().uid();
    // A file of root's that was there already stays root's, and is used.
    std::fs::write(directory.join("roots"), "x").unwrap();
    drop(device.try_lock("roots").unwrap().expect("the lock"));
    assert_eq!(owner("roots"), 0);
    // One of somebody else's is not used.
    std::fs::write(directory.join("others"), "x").unwrap();
    chown(directory.join("others"), Some(1), Some(1)).unwrap();
    let error = device.open("others").err().unwrap();
    assert!(error.message.contains("belongs to user 1"), "{error}");
    drop(device.try_lock("lock").unwrap().expect("the lock"));
    device.create("file").unwrap();
    device.create_dir("dir").unwrap();
    drop(device.append("log", 1).unwrap());
    for name in ["lock", "file", "dir", "log"] {
        assert_eq!(owner(name), NOBODY, "{name}");
    }
    // A directory that was there before.
    std::fs::create_dir(directory.join("before")).unwrap();
    device.create_dir("before").unwrap();
    assert_eq!(owner("before"), 0);
    assert!(!directory.join("log").symlink_metadata().unwrap().file_type().is_fifo());
}

/// A backup whose files are shared with others by hard links is read, where nobody else can have
/// planted them.
#[test]
fn files_with_several_names_are_opened_in_the_callers_own_directory() {
    let directory = tempfile::tempdir().unwrap();
    let device = LocalDevice::open(directory.path()).unwrap();
    device.create("a").unwrap();
    std::fs::hard_link(directory.path().join("a"), directory.path().join("b")).unwrap();
    device.open("b").unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let error = device.open("b").err().unwrap();
    assert_eq!(error.kind, ErrorKind::PermissionDenied, "{error}");
}
