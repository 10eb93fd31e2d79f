//! The main result in one sentence.

use super::tally::{By, OTHER, Tally};
use crate::units;

/// The sentence about a [`Tally`] that is sorted by the same figure.
pub(super) fn sentence(tally: &mut Tally, by: By) -> String {
    let sums = tally.sums;
    let Some(group) = tally.groups.iter_mut().find(|group| group.name != OTHER) else {
        return "No request left a line.".to_string();
    };
    let figure = group.figure(by);
    let (name, own) = (&group.name, group.sums);
    if figure <= 0 {
        return match by {
            By::Rss => format!("RSS did not grow during the requests of any kind, {name} the nearest to it."),
            _ => "No line says how much its request allocated.".to_string(),
        };
    }
    let requests = format!("{} of {} requests", count(own.requests), count(sums.requests));
    match by {
        By::Bytes => format!(
            "{name} allocated {} of all bytes: {} in {requests}.",
            share(own.bytes as f64, sums.bytes as f64),
            bytes(figure)
        ),
        By::Calls => format!(
            "{name} made {} of all calls of malloc: {} in {requests}.",
            share(own.calls as f64, sums.calls as f64),
            count(u64::try_from(figure).unwrap_or(u64::MAX))
        ),
        By::Count => format!(
            "{name} was asked for most often: {requests}, {} of them.",
            share(own.requests as f64, sums.requests as f64)
        ),
        By::P95 => format!(
            "{name} has the greatest requests, but for the rarest: one in twenty allocated {} or more.",
            bytes(figure)
        ),
        By::Max => {
            format!("The greatest single request was one of {name}: it allocated {}.", bytes(figure))
        }
        By::Rss => format!("RSS grew most during {name}: by {} in {requests}.", bytes(figure)),
    }
}

/// Such as `62%`.
pub(super) fn share(part: f64, whole: f64) -> String {
    match if whole > 0.0 { part * 100.0 / whole } else { 0.0 } {
        percent if percent > 0.0 && percent < 1.0 => "under 1%".to_string(),
        percent if percent > 99.0 && percent < 100.0 => "over 99%".to_string(),
        percent => format!("{percent:.0}%"),
    }
}

/// In the form of reports; impossibly large figures are cut.
pub(super) fn bytes(number: i128) -> String {
    units::bytes(i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX }))
}

pub(super) fn count(number: u64) -> String {
    units::count(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::input::Sink;

    fn answer(lines: &str, by: By) -> String {
        let mut tally = Tally::default();
        tally.take(0, lines.as_bytes());
        tally.sort(by);
        sentence(&mut tally, by)
    }

    const LOG: &str = "MEMORY method=POST path=/orders/1 malloc_bytes=6200 malloc_calls=10 rss_delta_bytes=0\n\
                       MEMORY method=GET path=/up malloc_bytes=1900 malloc_calls=30 rss_delta_bytes=4096\n\
                       MEMORY method=GET path=/up malloc_bytes=1900 malloc_calls=30 rss_delta_bytes=4096\n";

    #[test]
    fn each_figure_has_its_sentence() {
        assert_eq!(
            answer(LOG, By::Bytes),
            "POST /orders/:id allocated 62% of all bytes: 6.1 KiB in 1 of 3 requests."
        );
        assert_eq!(answer(LOG, By::Calls), "GET /up made 86% of all calls of malloc: 60 in 2 of 3 requests.");
        assert_eq!(answer(LOG, By::Count), "GET /up was asked for most often: 2 of 3 requests, 67% of them.");
        assert_eq!(answer(LOG, By::Rss), "RSS grew most during GET /up: by 8.0 KiB in 2 of 3 requests.");
        assert_eq!(
            answer(LOG, By::Max),
            "The greatest single request was one of POST /orders/:id: it allocated 6.1 KiB."
        );
        assert!(answer(LOG, By::P95).contains("one in twenty allocated 6.1 KiB or more"));
    }

    #[test]
    fn nothing_is_made_up() {
        let bare = "MEMORY path=/a rss_delta_bytes=-5\n";
        assert_eq!(answer(bare, By::Bytes), "No line says how much its request allocated.");
        assert_eq!(
            answer(bare, By::Rss),
            "RSS did not grow during the requests of any kind, /a the nearest to it."
        );
        assert_eq!(answer("", By::Bytes), "No request left a line.");
        assert_eq!(
            [share(0.4, 100.0), share(99.6, 100.0), share(100.0, 100.0), share(0.0, 0.0)],
            ["under 1%", "over 99%", "100%", "0%"]
        );
    }
}
