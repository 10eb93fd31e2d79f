//! JSON in a buffer, and the tool that it goes to. Allocates nothing.

use std::sync::atomic::Ordering;

use super::state::{Stage, State};
use super::tool::{Pieces, Tool};

/// Hexadecimal digits of each byte.
const HEX: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    table
};

/// Eight hexadecimal digits, the first one in the highest byte. Reckoned in one word: a table's pairs of digits would have
/// to be put together in memory, and reading that at once is slow.
#[inline]
const fn hexadecimal(number: u32) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let mut digits = number as u64;
    digits = (digits << 16 | digits) & 0x0000_ffff_0000_ffff;
    digits = (digits << 8 | digits) & 0x00ff_00ff_00ff_00ff;
    digits = (digits << 4 | digits) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = ((digits + 6 * EACH) >> 4) & EACH;
    digits + b'0' as u64 * EACH + letters * (b'a' - b'0' - 10) as u64
}

const _: () = {
    let text = hexadecimal(0x0129_afbe).to_be_bytes();
    let expected = b"0129afbe";
    let mut at = 0;
    while at < 8 {
        assert!(text[at] == expected[at]);
        at += 1;
    }
};

/// Which bytes stand in JSON as they are, as `ObjectSpace.dump_all` has it.
const PLAIN: [bool; 256] = {
    let mut table = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = false;
        byte += 1;
    }
    table[b'"' as usize] = false;
    table[b'\\' as usize] = false;
    table[0x7f] = false;
    table
};

/// Bytes that are written at once where no memory is shared.
const BUFFER: usize = 256 << 10;
/// The least room for what is written at once.
const ROOM: usize = 64;

/// How many bytes from the first stand in JSON as they are. Eight are looked at together.
#[inline]
fn plain_length(text: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    let equal = |bytes: u64, byte: u8| {
        let differ = bytes ^ (ONES * u64::from(byte));
        differ.wrapping_sub(ONES) & !differ
    };
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let bytes = u64::from_le_bytes(*word);
        let control = bytes.wrapping_sub(ONES * 0x20) & !bytes;
        let found = (control | equal(bytes, b'"') | equal(bytes, b'\\') | equal(bytes, 0x7f)) & HIGHS;
        if found != 0 {
            // The lowest is right; a borrow may only have marked bytes behind it.
            return index * 8 + (found.trailing_zeros() / 8) as usize;
        }
    }
    let before = text.len() - rest.len();
    before + rest.iter().position(|byte| !PLAIN[usize::from(*byte)]).unwrap_or(rest.len())
}

pub(super) struct Output<'a> {
    buffer: &'static mut [u8],
    used: usize,
    /// Where it goes; a scratch buffer has none.
    tool: Option<Tool>,
    /// Where memory is shared: the piece that is the buffer, and how many were filled before.
    piece: u32,
    filled: u64,
    state: &'a State,
}

impl<'a> Output<'a> {
    /// The buffer has at least some hundred bytes.
    pub(super) fn new(buffer: &'static mut [u8], tool: Option<Tool>, state: &'a State) -> Self {
        Self { buffer, used: 0, tool, piece: Pieces::FIRST, filled: 0, state }
    }

    /// One whose buffer is the memory that the tool shares, where it does. `None` without memory.
    pub(super) fn to(tool: Tool, state: &'a State) -> Option<Self> {
        let buffer = match tool.pieces {
            // SAFETY: the first piece, and nothing has been filled.
            Some(pieces) => unsafe { pieces.bytes(Pieces::FIRST) },
            None => crate::copy::own_memory::slice(BUFFER)?,
        };
        Some(Self::new(buffer, Some(tool), state))
    }

    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        match self.buffer.get_mut(self.used..self.used + bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.used += bytes.len();
            }
            None => self.long(bytes),
        }
    }

    #[cold]
    fn long(&mut self, bytes: &[u8]) {
        self.flush();
        for piece in bytes.chunks(self.buffer.len()) {
            self.flush();
            if let Some(place) = self.buffer.get_mut(..piece.len()) {
                place.copy_from_slice(piece);
                self.used = piece.len();
            }
        }
    }

    #[inline]
    fn room(&mut self) -> &mut [u8; ROOM] {
        if self.buffer.len() - self.used < ROOM {
            self.flush();
        }
        match self.buffer.get_mut(self.used..).and_then(|rest| rest.first_chunk_mut::<ROOM>()) {
            Some(room) => room,
            None => crate::copy::end(false),
        }
    }

    /// An address as a string: `"0x7f…"`.
    #[inline]
    pub(super) fn address(&mut self, address: usize) {
        let digits =
            u128::from(hexadecimal((address >> 32) as u32)) << 64 | u128::from(hexadecimal(address as u32));
        let skipped = (address.leading_zeros() / 4).min(15);
        let count = 16 - skipped as usize;
        let room = self.room();
        room[..3].copy_from_slice(b"\"0x");
        room[3..19].copy_from_slice(&(digits << (skipped * 8)).to_be_bytes());
        room[3 + count] = b'"';
        self.used += count + 4;
    }

    /// A number, in 16 hexadecimal digits.
    pub(super) fn hash(&mut self, number: u64) {
        let room = self.room();
        room[..8].copy_from_slice(&hexadecimal((number >> 32) as u32).to_be_bytes());
        room[8..16].copy_from_slice(&hexadecimal(number as u32).to_be_bytes());
        self.used += 16;
    }

    #[inline]
    pub(super) fn number(&mut self, number: u64) {
        let count = number.checked_ilog10().map_or(1, |above| above as usize + 1);
        let room = self.room();
        let mut rest = number;
        for place in room[..count].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.used += count;
    }

    pub(super) fn signed(&mut self, number: i64) {
        if number < 0 {
            self.bytes(b"-");
        }
        self.number(number.unsigned_abs());
    }

    /// Bytes of ASCII between quotes.
    #[inline]
    pub(super) fn ascii(&mut self, text: &[u8]) {
        self.bytes(b"\"");
        self.escaped(text);
        self.bytes(b"\"");
    }

    /// Text between quotes. What is no UTF-8 is replaced.
    pub(super) fn text(&mut self, text: &[u8]) {
        self.bytes(b"\"");
        self.inner_text(text);
        self.bytes(b"\"");
    }

    /// The same without quotes.
    pub(super) fn inner_text(&mut self, text: &[u8]) {
        for chunk in text.utf8_chunks() {
            self.escaped(chunk.valid().as_bytes());
            if !chunk.invalid().is_empty() {
                self.bytes("\u{fffd}".as_bytes());
            }
        }
    }

    fn escaped(&mut self, mut text: &[u8]) {
        loop {
            let plain = plain_length(text);
            let (run, rest) = text.split_at(plain);
            self.bytes(run);
            let Some((byte, rest)) = rest.split_first() else { return };
            text = rest;
            match byte {
                b'\\' => self.bytes(b"\\\\"),
                b'"' => self.bytes(b"\\\""),
                0x08 => self.bytes(b"\\b"),
                b'\t' => self.bytes(b"\\t"),
                0x0c => self.bytes(b"\\f"),
                b'\n' => self.bytes(b"\\n"),
                b'\r' => self.bytes(b"\\r"),
                other => {
                    self.bytes(b"\\u00");
                    self.bytes(&HEX[usize::from(*other)]);
                }
            }
        }
    }

    /// All has been written: waits for the tool, and ends the copy.
    pub(super) fn finish(&mut self) {
        self.flush();
        if let Some(tool) = self.tool {
            tool.finish(self.state, true);
        }
    }

    /// What was written since the last [`Self::clear`], for an output that goes nowhere.
    pub(super) fn written(&self) -> &[u8] {
        self.buffer.get(..self.used).unwrap_or_default()
    }

    /// Room before the buffer is full.
    pub(super) fn room_left(&self) -> usize {
        self.buffer.len() - self.used
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Writes all to the tool. If that has gone, ends the copy.
    #[cold]
    pub(super) fn flush(&mut self) {
        let Some(tool) = self.tool else {
            self.used = 0;
            return;
        };
        if self.used == 0 {
            return;
        }
        let before = self.state.stage();
        self.state.set(Stage::Writing);
        match tool.pieces {
            Some(pieces) => {
                let filled = u64::from(self.piece) << 32 | self.used as u64;
                send(tool, &filled.to_ne_bytes(), self.state);
                self.filled += 1;
                let Some(next) = pieces.next(self.filled) else { tool.finish(self.state, false) };
                self.piece = next;
                // SAFETY: the tool has just given it back, or it was never used.
                self.buffer = unsafe { pieces.bytes(next) };
            }
            None => send(tool, self.buffer.get(..self.used).unwrap_or_default(), self.state),
        }
        self.state.bytes.fetch_add(self.used as u64, Ordering::Relaxed);
        self.used = 0;
        self.state.beat.fetch_add(1, Ordering::Relaxed);
        self.state.set(before);
    }
}

/// Sends all to the tool. If that has gone, ends the copy.
fn send(tool: Tool, mut rest: &[u8], state: &State) {
    while !rest.is_empty() {
        // SAFETY: these bytes are there.
        let took = unsafe { libc::write(tool.pipe, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(took) {
            Ok(took) => rest = rest.get(took..).unwrap_or_default(),
            Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            Err(_) => tool.finish(state, false),
        }
    }
}
