//! The lines of a heap, in pieces: from memory that the copy shares, or from a pipe.
//!
//! Where memory is shared, it is descriptor 3. One or two copies write lines, each into its half of the
//! pieces. Standard input carries the number of each filled piece, its bytes, and whether the same copy's
//! next piece continues it; a piece is given back by its number through descriptor 4, one of the second copy
//! through 5.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::END;

/// Bytes of a piece from a pipe.
const FROM_PIPE: usize = 1 << 20;
/// The last line is within so many bytes.
const TAIL: usize = 256;
const MEMORY: i32 = 3;
const FREES: i32 = 4;
/// Copies that may write.
const WRITERS: usize = 2;

/// Some lines, and their position among all.
pub(super) struct Piece {
    /// From 0 on.
    pub(super) number: u64,
    /// Place of its first byte.
    pub(super) offset: u64,
    bytes: Bytes,
}

enum Bytes {
    /// The first `length` bytes of the piece of this number of the memory.
    Shared {
        memory: Memory,
        place: u32,
        length: usize,
    },
    Own(Vec<u8>),
}

impl Piece {
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Shared { memory, place, length } => {
                memory.piece(*place).and_then(|piece| piece.get(..*length)).unwrap_or_default()
            }
            Bytes::Own(bytes) => bytes,
        }
    }

    /// Its bytes are not used any more.
    pub(super) fn free(self) {
        if let Bytes::Shared { memory, place, .. } = self.bytes {
            let frees = FREES + i32::from(memory.writer(place) > 0);
            let place = place.to_ne_bytes();
            // The copy does not wait for it after it has written everything, and may have ended. SAFETY: so
            // many bytes are there.
            unsafe { libc::write(frees, place.as_ptr().cast(), place.len()) };
        }
    }
}

/// The memory, whose pieces the copy does not touch between filling one and getting it back.
#[derive(Clone, Copy)]
struct Memory {
    start: usize,
    piece: usize,
    count: usize,
}

impl Memory {
    /// Maps it.
    fn map(piece: usize) -> Result<Self, Error> {
        // SAFETY: the copy has left this descriptor to this process.
        let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(MEMORY) });
        let bytes = usize::try_from(file.metadata()?.len()).map_err(Error::other)?;
        let count = bytes.checked_div(piece).filter(|count| *count > 0);
        let count = count.ok_or_else(|| Error::other("the memory that is shared has no piece"))?;
        // SAFETY: a mapping of its own, which is never unmapped.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * piece,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Self { start: start.expose_provenance(), piece, count })
    }

    /// The number of the copy that fills this piece.
    fn writer(&self, place: u32) -> usize {
        (place as usize * WRITERS / self.count).min(WRITERS - 1)
    }

    fn piece(&self, place: u32) -> Option<&'static [u8]> {
        let place = Some(place as usize).filter(|place| *place < self.count)?;
        let start = std::ptr::with_exposed_provenance::<u8>(self.start + place * self.piece);
        // SAFETY: within the mapping; the copy has filled the piece, and waits until it is given back.
        Some(unsafe { std::slice::from_raw_parts(start, self.piece) })
    }
}

/// A piece that has been filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Filled {
    place: u32,
    length: usize,
    /// Its last line, or the lines of neighbours in the heap, continue in the same copy's next piece.
    goes_on: bool,
}

impl Filled {
    fn from_word(word: u64) -> Self {
        const GOES_ON: u64 = 1 << 31;
        let length = (word & (GOES_ON - 1)) as usize;
        Self { place: (word >> 32) as u32, length, goes_on: word & GOES_ON != 0 }
    }
}

/// Orders the pieces of several copies, so that a piece and its continuation stay together.
#[derive(Default)]
struct Order {
    waiting: [VecDeque<Filled>; WRITERS],
    /// The copy whose piece must be next.
    held: Option<usize>,
}

impl Order {
    fn add(&mut self, writer: usize, filled: Filled) {
        if let Some(waiting) = self.waiting.get_mut(writer) {
            waiting.push_back(filled);
        }
    }

    /// `None` until another one has come.
    fn next(&mut self) -> Option<Filled> {
        let has = |writer: &usize| self.waiting.get(*writer).is_some_and(|waiting| !waiting.is_empty());
        let writer = match self.held {
            Some(writer) => Some(writer).filter(has),
            None => (0..WRITERS).find(has),
        }?;
        let filled = self.waiting.get_mut(writer)?.pop_front()?;
        self.held = filled.goes_on.then_some(writer);
        Some(filled)
    }
}

/// The source of pieces. It remembers the end of the text.
pub(super) struct Input<R> {
    input: R,
    memory: Option<Memory>,
    order: Order,
    tail: Vec<u8>,
    pieces: u64,
    /// All so far.
    pub(super) bytes: u64,
}

impl<R: Read> Input<R> {
    /// `input` is standard input; `piece` the bytes of a piece, where memory is shared.
    pub(super) fn new(input: R, piece: Option<usize>) -> Result<Self, Error> {
        let memory = piece.map(Memory::map).transpose()?;
        Ok(Self { input, memory, order: Order::default(), tail: Vec::new(), pieces: 0, bytes: 0 })
    }

    /// The next lines, which may end within one. `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Piece>, Error> {
        let bytes = match self.memory {
            Some(memory) => {
                let Some(Filled { place, length, .. }) = self.next_filled(memory)? else { return Ok(None) };
                Bytes::Shared { memory, place, length }
            }
            None => {
                let mut bytes = Vec::with_capacity(FROM_PIPE);
                if self.input.by_ref().take(FROM_PIPE as u64).read_to_end(&mut bytes)? == 0 {
                    return Ok(None);
                }
                Bytes::Own(bytes)
            }
        };
        let piece = Piece { number: self.pieces, offset: self.bytes, bytes };
        self.pieces += 1;
        self.note(piece.bytes());
        Ok(Some(piece))
    }

    /// At the end, pieces that wait for a missing piece are left out, and with them the last line.
    fn next_filled(&mut self, memory: Memory) -> Result<Option<Filled>, Error> {
        loop {
            if let Some(filled) = self.order.next() {
                return Ok(Some(filled));
            }
            let mut word = [0; 8];
            if !fill(&mut self.input, &mut word)? {
                return Ok(None);
            }
            let filled = Filled::from_word(u64::from_ne_bytes(word));
            if memory.piece(filled.place).is_none_or(|piece| filled.length > piece.len()) {
                return Err(Error::other("a piece of the memory that is shared is out of bounds"));
            }
            self.order.add(memory.writer(filled.place), filled);
        }
    }

    fn note(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(TAIL)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
    }

    /// Number of objects in the last line; `None` if that is missing.
    pub(super) fn objects(&self) -> Option<u64> {
        let text = self.tail.strip_suffix(b"\n")?;
        let line = text.rsplit(|byte| *byte == b'\n').next()?;
        let digits = line.strip_prefix(END)?.split(|byte| *byte == b',').next()?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

/// Fills the buffer. False at the end of the input.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<bool, Error> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => return if got == 0 { Ok(false) } else { Err(ErrorKind::UnexpectedEof.into()) },
            Ok(more) => got += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &[u8]) -> Option<u64> {
        let mut input = Input::new(std::io::empty(), None).unwrap();
        for piece in text.chunks(7) {
            input.note(piece);
        }
        assert_eq!(input.bytes, text.len() as u64);
        input.objects()
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

    #[test]
    fn what_goes_on_in_another_piece_stays_together() {
        let filled = |place, goes_on| Filled { place, length: 1, goes_on };
        assert_eq!(Filled::from_word(7 << 32 | 1 << 31 | 5), Filled { place: 7, length: 5, goes_on: true });
        assert_eq!(Filled::from_word(7 << 32 | 5), Filled { place: 7, length: 5, goes_on: false });
        let mut order = Order::default();
        assert_eq!(order.next(), None);
        order.add(0, filled(0, true));
        order.add(1, filled(4, false));
        assert_eq!(order.next(), Some(filled(0, true)));
        // The other copy's piece waits, however long the line is.
        assert_eq!(order.next(), None);
        order.add(1, filled(5, true));
        order.add(0, filled(1, true));
        assert_eq!((order.next(), order.next()), (Some(filled(1, true)), None));
        order.add(0, filled(2, false));
        assert_eq!(order.next(), Some(filled(2, false)));
        assert_eq!([order.next(), order.next()], [Some(filled(4, false)), Some(filled(5, true))]);
        order.add(0, filled(3, false));
        assert_eq!(order.next(), None);
    }

    #[test]
    fn a_pipe_comes_in_pieces() {
        let text = b"line\n".repeat(500_000);
        let mut input = Input::new(text.as_slice(), None).unwrap();
        let mut all = Vec::new();
        while let Some(piece) = input.next().unwrap() {
            assert_eq!((piece.number, piece.offset), ((all.len() / FROM_PIPE) as u64, all.len() as u64));
            all.extend_from_slice(piece.bytes());
            piece.free();
        }
        assert_eq!(all, text);
    }
}
