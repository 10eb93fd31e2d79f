//! Finds the rows with the greatest figures, in order.

use std::cmp::{Ordering, Reverse};

/// Keeps the `limit` rows with the greatest figures (all without a limit), sorted. `tie` orders rows with equal
/// figures, so that the result does not depend on addresses of objects.
pub(super) fn keep<T>(
    rows: &mut Vec<T>,
    limit: Option<usize>,
    figure: impl Fn(&T) -> u64,
    tie: impl Fn(&T, &T) -> Ordering,
) {
    let order = |a: &T, b: &T| Reverse(figure(a)).cmp(&Reverse(figure(b))).then_with(|| tie(a, b));
    if let Some(limit) = limit
        && limit < rows.len()
    {
        if limit > 0 {
            rows.select_nth_unstable_by(limit - 1, order);
        }
        rows.truncate(limit);
    }
    rows.sort_unstable_by(order);
}
