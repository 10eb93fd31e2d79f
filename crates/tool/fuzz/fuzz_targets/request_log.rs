//! Any log, read as `memintro requests` would. Run: `rake fuzz[request_log,60]`.
#![no_main]

use libfuzzer_sys::fuzz_target;

// Only the readers are built, because the crate's libraries for plots and terminals would take minutes and are not
// used.
#[path = "../../src/plot"]
mod plot {
    #![allow(dead_code)]
    pub mod json_line;
    pub mod memory_line;
    pub mod record;
    pub mod stamp;
}
#[path = "../../src/requests"]
mod requests {
    #![allow(dead_code)]
    pub mod fold;
    pub mod request_line;
}

use requests::request_line::{LogLine, read};

fuzz_target!(|log: &[u8]| {
    for text in log.split(|byte| *byte == b'\n') {
        if let LogLine::Request(request) = read(text) {
            assert!(!request.name.is_empty());
            assert!(request.name.chars().count() <= 200, "{}", request.name);
            assert!(request.name.chars().all(|character| !character.is_control()), "{:?}", request.name);
            let figures = [request.bytes, request.calls, request.rss.map(i64::unsigned_abs)];
            assert!(figures.iter().flatten().all(|figure| *figure <= 1 << 50));
        }
    }
});
