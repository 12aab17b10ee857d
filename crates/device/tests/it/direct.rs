//! The suite on files that are read past the page cache, and that they are.

use std::sync::Arc;

use device::{Device, DirectDevice};
use testing::device_conformance::DeviceUnderTest;

struct DirectUnderTest;

impl DeviceUnderTest for DirectUnderTest {
    type Guard = tempfile::TempDir;

    fn create() -> (Arc<dyn Device>, tempfile::TempDir) {
        // Temporary directories may be in memory, where there are no direct reads.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        (Arc::new(DirectDevice::open(directory.path()).unwrap()), directory)
    }
}

testing::device_conformance!(DirectUnderTest);

#[test]
fn any_range_is_read_as_it_was_written() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let device = DirectDevice::open(directory.path()).unwrap();
    let file = device.create("a").unwrap();
    let bytes: Vec<u8> = (0..10_007_u32).map(|at| (at % 251) as u8).collect();
    file.write_at(&bytes, 0).unwrap();
    for (offset, length) in
        [(0, 10_007), (0, 1), (4095, 2), (4096, 4096), (10_000, 100), (10_006, 1), (20_000, 5)]
    {
        let mut buffer = vec![0; length];
        let read = file.read_at(&mut buffer, offset as u64).unwrap();
        let expected = &bytes[offset.min(bytes.len())..(offset + length).min(bytes.len())];
        assert_eq!(&buffer[..read], expected, "{length} bytes at {offset}");
    }
    assert_eq!(device.reads(), 7);
    file.write_at(&[9; 3], 5000).unwrap();
    let mut buffer = [0; 5];
    file.read_at(&mut buffer, 4999).unwrap();
    assert_eq!(buffer[1..4], [9; 3]);
}
