//! Reads `/proc/*/smaps`, mapping by mapping, without a copy.

/// One mapping; figures are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Its first address.
    pub start: usize,
    /// The address after its last one.
    pub end: usize,
    /// Whether the process may read it.
    pub readable: bool,
    /// Whether the process may write it.
    pub writable: bool,
    /// Whether it is code.
    pub executable: bool,
    /// Whether writes stay in this process.
    pub private: bool,
    /// Inode of the file; 0 where there is none.
    pub inode: u64,
    /// The path, or a name in brackets; empty where there is none.
    pub name: &'a [u8],
    /// Resident bytes.
    pub rss: u64,
    /// Those of them that no file holds.
    pub anonymous: u64,
    /// Those of them in pages that another mapping has as well, of this process or of another one.
    pub shared: u64,
    /// Bytes that were swapped out.
    pub swap: u64,
    /// The program has told the kernel to keep it from copies of the process, or to hand them zeroes.
    pub is_kept_back: bool,
}

impl Mapping<'_> {
    /// Whether a fork copies its page tables, so that a child sees all its pages: nothing but private memory.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.inode == 0 && self.private && !self.name.starts_with(b"/")
    }

    /// Whether its pages are the process's own, and not memory of the kernel that is no part of RSS.
    #[must_use]
    pub fn may_be_asked(&self) -> bool {
        !self.name.starts_with(b"[v") || self.name == b"[vdso]"
    }
}

/// Visits each mapping of the text. What is no mapping is passed over.
pub fn each<'a>(text: &'a [u8], mut visit: impl FnMut(Mapping<'a>)) {
    let mut current: Option<Mapping<'a>> = None;
    for line in text.split(|byte| *byte == b'\n') {
        if let Some(next) = head(line) {
            if let Some(done) = current.replace(next) {
                visit(done);
            }
        } else if let Some(mapping) = &mut current {
            if let Some(rest) = line.strip_prefix(b"Rss:") {
                mapping.rss = kilobytes(rest);
            } else if let Some(rest) = line.strip_prefix(b"Anonymous:") {
                mapping.anonymous = kilobytes(rest);
            } else if let Some(rest) =
                line.strip_prefix(b"Shared_Clean:").or_else(|| line.strip_prefix(b"Shared_Dirty:"))
            {
                mapping.shared += kilobytes(rest);
            } else if let Some(rest) = line.strip_prefix(b"Swap:") {
                mapping.swap = kilobytes(rest);
            } else if let Some(rest) = line.strip_prefix(b"VmFlags:") {
                mapping.is_kept_back =
                    rest.split(|byte| *byte == b' ').any(|flag| flag == b"dc" || flag == b"wf");
            }
        }
    }
    if let Some(done) = current {
        visit(done);
    }
}

/// `start-end perms offset device inode name`
fn head(line: &[u8]) -> Option<Mapping<'_>> {
    let (range, rest) = word(line)?;
    let dash = range.iter().position(|byte| *byte == b'-')?;
    let start = hexadecimal(range.get(..dash)?)?;
    let end = hexadecimal(range.get(dash + 1..)?)?;
    let (permissions, rest) = word(rest)?;
    let (_offset, rest) = word(rest)?;
    let (_device, rest) = word(rest)?;
    let (inode, rest) = word(rest)?;
    let name =
        rest.iter().position(|byte| *byte != b' ').and_then(|first| rest.get(first..)).unwrap_or_default();
    let may = |place: usize, letter: u8| permissions.get(place) == Some(&letter);
    (end > start).then_some(Mapping {
        start,
        end,
        readable: may(0, b'r'),
        writable: may(1, b'w'),
        executable: may(2, b'x'),
        private: may(3, b'p'),
        inode: decimal(inode),
        name,
        rss: 0,
        anonymous: 0,
        shared: 0,
        swap: 0,
        is_kept_back: false,
    })
}

fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let first = text.iter().position(|byte| *byte != b' ')?;
    let text = text.get(first..)?;
    let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    Some((text.get(..end)?, text.get(end..)?))
}

fn hexadecimal(text: &[u8]) -> Option<usize> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0_usize, |sum, byte| {
        let digit = (*byte as char).to_digit(16)?;
        Some((sum << 4) | digit as usize)
    })
}

fn decimal(text: &[u8]) -> u64 {
    text.iter()
        .filter(|byte| byte.is_ascii_digit())
        .fold(0, |sum, byte| sum.saturating_mul(10).saturating_add(u64::from(*byte - b'0')))
}

fn kilobytes(text: &[u8]) -> u64 {
    decimal(text).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0                          [heap]\n\
        Size:                132 kB\nRss:                  12 kB\nAnonymous:             8 kB\n\
        VmFlags: rd wr mr\n\
        7f00-8f00 r-xp 00001000 fe:01 4711 /usr/lib/a b.so (deleted)\nRss: 4 kB\nVmFlags: rd mr dc \n\
        garbage-more zz\nffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";

    #[test]
    fn mappings_with_their_figures() {
        let mut found = Vec::new();
        each(TEXT, |mapping| found.push(mapping));
        assert_eq!(found.len(), 3);
        assert_eq!((found[0].name, found[0].rss, found[0].anonymous), (&b"[heap]"[..], 12_288, 8_192));
        assert!(found[0].is_anonymous() && found[0].writable && found[0].readable);
        assert_eq!(
            (found[1].name, found[1].inode, found[1].rss),
            (&b"/usr/lib/a b.so (deleted)"[..], 4711, 4096)
        );
        assert!(!found[1].is_anonymous() && !found[1].writable);
        assert!(!found[0].executable && found[1].executable);
        assert_eq!((found[1].start, found[1].end), (0x7f00, 0x8f00));
        assert!(!found[2].readable);
        assert!(found[0].may_be_asked() && found[1].may_be_asked() && !found[2].may_be_asked());
        assert!(Mapping { name: b"[vdso]", ..found[2] }.may_be_asked());
        assert_eq!(
            found.iter().map(|mapping| mapping.is_kept_back).collect::<Vec<_>>(),
            [false, true, false]
        );
    }

    #[test]
    fn any_bytes_are_read_without_harm() {
        each(b"", |_| panic!("nothing is there"));
        each(b"-", |_| panic!("no mapping"));
        each(b"8-7 rw-p 0 0 0", |_| panic!("it ends before it begins"));
        each(b"fffffffffffffffff-1 r 0 0 0", |_| panic!("too long a number"));
    }
}
