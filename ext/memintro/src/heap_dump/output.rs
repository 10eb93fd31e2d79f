//! JSON in a buffer, and the tool that it goes to. Allocates nothing.

use std::sync::atomic::Ordering;

use super::second::Second;
use super::state::{Progress, Stage, State};
use super::text::{PLAIN, Padded, Upper, copy_plain, decimal, hexadecimal};
use super::tool::Tool;

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

/// Bytes that are written at once where no memory is shared.
const BUFFER: usize = 256 << 10;
/// The least room for what is written at once.
const ROOM: usize = 64;

pub(super) struct Output<'a> {
    buffer: &'static mut [u8],
    used: usize,
    uppers: [Upper; Upper::COUNT],
    /// Where it goes; a scratch buffer has none.
    tool: Option<Tool>,
    /// Where memory is shared: the piece that is the buffer, and how many were filled before.
    piece: u32,
    filled: u64,
    /// The piece before was full before a part ended, so this one goes on with it.
    goes_on: bool,
    /// In the first copy, the second one.
    second: Option<Second>,
    state: &'a State,
    progress: &'a Progress,
}

impl<'a> Output<'a> {
    /// One that goes nowhere.
    pub(super) fn scratch(buffer: &'static mut [u8], state: &'a State) -> Self {
        Self::new(buffer, None, state)
    }

    fn new(buffer: &'static mut [u8], tool: Option<Tool>, state: &'a State) -> Self {
        let (used, filled, goes_on, second) = (0, 0, false, None);
        let piece = tool.and_then(|tool| tool.pieces).map_or(0, |pieces| pieces.first());
        let progress = if tool.is_some_and(Tool::is_of_second) { state.second() } else { state.first() };
        let uppers = [Upper::NONE; Upper::COUNT];
        Self { buffer, used, uppers, tool, piece, filled, goes_on, second, state, progress }
    }

    /// One whose buffer is the memory that the tool shares, where it does. `None` without memory.
    pub(super) fn to(tool: Tool, state: &'a State) -> Option<Self> {
        let buffer = match tool.pieces {
            // SAFETY: the first piece, and nothing has been filled.
            Some(pieces) => unsafe { pieces.bytes(pieces.first()) },
            None => crate::copy::own_memory::slice(BUFFER)?,
        };
        Some(Self::new(buffer, Some(tool), state))
    }

    /// From now on, another copy writes as well.
    pub(super) fn watch(&mut self, second: Second) {
        self.second = Some(second);
    }

    #[inline(always)]
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

    #[inline(always)]
    fn room(&mut self) -> &mut [u8; ROOM] {
        if self.buffer.len() - self.used < ROOM {
            self.flush();
        }
        match self.buffer.get_mut(self.used..).and_then(|rest| rest.first_chunk_mut::<ROOM>()) {
            Some(room) => room,
            None => crate::copy::end(false),
        }
    }

    /// A short text, of which few have more than `USUAL` bytes.
    #[inline(always)]
    pub(super) fn padded<const N: usize, const USUAL: usize>(&mut self, text: &Padded<N>) {
        let length = text.length();
        let room = self.buffer.get_mut(self.used..).and_then(|rest| rest.first_chunk_mut::<USUAL>());
        match (room, text.bytes.first_chunk::<USUAL>()) {
            (Some(room), Some(bytes)) if length <= USUAL => {
                *room = *bytes;
                self.used += length;
            }
            _ => self.bytes(text.text()),
        }
    }

    /// Some bytes of a scratch buffer.
    #[inline(always)]
    pub(super) fn cut_of(&mut self, other: &Output<'_>, start: usize, length: usize) {
        const USUAL: usize = 48;
        let from = other.buffer.get(start..).unwrap_or_default();
        let room = self.buffer.get_mut(self.used..).and_then(|rest| rest.first_chunk_mut::<USUAL>());
        match (room, from.first_chunk::<USUAL>()) {
            (Some(room), Some(bytes)) if length <= USUAL => {
                *room = *bytes;
                self.used += length;
            }
            _ => self.bytes(from.get(..length).unwrap_or_default()),
        }
    }

    /// An address as a string: `"0x7f…"`.
    #[inline]
    pub(super) fn address(&mut self, address: usize) {
        self.address_after(b"", address);
    }

    /// The same behind a text of a few bytes.
    #[inline(always)]
    pub(super) fn address_after<const N: usize>(&mut self, before: &[u8; N], address: usize) {
        const { assert!(N + 16 <= ROOM) };
        let Some(Upper { digits, length, .. }) = self.upper(address) else {
            return self.unusual_address(before, address);
        };
        let room = self.room();
        room[..N].copy_from_slice(before);
        room[N..N + 3].copy_from_slice(b"\"0x");
        room[N + 3..N + 11].copy_from_slice(&digits);
        let end = N + 3 + length.min(8);
        room[end..end + 2].copy_from_slice(&HEX[address >> 8 & 0xff]);
        room[end + 2..end + 4].copy_from_slice(&HEX[address & 0xff]);
        room[end + 4] = b'"';
        self.used += end + 5;
    }

    /// The digits but for the last four. `None` for an address with unusually few or many.
    #[inline(always)]
    fn upper(&mut self, address: usize) -> Option<Upper> {
        let number = address >> 16;
        if !Upper::USUAL.contains(&number) {
            return None;
        }
        let upper = &mut self.uppers[number % Upper::COUNT];
        if upper.number != number {
            *upper = Upper::of(number);
        }
        Some(*upper)
    }

    #[cold]
    fn unusual_address(&mut self, before: &[u8], address: usize) {
        self.bytes(before);
        self.bytes(b"\"0x");
        let upper = hexadecimal((address >> 32) as u32).to_be_bytes();
        let lower = hexadecimal(address as u32).to_be_bytes();
        let skipped = (address.leading_zeros() / 4).min(15) as usize;
        self.bytes(upper.get(skipped..).unwrap_or_default());
        self.bytes(lower.get(skipped.saturating_sub(8)..).unwrap_or_default());
        self.bytes(b"\"");
    }

    /// An address as 16 digits.
    #[inline(always)]
    pub(super) fn long_address(&mut self, address: usize) {
        let Some(Upper { digits, length: 8, .. }) = self.upper(address) else {
            return self.hash(address as u64);
        };
        let room = self.room();
        room[..4].copy_from_slice(b"0000");
        room[4..12].copy_from_slice(&digits);
        room[12..14].copy_from_slice(&HEX[address >> 8 & 0xff]);
        room[14..16].copy_from_slice(&HEX[address & 0xff]);
        self.used += 16;
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
        self.number_after(b"", number);
    }

    /// A number behind a text of a few bytes.
    #[inline(always)]
    pub(super) fn number_after<const N: usize>(&mut self, before: &[u8; N], number: u64) {
        const { assert!(N + 20 <= ROOM) };
        let room = self.room();
        room[..N].copy_from_slice(before);
        let count = match room[N..].first_chunk_mut() {
            Some(room) => decimal(room, number),
            None => 0,
        };
        self.used += N + count;
    }

    pub(super) fn signed(&mut self, number: i64) {
        if number < 0 {
            self.bytes(b"-");
        }
        self.number(number.unsigned_abs());
    }

    /// Bytes of ASCII without quotes.
    #[inline]
    pub(super) fn ascii(&mut self, text: &[u8]) {
        self.escaped(text);
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
            let rest = match self.buffer.get_mut(self.used..) {
                Some(room) if room.len() >= text.len() => {
                    let plain = copy_plain(text, room);
                    self.used += plain;
                    text.get(plain..).unwrap_or_default()
                }
                _ => {
                    let plain = text.iter().take_while(|byte| PLAIN[usize::from(**byte)]).count();
                    let (run, rest) = text.split_at(plain);
                    self.bytes(run);
                    rest
                }
            };
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

    /// Lines end here that stand together. The piece goes to the tool if it is half full, so that it does not end within
    /// the next ones.
    pub(super) fn end_part(&mut self) {
        if self.goes_on || self.used > self.buffer.len() / 2 {
            self.publish();
        }
    }

    /// All lines so far go to the tool.
    pub(super) fn publish(&mut self) {
        if self.goes_on || self.used > 0 {
            self.send(false);
        }
    }

    /// All of this copy has been written. In the first one waits for the second one, if there is any.
    pub(super) fn end_lines(&mut self) {
        self.publish();
        self.progress.set(Stage::Writing);
        if let (Some(second), Some(tool)) = (self.second.take(), self.tool) {
            second.wait(tool, self.state);
        }
    }

    /// The last line has been written, too: waits for the tool, and ends the copy.
    pub(super) fn finish(&mut self) {
        self.publish();
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

    /// The buffer is full. Lines go on in the next one.
    #[cold]
    fn flush(&mut self) {
        if self.tool.is_none() {
            self.used = 0;
        } else if self.used > 0 {
            self.send(true);
        }
    }

    /// Sends the buffer to the tool. If that has gone, ends the copy.
    #[cold]
    fn send(&mut self, goes_on: bool) {
        const GOES_ON: u64 = 1 << 31;
        let Some(tool) = self.tool else { return };
        let before = self.progress.stage();
        self.progress.set(Stage::Writing);
        match tool.pieces {
            Some(pieces) => {
                let mark = if goes_on { GOES_ON } else { 0 };
                let filled = u64::from(self.piece) << 32 | mark | self.used as u64;
                tool.write(&filled.to_ne_bytes(), self.state);
                self.filled += 1;
                self.goes_on = goes_on;
                self.piece = pieces.next(self.filled, tool, self.second.as_ref(), self.state);
                // SAFETY: the tool has just given it back, or it was never used.
                self.buffer = unsafe { pieces.bytes(self.piece) };
            }
            None => tool.write(self.buffer.get(..self.used).unwrap_or_default(), self.state),
        }
        self.progress.bytes.fetch_add(self.used as u64, Ordering::Relaxed);
        self.used = 0;
        self.progress.beat.fetch_add(1, Ordering::Relaxed);
        self.progress.set(before);
    }
}
