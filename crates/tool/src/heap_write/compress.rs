//! Plain, gzip and zstd. Zstd is made in frames of their own, by several threads.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};

use flate2::write::GzEncoder;

use super::{Lines, TAIL};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// Bytes of lines in a frame of zstd.
const FRAME: usize = 4 << 20;
/// Of zstd: higher ones take far more time, and little less room.
const LEVEL: i32 = 1;
/// Most threads that compress.
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

    /// Writes all that comes.
    pub(super) fn write<R: Read>(self, input: &mut Lines<R>, file: &mut File) -> Result<(), Error> {
        match self {
            Self::Plain => moved(input, file),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(&mut *file, flate2::Compression::fast());
                plain(input, &mut encoder)?;
                encoder.finish()?.flush()
            }
            Self::Zstd => zstd(input, file),
        }
    }
}

/// Has the kernel move the lines from the pipe into the file, and begin early to write them to the disk.
fn moved<R: Read>(input: &mut Lines<R>, file: &mut File) -> Result<(), Error> {
    /// Bytes after which the disk is told to begin.
    const BATCH: u64 = 16 << 20;
    let mut begun = 0;
    loop {
        // SAFETY: open descriptors; both keep their own places.
        let moved = unsafe {
            libc::splice(
                0,
                std::ptr::null_mut(),
                file.as_raw_fd(),
                std::ptr::null_mut(),
                PIECE,
                libc::SPLICE_F_MOVE,
            )
        };
        match u64::try_from(moved) {
            Ok(0) => break,
            Ok(moved) => input.bytes += moved,
            Err(_) => match Error::last_os_error() {
                error if error.kind() == std::io::ErrorKind::Interrupted => {}
                // Standard input is no pipe, or the file system cannot do it.
                error if error.raw_os_error() == Some(libc::EINVAL) && input.bytes == 0 => {
                    return plain(input, file);
                }
                error => return Err(error),
            },
        }
        if input.bytes - begun >= BATCH {
            let (from, length) = (begun.cast_signed(), (input.bytes - begun).cast_signed());
            // SAFETY: a file of our own. This is a hint, and whether it helps is nobody's concern.
            unsafe { libc::sync_file_range(file.as_raw_fd(), from, length, libc::SYNC_FILE_RANGE_WRITE) };
            begun = input.bytes;
        }
    }
    let length = input.bytes.min(TAIL as u64) as usize;
    let mut tail = vec![0; length];
    file.read_exact_at(&mut tail, input.bytes - length as u64)?;
    input.tail = tail;
    Ok(())
}

fn plain<R: Read>(input: &mut Lines<R>, out: &mut impl Write) -> Result<(), Error> {
    let mut buffer = vec![0; PIECE];
    loop {
        let length = match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        out.write_all(&buffer[..length])?;
    }
}

/// Frames may stand one behind the other; readers see one text.
fn zstd<R: Read>(input: &mut Lines<R>, file: &mut File) -> Result<(), Error> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let (give, take) = sync_channel::<(u64, Vec<u8>)>(threads);
    let take = Arc::new(Mutex::new(take));
    let (done, finished) = channel::<(u64, Vec<u8>)>();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (take, done) = (Arc::clone(&take), done.clone());
            scope.spawn(move || work(&take, &done));
        }
        drop(done);
        let mut out = InOrder { next: 0, waiting: BTreeMap::new() };
        let mut number = 0;
        loop {
            let mut frame = Vec::with_capacity(FRAME);
            input.by_ref().take(FRAME as u64).read_to_end(&mut frame)?;
            if frame.is_empty() && number > 0 {
                break;
            }
            give.send((number, frame)).map_err(|_| Error::other("a thread that compresses has ended"))?;
            number += 1;
            while let Ok((number, frame)) = finished.try_recv() {
                out.add(number, frame, file)?;
            }
        }
        drop(give);
        for (number, frame) in finished {
            out.add(number, frame, file)?;
        }
        if out.next == number { Ok(()) } else { Err(Error::other("a thread that compresses has ended")) }
    })
}

fn work(take: &Mutex<Receiver<(u64, Vec<u8>)>>, done: &Sender<(u64, Vec<u8>)>) {
    loop {
        let next = take.lock().map(|queue| queue.recv());
        let Ok(Ok((number, frame))) = next else { return };
        let Ok(frame) = zstd::bulk::compress(&frame, LEVEL) else { return };
        if done.send((number, frame)).is_err() {
            return;
        }
    }
}

struct InOrder {
    next: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
}

impl InOrder {
    fn add(&mut self, number: u64, frame: Vec<u8>, file: &mut File) -> Result<(), Error> {
        self.waiting.insert(number, frame);
        while let Some(frame) = self.waiting.remove(&self.next) {
            file.write_all(&frame)?;
            self.next += 1;
        }
        Ok(())
    }
}
