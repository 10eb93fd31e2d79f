//! Advice names methods or commands: the caller of a method can call another one, and the user of a command can run it again.

use std::fmt::Write;

/// Which of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// Methods.
    #[default]
    Methods,
    /// Commands.
    Commands,
}

impl Advice {
    /// For the command, or else for a program.
    #[must_use]
    pub const fn of(names_commands: bool) -> Self {
        if names_commands { Self::Commands } else { Self::Methods }
    }

    /// One of both texts.
    pub(crate) const fn pick<'a>(self, methods: &'a str, commands: &'a str) -> &'a str {
        match self {
            Self::Methods => methods,
            Self::Commands => commands,
        }
    }

    /// What says who holds objects of a class in a process.
    pub(crate) fn holders(self, class: &str, pid: &str) -> String {
        let is_plain = !class.is_empty()
            && class.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'));
        match self {
            Self::Methods => format!("Memintro.holders({})", quoted(class)),
            Self::Commands if is_plain => format!("memintro holders {pid} --class {class}"),
            Self::Commands => format!("memintro holders {pid} --class {}", quoted(class)),
        }
    }
}

/// As Ruby's `String#dump` writes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let short = match character {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\x0c' => "\\f",
            '\x0b' => "\\v",
            '\x08' => "\\b",
            '\x07' => "\\a",
            '\x1b' => "\\e",
            '#' if matches!(characters.peek(), Some('{' | '$' | '@')) => "\\#",
            _ => "",
        };
        // Writing to a String does not fail.
        let _ = match (short, u32::from(character)) {
            ("", 0x20..=0x7e) => write!(quoted, "{character}"),
            ("", 0..0x80) => write!(quoted, "\\x{:02X}", u32::from(character)),
            ("", code @ 0..=0xffff) => write!(quoted, "\\u{code:04X}"),
            ("", code) => write!(quoted, "\\u{{{code:X}}}"),
            (short, _) => write!(quoted, "{short}"),
        };
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_ruby_does() {
        assert_eq!(quoted("a\"\\#{x}#y\u{1}\n"), r##""a\"\\\#{x}#y\x01\n""##);
        assert_eq!(quoted("Ä\u{1f600}"), r#""\u00C4\u{1F600}""#);
        let commands = Advice::of(true);
        assert_eq!(commands.holders("Net::HTTP", "47"), "memintro holders 47 --class Net::HTTP");
        assert_eq!(commands.holders("(hidden)", "PID"), "memintro holders PID --class \"(hidden)\"");
        assert_eq!(Advice::of(false).holders("Net::HTTP", "47"), "Memintro.holders(\"Net::HTTP\")");
    }
}
