//! What an object store costs, for the estimate that `status` prints.

use wire::{Failure, FailureKind, StoreStatus};

use crate::environment::OBJECT_PRICES;
use crate::failure::Result;

/// Days of a month.
const MONTH_DAYS: f64 = 30.0;
const GIGABYTE: f64 = 1e9;
const DAY_SECONDS: f64 = 86_400.0;

/// Prices in dollars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Prices {
    /// Price of a thousand requests that create or list.
    pub(crate) writes: f64,
    /// Price of a thousand requests that read.
    pub(crate) reads: f64,
    /// Price of a gigabyte for a month.
    pub(crate) month: f64,
}

/// What Amazon S3 asked in us-east-1 in November 2026 for its standard class. Deletions cost
/// nothing, and neither does traffic inside the region.
const STANDARD: Prices = Prices { writes: 0.005, reads: 0.0004, month: 0.023 };

impl Prices {
    /// The prices that the environment sets, or the standard ones.
    pub(crate) fn of_environment() -> Result<Prices> {
        match std::env::var(OBJECT_PRICES) {
            Ok(text) => Prices::parse(&text).ok_or_else(|| {
                let message = format!("{OBJECT_PRICES} is '{text}'");
                Failure::new(FailureKind::Invalid, message).hint(
                    "dollars for a thousand writes, a thousand reads, and a gigabyte a month: \
                     for example 0.005,0.0004,0.023",
                )
            }),
            Err(_) => Ok(STANDARD),
        }
    }

    fn parse(text: &str) -> Option<Prices> {
        let mut numbers = text.split(',').map(|part| part.trim().parse::<f64>().ok());
        let mut next = || numbers.next()?.filter(|number| number.is_finite() && *number >= 0.0);
        let prices = Prices { writes: next()?, reads: next()?, month: next()? };
        numbers.next().is_none().then_some(prices)
    }

    /// Dollars a day, if a day has requests as the time so far had, and as many bytes are stored.
    pub(crate) fn day(&self, store: &StoreStatus) -> f64 {
        let (writes, reads) = (store.creates + store.lists, store.reads + store.heads);
        self.of(writes, reads, store.seconds as f64, store.stored_bytes.unwrap_or(0))
    }

    fn of(&self, writes: u64, reads: u64, seconds: f64, bytes: u64) -> f64 {
        let requests = writes as f64 * self.writes + reads as f64 * self.reads;
        let stored = bytes as f64 / GIGABYTE * self.month / MONTH_DAYS;
        requests / 1000.0 / seconds.max(1.0) * DAY_SECONDS + stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_parsed_and_multiplied() {
        let prices = Prices::parse("1, 0.5,30").unwrap();
        assert_eq!(prices, Prices { writes: 1.0, reads: 0.5, month: 30.0 });
        // A thousand writes and two thousand reads in half a day, and two gigabytes.
        assert!((prices.of(1000, 2000, 43_200.0, 2_000_000_000) - 6.0).abs() < 1e-9);
        for wrong in ["", "1,2", "1,2,3,4", "a,b,c", "-1,2,3", "inf,1,1"] {
            assert_eq!(Prices::parse(wrong), None, "{wrong}");
        }
    }
}
