//! Reduces the number of points without a visible change: of all points in one column of pixels, the first, the least,
//! the greatest and the last are kept, in their order. No peak is lost or added.

/// Thins `points`, which are in the order of their first coordinate, to at most four a column.
pub(super) fn thin(
    points: impl Iterator<Item = (f64, f64)>,
    from: f64,
    to: f64,
    columns: usize,
) -> Vec<(f64, f64)> {
    let width = (to - from).max(f64::MIN_POSITIVE) / columns.max(1) as f64;
    let mut kept = Vec::new();
    let mut column: Option<(f64, Column)> = None;
    for point in points {
        let place = ((point.0 - from) / width).floor();
        match &mut column {
            Some((current, column)) if *current == place => column.add(point),
            _ => {
                if let Some((_, full)) = column.take() {
                    full.leave(&mut kept);
                }
                column = Some((place, Column::new(point)));
            }
        }
    }
    if let Some((_, full)) = column {
        full.leave(&mut kept);
    }
    kept
}

/// The points of one column that are kept, each with its place in the order.
struct Column {
    seen: usize,
    first: (f64, f64),
    least: (usize, (f64, f64)),
    greatest: (usize, (f64, f64)),
    last: (f64, f64),
}

impl Column {
    fn new(point: (f64, f64)) -> Column {
        Column { seen: 1, first: point, least: (0, point), greatest: (0, point), last: point }
    }

    fn add(&mut self, point: (f64, f64)) {
        if point.1 < self.least.1.1 {
            self.least = (self.seen, point);
        }
        if point.1 > self.greatest.1.1 {
            self.greatest = (self.seen, point);
        }
        self.last = point;
        self.seen += 1;
    }

    fn leave(self, kept: &mut Vec<(f64, f64)>) {
        let mut four = [(0, self.first), self.least, self.greatest, (self.seen - 1, self.last)];
        four.sort_by_key(|(place, _)| *place);
        let mut before = None;
        for (place, point) in four {
            if before != Some(place) {
                kept.push(point);
            }
            before = Some(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keeps_all_of_a_few_points() {
        let points = vec![(0.0, 1.0), (1.0, 5.0), (2.0, 3.0)];
        assert_eq!(thin(points.clone().into_iter(), 0.0, 2.0, 1_000), points);
        assert_eq!(thin([(7.0, 1.0)].into_iter(), 7.0, 7.0, 100), [(7.0, 1.0)]);
    }

    proptest! {
        #[test]
        fn every_column_keeps_its_ends_and_extremes(values in proptest::collection::vec(0_u32..1_000, 1..500), columns in 1_usize..40) {
            let points: Vec<_> = values.iter().enumerate().map(|(at, value)| (at as f64, f64::from(*value))).collect();
            let to = points.len() as f64;
            let kept = thin(points.iter().copied(), 0.0, to, columns);
            let place = |point: &(f64, f64)| (point.0 / (to / columns as f64)).floor() as i64;
            prop_assert!(kept.len() <= 4 * (columns + 1));
            prop_assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0));
            for column in 0..=columns as i64 {
                let all: Vec<_> = points.iter().filter(|point| place(point) == column).collect();
                let left: Vec<_> = kept.iter().filter(|point| place(point) == column).collect();
                let extremes = |points: &[&(f64, f64)]| {
                    let values = points.iter().map(|point| point.1 as i64);
                    (values.clone().min(), values.max(), points.first().map(|p| p.0 as i64), points.last().map(|p| p.0 as i64))
                };
                prop_assert_eq!(extremes(&all), extremes(&left));
            }
        }
    }
}
