//! How many more mappings the kernel lets this process have (`vm.max_map_count`). Where there are none, `munmap` of a part fails as
//! well, and Ruby ends itself: so memintro leaves the last ones to the program.

use std::fs::File;
use std::io::Read;

/// What a start and the readings after it take is some 30, and each library has five.
const LEAST: u64 = 100;

/// What is wrong if there are few left, as a text for people. It asks malloc for nothing before it knows that.
pub(crate) fn scarcity() -> Option<String> {
    let most = visit("/proc/sys/vm/max_map_count", 0, number)?;
    let used = visit("/proc/self/maps", 0, lines)?;
    (most.saturating_sub(used) < LEAST).then(|| {
        format!(
            "this process has {used} mappings, and the kernel allows {most} (vm.max_map_count); memintro would take the last ones, and \
             Ruby cannot go on without any. Raise the limit (sysctl vm.max_map_count), or look in /proc/{}/maps for what maps so much",
            std::process::id()
        )
    })
}

/// Goes through a file, piece by piece.
fn visit(path: &str, start: u64, next: impl Fn(u64, &[u8]) -> u64) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let (mut piece, mut found) = ([0; 8192], start);
    loop {
        match file.read(&mut piece).ok()? {
            0 => return Some(found),
            len => found = next(found, piece.get(..len)?),
        }
    }
}

fn number(before: u64, text: &[u8]) -> u64 {
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(before, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

fn lines(before: u64, text: &[u8]) -> u64 {
    before + text.iter().filter(|byte| **byte == b'\n').count() as u64
}
