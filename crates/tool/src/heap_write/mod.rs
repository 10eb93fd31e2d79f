//! `memintro-tool heap-write FILE plain|gzip|zstd`: writes the lines of a heap from standard input into a file.
//!
//! A frozen copy of a program starts it. The file appears under its name only when it is whole: when the last line has
//! come, all is on the disk, and nothing has failed.

mod compress;
mod file;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::Path;

use compress::Compression;
use file::NewFile;

/// What the last line begins with.
const END: &[u8] = b"{\"type\":\"ROOT\", \"root\":\"end\", \"objects\":";
/// The last line is within so many bytes.
const TAIL: usize = 256;

/// Writes the file, and prints what was written as one line of JSON.
pub fn run(arguments: &[OsString]) -> Result<(), String> {
    let [path, compression] = arguments else {
        return Err("heap-write takes a file and plain, gzip or zstd".to_owned());
    };
    let compression = compression
        .to_str()
        .and_then(Compression::named)
        .ok_or_else(|| format!("{} is no compression: plain, gzip, zstd", compression.display()))?;
    // Whoever started this ends it by closing the pipe, and then the file is removed here.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    // SAFETY: as above; a file that is too large is an error of the write.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let path = Path::new(path);
    let mut file = NewFile::create(path)?;
    let mut input = Lines { input: std::io::stdin().lock(), tail: Vec::new(), bytes: 0 };
    let failed =
        |error: std::io::Error, written: u64| file::explain(path, &error, written, compression.is_plain());
    if let Err(error) = compression.write(&mut input, file.file()) {
        return Err(failed(error, file.bytes()));
    }
    let objects = input.objects().ok_or_else(|| {
        format!(
            "the dump broke off after {} bytes, so {} was not written: the process or its copy was ended",
            input.bytes,
            path.display()
        )
    })?;
    let bytes = file.bytes();
    file.finish().map_err(|error| failed(error, bytes))?;
    let answer = serde_json::json!({
        "path": path.to_string_lossy(),
        "objects": objects,
        "bytes": bytes,
        "uncompressed_bytes": input.bytes,
        "compression": compression.name(),
    });
    writeln!(std::io::stdout(), "{answer}").map_err(|error| error.to_string())
}

/// Standard input, whose end is remembered.
struct Lines<R> {
    input: R,
    tail: Vec<u8>,
    bytes: u64,
}

impl<R> Lines<R> {
    fn note(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(TAIL)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
    }

    /// Of the last line; `None` if that is missing.
    fn objects(&self) -> Option<u64> {
        let text = self.tail.strip_suffix(b"\n")?;
        let line = text.rsplit(|byte| *byte == b'\n').next()?;
        let digits = line.strip_prefix(END)?.split(|byte| *byte == b',').next()?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.input.read(buffer)?;
        self.note(&buffer[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &[u8]) -> Option<u64> {
        let mut lines = Lines { input: std::io::empty(), tail: Vec::new(), bytes: 0 };
        for piece in text.chunks(7) {
            lines.note(piece);
        }
        assert_eq!(lines.bytes, text.len() as u64);
        lines.objects()
    }

    #[test]
    fn the_last_line_tells_that_a_dump_is_whole() {
        let end = b"{\"type\":\"ROOT\", \"root\":\"end\", \"objects\":12, \"references\":[]}\n";
        let long = [b"x".repeat(1_000).as_slice(), b"\n", end].concat();
        assert_eq!(whole(&long), Some(12));
        assert_eq!(whole(end), Some(12));
        for length in 0..long.len() {
            assert_eq!(whole(&long[..length]), None, "{length}");
        }
        assert_eq!(whole(&[end.as_slice(), b"{}\n"].concat()), None);
        // A string of the program that holds such a line.
        assert_eq!(whole(&[b"{\"value\":\"".as_slice(), end].concat()), None);
    }
}
