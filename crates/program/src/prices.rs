//! What an object store costs, for estimates.

/// Days of a month.
const MONTH_DAYS: f64 = 30.0;
const GIGABYTE: f64 = 1e9;
const DAY_SECONDS: f64 = 86_400.0;

/// Prices in dollars. Deletions cost nothing, and neither does traffic inside a region.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// Price of a thousand requests that create or list.
    pub writes: f64,
    /// Price of a thousand requests that read.
    pub reads: f64,
    /// Price of a gigabyte for a month.
    pub month: f64,
}

/// What Amazon S3 asked in us-east-1 in November 2026 for its standard class.
pub const STANDARD: Prices = Prices { writes: 0.005, reads: 0.0004, month: 0.023 };

impl Prices {
    /// Reads three numbers with commas between them.
    pub fn parse(text: &str) -> Option<Prices> {
        let mut numbers = text.split(',').map(|part| part.trim().parse::<f64>().ok());
        let mut next = || numbers.next()?.filter(|number| number.is_finite() && *number >= 0.0);
        let prices = Prices { writes: next()?, reads: next()?, month: next()? };
        numbers.next().is_none().then_some(prices)
    }

    /// Dollars for so many requests that create or list, and that read.
    pub fn of_requests(&self, writes: f64, reads: f64) -> f64 {
        (writes * self.writes + reads * self.reads) / 1000.0
    }

    /// Dollars a day, if a day has requests as so many seconds had, and as many bytes are stored.
    pub fn of_day(&self, (writes, reads): (u64, u64), seconds: u64, bytes: u64) -> f64 {
        let requests = self.of_requests(writes as f64, reads as f64);
        let stored = bytes as f64 / GIGABYTE * self.month / MONTH_DAYS;
        requests / (seconds as f64).max(1.0) * DAY_SECONDS + stored
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
        assert!((prices.of_day((1000, 2000), 43_200, 2_000_000_000) - 6.0).abs() < 1e-9);
        assert!((STANDARD.of_requests(1e6, 1e6) - 5.4).abs() < 1e-9);
        for wrong in ["", "1,2", "1,2,3,4", "a,b,c", "-1,2,3", "inf,1,1"] {
            assert_eq!(Prices::parse(wrong), None, "{wrong}");
        }
    }
}
