//! Finds the caller of a frame by the module's unwind tables.
//!
//! This follows only two registers, the stack pointer and the frame pointer, from which compilers compute
//! frames. A rule that needs another one ends the stack. So does a signal handler's frame.

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, EndianSlice, Expression, LittleEndian, Operation,
    RegisterRule, UnwindContext, UnwindExpression, UnwindSection as _, X86_64,
};

use crate::modules::Tables;

/// The registers of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer, or the return address.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer register.
    pub bp: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Stack(i64),
    Frame(i64),
    /// The word at this distance from the frame pointer: of functions that align their stack.
    WordAtFrame(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    Same,
    /// At this distance from the canonical frame address.
    At(i64),
    /// At this distance from the frame pointer.
    AtFrame(i64),
    Lost,
}

/// How to find the caller of a frame at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) base: Base,
    pub(crate) return_address: i64,
    pub(crate) frame_pointer: Saved,
    /// The function's addresses in the file.
    pub(crate) function: Range<u64>,
}

pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

impl Rule {
    /// The rule of the tables for this address in the file; `None` if there is none that can be followed.
    pub(crate) fn find(tables: &Tables, context: &mut UnwindContext<usize>, address: u64) -> Option<Self> {
        let bases = BaseAddresses::default().set_eh_frame_hdr(tables.index_at).set_eh_frame(tables.frames_at);
        let section = EhFrame::new(&tables.frames, LittleEndian);
        let at = usize::try_from(entry_at(tables, address)?.checked_sub(tables.frames_at)?).ok()?;
        let entry = section
            .fde_from_offset(&bases, EhFrameOffset(at), |section, bases, offset| {
                section.cie_from_offset(bases, offset)
            })
            .ok()?;
        if !entry.contains(address) {
            return None;
        }
        if entry.is_signal_trampoline() {
            return None;
        }
        let function = entry.initial_address()..entry.initial_address().checked_add(entry.len())?;
        let row = entry.unwind_info_for_address(&section, &bases, context, address).ok()?;
        Self::of_row(row, &section, entry.cie().encoding(), function)
    }

    /// The rule of a row of the tables; `None` if it cannot be followed.
    pub(crate) fn of_row(
        row: &gimli::UnwindTableRow<usize>,
        section: &EhFrame<Bytes<'_>>,
        encoding: gimli::Encoding,
        function: Range<u64>,
    ) -> Option<Self> {
        let base = match row.cfa() {
            CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => Base::Stack(*offset),
            CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => Base::Frame(*offset),
            CfaRule::Expression(expression) => match steps(expression, section, encoding) {
                [Step::FrameAt(offset), Step::Word, Step::End] => Base::WordAtFrame(offset),
                _ => return None,
            },
            CfaRule::RegisterAndOffset { .. } => return None,
        };
        let Some(RegisterRule::Offset(return_address)) = row.register(X86_64::RA) else { return None };
        let frame_pointer = match row.register(X86_64::RBP) {
            None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Saved::Same,
            Some(RegisterRule::Offset(offset)) => Saved::At(offset),
            Some(RegisterRule::Expression(expression)) => match steps(&expression, section, encoding) {
                [Step::FrameAt(offset), Step::End, _] => Saved::AtFrame(offset),
                _ => Saved::Lost,
            },
            _ => Saved::Lost,
        };
        Some(Self { base, return_address, frame_pointer, function })
    }

    /// The caller's registers. `read` gives a word of the stack. `None`: the stack ends here.
    pub(crate) fn apply(&self, of: Registers, read: impl Fn(u64) -> Option<u64>) -> Option<Registers> {
        let at = |address: u64, offset: i64| address.checked_add_signed(offset);
        let cfa = match self.base {
            Base::Stack(offset) => at(of.sp, offset)?,
            Base::Frame(offset) => at(of.bp, offset)?,
            Base::WordAtFrame(offset) => read(at(of.bp, offset)?)?,
        };
        // Each frame lies above the one that it calls, so that no stack goes round.
        if cfa <= of.sp {
            return None;
        }
        let ip = read(at(cfa, self.return_address)?)?;
        let bp = match self.frame_pointer {
            Saved::Same => of.bp,
            Saved::At(offset) => read(at(cfa, offset)?).unwrap_or(0),
            Saved::AtFrame(offset) => at(of.bp, offset).and_then(&read).unwrap_or(0),
            Saved::Lost => 0,
        };
        (ip != 0).then_some(Registers { ip, sp: cfa, bp })
    }
}

/// The header of an index of the form below, and the place of its entries.
const HEAD: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const BEGIN: usize = 12;

/// The place of this address' entry by the index. Every linker writes the index in this form: version; a
/// signed offset of four bytes; the number of entries; pairs of signed offsets of four bytes from the index,
/// in order. (gimli's own search takes the number of entries, and the offsets, as they are.)
fn entry_at(tables: &Tables, address: u64) -> Option<u64> {
    let index = &*tables.index;
    let count = u32::from_le_bytes(*index.get(8..)?.first_chunk()?);
    let (entries, _) = index.get(BEGIN..)?.as_chunks::<8>();
    let entries = entries.get(..count as usize).filter(|_| index.starts_with(&HEAD))?;
    let after =
        entries.partition_point(|entry| word_of(tables, entry, 0).is_some_and(|start| start <= address));
    word_of(tables, entries.get(after.checked_sub(1)?)?, 4)
}

fn word_of(tables: &Tables, entry: &[u8; 8], at: usize) -> Option<u64> {
    let offset = entry.get(at..)?.first_chunk().map(|word| i32::from_le_bytes(*word))?;
    tables.index_at.checked_add_signed(offset.into())
}

/// The places of all entries by the index, in the order of the functions.
pub(crate) fn all_entries(tables: &Tables) -> impl Iterator<Item = u64> + '_ {
    let index = &*tables.index;
    let count =
        index.get(8..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word));
    let entries = index.get(BEGIN..).filter(|_| index.starts_with(&HEAD)).unwrap_or_default();
    let (entries, _) = entries.as_chunks::<8>();
    entries.iter().take(count as usize).filter_map(|entry| word_of(tables, entry, 4))
}

/// An operation of an expression, as far as it is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    End,
    /// The frame pointer with an offset.
    FrameAt(i64),
    /// The word there.
    Word,
    Other,
}

/// The first operations of an expression. It is not evaluated, so it cannot go on for ever.
fn steps(
    expression: &UnwindExpression<usize>,
    section: &EhFrame<Bytes<'_>>,
    encoding: gimli::Encoding,
) -> [Step; 3] {
    let mut found = [Step::End; 3];
    let Ok(Expression(mut bytes)) = expression.get(section) else { return [Step::Other; 3] };
    for step in &mut found {
        if bytes.is_empty() {
            break;
        }
        *step = match Operation::parse(&mut bytes, encoding) {
            Ok(Operation::RegisterOffset { register: X86_64::RBP, offset, .. }) => Step::FrameAt(offset),
            Ok(Operation::Deref { size: 8, space: false, .. }) => Step::Word,
            _ => Step::Other,
        };
    }
    found
}

#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) mod tests {
    use std::borrow::Cow;
    use std::sync::LazyLock;
    use std::time::Instant;

    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
    use proptest::prelude::*;

    use super::*;

    /// The tables of this test's own program, and beginnings and sizes of its functions.
    pub(crate) fn program() -> (Tables, Vec<(u64, u64)>) {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let object = object::File::parse(&*bytes).unwrap();
        let section = |name| {
            let section = object.section_by_name(name).unwrap();
            (Cow::Owned(section.data().unwrap().to_vec()), section.address())
        };
        let ((index, index_at), (frames, frames_at)) = (section(".eh_frame_hdr"), section(".eh_frame"));
        let symbols = object.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text);
        let functions = symbols.map(|symbol| (symbol.address(), symbol.size())).collect();
        (Tables { index, index_at, frames, frames_at }, functions)
    }

    /// The tables, and an address in each function.
    fn own() -> (Tables, Vec<u64>) {
        let (tables, functions) = program();
        (tables, functions.iter().filter(|(_, size)| *size > 40).map(|(begin, _)| begin + 30).collect())
    }

    static OWN: LazyLock<(Tables, Vec<u64>)> = LazyLock::new(own);

    #[test]
    fn most_functions_have_a_rule() {
        let (tables, addresses) = own();
        let mut context = UnwindContext::new();
        let found =
            addresses.iter().filter(|address| Rule::find(&tables, &mut context, **address).is_some()).count();
        assert!(
            addresses.len() > 500 && found * 100 > addresses.len() * 98,
            "{found} of {}",
            addresses.len()
        );
    }

    #[test]
    fn a_stack_that_goes_round_ends() {
        let rule =
            Rule { base: Base::Frame(16), return_address: -8, frame_pointer: Saved::At(-16), function: 0..9 };
        let of = Registers { ip: 5, sp: 1000, bp: 900 };
        assert_eq!(rule.apply(of, |_| Some(7)), None);
        assert_eq!(rule.apply(Registers { bp: 2000, ..of }, |_| None), None);
        assert_eq!(rule.apply(Registers { bp: u64::MAX, ..of }, |_| Some(7)), None);
        let caller = rule.apply(Registers { bp: 2000, ..of }, Some);
        assert_eq!(caller, Some(Registers { ip: 2008, sp: 2016, bp: 2000 }));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// A damaged table is read in bounded time and without a panic.
        #[test]
        fn damaged_tables_do_no_harm(
            flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..2000),
            cut in 0usize..4096,
        ) {
            let (mut tables, addresses) = OWN.clone();
            for (at, byte, is_index) in flips {
                let bytes = if is_index { tables.index.to_mut() } else { tables.frames.to_mut() };
                // Most damage goes where the search begins.
                let len = if byte % 3 == 0 { bytes.len().min(256) } else { bytes.len() };
                bytes[at.index(len)] = byte;
            }
            let len = tables.frames.len().saturating_sub(cut);
            tables.frames.to_mut().truncate(len);
            let mut context = UnwindContext::new();
            let begun = Instant::now();
            for address in addresses.iter().step_by(100) {
                if let Some(rule) = Rule::find(&tables, &mut context, *address) {
                    let of = Registers { ip: *address, sp: 4096, bp: 8192 };
                    rule.apply(of, |address| Some(address ^ u64::from(cut as u32)));
                }
            }
            prop_assert!(begun.elapsed().as_secs() < 20);
        }
    }
}
