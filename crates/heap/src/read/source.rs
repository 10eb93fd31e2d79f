//! Reads plain, gzip and zstd dumps as blocks of whole lines.

use super::Problem;
use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// Small enough that a block is still in a processor's cache when it is parsed.
pub const BLOCK_BYTES: usize = 1 << 19;
/// An array of 28 million elements fits. A longer line ends the reading, for it would have to be in memory whole.
pub const LONGEST_LINE_BYTES: usize = 1 << 29;
const COMPRESSED_BUFFER_BYTES: usize = 1 << 18;

/// Whole lines of a dump.
#[derive(Debug, Default)]
pub struct Block {
    /// Its place in the sequence of blocks.
    pub number: u64,
    /// The byte of the dump at which it begins.
    pub offset: u64,
    /// The lines. Only the last line of the last block may lack its line end.
    pub bytes: Vec<u8>,
}

/// A dump that is being read.
pub struct Source {
    input: Box<dyn Read + Send>,
    rest: Vec<u8>,
    number: u64,
    offset: u64,
    ended: bool,
    /// The longest line that is taken.
    longest: usize,
}

impl Source {
    /// A file, or standard input by `-`.
    pub fn open(path: &OsStr) -> Result<Source, String> {
        if path == "-" {
            return Source::new(io::stdin()).map_err(|error| format!("standard input: {}", plain(&error)));
        }
        let explain = |error| format!("{}: {}", path.to_string_lossy(), plain(&error));
        let file = File::open(path).map_err(explain)?;
        if file.metadata().is_ok_and(|found| found.is_dir()) {
            return Err(format!("{}: is a folder; give a heap dump", path.to_string_lossy()));
        }
        Source::new(file).map_err(explain)
    }

    /// Any stream; its first bytes tell how it is compressed.
    pub fn new(mut input: impl Read + Send + 'static) -> io::Result<Source> {
        let mut magic = [0; 4];
        let got = fill(&mut input, &mut magic)?;
        let whole = io::Cursor::new(magic[..got].to_vec()).chain(input);
        let input: Box<dyn Read + Send> = match &magic[..got] {
            [0x1f, 0x8b, ..] => {
                Box::new(MultiGzDecoder::new(BufReader::with_capacity(COMPRESSED_BUFFER_BYTES, whole)))
            }
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Box::new(ZstdFrames {
                frame: Frame::Between(BufReader::with_capacity(COMPRESSED_BUFFER_BYTES, whole)),
            }),
            _ => Box::new(whole),
        };
        let rest = Vec::new();
        Ok(Source { input, rest, number: 0, offset: 0, ended: false, longest: LONGEST_LINE_BYTES })
    }

    /// Fills the block with the next whole lines. Returns false at the end, and what ended the reading before the end
    /// as an error; the block may then still have lines.
    pub fn next(&mut self, block: &mut Block) -> Result<bool, Problem> {
        block.bytes.clear();
        block.bytes.append(&mut self.rest);
        block.number = self.number;
        block.offset = self.offset;
        let mut problem = None;
        let mut searched = 0;
        let mut goal = BLOCK_BYTES;
        while !self.ended {
            if block.bytes.len() >= goal {
                if let Some(end) = memchr::memrchr(b'\n', &block.bytes[searched..]) {
                    let end = searched + end + 1;
                    self.rest.extend_from_slice(&block.bytes[end..]);
                    block.bytes.truncate(end);
                    break;
                }
                searched = block.bytes.len();
                if searched >= self.longest {
                    let message = format!("a line is longer than {} bytes", self.longest);
                    problem = Some(self.end(block.offset, message));
                    block.bytes.clear();
                    break;
                }
                goal = (2 * goal).min(self.longest.max(BLOCK_BYTES));
            }
            let from = block.bytes.len();
            block.bytes.resize(goal.max(from + 1), 0);
            let read = self.input.read(&mut block.bytes[from..]);
            block.bytes.truncate(from + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let at = block.offset + block.bytes.len() as u64;
                    problem = Some(self.end(at, unreadable(&error)));
                }
            }
        }
        self.number += 1;
        self.offset += block.bytes.len() as u64;
        match problem {
            Some(problem) => Err(problem),
            None => Ok(!block.bytes.is_empty()),
        }
    }

    fn end(&mut self, offset: u64, message: String) -> Problem {
        self.ended = true;
        Problem { offset, message, ends: true }
    }
}

fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the compressed dump is cut short here".to_string(),
        _ => format!("cannot be read further: {}", plain(error)),
    }
}

/// An error without Rust's `(os error 2)`.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

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

/// Frames one behind the other, as `zstd` reads them; the library takes one.
struct ZstdFrames<R: Read> {
    frame: Frame<R>,
}

enum Frame<R: Read> {
    Between(BufReader<R>),
    Within(Box<StreamingDecoder<BufReader<R>, ruzstd::decoding::FrameDecoder>>),
    Ended,
}

impl<R: Read> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.frame, Frame::Ended) {
                Frame::Ended => return Ok(0),
                Frame::Between(mut input) => {
                    if input.fill_buf()?.is_empty() {
                        return Ok(0);
                    }
                    self.frame = begin(input)?;
                }
                Frame::Within(mut decoder) => {
                    let read = decoder.read(buffer)?;
                    if read > 0 || buffer.is_empty() {
                        self.frame = Frame::Within(decoder);
                        return Ok(read);
                    }
                    self.frame = Frame::Between(decoder.into_inner());
                }
            }
        }
    }
}

fn begin<R: Read>(mut input: BufReader<R>) -> io::Result<Frame<R>> {
    let ahead = input.fill_buf()?;
    if matches!(ahead, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]) {
        let mut head = [0; 8];
        input.read_exact(&mut head)?;
        let length = u64::from(u32::from_le_bytes([head[4], head[5], head[6], head[7]]));
        let skipped = io::copy(&mut (&mut input).take(length), &mut io::sink())?;
        if skipped < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        return Ok(Frame::Between(input));
    }
    let decoder =
        StreamingDecoder::new(input).map_err(|error| io::Error::other(format!("not zstd: {error}")))?;
    Ok(Frame::Within(Box::new(decoder)))
}
