//! A full disk: answered when a record is appended, before anything is applied; the reserve
//! lets deletions continue; space that is reclaimed is used.

use std::sync::atomic::Ordering;

use store::{Error, LogSpace, Lsn};
use testing::{CrashPolicy, SimDevice};

use crate::log_script::{check_records, create, open, promises, run};

#[test]
fn a_full_disk_is_reported_by_append_and_never_by_write() {
    let device = SimDevice::new(1);
    let log = create(&device);
    device.set_capacity(Some(device.used_bytes() + (16 << 10)));
    let mut last = 0;
    loop {
        match log.append(&[3; 100], LogSpace::Normal) {
            Ok(lsn) => {
                last = lsn.0;
                log.committed(lsn).unwrap();
            }
            Err(error) => {
                assert!(matches!(error, Error::NoSpace(_)), "{error}");
                break;
            }
        }
    }
    assert!(last > 60, "two more segments had space: {last}");
    log.sync(Lsn(last)).unwrap();

    // Deletions continue with the reserve, and end with the same answer.
    let mut deleted = 0;
    while let Ok(lsn) = log.append(&[1, 2, 3], LogSpace::Reserve) {
        assert_eq!(lsn.0, last + deleted + 1);
        deleted += 1;
        log.sync(lsn).unwrap();
    }
    assert!(deleted > 100, "{deleted}");
    log.check().unwrap();

    // A full volume opens; a checkpoint gives its space back.
    drop(log);
    let opened = open(&device.after_crash(CrashPolicy::LoseAll, 1), 0).unwrap();
    assert_eq!(opened.records.len() as u64, last + deleted);
    let refused = opened.log.append(&[0; 3000], LogSpace::Normal);
    assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}");
    opened.log.trim(opened.log.last()).unwrap();
    opened.log.append(&[0; 3000], LogSpace::Normal).unwrap();
    opened.log.close().unwrap();
}

#[test]
fn no_disk_size_loses_synced_data() {
    let used = {
        let device = SimDevice::new(0);
        drop(create(&device));
        device.used_bytes()
    };
    for blocks in 0..24 {
        let device = SimDevice::new(blocks);
        let log = create(&device);
        device.set_capacity(Some(used + blocks * 4096));
        let promised = promises();
        if let Err(error) = run(&log, 1, blocks, 300, &promised) {
            assert!(error.is_no_space(), "{blocks} blocks: {error}");
            log.check().unwrap();
            log.sync(log.last()).unwrap();
            promised.synced.store(log.last().0, Ordering::SeqCst);
        }
        drop(log);
        let disk = device.after_crash(CrashPolicy::Random, blocks);
        let from = promised.checkpoint.load(Ordering::SeqCst);
        let opened = open(&disk, from).unwrap_or_else(|error| panic!("{blocks}: {error}"));
        let last = check_records(&opened.records, from, |_| 1);
        assert!(last >= promised.synced.load(Ordering::SeqCst), "{blocks} blocks");
    }
}
