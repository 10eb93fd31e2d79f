//! Recognizes and reads a MEMORY line of a log.
//!
//! There are two forms, each also with text of a logger in front:
//!
//! ```text
//! MEMORY[123]: time: 2026-01-01 12:00:00 +0000 rss: 1123.4 MB, live_objects: 1.2 Million
//! MEMORY method=GET path=/posts status=200 rss_bytes=117846016 process_gc_ms=1.5 pid=123 time=2026-01-01T12:00:00.123Z
//! ```
//!
//! The second form can also be a JSON object. Text from outside in a log (such as a request's parameters) must not
//! count as such a line, so MEMORY counts only outside of quotes.

use super::json_line;
use super::record::{Metric, Record, decimal};
use super::stamp::Stamp;
use memchr::memmem;
use std::borrow::Cow;

/// The form of a line.
pub(crate) enum Line<'a> {
    /// The first form: the text after `MEMORY[`.
    Periodic(Cow<'a, [u8]>),
    /// The second form, whose fields have been taken.
    Fields,
}

/// Reads one line without its line end: passes the fields of the second form to `take`, and also returns the
/// text in front of the word. None: not a MEMORY line, and the caller discards the fields.
pub(crate) fn parse<'a>(line: &'a [u8], take: &mut dyn FnMut(&[u8], &[u8])) -> Option<(Line<'a>, &'a [u8])> {
    let word = memmem::find(line, b"MEMORY");
    let Some(at) = word.filter(|&at| ours(line, at).is_some()) else {
        json_line::read(line, take)?;
        return Some((Line::Fields, &line[..word.unwrap_or(0)]));
    };
    let prefix = &line[..at];
    let rest = match memchr::memchr_iter(b'"', prefix).count() % 2 {
        0 => Cow::Borrowed(&line[at + b"MEMORY".len()..]),
        _ => message(&line[at + b"MEMORY".len()..]),
    };
    match rest.first()? {
        b'[' => {
            let text = match rest {
                Cow::Borrowed(rest) => Cow::Borrowed(&rest[1..]),
                Cow::Owned(rest) => Cow::Owned(rest[1..].to_vec()),
            };
            return Some((Line::Periodic(text), prefix));
        }
        b' ' if !rest.trim_ascii_start().starts_with(b"{") => {
            fields(&rest[1..], &mut |name, value| take(name, &unescaped(value)));
        }
        b' ' | b':' => json_line::members(&rest, take)?,
        _ => return None,
    }
    Some((Line::Fields, prefix))
}

/// The text of a message in JSON up to its last quote, without the escapes that stand for quotes.
fn message(text: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => break,
            b'\\' => out.extend(bytes.next()),
            _ => out.push(byte),
        }
    }
    Cow::Owned(out)
}

/// Removes the backslashes before quotes and backslashes. Other escapes stay and are read as they are.
fn unescaped(value: &[u8]) -> Cow<'_, [u8]> {
    if memmem::find(value, b"\\").is_none() {
        return Cow::Borrowed(value);
    }
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let skip = usize::from(matches!(rest.get(at + 1), Some(b'"' | b'\\')));
        out.extend_from_slice(&rest[..at]);
        out.push(rest[at + skip]);
        rest = &rest[at + skip + 1..];
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// Reads the figures of one line without its line end. None: not a MEMORY line.
pub fn read(line: &[u8]) -> Option<Record> {
    let mut record = Record::empty();
    let (form, prefix) = parse(line, &mut |name, value| record.field(name, value))?;
    if let Line::Periodic(text) = form {
        record = periodic(&text)?;
    }
    if !record.has_figures() {
        return None;
    }
    record.stamp = match record.stamp {
        Some(own) if own.is_whole() => Stamp::find(prefix).and_then(|finer| own.refined(finer)).or(Some(own)),
        None => Stamp::find(prefix),
        precise => precise,
    };
    if record.pid == 0 {
        record.pid = logged_pid(prefix);
    }
    Some(record)
}

/// Whether the MEMORY at `at` is the beginning of a message: not inside of quotes, except as the message of a log
/// that consists of JSON.
fn ours(line: &[u8], at: usize) -> Option<()> {
    let prefix = &line[..at];
    let quotes = memchr::memchr_iter(b'"', prefix).count();
    if quotes.is_multiple_of(2) {
        return matches!(prefix.last(), None | Some(b' ' | b'\t' | b':' | b']' | b'|')).then_some(());
    }
    let name = prefix.strip_suffix(b"\"")?.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    const MESSAGES: [&[u8]; 4] = [b"\"message\"", b"\"msg\"", b"\"log\"", b"\"text\""];
    MESSAGES.iter().any(|message| name.ends_with(message)).then_some(())
}

/// After `MEMORY[`.
fn periodic(text: &[u8]) -> Option<Record> {
    let mut record = Record::empty();
    let (pid, used) = decimal(text)?;
    record.pid = pid as u32;
    let mut rest = text[used..].strip_prefix(b"]:")?.trim_ascii_start();
    if let Some(timed) = rest.strip_prefix(b"time:") {
        rest = timed.trim_ascii_start();
        if let Some((stamp, used)) = Stamp::read(rest) {
            record.stamp = Some(stamp);
            rest = &rest[used..];
        }
    }
    while !rest.is_empty() {
        let end =
            memchr::memchr(b',', rest).filter(|&end| rest.get(end + 1) == Some(&b' ')).unwrap_or(rest.len());
        named_figure(rest[..end].trim_ascii(), &mut record);
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    Some(record)
}

/// `rss: 1123.4 MB`
fn named_figure(text: &[u8], record: &mut Record) -> Option<()> {
    let colon = memchr::memchr(b':', text)?;
    let metric = match &text[..colon] {
        b"rss" => Metric::Rss,
        b"live_objects" => Metric::LiveObjects,
        b"malloc_live" => Metric::MallocLive,
        b"gc_time" => Metric::Gc,
        _ => return None,
    };
    let value = text[colon + 1..].trim_ascii_start();
    record.untracked |= metric == Metric::MallocLive && value.starts_with(b"off");
    let (figure, used) = decimal(value)?;
    let unit = value[used..].trim_ascii_start();
    let end = unit.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(unit.len());
    record.figures[metric as usize] = figure * scale(&unit[..end]);
    record.estimated |= unit[end..].trim_ascii_start().starts_with(b"(estimate");
    Some(())
}

/// Rails' number_to_human_size and number_to_human, whose megabyte is 1,024 kilobytes.
fn scale(unit: &[u8]) -> f64 {
    match unit {
        b"KB" | b"KiB" | b"kB" => 1024.0,
        b"MB" | b"MiB" => 1024.0 * 1024.0,
        b"GB" | b"GiB" => 1024.0 * 1024.0 * 1024.0,
        b"TB" | b"TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        b"Thousand" => 1e3,
        b"Million" => 1e6,
        b"Billion" => 1e9,
        _ => 1.0,
    }
}

/// Calls `take` with each field of `name=value name="quoted value" …`, a quoted value without its quotes.
fn fields<'a>(text: &'a [u8], take: &mut dyn FnMut(&'a [u8], &'a [u8])) {
    let mut rest = text;
    while let Some(equals) = memchr::memchr2(b'=', b' ', rest) {
        let name = &rest[..equals];
        let value = &rest[equals + 1..];
        if rest[equals] == b' ' {
            rest = value;
            continue;
        }
        let (value, used) = value_of(value);
        take(name, value);
        rest = rest[equals + 1..].get(used + 1..).unwrap_or_default();
    }
}

/// A value up to the next blank, or the text within its quotes, and the number of bytes read.
fn value_of(text: &[u8]) -> (&[u8], usize) {
    if text.first() != Some(&b'"') {
        let end = memchr::memchr(b' ', text).unwrap_or(text.len());
        return (&text[..end], end);
    }
    let mut at = 1;
    while let Some(next) = memchr::memchr2(b'"', b'\\', text.get(at..).unwrap_or_default()) {
        if text[at + next] == b'"' {
            return (&text[1..at + next], at + next + 1);
        }
        at += next + 2;
    }
    (&text[1..], text.len())
}

/// `#123` as Ruby's Logger has it.
pub(crate) fn logged_pid(prefix: &[u8]) -> u32 {
    memchr::memchr_iter(b'#', prefix)
        .find_map(|at| decimal(&prefix[at + 1..]))
        .map_or(0, |(pid, _)| pid as u32)
}

#[cfg(test)]
#[path = "memory_line_tests.rs"]
mod tests;
