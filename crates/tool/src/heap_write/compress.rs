//! Plain, gzip and zstd, each by several threads: a thread takes the next piece, and compresses or writes it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::{Compress, Crc, FlushCompress};

use super::input::{Input, Piece};

/// zstd's level: compared with level 1 it takes three quarters of the time, and files are 40% larger. Lower
/// levels save little.
const LEVEL: i32 = -3;
/// Fewer than there are pieces in the memory that is shared.
const MOST_THREADS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Plain,
    Gzip,
    Zstd,
}

impl Compression {
    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Plain, Self::Gzip, Self::Zstd].into_iter().find(|one| one.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    pub(super) fn is_plain(self) -> bool {
        self == Self::Plain
    }

    /// Writes all pieces.
    pub(super) fn write<R: Read + Send>(self, input: &Mutex<Input<R>>, file: &File) -> Result<(), Error> {
        match self {
            // File systems let one thread at a time write into a file; further ones would use up the copies' time.
            Self::Plain => each_piece(input, 1, || {
                move |piece: Piece| {
                    file.write_all_at(piece.bytes(), piece.offset)?;
                    piece.free();
                    Ok(())
                }
            }),
            Self::Gzip => gzip(input, file),
            Self::Zstd => zstd(input, file),
        }
    }
}

/// Runs threads that take pieces, at most this many. `worker` makes the action of each thread.
fn each_piece<R: Read + Send, W: FnMut(Piece) -> Result<(), Error> + Send>(
    input: &Mutex<Input<R>>,
    most: usize,
    worker: impl Fn() -> W,
) -> Result<(), Error> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(most);
    let failed = AtomicBool::new(false);
    let run = |mut work: W| -> Result<(), Error> {
        // A thread that waits for a piece wakes up when the next one comes: the copy always has one to fill.
        while !failed.load(Ordering::Relaxed) {
            let next = input.lock().map_err(|_| ended())?.next()?;
            let Some(piece) = next else { break };
            work(piece)?;
        }
        Ok(())
    };
    let run = |work: W| run(work).inspect_err(|_| failed.store(true, Ordering::Relaxed));
    let run = &run;
    std::thread::scope(|scope| {
        // Fewer threads only take longer. The user may not be allowed more.
        let started: Vec<_> = (1..threads)
            .map(|_| worker())
            .map_while(|work| std::thread::Builder::new().spawn_scoped(scope, move || run(work)).ok())
            .collect();
        let own = run(worker());
        let ends: Vec<_> =
            started.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(ended()))).collect();
        ends.into_iter().chain([own]).collect()
    })
}

fn ended() -> Error {
    Error::other("a thread that compresses has ended")
}

/// Writes the compressed pieces in their order.
struct InOrder<'a, T> {
    file: &'a File,
    next: u64,
    waiting: BTreeMap<u64, (Vec<u8>, T)>,
}

impl<'a, T> InOrder<'a, T> {
    fn new(file: &'a File) -> Self {
        Self { file, next: 0, waiting: BTreeMap::new() }
    }

    /// Calls `note` for each that is written, in order.
    fn add(&mut self, number: u64, bytes: &[u8], about: T, mut note: impl FnMut(T)) -> Result<(), Error> {
        if number != self.next {
            self.waiting.insert(number, (bytes.to_vec(), about));
            return Ok(());
        }
        self.file.write_all(bytes)?;
        note(about);
        self.next += 1;
        while let Some((bytes, about)) = self.waiting.remove(&self.next) {
            self.file.write_all(&bytes)?;
            note(about);
            self.next += 1;
        }
        Ok(())
    }
}

/// Frames may stand one behind the other; readers see one text.
fn zstd<R: Read + Send>(input: &Mutex<Input<R>>, file: &File) -> Result<(), Error> {
    let out = Mutex::new(InOrder::new(file));
    each_piece(input, MOST_THREADS, || {
        let out = &out;
        let mut compressor = None;
        let mut frame = Vec::new();
        move |piece: Piece| {
            let compressor = match &mut compressor {
                Some(compressor) => compressor,
                none => none.insert(zstd::bulk::Compressor::new(LEVEL)?),
            };
            frame.clear();
            frame.reserve(zstd::zstd_safe::compress_bound(piece.bytes().len()));
            compressor.compress_to_buffer(piece.bytes(), &mut frame)?;
            let number = piece.number;
            piece.free();
            out.lock().map_err(|_| ended())?.add(number, &frame, (), |()| {})
        }
    })?;
    // No writer produces this from an empty text.
    if out.into_inner().is_ok_and(|out| out.next == 0) {
        let mut file = file;
        file.write_all(&zstd::bulk::compress(&[], LEVEL)?)?;
    }
    Ok(())
}

/// One stream, of blocks that each thread ends at a byte.
fn gzip<R: Read + Send>(input: &Mutex<Input<R>>, file: &File) -> Result<(), Error> {
    /// No name, no time, an unknown system.
    const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];
    /// A last block without any byte.
    const LAST: [u8; 2] = [3, 0];
    let mut direct = file;
    direct.write_all(&HEAD)?;
    let sum = Mutex::new(Crc::new());
    let out = Mutex::new(InOrder::new(file));
    each_piece(input, MOST_THREADS, || {
        let (out, sum) = (&out, &sum);
        let mut deflate = Compress::new(flate2::Compression::fast(), false);
        let mut block = Vec::new();
        move |piece: Piece| {
            deflate.reset();
            block.clear();
            let mut rest = piece.bytes();
            loop {
                block.reserve(rest.len() / 4 + 1024);
                let before = deflate.total_in();
                deflate.compress_vec(rest, &mut block, FlushCompress::Sync).map_err(Error::other)?;
                rest = rest.get((deflate.total_in() - before) as usize..).unwrap_or_default();
                // With room left, all of it has come out.
                if rest.is_empty() && block.len() < block.capacity() {
                    break;
                }
            }
            let mut mine = Crc::new();
            mine.update(piece.bytes());
            let number = piece.number;
            piece.free();
            out.lock().map_err(|_| ended())?.add(number, &block, mine, |mine| {
                if let Ok(mut sum) = sum.lock() {
                    sum.combine(&mine);
                }
            })
        }
    })?;
    let sum = sum.into_inner().map_err(|_| ended())?;
    direct.write_all(&LAST)?;
    direct.write_all(&sum.sum().to_le_bytes())?;
    direct.write_all(&sum.amount().to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom};

    /// The contents of the file for this text.
    fn written(compression: Compression, text: &[u8]) -> Vec<u8> {
        let path =
            std::env::temp_dir().join(format!("memintro-{}-{}", std::process::id(), compression.name()));
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let input = Mutex::new(Input::new(text, None).unwrap());
        compression.write(&input, &file).unwrap();
        assert_eq!(input.into_inner().unwrap().bytes, text.len() as u64);
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_several_threads_write_is_read_as_one_text() {
        let lines: Vec<String> =
            (0..100_000_u64).map(|at| format!("{at} {:x}\n", at.wrapping_mul(at * 0x9e37_79b9))).collect();
        let text = lines.concat();
        for text in [text.as_bytes(), b"a\n", b""] {
            assert_eq!(written(Compression::Plain, text), text);
            assert_eq!(zstd::stream::decode_all(written(Compression::Zstd, text).as_slice()).unwrap(), text);
            let gzip = written(Compression::Gzip, text);
            let mut read = Vec::new();
            // A reader of one stream, which verifies its checksum.
            flate2::read::GzDecoder::new(gzip.as_slice()).read_to_end(&mut read).unwrap();
            assert_eq!(read, text);
            assert!(text.len() < 100 || gzip.len() < text.len());
        }
    }
}
