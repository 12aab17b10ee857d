//! What an append costs: no call of the device. What was appended is written together.

use store::{Log, LogOptions, LogSpace, Lsn};
use testing::{Op, SimDevice};

use crate::log_script::{VOLUME, env};

const APPENDS: u64 = 5000;
const BYTES: usize = 150;

#[test]
fn appends_call_no_device_and_are_written_together() {
    let device = SimDevice::new(1);
    let options = LogOptions { segment_bytes: 64 << 20, ..LogOptions::default() };
    let log = Log::create(&env(&device), "log", VOLUME, &options).unwrap();
    let before = device.counts();
    for _ in 0..APPENDS {
        log.append(&[7; BYTES], LogSpace::Normal).unwrap();
    }
    assert_eq!(device.counts().calls, before.calls, "an append waits for the device");
    log.sync(Lsn(APPENDS)).unwrap();
    let after = device.counts();
    let more = |op| after.of(op) - before.of(op);
    assert!(more(Op::Write) <= APPENDS / 100, "{} writes", more(Op::Write));
    assert_eq!(more(Op::Sync), 1);
    assert!(after.written_bytes - before.written_bytes >= APPENDS * BYTES as u64);
    log.close().unwrap();
    assert_eq!(device.counts().of(Op::Sync), after.of(Op::Sync), "all of it is durable");
}
