//! Reader of the raw dump that a dying process leaves (see `memintro_abi::DumpHeader` for the layout).
//!
//! The file may be cut short or be no dump at all, so each field is checked.
//!
//! ```
//! let error = memintro_analysis::raw_dump::parse(b"hello").unwrap_err();
//! assert_eq!(error.to_string(), "it does not begin with the mark of a raw dump");
//! ```

mod stacks;

use std::fmt;

use memintro_abi::{
    BlockFigures, DUMP_MAGIC, DumpHeader, DumpSite, Figures, ObjectFigures, STACKS_MAGIC, SiteKind, VERSION,
};
pub use stacks::{MOST_FRAMES, RawFrame, RawStack, Stacks};

/// A raw dump, borrowed from the file's bytes.
#[derive(Debug)]
pub struct RawDump<'a> {
    /// Process and totals.
    pub header: DumpHeader,
    /// Call sites in the order of the file.
    pub sites: Vec<RawSite<'a>>,
    /// The same figures by whole stack; `None`: call sites were lines.
    pub stacks: Option<Stacks<'a>>,
    /// Stacks of native sites, if there are any.
    pub native_stacks: Vec<NativeStack>,
    /// What the process had mapped; empty without stacks.
    pub maps: &'a [u8],
}

/// The stack of a site's first allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeStack {
    /// Number of the site: [`RawFigures::id`].
    pub site: u32,
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer register.
    pub bp: u64,
    /// Distances from the stack pointer, in ascending order, and the words there.
    pub words: Vec<(u64, u64)>,
}

/// One call site.
#[derive(Debug, Clone, Copy)]
pub struct RawSite<'a> {
    /// Its name.
    pub name: SiteName<'a>,
    /// Ruby: the line; otherwise 0.
    pub line: u32,
    /// Its figures.
    pub figures: RawFigures,
}

/// The figures of a call site.
#[derive(Debug, Clone, Copy)]
pub struct RawFigures(DumpSite);

impl RawFigures {
    /// Number of the site; of a whole stack, that of its innermost line.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// The figures of its blocks.
    #[must_use]
    pub fn blocks(&self) -> &BlockFigures {
        &self.0.blocks
    }

    /// The VM's objects; all 0 unless they were tracked.
    #[must_use]
    pub fn objects(&self) -> &ObjectFigures {
        &self.0.objects
    }

    fn is_any(&self) -> bool {
        self.0.blocks != BlockFigures::default() || self.0.objects != ObjectFigures::default()
    }
}

/// The name of a call site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteName<'a> {
    /// Path of a Ruby file.
    Ruby(&'a [u8]),
    /// Module and `0x…` offset in it; the module is empty when it is not known.
    Native {
        /// Path of the module.
        module: &'a [u8],
        /// Offset from its load address, in hexadecimal.
        offset: &'a [u8],
    },
    /// `(gc)` and the like.
    Pseudo(&'a [u8]),
}

/// Why a file is not a usable raw dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// It is not a raw dump.
    Foreign,
    /// Written by another version.
    Version(u32),
    /// The file ends in this call site of so many.
    Truncated {
        /// Number of the call site, from 0.
        site: u64,
        /// Number of call sites in the header.
        of: u64,
    },
    /// A call site of unknown kind.
    UnknownKind(u32),
    /// The file ends among the whole stacks.
    TruncatedStacks,
    /// A part of a stack names another one that cannot be meant.
    DamagedStacks,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => write!(f, "it does not begin with the mark of a raw dump"),
            Self::Version(version) => {
                write!(
                    f,
                    "it has format version {version}, this memintro reads {VERSION}: use the version that wrote it"
                )
            }
            Self::Truncated { site, of } => {
                write!(f, "it ends at call site {site} of {of}: the disk may have been full")
            }
            Self::UnknownKind(kind) => {
                write!(f, "it has a call site of the unknown kind {kind}: the file is damaged")
            }
            Self::TruncatedStacks => write!(f, "it ends among the stacks: the disk may have been full"),
            Self::DamagedStacks => write!(f, "a stack has a line that is not there: the file is damaged"),
        }
    }
}

impl std::error::Error for Error {}

/// Reads a raw dump. Time and memory are linear in the file's length, for any contents.
///
/// # Errors
/// [`Error`] says what is wrong with the file.
pub fn parse(file: &[u8]) -> Result<RawDump<'_>, Error> {
    let mut reader = Reader(file);
    if reader.take(8) != Some(&DUMP_MAGIC) {
        return Err(Error::Foreign);
    }
    let truncated = Error::Truncated { site: 0, of: 0 };
    let version = reader.u32().ok_or(Error::Foreign)?;
    if version != VERSION {
        return Err(Error::Version(version));
    }
    let header = read_header(&mut reader).ok_or(truncated)?;
    let mut sites = Vec::new();
    for number in 0..header.sites {
        let (record, name) =
            read_site(&mut reader).ok_or(Error::Truncated { site: number, of: header.sites })?;
        let name = match record.kind {
            SiteKind::RUBY => SiteName::Ruby(name),
            SiteKind::NATIVE => native(name),
            SiteKind::PSEUDO => SiteName::Pseudo(name),
            SiteKind(other) => return Err(Error::UnknownKind(other)),
        };
        sites.push(RawSite { name, line: record.line, figures: RawFigures(record) });
    }
    let stacks = stacks::read(&mut reader, &header, &sites)?;
    let (native_stacks, maps) = read_stacks(&mut reader).unwrap_or_default();
    Ok(RawDump { header, sites, stacks, native_stacks, maps })
}

/// Stacks are a supplement: without them, or if they are damaged, the rest is as good.
fn read_stacks<'a>(reader: &mut Reader<'a>) -> Option<(Vec<NativeStack>, &'a [u8])> {
    if reader.take(8)? != STACKS_MAGIC {
        return None;
    }
    let (count, maps_len) = (reader.u64()?, reader.u64()?);
    let mut stacks = Vec::new();
    for _ in 0..count {
        let site = u32::try_from(reader.u64()?).ok()?;
        let (ip, sp, bp) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let mut words = Vec::new();
        for _ in 0..reader.u64()? {
            words.push((reader.u64()?, reader.u64()?));
        }
        stacks.push(NativeStack { site, ip, sp, bp, words });
    }
    let maps = reader.take(usize::try_from(maps_len).ok()?)?;
    Some((stacks, maps))
}

fn native(name: &[u8]) -> SiteName<'_> {
    match name.iter().rposition(|byte| *byte == b'+') {
        Some(plus) => SiteName::Native { module: &name[..plus], offset: &name[plus + 1..] },
        None => SiteName::Native { module: b"", offset: name },
    }
}

fn read_header(reader: &mut Reader<'_>) -> Option<DumpHeader> {
    Some(DumpHeader {
        magic: DUMP_MAGIC,
        version: VERSION,
        pid: reader.u32()?,
        time: reader.u64()?,
        signal: reader.u32()?,
        exit_status: reader.u32()?.cast_signed(),
        sites: reader.u64()?,
        texts: reader.u64()?,
        frames: reader.u64()?,
        nodes: reader.u64()?,
        stacks: reader.u64()?,
        sample_bytes: reader.u64()?,
        figures: Figures::read(&mut || reader.u64())?,
    })
}

fn read_site<'a>(reader: &mut Reader<'a>) -> Option<(DumpSite, &'a [u8])> {
    let record = DumpSite {
        kind: SiteKind(reader.u32()?),
        line: reader.u32()?,
        name_len: reader.u32()?,
        padding: reader.u32()?,
        id: reader.u32()?,
        node: reader.u32()?,
        blocks: BlockFigures::read(&mut || reader.u64())?,
        objects: ObjectFigures::read(&mut || reader.u64())?,
    };
    let name = reader.padded(record.name_len as usize)?;
    Some((record, name))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Bytes that are followed by zeroes up to the next multiple of 8.
    fn padded(&mut self, len: usize) -> Option<&'a [u8]> {
        let bytes = self.take(len)?;
        self.take(len.wrapping_neg() & 7)?;
        Some(bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memintro_abi::Estimated;
    use proptest::prelude::*;

    fn bytes_of<T: Copy>(record: &T) -> &[u8] {
        // SAFETY: the dump's records are made of numbers without padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(record).cast(), size_of::<T>()) }
    }

    /// Numbers in sequence. As variances they are small, but numbers.
    fn numbers(mut number: u64) -> impl FnMut() -> Option<u64> {
        move || {
            number += 1;
            Some(number)
        }
    }

    fn totals() -> Figures {
        let frees = Estimated { value: 4, variance: f64::NAN, skew: -1.0 };
        Figures { frees, ..Figures::read(&mut numbers(0)).unwrap() }
    }

    fn blocks(kind: u32) -> BlockFigures {
        BlockFigures::read(&mut numbers(1000 * u64::from(kind))).unwrap()
    }

    fn objects() -> ObjectFigures {
        ObjectFigures::read(&mut numbers(500)).unwrap()
    }

    fn dump(sites: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let mut file = bytes_of(&DumpHeader {
            magic: DUMP_MAGIC,
            version: VERSION,
            pid: 4242,
            time: 1_700_000_000,
            signal: 6,
            exit_status: -1,
            sites: sites.len() as u64,
            texts: 0,
            frames: 0,
            nodes: 0,
            stacks: 0,
            sample_bytes: 524_288,
            figures: totals(),
        })
        .to_vec();
        for (kind, line, name) in sites {
            file.extend_from_slice(bytes_of(&DumpSite {
                kind: SiteKind(*kind),
                line: *line,
                name_len: name.len() as u32,
                padding: 0,
                id: 0,
                node: 0,
                blocks: blocks(*kind),
                objects: objects(),
            }));
            file.extend_from_slice(name);
            file.resize(file.len().next_multiple_of(8), 0);
        }
        file
    }

    #[test]
    fn sites_of_all_kinds_are_read() {
        let file = dump(&[(0, 12, b"/app/leak.rb"), (1, 0, b"/lib/libz.so.1+0x1c"), (2, 0, b"(gc)")]);
        let dump = parse(&file).unwrap();
        assert_eq!((dump.header.pid, dump.header.signal, dump.header.exit_status), (4242, 6, -1));
        let names: Vec<_> = dump.sites.iter().map(|site| site.name).collect();
        assert_eq!(
            names,
            [
                SiteName::Ruby(b"/app/leak.rb"),
                SiteName::Native { module: b"/lib/libz.so.1", offset: b"0x1c" },
                SiteName::Pseudo(b"(gc)"),
            ]
        );
        assert_eq!(dump.sites[0].line, 12);
        assert_eq!(
            (dump.sites[1].figures.blocks(), dump.sites[2].figures.blocks()),
            (&blocks(1), &blocks(2))
        );
        assert_eq!(dump.sites[2].figures.objects(), &objects());
        assert!(dump.stacks.is_none());
        let doubtless = Figures { frees: Estimated::exact(4), ..totals() };
        assert_eq!((dump.header.sample_bytes, dump.header.figures), (524_288, doubtless));
    }

    #[test]
    fn a_short_file_says_where_it_ends() {
        let file = dump(&[(0, 12, b"/app/leak.rb"), (0, 13, b"/app/leak.rb")]);
        let error = parse(&file[..file.len() - 1]).unwrap_err();
        assert_eq!(error, Error::Truncated { site: 1, of: 2 });
    }

    #[test]
    fn a_later_version_is_refused_by_name() {
        let mut file = dump(&[]);
        file[8..12].copy_from_slice(&99u32.to_ne_bytes());
        assert_eq!(parse(&file).unwrap_err(), Error::Version(99));
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        assert_eq!(parse(&dump(&[(7, 0, b"x")])).unwrap_err(), Error::UnknownKind(7));
    }

    proptest! {
        #[test]
        fn no_bytes_can_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), as_dump: bool) {
            if as_dump {
                let mut file = dump(&[(0, 1, b"a.rb")]);
                for (place, byte) in file.iter_mut().skip(12).zip(&bytes) {
                    *place ^= *byte;
                }
                bytes = file;
            }
            let _ = parse(&bytes);
        }
    }
}
