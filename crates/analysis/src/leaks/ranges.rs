//! Sorted ranges of addresses.

/// Sorts ranges, and joins those that overlap. Returns how many remain, which are the first.
pub fn join(ranges: &mut [(usize, usize)]) -> usize {
    ranges.sort_unstable();
    let mut last: Option<usize> = None;
    for index in 0..ranges.len() {
        let Some((start, end)) = ranges.get(index).copied() else { break };
        match last.and_then(|last| ranges.get_mut(last)) {
            Some(before) if start <= before.1 => before.1 = before.1.max(end),
            _ => {
                let next = last.map_or(0, |last| last + 1);
                if let Some(place) = ranges.get_mut(next) {
                    *place = (start, end);
                }
                last = Some(next);
            }
        }
    }
    last.map_or(0, |last| last + 1)
}

/// The parts of a range that are in none of these, which are in the order of their addresses and do not overlap.
pub fn around(skipped: &[(usize, usize)], from: usize, to: usize, mut visit: impl FnMut(usize, usize)) {
    let mut at = from;
    let mut next = skipped.partition_point(|range| range.1 <= from);
    while at < to {
        let (start, end) = skipped.get(next).copied().unwrap_or((to, to));
        let stop = start.clamp(at, to);
        if at < stop {
            visit(at, stop);
        }
        if start >= to {
            return;
        }
        at = end.max(at);
        next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone_around(skipped: &[(usize, usize)], from: usize, to: usize) -> Vec<(usize, usize)> {
        let mut parts = Vec::new();
        around(skipped, from, to, |from, to| parts.push((from, to)));
        parts
    }

    #[test]
    fn ranges_are_joined_and_gone_around() {
        let mut ranges = [(50, 60), (10, 20), (15, 30), (60, 70), (12, 14)];
        let count = join(&mut ranges);
        assert_eq!(ranges[..count], [(10, 30), (50, 70)]);
        assert_eq!(gone_around(&ranges[..count], 0, 100), [(0, 10), (30, 50), (70, 100)]);
        assert_eq!(gone_around(&ranges[..count], 12, 40), [(30, 40)]);
        assert_eq!(join(&mut []), 0);
    }
}
