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
    DUMP_MAGIC, DumpHeader, DumpSite, Figures, ObjectFigures, STACKS_MAGIC, SiteKind, VERSION, Variances,
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

    /// allocations, frees, `total_bytes`, `freed_bytes`, `age_total`, `max_lifespan`, `marked_bytes`
    #[must_use]
    pub fn all(&self) -> [u64; 7] {
        let site = &self.0;
        [
            site.allocations,
            site.frees,
            site.total_bytes,
            site.freed_bytes,
            site.age_total,
            site.max_lifespan,
            site.marked_bytes,
        ]
    }

    /// The variances and skews; `None` if the figures are exact.
    #[must_use]
    pub fn variances(&self) -> Option<Variances> {
        (self.0.estimated != 0).then_some(self.0.variances)
    }

    /// The VM's objects; all 0 unless they were tracked.
    #[must_use]
    pub fn objects(&self) -> &ObjectFigures {
        &self.0.objects
    }

    fn is_any(&self) -> bool {
        self.all() != [0; 7] || self.0.estimated != 0 || self.0.objects != ObjectFigures::default()
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

/// Reads a raw dump. Time and memory are linear in the file's length, whatever it says of itself.
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
        figures: Figures {
            allocated_bytes: reader.u64()?,
            freed_bytes: reader.u64()?,
            allocations: reader.u64()?,
            frees: reader.u64()?,
            missed_frees: reader.u64()?,
            tracker_bytes: reader.u64()?,
            dropped: reader.u64()?,
            sites: reader.u64()?,
            generation: reader.u64()?,
            estimated: reader.u64()?,
            allocated_bytes_variance: reader.f64()?,
            freed_bytes_variance: reader.f64()?,
            allocations_variance: reader.f64()?,
            frees_variance: reader.f64()?,
            allocated_bytes_skew: reader.f64()?,
            freed_bytes_skew: reader.f64()?,
            allocations_skew: reader.f64()?,
            frees_skew: reader.f64()?,
        },
    })
}

fn read_site<'a>(reader: &mut Reader<'a>) -> Option<(DumpSite, &'a [u8])> {
    let record = DumpSite {
        kind: SiteKind(reader.u32()?),
        line: reader.u32()?,
        name_len: reader.u32()?,
        estimated: reader.u32()?,
        id: reader.u32()?,
        node: reader.u32()?,
        allocations: reader.u64()?,
        frees: reader.u64()?,
        total_bytes: reader.u64()?,
        freed_bytes: reader.u64()?,
        age_total: reader.u64()?,
        max_lifespan: reader.u64()?,
        marked_bytes: reader.u64()?,
        variances: Variances {
            allocations: reader.f64()?,
            frees: reader.f64()?,
            total_bytes: reader.f64()?,
            freed_bytes: reader.f64()?,
            growth: reader.f64()?,
            age_total: reader.f64()?,
            age_covariance: reader.f64()?,
            allocations_skew: reader.f64()?,
            frees_skew: reader.f64()?,
            total_bytes_skew: reader.f64()?,
            freed_bytes_skew: reader.f64()?,
        },
        objects: read_objects(reader)?,
    };
    let name = reader.padded(record.name_len as usize)?;
    Some((record, name))
}

fn read_objects(reader: &mut Reader<'_>) -> Option<ObjectFigures> {
    Some(ObjectFigures {
        allocations: reader.u64()?,
        frees: reader.u64()?,
        total_bytes: reader.u64()?,
        freed_bytes: reader.u64()?,
        marked_bytes: reader.u64()?,
        old_objects: reader.u64()?,
        old_bytes: reader.u64()?,
        estimated: reader.u64()?,
        allocations_variance: reader.f64()?,
        frees_variance: reader.f64()?,
        total_bytes_variance: reader.f64()?,
        freed_bytes_variance: reader.f64()?,
        allocations_skew: reader.f64()?,
        frees_skew: reader.f64()?,
        total_bytes_skew: reader.f64()?,
        freed_bytes_skew: reader.f64()?,
        old_objects_variance: reader.f64()?,
        old_bytes_variance: reader.f64()?,
        old_objects_skew: reader.f64()?,
        old_bytes_skew: reader.f64()?,
    })
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

    /// A variance must be a number, and not negative.
    fn f64(&mut self) -> Option<f64> {
        let value = f64::from_bits(self.u64()?);
        Some(if value.is_finite() { value.max(0.0) } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dump(sites: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let mut file = DUMP_MAGIC.to_vec();
        file.extend(VERSION.to_ne_bytes());
        file.extend(4242u32.to_ne_bytes());
        file.extend(1_700_000_000u64.to_ne_bytes());
        file.extend(6u32.to_ne_bytes());
        file.extend((-1i32).to_ne_bytes());
        file.extend((sites.len() as u64).to_ne_bytes());
        file.resize(file.len() + 4 * 8, 0);
        file.extend(524_288u64.to_ne_bytes());
        (1..=9u64).for_each(|figure| file.extend(figure.to_ne_bytes()));
        file.extend(1u64.to_ne_bytes());
        [1.5f64, 2.5, f64::NAN, -1.0, 3.5, 4.5, 5.5, 6.5]
            .iter()
            .for_each(|figure| file.extend(figure.to_ne_bytes()));
        for (kind, line, name) in sites {
            file.extend(kind.to_ne_bytes());
            file.extend(line.to_ne_bytes());
            file.extend((name.len() as u32).to_ne_bytes());
            file.extend(u32::from(*kind == 1).to_ne_bytes());
            file.extend([0; 8]);
            (11..=17u64).for_each(|figure| file.extend(figure.to_ne_bytes()));
            (1..=11u32).for_each(|figure| file.extend(f64::from(figure).to_ne_bytes()));
            (21..=28u64).for_each(|figure| file.extend(figure.to_ne_bytes()));
            (29..=40u32).for_each(|figure| file.extend(f64::from(figure).to_ne_bytes()));
            file.extend_from_slice(name);
            file.resize(file.len().next_multiple_of(8), 0);
        }
        file
    }

    #[test]
    fn the_layout_is_that_of_the_records() {
        assert_eq!(dump(&[]).len(), size_of::<DumpHeader>());
        assert_eq!(dump(&[(2, 0, b"")]).len(), size_of::<DumpHeader>() + size_of::<DumpSite>());
    }

    #[test]
    fn sites_of_all_kinds_are_read() {
        let file = dump(&[(0, 12, b"/app/leak.rb"), (1, 0, b"/lib/libz.so.1+0x1c"), (2, 0, b"(gc)")]);
        let dump = parse(&file).unwrap();
        assert_eq!((dump.header.pid, dump.header.signal, dump.header.exit_status), (4242, 6, -1));
        assert_eq!(dump.header.figures.generation, 9);
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
        assert_eq!(dump.sites[2].figures.all(), [11, 12, 13, 14, 15, 16, 17]);
        let objects = dump.sites[2].figures.objects();
        assert_eq!((objects.allocations, objects.estimated, objects.old_bytes_skew), (21, 28, 40.0));
        assert!(dump.stacks.is_none());
        assert_eq!((dump.sites[0].figures.variances(), dump.sites[2].figures.variances()), (None, None));
        let variances = dump.sites[1].figures.variances().unwrap();
        assert_eq!((variances.allocations, variances.growth, variances.age_covariance), (1.0, 5.0, 7.0));
        assert_eq!((variances.allocations_skew, variances.freed_bytes_skew), (8.0, 11.0));
        let figures = dump.header.figures;
        assert_eq!((dump.header.sample_bytes, figures.allocated_bytes_variance), (524_288, 1.5));
        assert_eq!((figures.allocations_variance, figures.frees_variance), (0.0, 0.0));
        assert_eq!((figures.allocated_bytes_skew, figures.frees_skew), (3.5, 6.5));
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
