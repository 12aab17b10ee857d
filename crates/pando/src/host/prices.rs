//! What an object store costs, for the estimate that `status` prints.

use program::prices::{Prices, STANDARD};
use wire::{Failure, FailureKind, StoreStatus};

use crate::environment::OBJECT_PRICES;
use crate::failure::Result;

/// Dollars a day, by the prices that the environment sets, or the standard ones, if a day has
/// requests as the time so far had.
pub(crate) fn price_of_day(store: &StoreStatus) -> Result<f64> {
    let prices = match std::env::var(OBJECT_PRICES) {
        Ok(text) => Prices::parse(&text).ok_or_else(|| {
            let message = format!("{OBJECT_PRICES} is '{text}'");
            Failure::new(FailureKind::Invalid, message).hint(
                "dollars for a thousand writes, a thousand reads, and a gigabyte a month: for \
                 example 0.005,0.0004,0.023",
            )
        })?,
        Err(_) => STANDARD,
    };
    let requests = (store.creates + store.lists, store.reads + store.heads);
    Ok(prices.of_day(requests, store.seconds, store.stored_bytes.unwrap_or(0)))
}
