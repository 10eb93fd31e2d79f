//! What memintro's hook had followed in the process: call sites and ages of blocks.
//!
//! The hook's tables are in the file, in a layout that only the same build of the hook knows. So a fresh process
//! ([`crate::reader`]) maps them, and has that build read them. They may be damaged: that process may end early or be
//! ended, and what it answers has to fit malloc's blocks.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use memintro_analysis::leaks::nodes::{Node, State};

use crate::image::Image;
use crate::modules::{Names, is_build};

/// The tool's argument that makes it the process which reads the tables ([`crate::reader`]).
pub const COMMAND: &str = "leaks-core-lines";
/// The status with which that process ends if its own memory is where the tables were.
pub const IN_THE_WAY: i32 = 3;
/// File name of the hook.
const HOOK: &[u8] = b"libmemintro_hook.so";
/// Fresh processes that are tried: where one has other memory is drawn anew for each.
const TRIES: usize = 4;
/// Numbers of call sites end here.
const MOST_SITES: u64 = 1 << 24;
/// Bytes that an answer may have more than the core file: a block has some in the tables, and some of its own.
const MOST_BYTES: u64 = 256 << 20;
/// One in so many blocks may not fit, and a few more: a free that the hook has not seen, and one that was under way.
const MISFITS: usize = 20;
const FEW_MISFITS: usize = 64;

/// What the parts of an answer begin with. All of it are words, but a path.
pub mod tags {
    /// Address; size; call site, and age in the upper half.
    pub const BLOCK: u64 = 1;
    /// Number, and kind in the upper half; line; offset in its module; length of its path; the path.
    pub const SITE: u64 = 2;
    /// Mode, and whether figures are lost in the upper half; whether ages are known; parts that threads were changing.
    pub const END: u64 = 3;
}

/// The programs that read the hook's tables.
#[derive(Clone, Copy, Debug)]
pub struct Programs<'a> {
    /// The tool, which reads them where its argument is [`COMMAND`].
    pub tool: &'a Path,
    /// The hook of this memintro. That of the process is never run: the file says where it is, and may say anything.
    pub hook: &'a Path,
}

/// What is known of blocks.
#[derive(Debug, Default)]
pub struct Followed {
    /// Names of call sites.
    pub sites: HashMap<u32, String>,
    /// Whether the ages of blocks are known.
    pub knows_ages: bool,
    /// `full`, `sampled` or `off`.
    pub mode: &'static str,
    /// What is to be said of it.
    pub notes: Vec<String>,
}

/// An answer, before it is compared with malloc's blocks.
#[derive(Default)]
struct Answer {
    blocks: Vec<Node>,
    sites: HashMap<u32, String>,
    mode: u64,
    is_lost: bool,
    knows_ages: bool,
    changing: u64,
}

/// The first address of the hook, and what the file has of its first piece.
#[must_use]
pub fn hook<'a>(image: &Image<'a>) -> Option<(usize, &'a [u8])> {
    let is_hook = |path: &[u8]| path.windows(HOOK.len()).any(|part| part == HOOK);
    let file = image.files.iter().find(|file| file.offset == 0 && is_hook(file.path))?;
    Some((file.start, image.segment(file.start).map_or(&[][..], |segment| segment.bytes)))
}

/// Gives blocks the call sites and ages that the hook had written down. `list`: in the order of their addresses.
///
/// # Errors
/// Why it does not.
pub fn add(
    image: &Image<'_>,
    core: &Path,
    programs: Programs<'_>,
    list: &mut [Node],
) -> Result<Followed, String> {
    let (known, mut followed) = read(image, core, programs)?;
    let misfits = merge(list, known, &followed.sites)?;
    if misfits > 0 {
        followed
            .notes
            .push(format!("{misfits} of the blocks that the hook had followed were not malloc's any more"));
    }
    if followed.mode == "sampled" {
        followed.notes.push(
            "blocks were tracked in sampled mode: most lines are not known, and all blocks were judged"
                .to_owned(),
        );
    }
    Ok(followed)
}

/// The blocks that the hook had followed, where malloc's own lists cannot be read; in the order of their addresses.
///
/// # Errors
/// Why they are not known.
pub fn alone(
    image: &Image<'_>,
    core: &Path,
    programs: Programs<'_>,
) -> Result<(Vec<Node>, Followed), String> {
    let (mut known, followed) = read(image, core, programs)?;
    if followed.mode != "full" {
        return Err("blocks were tracked in sampled mode, so most of them are not known".to_owned());
    }
    known.sort_unstable_by_key(|node| node.start);
    let all = known.len();
    let mut end = 0;
    known.retain(|node| {
        let segment =
            image.segment(node.start).filter(|one| one.is_writable && node.end() <= one.known_end());
        let fits = node.start >= end && segment.is_some() && followed.sites.contains_key(&node.site);
        end = if fits { node.end() } else { end };
        fits
    });
    believe(all - known.len(), all)?;
    Ok((known, followed))
}

/// All that the hook's tables say.
fn read(image: &Image<'_>, core: &Path, programs: Programs<'_>) -> Result<(Vec<Node>, Followed), String> {
    check_build(image, programs.hook)?;
    let most = std::fs::metadata(core).map_or(0, |about| about.len()).saturating_add(MOST_BYTES);
    let bytes = (0..TRIES).find_map(|_| ask(core, programs, most).transpose());
    let bytes = bytes.unwrap_or_else(|| {
        Err("memory of the process that reads the hook's tables is where they were".to_owned())
    })?;
    let mut names = Names::default();
    let answer = Answer::read(&bytes, |site| name(image, &mut names, site)).ok_or_else(damaged)?;
    if answer.is_lost {
        return Err("the hook had given up its figures before".to_owned());
    }
    let mode = match answer.mode {
        0 => return Err("memintro's hook was in this process, but did not track when it ended".to_owned()),
        1 => "full",
        2 => "sampled",
        _ => return Err(damaged()),
    };
    let mut followed =
        Followed { sites: answer.sites, knows_ages: answer.knows_ages, mode, notes: Vec::new() };
    if answer.changing > 0 {
        followed.notes.push(format!(
            "threads were changing {} of the hook's tables at that moment: a few lines may be missing or wrong",
            if answer.changing == 1 { "a part".to_owned() } else { format!("{} parts", answer.changing) }
        ));
    }
    if !followed.knows_ages {
        followed
            .notes
            .push("ages of blocks are missing: where Ruby counts its collections was not known".to_owned());
    }
    Ok((answer.blocks, followed))
}

fn damaged() -> String {
    "the hook's tables are damaged".to_owned()
}

/// Whether the hook of this memintro is that of the process.
fn check_build(image: &Image<'_>, ours: &Path) -> Result<(), String> {
    let Some((_, head)) = hook(image) else {
        return Err("memintro's hook was not in this process, and nothing else writes them down".to_owned());
    };
    let bytes = std::fs::read(ours).map_err(|error| format!("the hook {}: {error}", ours.display()))?;
    let file =
        object::File::parse(&*bytes).map_err(|error| format!("the hook {}: {error}", ours.display()))?;
    if head.is_empty() {
        return Err(
            "which build of memintro's hook the process had is not in the file (coredump_filter)".to_owned()
        );
    }
    if is_build(&file, head) {
        return Ok(());
    }
    Err("the process had another build of memintro's hook than this memintro, and only the same build reads its tables: use \
         the gem that the process used"
        .to_owned())
}

/// The answer of a fresh process. `None`: its own memory is in the way.
fn ask(core: &Path, programs: Programs<'_>, most: u64) -> Result<Option<Vec<u8>>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", programs.tool.display());
    let mut command = Command::new(programs.tool);
    command.arg(COMMAND).arg(core).arg(programs.hook).env_clear();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(failed)?;
    let mut bytes = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(most).read_to_end(&mut bytes).map_err(failed)?;
    }
    // A process that has more to say than that is ended by the closed pipe.
    let status = child.wait().map_err(failed)?;
    match status.code() {
        Some(0) => Ok(Some(bytes)),
        Some(code) if code == IN_THE_WAY => Ok(None),
        Some(_) if !bytes.is_empty() => Err(String::from_utf8_lossy(&bytes).into_owned()),
        _ => Err(format!("{} (what read them ended early, {status})", damaged())),
    }
}

/// A call site in an answer.
struct Site<'a> {
    id: u32,
    kind: u64,
    line: u64,
    offset: u64,
    path: &'a [u8],
}

impl Answer {
    /// Reads an answer up to its end. `None`: it is none, or not whole.
    fn read(bytes: &[u8], mut name: impl FnMut(&Site<'_>) -> Option<String>) -> Option<Self> {
        let mut found = Self::default();
        let mut rest = bytes;
        let mut next = |length: usize| {
            let (part, others) = rest.split_at_checked(length)?;
            rest = others;
            Some(part)
        };
        let number = |part: Option<&[u8]>| part?.try_into().ok().map(u64::from_le_bytes);
        loop {
            match number(next(8))? {
                tags::BLOCK => {
                    let (start, size) = (number(next(8))?, number(next(8))?);
                    let both = number(next(8))?;
                    let mut node = Node::new(usize::try_from(start).ok()?, usize::try_from(size).ok()?);
                    (node.site, node.age) = (both as u32, (both >> 32) as u32);
                    found.blocks.push(node);
                }
                tags::SITE => {
                    let (both, line) = (number(next(8))?, number(next(8))?);
                    let (offset, length) = (number(next(8))?, number(next(8))?);
                    let path = next(usize::try_from(length).ok()?)?;
                    let site = Site { id: both as u32, kind: both >> 32, line, offset, path };
                    if u64::from(site.id) < MOST_SITES
                        && let Some(name) = name(&site)
                    {
                        found.sites.insert(site.id, name);
                    }
                }
                tags::END => {
                    let both = number(next(8))?;
                    (found.mode, found.is_lost) = (both & 0xffff_ffff, both >> 32 != 0);
                    found.knows_ages = number(next(8))? != 0;
                    found.changing = number(next(8))?;
                    return Some(found);
                }
                _ => return None,
            }
        }
    }
}

/// As the live process names it.
fn name(image: &Image<'_>, names: &mut Names, site: &Site<'_>) -> Option<String> {
    match (site.kind, site.id) {
        (0, _) => Some(format!("{}:{}", String::from_utf8_lossy(site.path), site.line)),
        (1, _) => Some(names.of_code(image, site.path, site.offset)),
        (_, 0) => Some("(other)".to_owned()),
        (_, 1) => Some("(boot)".to_owned()),
        (_, 2) => Some("(gc)".to_owned()),
        _ => None,
    }
}

/// Gives each block what is known of it, and returns how many were known that are no blocks. If those are too many, none
/// is to be believed.
fn merge(list: &mut [Node], mut known: Vec<Node>, sites: &HashMap<u32, String>) -> Result<usize, String> {
    known.sort_unstable_by_key(|node| node.start);
    let fits = |one: &Node, node: &Node| {
        one.start == node.start && one.bytes <= node.bytes && sites.contains_key(&one.site)
    };
    let mut pairs = Vec::new();
    let mut misfits = 0;
    let mut place = 0;
    for one in &known {
        while list.get(place).is_some_and(|node| node.start < one.start) {
            place += 1;
        }
        match list.get(place) {
            Some(node) if fits(one, node) => pairs.push((place, one)),
            _ => misfits += 1,
        }
    }
    believe(misfits, known.len())?;
    for (place, one) in pairs {
        if let Some(node) = list.get_mut(place).filter(|node| node.state != State::Free) {
            (node.bytes, node.site, node.age) = (one.bytes, one.site, one.age);
        }
    }
    Ok(misfits)
}

/// Whether tables are to be believed of which so many blocks do not fit.
fn believe(misfits: usize, all: usize) -> Result<(), String> {
    if misfits > FEW_MISFITS && misfits > all / MISFITS {
        return Err(format!("{}: {misfits} of {all} blocks in them are not malloc's", damaged()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use memintro_analysis::leaks::nodes::NO_SITE;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn sites(ids: &[u32]) -> HashMap<u32, String> {
        ids.iter().map(|id| (*id, format!("a.rb:{id}"))).collect()
    }

    #[test]
    fn an_answer_counts_only_as_a_whole() {
        let mut bytes = words(&[tags::BLOCK, 0x1000, 24, 7 << 32 | 3, tags::SITE, 3, 9, 0, 4]);
        bytes.extend(b"a.rb");
        bytes.extend(words(&[tags::END, 1, 1, 0]));
        let name = |site: &Site<'_>| Some(format!("{}:{}", String::from_utf8_lossy(site.path), site.line));
        let answer = Answer::read(&bytes, name).unwrap();
        let block = answer.blocks[0];
        assert_eq!((block.start, block.bytes, block.site, block.age), (0x1000, 24, 3, 7));
        assert_eq!((answer.sites[&3].as_str(), answer.mode, answer.knows_ages), ("a.rb:9", 1, true));
        for end in 0..bytes.len() {
            assert!(Answer::read(&bytes[..end], name).is_none(), "{end}");
        }
        assert!(Answer::read(&words(&[77]), name).is_none());
        assert!(Answer::read(&words(&[tags::SITE, 3, 9, 0, u64::MAX]), name).is_none());
    }

    #[test]
    fn blocks_get_what_is_known_of_them_and_nothing_if_too_much_does_not_fit() {
        let block = |start: usize, bytes: usize, site: u32| Node { site, age: 5, ..Node::new(start, bytes) };
        let all = || (1..1000).map(|number| Node::new(number * 64, 56)).collect::<Vec<_>>();
        let known: Vec<Node> = (1..1000).map(|number| block(number * 64, 50, 3)).collect();
        let mut list = all();
        list[1].state = State::Free;
        assert_eq!(merge(&mut list, known.clone(), &sites(&[3])), Ok(0));
        assert_eq!((list[0].site, list[0].bytes, list[0].age), (3, 50, 5));
        assert_eq!((list[1].site, list[1].bytes), (NO_SITE, 56));
        // At other places, too long, of an unknown call site.
        let bad = [block(8, 8, 3), block(64, 57, 3), block(64, 8, 4)];
        for one in bad {
            let mut list = all();
            let few = known.iter().copied().chain(std::iter::repeat_n(one, 60)).collect();
            assert_eq!(merge(&mut list, few, &sites(&[3])), Ok(60));
            assert_eq!((list[0].site, list[0].bytes), (3, 50));
            let mut list = all();
            let many = known.iter().copied().chain(std::iter::repeat_n(one, 70)).collect();
            let why = merge(&mut list, many, &sites(&[3])).unwrap_err();
            assert!(why.contains("70 of 1069 blocks"), "{why}");
            assert!(list.iter().all(|node| node.site == NO_SITE));
        }
    }
}
