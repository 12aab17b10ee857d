//! The median of the rounds' results. Of an even number of rounds it is the mean of the two in the
//! middle, so the better of two does not represent both.

/// The median; 0 if there are no values.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or(0.0);
    if values.is_empty() || !values.len().is_multiple_of(2) {
        return upper;
    }
    f64::midpoint(values.get(values.len() / 2 - 1).copied().unwrap_or(upper), upper)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_of_an_even_count_is_between_the_middle_two() {
        let check = |values: &[f64], expected: f64| {
            assert!((median(values.to_vec()) - expected).abs() < 1e-12, "{values:?}");
        };
        check(&[], 0.0);
        check(&[3.0], 3.0);
        check(&[0.6, 0.4], 0.5);
        check(&[9.0, 1.0, 2.0], 2.0);
        check(&[4.0, 1.0, 9.0, 2.0], 3.0);
    }
}
