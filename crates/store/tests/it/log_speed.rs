//! What an append costs. Prints; never asserts a time.

use device::{Clock, SystemClock};
use store::{Log, LogOptions, Lsn, Room};
use testing::SimDevice;

use crate::log_script::{VOLUME, env};

#[test]
fn appending_is_a_checksum_and_a_copy() {
    let count = if std::env::var_os("PANDO_SLOW").is_some() { 2_000_000 } else { 20_000 };
    let device = SimDevice::new(1);
    let options = LogOptions { segment_bytes: 64 << 20, ..LogOptions::default() };
    let log = Log::create(&env(&device), "log", VOLUME, &options).unwrap();
    let clock = SystemClock::new();
    let mut appending = std::time::Duration::ZERO;
    for round in 0..count / 5_000 {
        let start = clock.monotonic();
        for _ in 0..5_000 {
            log.append(&[7; 150], Room::Normal).unwrap();
        }
        appending += clock.monotonic().saturating_sub(start);
        // Outside of the measure: the write.
        let last = (round + 1) * 5_000;
        log.committed(Lsn(last)).unwrap();
        if round % 50 == 49 {
            log.sync(Lsn(last)).unwrap();
            log.trim(Lsn(last)).unwrap();
        }
    }
    println!("{} ns an append of 150 bytes", appending.as_nanos() / u128::from(count));
}
