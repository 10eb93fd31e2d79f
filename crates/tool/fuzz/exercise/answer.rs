//! Passes a possible answer of a process, including its header, to the code of `memintro watch`, and checks
//! invariants. For the fuzzer and for the replay of its corpus.

use super::connection::{Failure, body_bytes};
use super::state::State;
use super::vitals::Vitals;
use super::worker::{News, Target};
use std::time::Instant;

pub(crate) fn exercise(mut stream: &[u8]) {
    let now = Instant::now();
    let mut state = State::new(Target { pid: 1, path: "socket".into() }, false);
    // Each answer in turn, as on one connection.
    while !stream.is_empty() {
        match receive(&mut stream) {
            Ok(answer) => match Vitals::read(answer, 1) {
                Ok(vitals) => {
                    let is_plain = |text: &str| !text.chars().any(char::is_control);
                    assert!(is_plain(&vitals.program) && is_plain(&vitals.mode));
                    assert!(vitals.sites.iter().all(|site| is_plain(&site.name)));
                    assert!(vitals.time.is_finite() && vitals.gc_ms.is_finite());
                    state.take(News::Vitals(Box::new(vitals)), now);
                }
                Err(message) => state.take(News::Refused(message), now),
            },
            Err(Failure::Refused(message) | Failure::Invalid(message)) => {
                state.take(News::Refused(message), now)
            }
            Err(Failure::Gone | Failure::Silent) => break,
        }
        assert!(state.remark(now).is_none_or(|text| !text.chars().any(char::is_control)));
        assert!(state.remark(now).is_none_or(|text| text.len() < 1 << 18));
        assert!(state.moments.iter().all(|moment| (0.0..=1.0).contains(&moment.gc_share)));
    }
}

/// Reads one answer: its header, and as many bytes as the header announces.
fn receive<'a>(stream: &mut &'a [u8]) -> Result<&'a [u8], Failure> {
    let end = stream.iter().position(|byte| *byte == b'\n').ok_or(Failure::Gone)?;
    let (header, rest) = stream.split_at(end + 1);
    *stream = rest;
    let bytes = usize::try_from(body_bytes(header, "vitals")?).map_err(|_| Failure::Gone)?;
    let answer = rest.get(..bytes).ok_or(Failure::Gone)?;
    *stream = rest.get(bytes..).unwrap_or_default();
    Ok(answer)
}
