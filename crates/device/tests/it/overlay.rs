//! The device below an overlay shows through it, and no write to the overlay reaches it. It is no
//! disk: space, and what directories refuse, are not those of one.

use std::sync::Arc;

use device::{Device, Overlay};
use testing::SimDevice;

#[test]
fn an_overlay_shows_and_does_not_change_the_lower_files() {
    let below = SimDevice::new(2);
    let file = below.create("a").unwrap();
    let bytes: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
    file.write_at(&bytes, 0).unwrap();
    below.create("b").unwrap();
    let overlay = Overlay::new(Arc::new(below.copy()));
    let mut right = bytes.clone();
    let over = overlay.open("a").unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..500 {
        let (offset, length) = (random.usize(..12_000), random.usize(1..6000));
        match random.u8(..8) {
            0 => {
                over.set_len(offset as u64).unwrap();
                right.resize(offset, 0);
            }
            1 => {
                assert!(over.punch(offset as u64, length as u64).unwrap());
                let end = (offset + length).min(right.len());
                right.get_mut(offset..end).unwrap_or_default().fill(0);
            }
            _ => {
                let written = vec![random.u8(..); length];
                over.write_at(&written, offset as u64).unwrap();
                right.resize(right.len().max(offset + length), 0);
                right[offset..offset + length].copy_from_slice(&written);
            }
        }
        let mut read = vec![7; right.len() + 100];
        let found = over.read_at(&mut read, 0).unwrap();
        assert_eq!(found, right.len());
        assert!(read[..found] == right);
    }
    overlay.remove("b").unwrap();
    overlay.rename("a", "c").unwrap();
    assert_eq!(overlay.list("").unwrap(), ["c"]);
    assert_eq!(below.list("").unwrap(), ["a", "b"]);
    assert!(below.read_file("a") == bytes);
}
