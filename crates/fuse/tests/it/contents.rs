//! Contents: reading, writing, appending, mapping, truncating, data that outlives its name.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::Ordering;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use crate::rig::{PATIENCE, mounted};

#[test]
fn written_bytes_are_read_back() {
    let Some(rig) = mounted("") else { return };
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 % 251) as u8).collect();
    rig.write("big", &bytes);
    assert_eq!(rig.read("big"), bytes);
    assert_eq!(std::fs::metadata(rig.path("big")).unwrap().len(), 3_000_000);
    rig.write("empty", b"");
    assert_eq!(rig.read("empty"), b"");
    let file = std::fs::File::options().read(true).write(true).open(rig.path("big")).unwrap();
    file.write_all_at(b"xyz", 1_048_575).unwrap();
    let mut three = [0; 5];
    file.read_exact_at(&mut three, 1_048_574).unwrap();
    assert_eq!(&three[1..4], b"xyz");
}

#[test]
fn opening_and_listing_again_cost_no_request_where_the_kernel_checks() {
    let Some(rig) = mounted("threads=1") else { return };
    rig.write("f", b"one");
    let use_it = || {
        assert_eq!(rig.read("f"), b"one");
        assert_eq!(std::fs::read_dir(rig.path("")).unwrap().count(), 1);
    };
    // The first time the kernel learns that it need not ask, and reads. A read invalidates the time
    // of last read, so the kernel requests attributes a second time.
    use_it();
    use_it();
    let stopped = rig.fs.gate.lock();
    device::scope(|scope| {
        // The only serving thread is blocked, so that any request would wait for it.
        scope.spawn(|| rustix::fs::statvfs(rig.path("")).unwrap());
        rig.eventually("the server is held up", |fs| fs.at_gate.load(Ordering::Relaxed) == 1);
        let (done, finished) = device::sync::channel();
        scope.spawn(move || {
            use_it();
            done.send(()).unwrap();
        });
        let result = finished.recv_timeout(PATIENCE);
        drop(stopped);
        result.expect("a request was sent");
    });
}

#[test]
fn appends_from_several_descriptors_do_not_overlap() {
    let Some(rig) = mounted("threads=4") else { return };
    rig.write("log", b"");
    device::scope(|scope| {
        for writer in 0..4u8 {
            let path = rig.path("log");
            scope.spawn(move || {
                let mut file = std::fs::File::options().append(true).open(path).unwrap();
                for _ in 0..250 {
                    file.write_all(&[b'a' + writer; 16]).unwrap();
                }
            });
        }
    });
    let log = rig.read("log");
    assert_eq!(log.len(), 4 * 250 * 16);
    for line in log.chunks(16) {
        assert!(line.iter().all(|byte| *byte == line[0]), "a line is torn: {line:?}");
    }
}

#[test]
fn truncation_at_open_and_by_length() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"0123456789");
    assert_eq!(rig.read("f"), b"0123456789");
    let file = std::fs::File::create(rig.path("f")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0, "O_TRUNC");
    assert_eq!(rig.read("f"), b"");
    rig.write("f", b"0123456789");
    let file = std::fs::File::options().write(true).open(rig.path("f")).unwrap();
    file.set_len(4).unwrap();
    assert_eq!(rig.read("f"), b"0123");
    file.set_len(6).unwrap();
    assert_eq!(rig.read("f"), b"0123\0\0");
    assert_eq!(std::fs::metadata(rig.path("f")).unwrap().len(), 6);
}

#[test]
fn a_file_outlives_its_name_while_it_is_open() {
    let Some(rig) = mounted("") else { return };
    let before = rig.fs.nodes();
    let mut file = std::fs::File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(rig.path("gone"))
        .unwrap();
    file.write_all(b"still here").unwrap();
    std::fs::remove_file(rig.path("gone")).unwrap();
    let gone = std::fs::metadata(rig.path("gone")).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all(b" and written").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here and written");
    drop(file);
    rig.eventually("the file ends with its last user", |fs| fs.nodes() == before);
}

#[test]
fn a_file_that_is_replaced_while_it_is_open_keeps_its_contents() {
    let Some(rig) = mounted("") else { return };
    rig.write("a", b"old");
    rig.write("b", b"new");
    let mut old = std::fs::File::open(rig.path("a")).unwrap();
    std::fs::rename(rig.path("b"), rig.path("a")).unwrap();
    let mut text = String::new();
    old.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), rig.read("a")), ("old", b"new".to_vec()));
}

#[test]
#[expect(unsafe_code, reason = "a mapping is memory that the file system changes")]
fn shared_mappings_and_the_file_show_the_same() {
    const LENGTH: usize = 3 * 4096;
    let Some(rig) = mounted("") else { return };
    rig.write("mapped", &[b'.'; LENGTH]);
    let file = std::fs::File::options().read(true).write(true).open(rig.path("mapped")).unwrap();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping of a length that the file has; nothing else refers to it.
    let address = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), LENGTH, access, MapFlags::SHARED, &file, 0)
    }
    .unwrap();
    // SAFETY: the mapping is LENGTH bytes long, and this is the only slice of it.
    let memory = unsafe { std::slice::from_raw_parts_mut(address.cast::<u8>(), LENGTH) };
    memory[4096..4100].copy_from_slice(b"MMAP");
    // SAFETY: address and length are those of the mapping.
    unsafe { rustix::mm::msync(address, LENGTH, MsyncFlags::SYNC) }.unwrap();
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, 4096).unwrap();
    assert_eq!(&bytes, b"MMAP");
    file.write_all_at(b"FILE", 8192).unwrap();
    assert_eq!(&memory[8192..8196], b"FILE");
    // Once the mapping and the descriptor are gone, the file itself must have it.
    memory[0] = b'!';
    // SAFETY: the mapping is not used any more.
    unsafe { rustix::mm::munmap(address, LENGTH) }.unwrap();
    file.sync_all().unwrap();
    drop(file);
    let node = std::fs::metadata(rig.path("mapped")).unwrap().ino();
    let caller = inode::Caller { enforce: inode::Enforce::Kernel, ..inode::Caller::root() };
    let mut first = [0; 1];
    fs::FileSystem::read(&*rig.fs, &caller, inode::NodeId::narrow(node), 0, &mut first).unwrap();
    assert_eq!(first[0], b'!');
}

#[test]
fn direct_io_works() {
    let Some(rig) = mounted("") else { return };
    rig.write("d", &[7; 8192]);
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(rig.path("d"))
        .unwrap();
    file.write_all_at(&[9; 4096], 4096).unwrap();
    let mut bytes = vec![0; 8192];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((bytes[4095], bytes[4096]), (7, 9));
    assert_eq!(rig.read("d")[4096], 9);
}

#[test]
fn syncs_reach_the_file_system() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"x");
    let before = rig.fs.fsyncs.load(Ordering::Relaxed);
    std::fs::File::open(rig.path("f")).unwrap().sync_all().unwrap();
    std::fs::File::open(rig.path("f")).unwrap().sync_data().unwrap();
    std::fs::File::open(rig.path("")).unwrap().sync_all().unwrap();
    assert_eq!(rig.fs.fsyncs.load(Ordering::Relaxed), before + 3);
}

#[test]
fn damage_is_an_error_and_the_rest_works() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"bytes");
    let file = std::fs::File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(rig.path("f"))
        .unwrap();
    rig.fs.damaged.store(true, Ordering::Relaxed);
    let mut bytes = vec![0; 4096];
    let error = file.read_at(&mut bytes, 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    rig.fs.damaged.store(false, Ordering::Relaxed);
    assert_eq!(rig.read("f"), b"bytes");
}

#[test]
fn unsupported_calls_fall_back() {
    let Some(rig) = mounted("") else { return };
    rig.write("from", &[5; 10_000]);
    assert_eq!(std::fs::copy(rig.path("from"), rig.path("to")).unwrap(), 10_000);
    assert_eq!(rig.read("to"), vec![5; 10_000]);
    let file = std::fs::File::options().read(true).write(true).open(rig.path("to")).unwrap();
    let refused = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 20_000);
    assert_eq!(refused, Err(rustix::io::Errno::OPNOTSUPP));
    let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
    assert_eq!(end, 10_000);
}
