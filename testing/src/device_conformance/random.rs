//! Random changes of a few files, compared with byte vectors.

use super::DeviceUnderTest;
use super::device::read_all;
use crate::run::for_seeds;

/// Longest file.
const LENGTH_MAX: u64 = 100_000;

/// After any writes, truncations, reservations, punches and renames, each file equals its vector.
pub fn random_operations_agree_with_a_vector<D: DeviceUnderTest>() {
    for_seeds("random changes of files", 4, 100, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let (device, _guard) = D::create();
        let mut path = "a".to_owned();
        let mut file = device.create(&path).expect("the file is new");
        let mut expected: Vec<u8> = Vec::new();
        for round in 0..300 {
            let offset = random.u64(0..LENGTH_MAX);
            let length = random.u64(1..=(LENGTH_MAX - offset).min(20_000));
            let (from, to) = (offset as usize, (offset + length) as usize);
            match random.u8(0..10) {
                0..4 => {
                    let bytes = vec![random.u8(..); length as usize];
                    file.write_at(&bytes, offset).expect("there is space");
                    expected.resize(expected.len().max(to), 0);
                    expected[from..to].copy_from_slice(&bytes);
                }
                4 => {
                    file.set_len(offset).expect("set length");
                    expected.resize(from, 0);
                }
                5 => {
                    file.allocate(offset, length).expect("there is space");
                    expected.resize(expected.len().max(to), 0);
                }
                6 => {
                    if file.punch(offset, length).expect("punch") {
                        let end = to.min(expected.len());
                        expected[from.min(end)..end].fill(0);
                    }
                }
                7 => file.sync_data().expect("sync"),
                8 => {
                    let other = format!("{round}");
                    device.rename(&path, &other).expect("rename");
                    path = other;
                }
                _ => {
                    file = device.open(&path).expect("open");
                    let mut bytes = vec![0; length as usize];
                    let read = file.read_at(&mut bytes, offset).expect("readable");
                    let end = to.min(expected.len());
                    assert_eq!(bytes[..read], expected[from.min(end)..end]);
                }
            }
            assert_eq!(file.len().expect("known"), expected.len() as u64);
        }
        assert!(read_all(&*file) == expected, "the file differs");
    });
}
