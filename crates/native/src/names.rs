//! Names of places in native code, and the lines of C where debug information is installed.
//!
//! They are read from files: the module's own, and the separate debug file that belongs to it (by build ID below
//! /usr/lib/debug, or by `.gnu_debuglink`). A file that was replaced since the module was loaded has another build ID, and
//! then tells nothing. Files are read and not mapped, because a mapped file that is cut short ends the process.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use addr2line::Context;
use gimli::{EndianRcSlice, RunTimeEndian};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::modules::{Identity, Modules, Place};

/// Larger files are not read.
const MOST_BYTES: u64 = 256 << 20;
/// Names that are remembered.
const MOST_NAMES: usize = 10_000;

type Lines = Context<EndianRcSlice<RunTimeEndian>>;

/// The name of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// `libfoo.so(symbol+0x1c)`, or `libfoo.so(+0x1139)` where no symbol is known.
    pub text: String,
    /// File and line of C, where they are known.
    pub line: Option<(String, u32)>,
}

/// Names places, and remembers their names. Files are kept while one batch is named.
#[derive(Debug, Default)]
pub struct Names {
    known: HashMap<Place, Name>,
}

/// Symbols and lines of one module.
struct Symbols {
    /// Address, size, name; by address.
    list: Vec<(u64, u64, String)>,
    lines: Option<Lines>,
}

impl Names {
    /// The names of these places, in their order.
    pub fn of(&mut self, places: &[Place], modules: &Modules) -> Vec<Name> {
        let mut open: HashMap<u32, Symbols> = HashMap::new();
        if self.known.len() > MOST_NAMES {
            self.known.clear();
        }
        places
            .iter()
            .map(|place| {
                if let Some(name) = self.known.get(place) {
                    return name.clone();
                }
                let Some(identity) = modules.identity(place.module) else { return unknown(*place) };
                let symbols = open.entry(place.module).or_insert_with(|| {
                    catch_unwind(AssertUnwindSafe(|| Symbols::of(identity)))
                        .unwrap_or_else(|_| Symbols::none())
                });
                let name = catch_unwind(AssertUnwindSafe(|| symbols.name(identity, place.offset)));
                let name = name.unwrap_or_else(|_| bare(identity, place.offset));
                self.known.insert(*place, name.clone());
                name
            })
            .collect()
    }
}

fn unknown(place: Place) -> Name {
    Name { text: format!("(unknown)(+{:#x})", place.offset), line: None }
}

fn bare(identity: &Identity, offset: u64) -> Name {
    Name { text: format!("{}(+{offset:#x})", file(identity)), line: None }
}

fn file(identity: &Identity) -> String {
    let path = Path::new(OsStr::from_bytes(&identity.path));
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

impl Symbols {
    fn none() -> Self {
        Self { list: Vec::new(), lines: None }
    }

    fn of(identity: &Identity) -> Self {
        let path = Path::new(OsStr::from_bytes(&identity.path));
        let Some(bytes) = read(path) else { return Self::none() };
        let Ok(object) = object::File::parse(&*bytes) else { return Self::none() };
        let build = object.build_id().ok().flatten().unwrap_or_default();
        if build != identity.build {
            return Self::none();
        }
        let debug = debug_file(path, &object);
        let debug_object = debug.as_deref().and_then(|bytes| object::File::parse(bytes).ok());
        let mut list = symbols(&object);
        if let Some(more) = &debug_object {
            list.extend(symbols(more));
        }
        list.sort();
        list.dedup_by(|one, other| one.0 == other.0 && one.2 == other.2);
        let lines = debug_object.as_ref().and_then(lines).or_else(|| lines(&object));
        Self { list, lines }
    }

    fn name(&self, identity: &Identity, offset: u64) -> Name {
        // The call may be a function's last instruction, so the byte before the return address is looked up.
        let inside = offset.saturating_sub(1);
        let line = self.lines.as_ref().and_then(|lines| line(lines, inside));
        let after = self.list.partition_point(|(address, ..)| *address <= inside);
        // Of several symbols the first one, of those that begin last and hold it.
        let found =
            self.list[..after].iter().rev().take(64).find(|(address, size, _)| inside - address < *size);
        let text = match found {
            Some((address, _, symbol)) => format!("{}({symbol}+{:#x})", file(identity), offset - address),
            None => bare(identity, offset).text,
        };
        Name { text, line }
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let about = std::fs::metadata(path).ok()?;
    if !about.is_file() || about.len() > MOST_BYTES {
        return None;
    }
    std::fs::read(path).ok()
}

fn symbols(object: &object::File<'_>) -> Vec<(u64, u64, String)> {
    object
        .symbols()
        .chain(object.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0)
        .filter_map(|symbol| {
            let name = String::from_utf8_lossy(symbol.name_bytes().ok()?).into_owned();
            Some((symbol.address(), symbol.size(), name))
        })
        .collect()
}

/// The file with the debug information that was taken out of this one.
fn debug_file(path: &Path, object: &object::File<'_>) -> Option<Vec<u8>> {
    const ALL: &str = "/usr/lib/debug";
    let build = object.build_id().ok().flatten().filter(|build| build.len() > 1);
    if let Some([first, rest @ ..]) = build {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        if let Some(found) = read(&PathBuf::from(format!("{ALL}/.build-id/{first:02x}/{rest}.debug"))) {
            return Some(found);
        }
    }
    let (link, _) = object.gnu_debuglink().ok().flatten()?;
    let folder = path.parent()?;
    let link = Path::new(OsStr::from_bytes(link)).file_name()?;
    let below = Path::new(ALL).join(folder.strip_prefix("/").ok()?);
    [folder.join(link), folder.join(".debug").join(link), below.join(link)]
        .iter()
        .filter(|found| found.as_path() != path)
        .find_map(|found| {
            let bytes = read(found)?;
            let other = object::File::parse(&*bytes).ok()?.build_id().ok().flatten().map(<[u8]>::to_vec);
            (other.as_deref() == build).then_some(bytes)
        })
}

fn lines(object: &object::File<'_>) -> Option<Lines> {
    object.section_by_name(".debug_line")?;
    let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let load = |section: gimli::SectionId| -> Result<_, gimli::Error> {
        let data = object
            .section_by_name(section.name())
            .and_then(|section| section.uncompressed_data().ok())
            .unwrap_or_default();
        Ok(EndianRcSlice::new(Rc::from(&*data), endian))
    };
    Context::from_dwarf(gimli::Dwarf::load(load).ok()?).ok()
}

fn line(lines: &Lines, address: u64) -> Option<(String, u32)> {
    let location = lines.find_location(address).ok()??;
    Some((location.file?.to_owned(), location.line?))
}
