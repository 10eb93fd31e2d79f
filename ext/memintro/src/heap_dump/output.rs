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
    /// The buffer, which no other code uses: where it begins, where what comes next goes, and where it ends. As addresses,
    /// because what is written at once then needs one comparison.
    start: *mut u8,
    at: *mut u8,
    end: *mut u8,
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

/// Writes bytes at a place of the room. Without a call, whatever the compiler thinks of it.
#[inline(always)]
fn put<const N: usize>(room: &mut [u8; ROOM], at: usize, bytes: &[u8; N]) {
    if let Some(place) = room.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        *place = *bytes;
    }
}

impl<'a> Output<'a> {
    /// One that goes nowhere.
    pub(super) fn scratch(buffer: &'static mut [u8], state: &'a State) -> Self {
        Self::new(buffer, None, state)
    }

    fn new(buffer: &'static mut [u8], tool: Option<Tool>, state: &'a State) -> Self {
        let (filled, goes_on, second) = (0, false, None);
        let piece = tool.and_then(|tool| tool.pieces).map_or(0, |pieces| pieces.first());
        let progress = if tool.is_some_and(Tool::is_of_second) { state.second() } else { state.first() };
        let uppers = [Upper::NONE; Upper::COUNT];
        let std::ops::Range { start, end } = buffer.as_mut_ptr_range();
        Self { start, at: start, end, uppers, tool, piece, filled, goes_on, second, state, progress }
    }

    /// Begins another buffer.
    fn take(&mut self, buffer: &'static mut [u8]) {
        let std::ops::Range { start, end } = buffer.as_mut_ptr_range();
        (self.start, self.at, self.end) = (start, start, end);
    }

    /// Bytes that have been written into the buffer.
    #[inline(always)]
    fn used(&self) -> usize {
        self.at.addr() - self.start.addr()
    }

    /// So many bytes of the room have been written.
    #[inline(always)]
    fn advance(&mut self, bytes: usize) {
        // SAFETY: their writer had so much room.
        self.at = unsafe { self.at.add(bytes) };
    }

    /// What is left of the buffer.
    #[inline(always)]
    fn rest(&mut self) -> &mut [u8] {
        // SAFETY: this much of the buffer is behind the place, and no other code uses it.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.room_left()) }
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
        if self.room_left() < bytes.len() {
            return self.long(bytes);
        }
        // SAFETY: there is so much room, which no other code has.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at, bytes.len()) };
        self.advance(bytes.len());
    }

    #[cold]
    fn long(&mut self, bytes: &[u8]) {
        self.flush();
        for piece in bytes.chunks(self.room_left().max(1)) {
            self.flush();
            if let Some(place) = self.rest().get_mut(..piece.len()) {
                place.copy_from_slice(piece);
                self.advance(piece.len());
            }
        }
    }

    #[inline(always)]
    fn room(&mut self) -> &mut [u8; ROOM] {
        if self.room_left() < ROOM {
            self.flush();
            if self.room_left() < ROOM {
                crate::copy::end(false);
            }
        }
        // SAFETY: there is so much room, which no other code has.
        unsafe { &mut *self.at.cast() }
    }

    /// The first `length` bytes of these, if so many are there. All are copied, because how many is known then.
    #[inline(always)]
    fn cut<const N: usize>(&mut self, bytes: Option<&[u8; N]>, length: usize) -> bool {
        let Some(bytes) = bytes.filter(|_| length <= N && self.room_left() >= N) else { return false };
        // SAFETY: there is so much room, which no other code has.
        unsafe { *self.at.cast() = *bytes };
        self.advance(length);
        true
    }

    /// A short text, of which few have more than `USUAL` bytes.
    #[inline(always)]
    pub(super) fn padded<const N: usize, const USUAL: usize>(&mut self, text: &Padded<N>) {
        if !self.cut(text.bytes.first_chunk::<USUAL>(), text.length()) {
            self.bytes(text.text());
        }
    }

    /// Some bytes of a scratch buffer.
    #[inline(always)]
    pub(super) fn cut_of(&mut self, other: &Output<'_>, start: usize, length: usize) {
        const USUAL: usize = 48;
        // SAFETY: all of its buffer; what is behind the written bytes is not told.
        let all = unsafe { std::slice::from_raw_parts(other.start, other.end.addr() - other.start.addr()) };
        let from = all.get(start..).unwrap_or_default();
        if !self.cut(from.first_chunk::<USUAL>(), length) {
            self.bytes(from.get(..length).unwrap_or_default());
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
        put(room, 0, before);
        put(room, N, b"\"0x");
        put(room, N + 3, &digits);
        let end = N + 3 + length.min(8);
        put(room, end, &HEX[address >> 8 & 0xff]);
        put(room, end + 2, &HEX[address & 0xff]);
        put(room, end + 4, b"\"");
        self.advance(end + 5);
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
        put(room, 0, b"0000");
        put(room, 4, &digits);
        put(room, 12, &HEX[address >> 8 & 0xff]);
        put(room, 14, &HEX[address & 0xff]);
        self.advance(16);
    }

    /// A number, in 16 hexadecimal digits.
    pub(super) fn hash(&mut self, number: u64) {
        let room = self.room();
        put(room, 0, &hexadecimal((number >> 32) as u32).to_be_bytes());
        put(room, 8, &hexadecimal(number as u32).to_be_bytes());
        self.advance(16);
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
        put(room, 0, before);
        let count = match room[N..].first_chunk_mut() {
            Some(room) => decimal(room, number),
            None => 0,
        };
        self.advance(N + count);
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
            let rest = if self.room_left() >= text.len() {
                let plain = copy_plain(text, self.rest());
                self.advance(plain.min(text.len()));
                text.get(plain..).unwrap_or_default()
            } else {
                let plain = text.iter().take_while(|byte| PLAIN[usize::from(**byte)]).count();
                let (run, rest) = text.split_at(plain);
                self.bytes(run);
                rest
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
        if self.goes_on || self.used() > self.room_left() {
            self.publish();
        }
    }

    /// All lines so far go to the tool.
    pub(super) fn publish(&mut self) {
        if self.goes_on || self.used() > 0 {
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
        // SAFETY: these bytes of the buffer have been written.
        unsafe { std::slice::from_raw_parts(self.start, self.used()) }
    }

    /// Room before the buffer is full.
    #[inline(always)]
    pub(super) fn room_left(&self) -> usize {
        self.end.addr() - self.at.addr()
    }

    pub(super) fn clear(&mut self) {
        self.at = self.start;
    }

    /// The buffer is full. Lines go on in the next one.
    #[cold]
    fn flush(&mut self) {
        if self.tool.is_none() {
            self.clear();
        } else if self.used() > 0 {
            self.send(true);
        }
    }

    /// Sends the buffer to the tool. If that has gone, ends the copy.
    #[cold]
    fn send(&mut self, goes_on: bool) {
        const GOES_ON: u64 = 1 << 31;
        let Some(tool) = self.tool else { return };
        let (before, used) = (self.progress.stage(), self.used());
        self.progress.set(Stage::Writing);
        match tool.pieces {
            Some(pieces) => {
                let mark = if goes_on { GOES_ON } else { 0 };
                let filled = u64::from(self.piece) << 32 | mark | used as u64;
                tool.write(&filled.to_ne_bytes(), self.state);
                self.filled += 1;
                self.goes_on = goes_on;
                self.piece = pieces.next(self.filled, tool, self.second.as_ref(), self.state);
                // SAFETY: the tool has just given it back, or it was never used.
                self.take(unsafe { pieces.bytes(self.piece) });
            }
            None => {
                tool.write(self.written(), self.state);
                self.clear();
            }
        }
        self.progress.bytes.fetch_add(used as u64, Ordering::Relaxed);
        self.progress.beat.fetch_add(1, Ordering::Relaxed);
        self.progress.set(before);
    }
}
