//! Data that programs have stored into mapped files, and that the kernel has not written yet.
//! Commands that act on the contents of a volume include it.

#![expect(unsafe_code, reason = "a mapping is memory that the file system changes")]

use std::ffi::c_void;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{SeekFrom, seek};
use rustix::mm::{MapFlags, ProtFlags};

use crate::world::World;

/// Several requests, and less than the kernel writes by itself.
pub(crate) const LENGTH: usize = 16 << 20;

/// A shared mapping of a file, which is open for as long as it is there.
pub(crate) struct Map {
    address: *mut c_void,
}

impl Map {
    pub(crate) fn of(path: &Path) -> Map {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping of a length that the file has; nothing else refers to it.
        let address = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), LENGTH, access, MapFlags::SHARED, &file, 0)
        };
        Map { address: address.unwrap() }
    }

    pub(crate) fn store(&mut self, byte: u8) {
        self.store_in(0..LENGTH, byte);
    }

    /// Stores into a part of it.
    pub(crate) fn store_in(&mut self, part: Range<usize>, byte: u8) {
        // SAFETY: the mapping is LENGTH bytes long, and this is the only slice of it.
        let memory = unsafe { std::slice::from_raw_parts_mut(self.address.cast::<u8>(), LENGTH) };
        memory[part].fill(byte);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, which nothing uses any more.
        unsafe { rustix::mm::munmap(self.address, LENGTH) }.unwrap();
    }
}

#[track_caller]
fn assert_filled(path: &Path, byte: u8) {
    let bytes = fs::read(path).unwrap();
    let other = bytes.iter().position(|one| *one != byte);
    assert_eq!((bytes.len(), other), (LENGTH, None), "{} with {byte}", path.display());
}

#[test]
fn stores_into_maps_are_in_snapshots_and_clones_that_commands_take() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let directory = world.below_mount("d");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("f"), vec![0; LENGTH]).unwrap();
    let mut map = Map::of(&directory.join("f"));
    for round in 1..=4 {
        map.store(round);
        let name = round.to_string();
        world.ok(&["snapshot", "create", directory.to_str().unwrap(), &name]);
        // Also if the argument is the volume, and not the mount.
        map.store(round + 100);
        world.ok(&["clone", &world.at("/d"), &world.at(&format!("/{name}"))]);
        assert_filled(&directory.join(".snapshots").join(&name).join("f"), round);
        assert_filled(&world.below_mount(&name).join("f"), round + 100);
    }
}

#[test]
fn stores_into_maps_are_durable_after_sync() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let file = world.below_mount("f");
    fs::write(&file, vec![0; LENGTH]).unwrap();
    let mut map = Map::of(&file);
    map.store(7);
    world.ok(&["sync", world.mnt()]);
    world.kill_daemon();
    drop(map);
    assert!(world.mount());
    assert_filled(&file, 7);
}

/// The offsets where data and holes begin, in turn.
fn data_and_holes(file: &File) -> Vec<u64> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Ok(data) = seek(file, SeekFrom::Data(at)) {
        at = seek(file, SeekFrom::Hole(data)).unwrap();
        found.extend([data, at]);
    }
    found
}

#[test]
fn stores_into_maps_are_data_and_no_holes() {
    const MIB: usize = 1 << 20;
    let world = World::new();
    // One thread serves: it must be free while the kernel writes back as requested.
    if !world.mount_with(&["-o", "threads=1"]) {
        return;
    }
    let path = world.below_mount("f");
    let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    file.set_len(LENGTH as u64).unwrap();
    assert!(data_and_holes(&file).is_empty());
    assert!(file.metadata().unwrap().blocks() > 0, "tar -S would not look at it");
    let mut map = Map::of(&path);
    map.store_in(2 * MIB..3 * MIB, 1);
    map.store_in(3 * MIB + 4096..3 * MIB + 8192, 2);
    map.store_in(LENGTH - 1..LENGTH, 3);
    let mib = MIB as u64;
    let tail = [3 * mib + 4096, 3 * mib + 8192, LENGTH as u64 - 4096, LENGTH as u64];
    assert_eq!(seek(&file, SeekFrom::Hole(2 * mib)).unwrap(), 3 * mib);
    assert_eq!(data_and_holes(&file), [&[2 * mib, 3 * mib], &tail[..]].concat());
    // Existing data stays mapped unchanged; a hole between is filled.
    file.write_all_at(&[4; 100], 0).unwrap();
    map.store_in(3 * MIB..3 * MIB + 4096, 5);
    assert_eq!(
        data_and_holes(&file)[2..],
        [&[2 * mib], &tail[1..]].concat(),
        "the hole in front of data"
    );
    for (copier, arguments) in [
        ("cp", "cp --sparse=always --reflink=never f copy"),
        // The times change when the stores are written, and tar warns about that.
        ("tar", "{ tar -cSf t f || [ $? = 1 ]; } && tar -xSOf t > copy"),
        (
            "bsdtar",
            "mkdir out && bsdtar --read-sparse -cf t f && bsdtar -xf t -C out && mv out/f copy",
        ),
    ] {
        map.store_in(8 * MIB..9 * MIB, copier.len() as u8);
        let mut shell = Command::new("sh");
        shell.args(["-ec", arguments]).current_dir(&world.mount_point);
        assert!(shell.status().unwrap().success(), "{arguments}");
        let copied = fs::read(world.below_mount("copy")).unwrap();
        assert!(copied == fs::read(&path).unwrap(), "{arguments} copied something else");
        assert_eq!(copied[8 * MIB], copier.len() as u8, "{arguments}");
        // The next one finds a hole there.
        rustix::fs::fallocate(
            &file,
            rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
            8 * mib,
            mib,
        )
        .unwrap();
    }
}

/// The file is closed, and only the mapping remains.
#[test]
fn a_process_with_a_mapped_file_keeps_the_mount_and_is_named() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    fs::write(world.below_mount("f"), vec![0; LENGTH]).unwrap();
    let map = Map::of(&world.below_mount("f"));
    let printed = world.fails(6, &["umount", world.mnt()]);
    assert!(printed.contains(&format!("pid {}", std::process::id())), "{printed}");
    drop(map);
    world.umount();
}
