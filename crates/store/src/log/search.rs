//! Searches bytes behind the end of a log for records: what a torn tail left, or proof that more
//! was durable than can be read.

use std::cell::OnceCell;

use format::log_record::{HEADER_BYTES, RecordHeader};

use super::sums::Sums;

/// What was found after the end of a log.
#[derive(Debug, Default)]
pub(super) struct TailScan {
    /// The highest record stated as durable by the records found.
    pub(super) durable: u64,
    /// The last record that is intact, or that a mark names, and the offset at which it ends.
    pub(super) last: u64,
    pub(super) end: usize,
    /// Bytes up to the end of the last apparent record of the torn tail.
    pub(super) stale: usize,
}

/// Zeros, for comparison.
static ZEROS: [u8; 4096 + HEADER_BYTES] = [0; 4096 + HEADER_BYTES];

/// Searches for records numbered `next` or more, and for proofs that `next` was durable.
pub(super) fn search(seed: u32, rest: &[u8], next: u64) -> TailScan {
    let mut found = TailScan::default();
    let sums = OnceCell::new();
    // Space limits the number of records after the end, and so their highest number; a mark has the
    // number of the record before it.
    let most = next.saturating_add((rest.len() / HEADER_BYTES) as u64);
    let mut at = 0;
    while let Some(head) = rest.get(at..).and_then(|rest| rest.first_chunk::<HEADER_BYTES>()) {
        // Most of a segment is zeros, which are skipped in large steps.
        if at % 64 == 0 {
            let window = &rest[at..];
            if let Some(step) = [4096, 64].into_iter().find(|&step| {
                window.get(..step + HEADER_BYTES).is_some_and(|bytes| ZEROS.starts_with(bytes))
            }) {
                at += step;
                continue;
            }
        }
        let lsn = format::Reader::new("lsn", &head[8..]).u64().unwrap_or(0);
        if lsn >= next && lsn <= most {
            let header = RecordHeader::decode(head);
            let length = header.as_ref().map_or(rest.len(), |head| head.length as usize);
            let (from, to) = (at + HEADER_BYTES, at + HEADER_BYTES + length);
            found.stale = found.stale.max(to.min(rest.len()));
            // Not summed byte by byte. An apparent record may be user data, and there may be
            // millions of such places, each with a length of megabytes.
            if let Ok(header) = header
                && to <= rest.len()
                && header.sums(sums.get_or_init(|| Sums::new(rest)).sum(seed, from, to))
            {
                found.durable = found.durable.max(header.durable().unwrap_or(0));
                (found.last, found.end) = (found.last.max(lsn), found.end.max(to));
            }
        }
        at += 1;
    }
    found
}

/// The offset of an intact record, anywhere in the bytes.
pub(super) fn find(seed: u32, bytes: &[u8], lsn: u64) -> Option<usize> {
    let sums = OnceCell::new();
    bytes.windows(HEADER_BYTES).enumerate().find_map(|(at, head)| {
        if head[8..16] != lsn.to_le_bytes() {
            return None;
        }
        let header = RecordHeader::decode(head.first_chunk()?).ok()?;
        let (from, to) = (at + HEADER_BYTES, at + HEADER_BYTES + header.length as usize);
        let is_whole = !header.is_mark()
            && to <= bytes.len()
            && header.sums(sums.get_or_init(|| Sums::new(bytes)).sum(seed, from, to));
        is_whole.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use format::log_record;

    use super::*;

    const SEED: u32 = 99;

    fn record(payload: &[u8], lsn: u64, durable: u64) -> Vec<u8> {
        let sum = log_record::sum_payload(SEED, payload);
        let mut bytes = log_record::encode(sum, payload.len() as u32, lsn, durable).to_vec();
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn records_are_found_at_any_offset() {
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..200 {
            let mut rest = vec![0; random.usize(0..3000)];
            for _ in 0..random.usize(0..300) {
                rest.push(random.u8(..));
            }
            let payload: Vec<u8> = (0..random.usize(0..5000)).map(|_| random.u8(..)).collect();
            let whole = rest.len();
            rest.extend(record(&payload, 50, 45));
            let end = rest.len();
            rest.resize(end + random.usize(0..5000), 0);
            let found = search(SEED, &rest, 40);
            assert_eq!(found.durable, 45);
            assert!(found.stale >= end);
            assert_eq!(search(SEED + 1, &rest, 40).durable, 0, "of another volume");
            rest[whole + HEADER_BYTES - 1] ^= 1;
            assert_eq!(search(SEED, &rest, 40).durable, 0, "a damaged one");
        }
    }

    /// Files in which nearly every offset looks like the header of a long record. Summing each of
    /// them would read 4 MiB more than a hundred thousand times.
    #[test]
    fn user_data_does_not_slow_the_search_for_records() {
        const BYTES: usize = 6 << 20;
        // At every sixteenth byte a length of 4 MiB and the number 1, and others in between.
        let like = [0, 0, 0x40, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let rest = like.repeat(BYTES / like.len());
        let found = search(SEED, &rest, 1);
        assert_eq!(found.durable, 0);
        assert_eq!(found.stale, rest.len());
    }
}
