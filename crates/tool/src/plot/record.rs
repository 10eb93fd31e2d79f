//! The contents of a MEMORY line.

use super::stamp::Stamp;

/// The figures that can be plotted, in the order of the panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Resident bytes of the process.
    Rss,
    /// Occupied slots of Ruby's heap.
    LiveObjects,
    /// Live bytes of malloc.
    MallocLive,
    /// Milliseconds that the collector took, since the line before or during the request.
    Gc,
}

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 4] = [Metric::Rss, Metric::LiveObjects, Metric::MallocLive, Metric::Gc];
}

/// The figures of a line by metric; NaN where the line does not have one.
pub type Figures = [f64; 4];

/// The contents of a MEMORY line.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The line's own time, or else the time that its logger put in front. If the line has only whole seconds, the
    /// fraction comes from the logger's time.
    pub stamp: Option<Stamp>,
    /// 0 if the line names no process.
    pub pid: u32,
    /// By [`Metric`].
    pub figures: Figures,
    /// Whether the figure of [`Metric::MallocLive`] was estimated from a sample.
    pub estimated: bool,
    /// Whether the line says that nothing was tracked.
    pub untracked: bool,
}

impl Record {
    pub(crate) fn empty() -> Record {
        Record { stamp: None, pid: 0, figures: [f64::NAN; 4], estimated: false, untracked: false }
    }

    pub(super) fn has_figures(&self) -> bool {
        self.figures.iter().any(|figure| figure.is_finite())
    }

    /// Reads one field of a line, and ignores fields with other names.
    pub(crate) fn field(&mut self, name: &[u8], value: &[u8]) {
        let metric = match name {
            b"rss_bytes" => Metric::Rss,
            b"live_objects" | b"process_live_objects" => Metric::LiveObjects,
            b"malloc_live_bytes" | b"process_malloc_live_bytes" | b"live_bytes" => Metric::MallocLive,
            b"process_gc_ms" | b"gc_ms" => Metric::Gc,
            b"pid" => {
                self.pid = decimal(value).map_or(0, |(pid, _)| pid as u32);
                return;
            }
            b"time" | b"timestamp" | b"@timestamp" => {
                self.stamp = Stamp::read(value).map(|(stamp, _)| stamp);
                return;
            }
            b"estimated" => {
                self.estimated |= value == b"true";
                return;
            }
            b"malloc_live_bytes_standard_error" | b"live_bytes_standard_error" => {
                self.estimated |= decimal(value).is_some();
                return;
            }
            _ => return,
        };
        if let Some((figure, _)) = decimal(value) {
            self.figures[metric as usize] = figure;
        }
    }
}

/// The decimal number that `text` begins with, and the number of bytes read. The lines that are read here never
/// separate thousands.
pub(crate) fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    let (mut whole, mut at) = (0_u64, 0);
    while let Some(digit) = text.get(at).filter(|byte| byte.is_ascii_digit()) {
        whole = whole.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
        at += 1;
    }
    if at == 0 {
        return None;
    }
    let mut figure = whole as f64;
    if text.get(at) == Some(&b'.') {
        let (mut part, mut scale, mut digits) = (0_u64, 1_u64, 0);
        while let Some(digit) = text.get(at + 1 + digits).filter(|byte| byte.is_ascii_digit()) {
            if digits < 15 {
                part = part * 10 + u64::from(digit - b'0');
                scale *= 10;
            }
            digits += 1;
        }
        if digits > 0 {
            figure += part as f64 / scale as f64;
            at += 1 + digits;
        }
    }
    Some((figure, at))
}
