//! Reads a file as a raw dump and asserts what must hold, for fuzzing and for the replay of its corpus.

use memintro_abi::{DumpFrame, DumpHeader, DumpNode, DumpSite, Estimated};
use memintro_analysis::raw_dump::{Error, MOST_FRAMES, SiteName, parse};

/// The reader's answer.
pub(crate) fn exercise(file: &[u8]) -> Result<usize, Error> {
    let dump = parse(file)?;
    let mut bytes = size_of::<DumpHeader>();
    for site in &dump.sites {
        let name_len = match site.name {
            SiteName::Ruby(name) | SiteName::Pseudo(name) => name.len(),
            SiteName::Native { module: b"", offset } => offset.len(),
            SiteName::Native { module, offset } => module.len() + 1 + offset.len(),
        };
        // A lone `+` in front is not counted: it only says that the file may be longer.
        bytes += size_of::<DumpSite>() + name_len.next_multiple_of(8);
        assert!(site.figures.blocks().sums().iter().all(is_sane));
    }
    if let Some(stacks) = &dump.stacks {
        assert!(stacks.all().len() as u64 <= dump.header.stacks);
        for stack in stacks.all() {
            let frames = stacks.frames(stack).count();
            assert!(frames <= MOST_FRAMES && (frames > 0) == stack.is_whole(), "{frames}");
            assert!(stack.site < dump.sites.len());
        }
        let sizes = [8, size_of::<DumpFrame>(), size_of::<DumpNode>(), size_of::<DumpSite>()];
        let counts = [dump.header.texts, dump.header.frames, dump.header.nodes, dump.header.stacks];
        bytes += counts.iter().zip(sizes).map(|(count, size)| *count as usize * size).sum::<usize>();
    }
    let doubts = dump.header.figures.cells().into_iter().flat_map(|cell| cell.doubts());
    assert!(doubts.into_iter().all(|doubt| doubt.is_finite() && doubt >= 0.0));
    assert_eq!(dump.sites.len() as u64, dump.header.sites);
    // Nothing is read twice, and nothing beyond the file.
    assert!(bytes <= file.len(), "{bytes} of {}", file.len());
    Ok(dump.sites.len())
}

fn is_sane(of: &Estimated) -> bool {
    [of.variance, of.skew].iter().all(|doubt| doubt.is_finite() && *doubt >= 0.0)
}
