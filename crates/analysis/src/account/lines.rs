//! Writes plain lines of words and numbers into a fixed buffer.

/// A buffer that takes whole lines, and drops those for which there is no room.
#[derive(Debug)]
pub struct Lines<'a> {
    out: &'a mut [u8],
    used: usize,
    lost: u64,
}

/// What a line is made of.
#[derive(Clone, Copy, Debug)]
pub enum Word<'a> {
    /// A number, in decimal.
    Number(u64),
    /// A text; line breaks in it become question marks.
    Text(&'a [u8]),
}

impl<'a> Lines<'a> {
    /// An empty text.
    pub fn new(out: &'a mut [u8]) -> Self {
        Self { out, used: 0, lost: 0 }
    }

    /// Adds a line, if there is room for all of it. Returns the length of the text.
    pub fn add(&mut self, key: &str, words: &[Word<'_>]) -> usize {
        let begun = self.used;
        let fits = self.bytes(key.as_bytes())
            && words.iter().all(|word| {
                self.bytes(b" ")
                    && match word {
                        Word::Number(number) => self.number(*number),
                        Word::Text(text) => self.bytes(text),
                    }
            });
        // The break is written directly: the texts have none.
        match (fits, self.out.get_mut(self.used)) {
            (true, Some(end)) => {
                *end = b'\n';
                self.used += 1;
            }
            _ => {
                self.used = begun;
                self.lost += 1;
            }
        }
        self.used
    }

    /// What was written.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        self.out.get(..self.used).unwrap_or_default()
    }

    /// Lines for which there was no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes that are left.
    #[must_use]
    pub fn room(&self) -> usize {
        self.out.len() - self.used
    }

    fn bytes(&mut self, text: &[u8]) -> bool {
        let Some(room) = self.out.get_mut(self.used..self.used.saturating_add(text.len())) else {
            return false;
        };
        for (to, from) in room.iter_mut().zip(text) {
            *to = if *from == b'\n' { b'?' } else { *from };
        }
        self.used += text.len();
        true
    }

    fn number(&mut self, mut number: u64) -> bool {
        let mut digits = [0_u8; 20];
        let mut first = digits.len();
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
            first -= 1;
            if number == 0 {
                break;
            }
        }
        digits.get(first..).is_some_and(|text| self.bytes(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_or_none() {
        let mut room = [0; 24];
        let mut lines = Lines::new(&mut room);
        assert_eq!(lines.add("rss", &[Word::Number(0)]), 6);
        assert_eq!(lines.add("file", &[Word::Number(120), Word::Text(b"/a\nb")]), 20);
        assert_eq!(lines.add("anon", &[Word::Number(u64::MAX)]), 20);
        assert_eq!(lines.lost(), 1);
        assert_eq!(lines.text(), b"rss 0\nfile 120 /a?b\n");
    }
}
