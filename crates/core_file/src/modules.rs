//! Names of addresses: which mapped file, and which symbol of it, where the file on this machine is the one that the
//! process had.

use std::collections::HashMap;

use object::{Object, ObjectSymbol};

use crate::image::{Image, Mapped};

/// Larger files are not read for a name.
const LARGEST: u64 = 512 << 20;
/// Zeroed data of a module directly behind its file.
const LARGEST_DATA: usize = 1 << 20;

/// Symbols of files that were asked for.
#[derive(Debug, Default)]
pub struct Names {
    /// The variables and functions of each path, by address: begin, end, name. `None`: not to be had.
    symbols: HashMap<Vec<u8>, Option<Vec<Symbol>>>,
}

#[derive(Debug)]
struct Symbol {
    start: u64,
    end: u64,
    name: String,
}

impl Names {
    /// `libfoo.so(name+0x8)`, or the file's name alone.
    pub fn of(&mut self, image: &Image<'_>, address: usize) -> Option<String> {
        let next = image.files.partition_point(|file| file.start <= address);
        let file = image.files.get(next.checked_sub(1)?)?;
        if address >= file.end.saturating_add(LARGEST_DATA) {
            return None;
        }
        // The first piece of the file says where it was loaded.
        let base = image.files.iter().find(|one| one.path == file.path && one.offset == 0)?;
        let short = short(file.path);
        let at = (address - base.start) as u64;
        Some(match self.symbol(image, base, at) {
            Some(symbol) if symbol.start == at => format!("{short}({})", symbol.name),
            Some(symbol) => format!("{short}({}+{:#x})", symbol.name, at - symbol.start),
            None => short,
        })
    }
}

impl Names {
    /// The same for a place in code to which a call returns: an offset in a module of which the path is known.
    pub fn of_code(&mut self, image: &Image<'_>, path: &[u8], offset: u64) -> String {
        if path.is_empty() {
            return format!("(unknown)(+{offset:#x})");
        }
        let short = short(path);
        let base = image.files.iter().find(|one| one.path == path && one.offset == 0);
        // The call may have been the last instruction of its function.
        let symbol = base.and_then(|base| self.symbol(image, base, offset.saturating_sub(1)));
        match symbol {
            Some(symbol) => format!("{short}({}+{:#x})", symbol.name, offset - symbol.start),
            None => format!("{short}(+{offset:#x})"),
        }
    }

    fn symbol(&mut self, image: &Image<'_>, base: &Mapped<'_>, at: u64) -> Option<&Symbol> {
        let head = image.segment(base.start).map_or(&b""[..], |segment| segment.bytes);
        let symbols = self.symbols.entry(base.path.to_vec()).or_insert_with(|| read(base.path, head));
        let list = symbols.as_ref()?;
        let next = list.partition_point(|symbol| symbol.start <= at);
        list.get(next.checked_sub(1)?).filter(|symbol| at < symbol.end)
    }
}

fn short(path: &[u8]) -> String {
    String::from_utf8_lossy(path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)).into_owned()
}

/// Whether a file has the build of what a process had loaded, of which this is the first page.
pub fn is_build(file: &object::File<'_>, head: &[u8]) -> bool {
    // The build's number is in the first page, which core files have.
    let build = file.build_id().ok().flatten().filter(|build| build.len() >= 8);
    build.is_some_and(|build| head.windows(build.len()).any(|part| part == build))
}

/// The variables and functions of a file of shared code, if its build is that of the head that the process had.
fn read(path: &[u8], head: &[u8]) -> Option<Vec<Symbol>> {
    let path = std::path::Path::new(std::str::from_utf8(path).ok().filter(|path| path.starts_with('/'))?);
    let about = std::fs::metadata(path).ok()?;
    if !about.is_file() || about.len() > LARGEST {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    if !is_build(&file, head) {
        return None;
    }
    let is_named = |kind| matches!(kind, object::SymbolKind::Data | object::SymbolKind::Text);
    let mut symbols: Vec<Symbol> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| is_named(symbol.kind()) && symbol.size() > 0)
        .filter_map(|symbol| {
            let name = symbol.name().ok()?.to_owned();
            Some(Symbol {
                start: symbol.address(),
                end: symbol.address().saturating_add(symbol.size()),
                name,
            })
        })
        .collect();
    symbols.sort_by_key(|symbol| symbol.start);
    Some(symbols)
}
