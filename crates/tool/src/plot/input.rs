//! Reads lines from files, gzip, standard input, and files that grow.

use flate2::read::MultiGzDecoder;
use memintro_analysis::text::printable;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const CHUNK_BYTES: usize = 1 << 20;
/// A longer line cannot be one of memintro's, and is not kept in memory.
const LONGEST_LINE_BYTES: usize = 1 << 20;

/// Refuses folders among the files to read.
pub(crate) fn refuse_folders(files: &[OsString]) -> Result<(), String> {
    match files.iter().find(|file| Path::new(file).is_dir()) {
        Some(folder) => Err(format!(
            "{}: is a folder; give the log files in it",
            printable(folder.as_os_str().as_encoded_bytes())
        )),
        None => Ok(()),
    }
}

/// A reader of the lines.
pub(crate) trait Sink {
    /// The verb for the lines in messages, if a file is cut short.
    const DOING: &'static str;

    /// Takes whole lines of one file.
    fn take(&mut self, source: usize, lines: &[u8]);

    /// Counts a line that is too long to be one of ours.
    fn skip(&mut self);

    /// Whether anything has been found so far.
    fn any(&self) -> bool;
}

/// One file, and how much of it has been read.
pub(crate) struct Source {
    index: usize,
    path: OsString,
    tail: Option<Tail>,
    lines: Lines,
}

/// The open file that grows.
struct Tail {
    file: File,
    inode: (u64, u64),
    read: u64,
}

/// Cuts what arrives at line ends.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
    overlong: bool,
}

impl Lines {
    fn take(&mut self, bytes: &[u8], source: usize, sink: &mut impl Sink) {
        let Some(end) = memchr::memrchr(b'\n', bytes) else {
            return self.keep(bytes);
        };
        let mut whole = &bytes[..=end];
        if self.overlong || !self.rest.is_empty() {
            let first = memchr::memchr(b'\n', whole).unwrap_or(end);
            self.keep(&whole[..first]);
            self.finish(source, sink);
            whole = &whole[first + 1..];
        }
        sink.take(source, whole);
        self.keep(&bytes[end + 1..]);
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.overlong |= self.rest.len() + bytes.len() > LONGEST_LINE_BYTES;
        if self.overlong {
            self.rest.clear();
        } else {
            self.rest.extend_from_slice(bytes);
        }
    }

    /// The last line, which has no line end yet or has just got it.
    fn finish(&mut self, source: usize, sink: &mut impl Sink) {
        if self.overlong {
            sink.skip();
        } else if !self.rest.is_empty() {
            sink.take(source, &self.rest);
        }
        self.rest.clear();
        self.overlong = false;
    }
}

impl Source {
    /// A file by its path, or standard input by `-`.
    pub(crate) fn new(index: usize, path: &OsStr) -> Source {
        Source { index, path: path.to_os_string(), tail: None, lines: Lines::default() }
    }

    /// Reads everything there is.
    pub(crate) fn read_all(&mut self, sink: &mut impl Sink) -> Result<(), String> {
        self.try_read_all(sink).map_err(|error| self.explain(&error))
    }

    fn try_read_all(&mut self, sink: &mut impl Sink) -> io::Result<()> {
        if self.path == "-" {
            return self.pour(io::stdin().lock(), sink);
        }
        let file = File::open(&self.path)?;
        self.pour(file, sink)
    }

    fn pour(&mut self, mut input: impl Read, sink: &mut impl Sink) -> io::Result<()> {
        let mut magic = [0; 2];
        let got = fill(&mut input, &mut magic)?;
        let input = (&magic[..got]).chain(input);
        if magic[..got] == [0x1f, 0x8b] {
            self.drain(MultiGzDecoder::new(BufReader::with_capacity(CHUNK_BYTES / 4, input)), sink)
        } else {
            self.drain(input, sink)
        }
    }

    fn drain<S: Sink>(&mut self, mut input: impl Read, sink: &mut S) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match input.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => self.lines.take(&chunk[..read], self.index, sink),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The lines before the damage are still plotted.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && sink.any() => {
                    eprintln!(
                        "memintro: {}: cut short; {} what could be read",
                        printable(self.path.as_os_str().as_encoded_bytes()),
                        S::DOING
                    );
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        self.lines.finish(self.index, sink);
        Ok(())
    }

    /// Reads what was added since the last time, and returns whether anything was. A file that was truncated is read
    /// from its beginning. If another file has taken the name, the old one is read to its end first. A file that does
    /// not exist yet, or not at this moment, is waited for.
    pub(crate) fn read_more(&mut self, sink: &mut impl Sink) -> Result<bool, String> {
        let mut more = false;
        if let Some(tail) = &self.tail {
            let length = tail.file.metadata().map_or(0, |found| found.len());
            if length < tail.read {
                self.tail = None;
                self.lines = Lines::default();
            } else {
                more |= self.read_tail(sink).map_err(|error| self.explain(&error))?;
            }
        }
        if self.renamed() {
            self.lines.finish(self.index, sink);
            self.tail = None;
        }
        if self.tail.is_none() {
            let Ok(mut file) = File::open(&self.path) else { return Ok(more) };
            let found = file.metadata().map_err(|error| self.explain(&error))?;
            let mut magic = [0; 2];
            if fill(&mut file, &mut magic).is_ok_and(|got| got == 2) && magic == [0x1f, 0x8b] {
                return Err(format!(
                    "{}: --follow cannot follow a compressed file",
                    self.path.to_string_lossy()
                ));
            }
            file.seek(SeekFrom::Start(0)).map_err(|error| self.explain(&error))?;
            self.tail = Some(Tail { file, inode: (found.dev(), found.ino()), read: 0 });
            more |= self.read_tail(sink).map_err(|error| self.explain(&error))?;
        }
        Ok(more)
    }

    fn renamed(&self) -> bool {
        match (&self.tail, std::fs::metadata(Path::new(&self.path))) {
            (Some(tail), Ok(found)) => (found.dev(), found.ino()) != tail.inode,
            _ => false,
        }
    }

    fn read_tail(&mut self, sink: &mut impl Sink) -> io::Result<bool> {
        let Some(tail) = &mut self.tail else { return Ok(false) };
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut more = false;
        loop {
            let read = tail.file.read(&mut chunk)?;
            if read == 0 {
                return Ok(more);
            }
            tail.read += read as u64;
            more = true;
            self.lines.take(&chunk[..read], self.index, sink);
        }
    }

    fn explain(&self, error: &io::Error) -> String {
        let name = if self.path == "-" { "standard input".into() } else { self.path.to_string_lossy() };
        format!("{name}: {}", plain(error))
    }
}

/// An error without Rust's `(os error 2)`.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(read) => got += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::super::history::History;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_cuts_between_chunks_do_not_matter(text in "(MEMORY\\[[12]\\]: time: 2026-01-01 12:00:0[0-9] rss: [1-9] MB\n|x\n|\n){0,12}", size in 1_usize..50) {
            let mut whole = History::default();
            whole.take(0, text.as_bytes());
            let (mut cut, mut lines) = (History::default(), Lines::default());
            for chunk in text.as_bytes().chunks(size) {
                lines.take(chunk, 0, &mut cut);
            }
            lines.finish(0, &mut cut);
            prop_assert_eq!((whole.samples(), whole.skipped), (cut.samples(), cut.skipped));
        }
    }

    #[test]
    fn an_endless_line_is_not_kept() {
        let (mut history, mut lines) = (History::default(), Lines::default());
        for _ in 0..3 {
            lines.take(&vec![b'x'; LONGEST_LINE_BYTES], 0, &mut history);
        }
        lines.take(b"\nMEMORY[1]: time: 2026-01-01 12:00:00 rss: 1 MB\n", 0, &mut history);
        assert_eq!((history.skipped, history.samples(), lines.rest.len()), (1, 1, 0));
    }
}
