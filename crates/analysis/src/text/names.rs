//! Names of call sites for tables: printable, and no longer than needed to know the file.

use std::fmt::Write;

/// Longest name a table shows.
const WIDEST: usize = 100;

/// Shortens names of files in a folder, of gems and of Ruby's own library.
pub(crate) struct Names {
    prefix: Option<Vec<u8>>,
}

impl Names {
    /// Names relative to this folder.
    pub(crate) fn new(root: Option<&[u8]>) -> Self {
        let prefix = root.filter(|root| !root.is_empty()).map(|root| {
            let root = root.strip_suffix(b"\r\n").or(root.strip_suffix(b"/")).unwrap_or(root);
            [root, b"/"].concat()
        });
        Self { prefix }
    }

    /// At most [`WIDEST`] characters. Only names of Ruby's lines are paths.
    pub(crate) fn short(&self, name: &[u8], is_path: bool) -> String {
        let name = if is_path { printable(&self.shorten(name)) } else { printable(name) };
        let length = name.chars().count();
        if length <= WIDEST {
            return name;
        }
        let end: String = name.chars().skip(length - (WIDEST - 3)).collect();
        format!("...{end}")
    }

    fn shorten(&self, name: &[u8]) -> Vec<u8> {
        if let Some((inner, line)) = internal(name) {
            return [b"<internal:", self.shorten(inner).as_slice(), b">", line].concat();
        }
        let of_gem = gem(name);
        let of_root = self.prefix.as_ref().and_then(|prefix| name.strip_prefix(prefix.as_slice()));
        match (of_gem, of_root) {
            (Some(rest), _) | (None, Some(rest)) => rest.to_vec(),
            (None, None) => standard(name).unwrap_or(name).to_vec(),
        }
    }
}

/// For a file of Ruby's own: what is in the brackets, and the line after them.
fn internal(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = name.strip_prefix(b"<internal:")?;
    let end = rest.windows(2).rposition(|two| two == b">:")?;
    let (inner, line) = (rest.get(..end)?, rest.get(end + 1..)?);
    let digits = line.get(1..)?;
    let is_line = !inner.is_empty() && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_line.then_some((inner, line))
}

/// The ends of a name after each place where this stands in it, the shortest first.
fn ends<'a>(name: &'a [u8], mark: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    (0..name.len().saturating_sub(mark.len()))
        .rev()
        .filter(move |&at| name.get(at..).is_some_and(|rest| rest.starts_with(mark)))
        .filter_map(move |at| name.get(at + mark.len()..))
}

/// From the folder of the gem on, which has its version in its name.
fn gem(name: &[u8]) -> Option<&[u8]> {
    ends(name, b"/gems/").find(|rest| {
        let folder = rest.iter().position(|&byte| byte == b'/').and_then(|end| rest.get(..end));
        folder.is_some_and(|folder| {
            folder.len() > 2 && folder.get(1..folder.len() - 1).is_some_and(|middle| middle.contains(&b'-'))
        })
    })
}

/// From `ruby/VERSION/` on.
fn standard(name: &[u8]) -> Option<&[u8]> {
    ends(name, b"/").find(|rest| {
        let folder = rest
            .strip_prefix(b"ruby/")
            .and_then(|rest| rest.iter().position(|&byte| byte == b'/').and_then(|end| rest.get(..end)));
        folder.is_some_and(|folder| {
            let mut parts = folder.split(|&byte| byte == b'.');
            let is_number = |part: Option<&[u8]>| {
                part.is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
            };
            folder == b"vendor_ruby"
                || folder == b"site_ruby"
                || (is_number(parts.next())
                    && is_number(parts.next())
                    && is_number(parts.next())
                    && parts.next().is_none())
        })
    })
}

/// Whether a file belongs to a gem.
pub(crate) fn is_of_gem(path: &[u8]) -> bool {
    gem(path).is_some()
}

/// Whether it belongs to Ruby.
pub(crate) fn is_of_ruby(path: &[u8]) -> bool {
    path.starts_with(b"<internal:") || standard(path).is_some()
}

/// UTF-8. Bytes that are not, and characters that a terminal obeys or that appear elsewhere than where they stand, are
/// written as `\xNN`.
#[must_use]
pub fn printable(text: &[u8]) -> String {
    let mut shown = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_unprintable(character) {
                let mut bytes = [0; 4];
                hex(&mut shown, character.encode_utf8(&mut bytes).as_bytes());
            } else {
                shown.push(character);
            }
        }
        hex(&mut shown, chunk.invalid());
    }
    shown
}

fn hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "\\x{byte:02X}");
    }
}

/// C0, DEL and C1, marks that turn the direction of writing, and line separators.
pub(crate) fn is_unprintable(character: char) -> bool {
    matches!(character, '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_paths() {
        let names = Names::new(Some(b"/app"));
        let short = |name: &[u8]| names.short(name, true);
        assert_eq!(short(b"/app/lib/a.rb:3"), "lib/a.rb:3");
        assert_eq!(short(b"/app/vendor/gems/rack-2.2/lib/rack.rb:1"), "rack-2.2/lib/rack.rb:1");
        assert_eq!(short(b"/x/bundler/gems/a-1/gems/b.rb:1"), "a-1/gems/b.rb:1");
        assert_eq!(short(b"/usr/lib/ruby/3.1.0/json.rb:9"), "ruby/3.1.0/json.rb:9");
        assert_eq!(short(b"/usr/lib/ruby/3.1/json.rb:9"), "/usr/lib/ruby/3.1/json.rb:9");
        assert_eq!(
            short(b"<internal:/usr/lib/ruby/vendor_ruby/x.rb>:85"),
            "<internal:ruby/vendor_ruby/x.rb>:85"
        );
        assert_eq!(short(b"<internal:gc>:34"), "<internal:gc>:34");
        assert_eq!(names.short(b"/app/a", false), "/app/a");
    }

    #[test]
    fn shows_what_a_terminal_would_obey() {
        assert_eq!(printable(b"a\x1b[1m\xff\xe2\x80\xaeb"), "a\\x1B[1m\\xFF\\xE2\\x80\\xAEb");
        let long = Names::new(None).short("ä".repeat(120).as_bytes(), true);
        assert_eq!(long, format!("...{}", "ä".repeat(97)));
    }
}
