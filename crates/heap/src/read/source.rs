//! Reads plain, gzip and zstd dumps as blocks of whole lines.

use super::Problem;
use crate::intern::shown;
use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// Small enough that a block is still in a processor's cache when it is parsed.
pub const BLOCK_BYTES: usize = 1 << 19;
/// An array of 28 million elements fits. A longer line ends the reading, because a whole line must be in
/// memory.
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
        let explain = |error| format!("{}: {}", shown(path), plain(&error));
        let file = File::open(path).map_err(explain)?;
        if file.metadata().is_ok_and(|found| found.is_dir()) {
            return Err(format!("{}: is a folder; give a heap dump", shown(path)));
        }
        Source::new(file).map_err(explain)
    }

    /// Any stream; its first bytes determine the compression.
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

    /// Fills the block with the next whole lines. Returns false at the end. Returns an error if the reading
    /// ended early; the block may then still have lines.
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
                goal = (2 * searched).min(self.longest);
            }
            let from = block.bytes.len();
            block.bytes.reserve_exact(goal - from);
            // Into memory that need not be filled with zeros first.
            match (&mut self.input).take((goal - from) as u64).read_to_end(&mut block.bytes) {
                Ok(read) => self.ended = read < goal - from,
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A stream that gives a few bytes at a time.
    struct Trickle(Vec<u8>, usize);

    impl Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let some = buffer.len().min(self.1).min(self.0.len());
            buffer[..some].copy_from_slice(&self.0[..some]);
            self.0.drain(..some);
            Ok(some)
        }
    }

    fn blocks(source: &mut Source) -> (Vec<Vec<u8>>, Option<Problem>) {
        let mut blocks = Vec::new();
        loop {
            let mut block = Block::default();
            match source.next(&mut block) {
                Ok(false) => return (blocks, None),
                Ok(true) => blocks.push(block.bytes),
                Err(problem) => return (blocks, Some(problem)),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        #[test]
        fn blocks_are_whole_lines_and_nothing_is_lost(
            lines in proptest::collection::vec(0_usize..3 * BLOCK_BYTES, 1..6), step in 1000_usize..2_000_000
        ) {
            let text: Vec<u8> = lines.iter().flat_map(|length| [vec![b'x'; *length], vec![b'\n']].concat()).collect();
            let (blocks, problem) = blocks(&mut Source::new(Trickle(text.clone(), step)).unwrap());
            prop_assert!(problem.is_none());
            prop_assert!(blocks.iter().all(|block| block.ends_with(b"\n")));
            prop_assert_eq!(blocks.concat(), text);
        }
    }

    #[test]
    fn a_line_without_end_ends_the_reading() {
        let mut source = Source::new(io::repeat(b'x')).unwrap();
        source.longest = 2 * BLOCK_BYTES;
        let (blocks, problem) = blocks(&mut source);
        assert_eq!(
            (blocks.len(), problem.unwrap().message.as_str()),
            (0, "a line is longer than 1048576 bytes")
        );
    }
}
