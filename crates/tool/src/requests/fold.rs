//! Paths to patterns: `/posts/4711` and `/posts/4712` are both `/posts/:id`.

/// Replaces a part that differs between paths.
const ID: &str = ":id";
/// Longer patterns are cut, because a client decides how long a path is.
const MOST_CHARACTERS: usize = 160;
/// Longer methods are cut, because the client also chooses the method.
const LONGEST_METHOD: usize = 20;

/// The pattern of a path: without its query, with `:id` for numbers, UUIDs, hexadecimal numbers, mail addresses and
/// other generated parts. A path in a log may contain anything, so unprintable characters are escaped.
pub fn path(path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut pattern = String::with_capacity(path.len());
    for part in path.split('/').filter(|part| !part.is_empty()) {
        pattern.push('/');
        match part.rsplit_once('.') {
            Some((stem, extension)) if is_extension(extension) && !is_address(part) && is_id(stem) => {
                pattern.push_str(ID);
                pattern.push('.');
                pattern.push_str(extension);
            }
            _ if is_id(part) => pattern.push_str(ID),
            _ => pattern.push_str(part),
        }
        if pattern.len() > 4 * MOST_CHARACTERS {
            break;
        }
    }
    if pattern.is_empty() {
        pattern.push('/');
    }
    printable(&pattern)
}

/// A name of any kind for printing: cut, and without characters that a terminal would obey.
pub fn printable(text: &str) -> String {
    // Escapes need more room, so this reads no more of a long text than is needed.
    let enough = text.char_indices().nth(MOST_CHARACTERS + 1).map_or(text, |(end, _)| &text[..end]);
    let mut shown = memintro_analysis::text::printable(enough.as_bytes());
    if let Some((end, _)) = shown.char_indices().nth(MOST_CHARACTERS) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

/// A request's method, or a `?` if it is not a valid one.
pub fn method(method: &str) -> &str {
    let word = !method.is_empty() && method.len() <= LONGEST_METHOD;
    if word && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') { method } else { "?" }
}

/// An extension such as `json` in `/posts/7.json`.
fn is_extension(text: &str) -> bool {
    (1..=5).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

fn is_id(part: &str) -> bool {
    let bytes = part.as_bytes();
    let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
    if digits == bytes.len() {
        return digits > 0;
    }
    if is_address(part) {
        return true;
    }
    // `7-a-title`, a common form of Rails' to_param, and `2026-01-31`.
    let leading = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if leading > 0 && matches!(bytes.get(leading), Some(b'-' | b'_' | b',' | b':')) {
        return true;
    }
    if bytes.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-') && is_hexadecimal(bytes, digits) {
        return true;
    }
    is_token(bytes, digits)
}

/// A mail address, or a name in the form that some sites use.
fn is_address(part: &str) -> bool {
    part.contains('@') || part.contains("%40")
}

/// A UUID, a hash or an address. From eight letters on it must contain a digit, so that no ordinary word counts.
fn is_hexadecimal(bytes: &[u8], digits: usize) -> bool {
    let hyphens: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] == b'-').collect();
    match hyphens[..] {
        [] => (bytes.len() >= 8 && digits > 0) || bytes.len() >= 20,
        [8, 13, 18, 23] => bytes.len() == 36,
        _ => false,
    }
}

/// Text in base 64 or 32: long, without blanks, and with digits among the letters, which ordinary words do not have.
fn is_token(bytes: &[u8], digits: usize) -> bool {
    let alphabet = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=' | b'+' | b'~' | b'.' | b'%')
    };
    if bytes.len() < 16 || digits == 0 || !bytes.iter().all(alphabet) {
        return false;
    }
    let lower = bytes.iter().any(u8::is_ascii_lowercase);
    let upper = bytes.iter().any(u8::is_ascii_uppercase);
    (lower && upper) || (bytes.len() >= 20 && digits >= 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_different_each_time_is_folded() {
        for (given, pattern) in [
            ("/posts/4711", "/posts/:id"),
            ("/posts/4711.json", "/posts/:id.json"),
            ("/posts/4711/comments/9?page=2", "/posts/:id/comments/:id"),
            ("/posts/7-how-to-fold", "/posts/:id"),
            ("/orders/2026-01-31", "/orders/:id"),
            ("/a/123e4567-e89b-12d3-a456-426614174000", "/a/:id"),
            ("/a/123E4567-E89B-12D3-A456-426614174000.pdf", "/a/:id.pdf"),
            ("/commit/9c874d3e", "/commit/:id"),
            ("/blob/da39a3ee5e6b4b0d3255bfef95601890afd80709", "/blob/:id"),
            ("/reset/dGhpcyBpcyBhIHRva2Vu42==", "/reset/:id"),
            ("/u/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/u/:id"),
            ("/customers/cus_NffrFeUfNV2Hib1", "/customers/:id"),
            ("/users/somebody@example.com/edit", "/users/:id/edit"),
            ("/users/somebody%40example.com", "/users/:id"),
            ("//posts///5/", "/posts/:id"),
        ] {
            assert_eq!(path(given), pattern, "{given}");
        }
    }

    #[test]
    fn words_stay() {
        for given in [
            "/",
            "/posts",
            "/api/v2/posts",
            "/api/2fa/setup",
            "/assets/application.js",
            "/decade/facade",
            "/oauth2/callback",
            "/a-long-title-without-any-number-in-it",
            "/how-to-write-a-book-in-3-days",
            "/caf\u{e9}",
            "/_health",
        ] {
            assert_eq!(path(given), given);
        }
        assert_eq!(path(""), "/");
    }

    #[test]
    fn nothing_reaches_a_terminal_that_it_would_obey() {
        assert_eq!(path("/a\u{1b}[2J\n\u{202e}b"), "/a\\x1B[2J\\x0A\\xE2\\x80\\xAEb");
        assert_eq!(path(&format!("/{}", "x y".repeat(1_000))).chars().count(), MOST_CHARACTERS + 1);
        assert_eq!(printable(&"\u{1b}".repeat(200)).chars().count(), MOST_CHARACTERS + 1);
        assert_eq!(
            [method("GET"), method("M-SEARCH"), method(""), method("g\u{1b}"), method(&"X".repeat(21))],
            ["GET", "M-SEARCH", "?", "?", "?"]
        );
    }

    proptest! {
        #[test]
        fn no_pattern_has_a_character_that_does_not_print(text in "(/|\\PC|[0-9a-f]{8}|@|\u{1b}|\\?){0,60}") {
            let pattern = path(&text);
            prop_assert!(pattern.chars().all(|character| !character.is_control()));
            prop_assert!(pattern.starts_with('/'));
        }

        #[test]
        fn a_number_anywhere_makes_no_new_pattern(words in proptest::collection::vec("[a-z]{1,7}", 1..5), id in any::<u64>()) {
            let at = |id: u64| path(&format!("/{}/{id}/edit", words.join("/")));
            prop_assert_eq!(at(id), at(1));
        }
    }
}
