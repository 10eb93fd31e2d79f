//! Whether a slot may be ours, from what it holds.

use memintro_elf::{Module, Relocation, RelocationKind};

use super::resolve::is_ambiguous;

/// What a slot's value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Our function.
    Ours,
    /// The real function, or the module's own stub that would bind the slot at its first call.
    Free,
    /// The program's PLT entry of the same name: calls go on through the program's own slot.
    Covered,
    /// A lazily bound slot that the loader has not moved to the load address yet; or somebody else's choice at a low
    /// address.
    Unrelocated,
    /// Somebody else's choice.
    Foreign,
}

/// A function, from the judge's point of view.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) index: u8,
    pub(super) ours: usize,
    pub(super) real: Option<usize>,
    /// The program's canonical PLT entry, if it has one.
    pub(super) canonical: Option<u64>,
}

pub(super) fn judge(
    candidate: &Candidate,
    relocation: &Relocation<'_>,
    value: usize,
    module: &Module<'_>,
    base: u64,
) -> Verdict {
    if value == candidate.ours {
        Verdict::Ours
    } else if candidate.real == Some(value) {
        Verdict::Free
    } else if candidate.canonical == Some(value as u64) {
        Verdict::Covered
    } else if is_unrelocated(relocation, value, module, base) {
        Verdict::Unrelocated
    } else if candidate.real.is_some()
        && !is_ambiguous(candidate.index)
        && is_unbound(relocation, value, module)
    {
        Verdict::Free
    } else {
        Verdict::Foreign
    }
}

/// A slot that will be bound at its first call leads into its own module's PLT. One that leads to the module's own
/// definition of the function is bound.
fn is_unbound(relocation: &Relocation<'_>, value: usize, module: &Module<'_>) -> bool {
    let bound_to_own = relocation.local.is_some_and(|own| own.indirect || own.address == value as u64);
    relocation.kind == RelocationKind::JumpSlot && module.is_code(value as u64) && !bound_to_own
}

fn is_unrelocated(relocation: &Relocation<'_>, value: usize, module: &Module<'_>, base: u64) -> bool {
    let value = value as u64;
    relocation.kind == RelocationKind::JumpSlot && value < base && module.is_code(base.wrapping_add(value))
}
