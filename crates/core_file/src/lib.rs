//! Finds leaked blocks in a core file of a Ruby process: what `Memintro.leaks` does in the live process, without asking
//! anybody. What the process could have told is read from its memory instead, and checked against what else is there.
//!
//! - [`image`]: the file: pieces of memory, threads with their registers, names of mapped files
//! - [`malloc`]: glibc's chunks, found from its main arena and compared with glibc's own sums
//! - [`ruby`]: pages of Ruby's heap, known by their form
//! - [`classes`]: names of Ruby's classes
//! - [`modules`]: names of addresses
//! - [`followed`]: call sites and ages of blocks, which the hook had written down
//! - [`reader`]: the process that has the hook read them
//! - [`mod@search`]: what blocks are reached from, by [`memintro_analysis::leaks`]
//! - [`answer`]: groups of blocks, as the JSON of `Memintro::Leaks`
//!
//! The file may be damaged, cut off or made up. Nothing panics then, every loop has an end, and memory is taken by the size
//! of the file.

pub mod answer;
pub mod classes;
pub mod followed;
pub mod image;
pub mod malloc;
pub mod modules;
#[cfg(target_os = "linux")]
pub mod reader;
pub mod ruby;
pub mod search;

use std::fs::File;
use std::path::Path;

/// What is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// What the first words of leaked blocks look like.
    pub first_words: bool,
    /// What reads the lines and ages of blocks, if they are wanted.
    pub lines: Option<followed::Programs<'a>>,
}

/// Searches a core file. Returns JSON, or a sentence that says why there is no verdict.
///
/// # Errors
/// If the file cannot be read, or if its memory does not say which blocks there are.
pub fn search_file(path: &Path, wanted: Wanted<'_>) -> Result<String, String> {
    let name = path.display();
    let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
    let about = file.metadata().map_err(|error| format!("{name}: {error}"))?;
    if !about.is_file() {
        return Err(format!("{name} is no file"));
    }
    if about.len() == 0 {
        return Err(format!("{name} is empty: the kernel writes no core file beyond ulimit -c"));
    }
    // SAFETY: the file is read as bytes of any kind; a program that shortens it meanwhile ends this one, which holds nothing.
    let bytes = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| format!("{name}: {error}"))?;
    search(&bytes, Some(path), wanted).map_err(|why| format!("{name}: {why}"))
}

/// The same for the bytes of a core file, without lines and ages.
///
/// # Errors
/// If they are none, or if they do not say which blocks there are.
pub fn search_bytes(bytes: &[u8], wanted: Wanted<'_>) -> Result<String, String> {
    search(bytes, None, wanted)
}

fn search(bytes: &[u8], path: Option<&Path>, wanted: Wanted<'_>) -> Result<String, String> {
    let image = image::Image::read(bytes)?;
    let programs = path.zip(wanted.lines);
    let heap = ruby::Heap::find(&image);
    let (malloc, followed) = match (malloc::Malloc::find(&image), programs) {
        (Ok(mut malloc), Some((path, programs))) => {
            let followed = followed::add(&image, path, programs, &mut malloc.nodes);
            (malloc, followed)
        }
        (Ok(malloc), None) => (malloc, Err("they were not asked for".to_owned())),
        (Err(why), Some((path, programs))) if followed::hook(&image).is_some() => {
            let (nodes, followed) = followed::alone(&image, path, programs).map_err(|why_not| {
                format!("{why}. Nor are the blocks known that memintro tracked: {why_not}")
            })?;
            (malloc::Malloc::of_followed(nodes, &why), Ok(followed))
        }
        (Err(why), _) => return Err(why),
    };
    Ok(answer::write(&image, malloc, &heap, followed, wanted.first_words))
}
