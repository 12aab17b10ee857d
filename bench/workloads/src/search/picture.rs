//! The distribution of times as a text chart. It has a line for every tenth of the queries, as long
//! as the logarithm of the time at that quantile.

use std::time::Duration;

/// Characters per power of ten.
const DECADE: f64 = 12.0;
const SHARES: [f64; 13] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];

/// The chart of ascending times. Begins at 10 us.
pub(super) fn lines(times: &[Duration]) -> Vec<String> {
    let mut lines = vec![String::from(
        "  share       10 us       100 us      1 ms        10 ms       0.1 s       1 s",
    )];
    for share in SHARES {
        let place = (times.len() as f64 * share).ceil() as usize;
        let Some(time) = place.checked_sub(1).and_then(|place| times.get(place)) else {
            continue;
        };
        let micros = time.as_nanos() as f64 / 1000.0;
        let length = ((micros / 10.0).max(1.0).log10() * DECADE).round() as usize;
        lines.push(format!(
            "  {:4.0} %      |{}> {micros:.0} us",
            share * 100.0,
            "-".repeat(length)
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_times_have_longer_lines() {
        let times: Vec<Duration> = (1..=100).map(|n| Duration::from_micros(n * n)).collect();
        let lines = lines(&times);
        assert_eq!(lines.len(), SHARES.len() + 1);
        assert!(lines[1..].is_sorted_by_key(|line| line.matches('-').count()));
        assert!(super::lines(&[]).len() == 1);
    }
}
