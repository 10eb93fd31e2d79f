//! Names of places in native code, and the lines of C where debug information is installed.
//!
//! They are read from files: the module's own, and the separate debug file that belongs to it (by build ID
//! below /usr/lib/debug, or by `.gnu_debuglink`). A file that was replaced since the module was loaded has
//! another build ID, and is not used. Files are read and not mapped, because a mapped file that is cut short
//! ends the process.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use addr2line::Context;
use gimli::{EndianRcSlice, RunTimeEndian};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, ReadCache, SymbolKind};

use crate::modules::{Identity, Modules, Place};

/// Larger files are not read.
const MOST_BYTES: u64 = 256 << 20;
/// Names that are remembered.
const MOST_NAMES: usize = 10_000;

type Lines = Context<EndianRcSlice<RunTimeEndian>>;
type File = ReadCache<std::fs::File>;
type Object<'a> = object::File<'a, &'a File>;

/// The name of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// `libfoo.so(symbol+0x1c)`, or `libfoo.so(+0x1139)` where no symbol is known.
    pub text: String,
    /// File and line of C, where they are known.
    pub line: Option<(String, u32)>,
}

/// Names places, and remembers their names.
#[derive(Debug, Default)]
pub struct Names {
    known: HashMap<Place, Name>,
}

/// A place that is looked up in its module's files.
struct Wanted {
    place: Place,
    /// The call may be a function's last instruction, so the byte before the return address is looked up.
    inside: u64,
    /// Address, size and name of the containing symbol that begins last; of several, the largest.
    symbol: Option<(u64, u64, String)>,
    line: Option<(String, u32)>,
}

impl Names {
    /// The names of these places, in their order. Only one module's files are open at a time, and only the
    /// needed parts are read, because small processes look up names as well.
    pub fn look_up(&mut self, places: &[Place], modules: &Modules) -> Vec<Name> {
        if self.known.len() > MOST_NAMES {
            self.known.clear();
        }
        let mut new: Vec<Place> = places
            .iter()
            .filter(|place| !self.known.contains_key(place) && !place.is_whole())
            .copied()
            .collect();
        new.sort_unstable();
        new.dedup();
        for group in new.chunk_by(|one, other| one.module == other.module) {
            self.learn(group, modules);
        }
        let name =
            |place: &Place| self.known.get(place).cloned().unwrap_or_else(|| unlisted(*place, modules));
        places.iter().map(name).collect()
    }

    /// Finds the names of places in one module.
    fn learn(&mut self, places: &[Place], modules: &Modules) {
        let Some(identity) = places.first().and_then(|place| modules.identity(place.module)) else { return };
        let wanted = |place: &Place| Wanted {
            place: *place,
            inside: place.offset.saturating_sub(1),
            symbol: None,
            line: None,
        };
        let mut all: Vec<Wanted> = places.iter().map(wanted).collect();
        // Results from before a damaged part stay.
        let _ = catch_unwind(AssertUnwindSafe(|| look_up(identity, &mut all)));
        for one in all {
            let offset = one.place.offset;
            let text = match one.symbol {
                Some((address, _, symbol)) => format!("{}({symbol}+{:#x})", file(identity), offset - address),
                None => bare(identity, offset),
            };
            self.known.insert(one.place, Name { text, line: one.line });
        }
    }
}

/// All other places of a library, or one that is in no module.
fn unlisted(place: Place, modules: &Modules) -> Name {
    let text = match modules.identity(place.module) {
        Some(identity) if place.is_whole() => format!("{} (other ways)", file(identity)),
        _ => format!("(unknown)(+{:#x})", place.offset),
    };
    Name { text, line: None }
}

fn bare(identity: &Identity, offset: u64) -> String {
    format!("{}(+{offset:#x})", file(identity))
}

fn file(identity: &Identity) -> String {
    let path = Path::new(OsStr::from_bytes(&identity.path));
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Finds these places, which are in order, in the module's file and its debug file.
fn look_up(identity: &Identity, wanted: &mut [Wanted]) {
    let path = Path::new(OsStr::from_bytes(&identity.path));
    let Some(cache) = open(path) else { return };
    let Ok(object) = Object::parse(&cache) else { return };
    let build = object.build_id().ok().flatten().unwrap_or_default();
    if build != identity.build {
        return;
    }
    find_symbols(&object, wanted);
    let debug = debug_file(path, &object);
    let debug_object = debug.as_ref().and_then(|cache| Object::parse(cache).ok());
    if let Some(more) = &debug_object {
        find_symbols(more, wanted);
    }
    if let Some(lines) = debug_object.as_ref().and_then(lines).or_else(|| lines(&object)) {
        for one in wanted {
            one.line = line(&lines, one.inside);
        }
    }
}

fn open(path: &Path) -> Option<File> {
    let about = std::fs::metadata(path).ok()?;
    if !about.is_file() || about.len() > MOST_BYTES {
        return None;
    }
    Some(ReadCache::new(std::fs::File::open(path).ok()?))
}

fn find_symbols(object: &Object<'_>, wanted: &mut [Wanted]) {
    let all = object.symbols().chain(object.dynamic_symbols());
    for symbol in all.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition()) {
        let (begin, size) = (symbol.address(), symbol.size());
        let first = wanted.partition_point(|one| one.inside < begin);
        for one in wanted.iter_mut().skip(first).take_while(|one| one.inside - begin < size) {
            let best = one.symbol.as_ref().map(|(address, size, _)| (*address, *size));
            if best.is_some_and(|best| best > (begin, size)) {
                continue;
            }
            let Ok(name) = symbol.name_bytes() else { continue };
            let found = (begin, size, String::from_utf8_lossy(name).into_owned());
            one.symbol = one.symbol.take().max(Some(found));
        }
    }
}

/// The file with the debug information that was stripped from this one.
fn debug_file(path: &Path, object: &Object<'_>) -> Option<File> {
    const ALL: &str = "/usr/lib/debug";
    let build = object.build_id().ok().flatten().filter(|build| build.len() > 1);
    if let Some([first, rest @ ..]) = build {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        if let Some(found) = open(&PathBuf::from(format!("{ALL}/.build-id/{first:02x}/{rest}.debug"))) {
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
            let cache = open(found)?;
            let same = Object::parse(&cache).ok()?.build_id().ok().flatten() == build;
            same.then_some(cache)
        })
}

fn lines(object: &Object<'_>) -> Option<Lines> {
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
