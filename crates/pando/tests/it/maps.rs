//! What programs have stored into mapped files, and the kernel has not written yet: commands that
//! act on what is in a volume have it.

#![expect(unsafe_code, reason = "a mapping is memory that the file system changes")]

use std::ffi::c_void;
use std::path::Path;

use rustix::mm::{MapFlags, ProtFlags};

use crate::world::World;

/// Several requests, and less than the kernel writes without being asked.
pub(crate) const LENGTH: usize = 16 << 20;

/// A shared mapping of a file, which is open for as long as it is there.
pub(crate) struct Map {
    address: *mut c_void,
}

impl Map {
    pub(crate) fn of(path: &Path) -> Map {
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping of a length that the file has; nothing else refers to it.
        let address = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), LENGTH, access, MapFlags::SHARED, &file, 0)
        };
        Map { address: address.unwrap() }
    }

    pub(crate) fn store(&mut self, byte: u8) {
        // SAFETY: the mapping is LENGTH bytes long, and this is the only slice of it.
        let memory = unsafe { std::slice::from_raw_parts_mut(self.address.cast::<u8>(), LENGTH) };
        memory.fill(byte);
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
    let bytes = std::fs::read(path).unwrap();
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
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("f"), vec![0; LENGTH]).unwrap();
    let mut map = Map::of(&directory.join("f"));
    for round in 1..=4 {
        map.store(round);
        let name = round.to_string();
        world.ok(&["snapshot", "create", directory.to_str().unwrap(), &name]);
        // Also where the volume is named, and not the mount.
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
    std::fs::write(&file, vec![0; LENGTH]).unwrap();
    let mut map = Map::of(&file);
    map.store(7);
    world.ok(&["sync", world.mnt()]);
    world.kill_owner();
    drop(map);
    assert!(world.mount());
    assert_filled(&file, 7);
}

/// The file is closed, and there is nothing but the mapping.
#[test]
fn who_has_a_file_mapped_keeps_a_mount_and_is_named() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    std::fs::write(world.below_mount("f"), vec![0; LENGTH]).unwrap();
    let map = Map::of(&world.below_mount("f"));
    let said = world.fails(6, &["umount", world.mnt()]);
    assert!(said.contains(&format!("pid {}", std::process::id())), "{said}");
    drop(map);
    world.umount();
}
