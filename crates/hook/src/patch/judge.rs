//! Decides from the value of a slot whether it may be patched.

use memintro_elf::{Module, Relocation, RelocationKind};

use super::resolve::{Scope, is_cxx_runtime};

/// What a slot's value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotValue {
    /// Our function.
    Ours,
    /// The real function, or the module's own PLT stub, which would bind the slot to it at the first call.
    Free,
    /// The module's own PLT stub, which would bind the slot to the real function, unless the module was opened with
    /// `RTLD_DEEPBIND`.
    Doubtful,
    /// The module's own PLT stub, where it is not known what the slot will be bound to. Once it is bound, that can be
    /// seen.
    Unsure,
    /// The program's PLT entry of the same name: calls go on through the program's own slot.
    Covered,
    /// A lazily bound slot that the loader has not relocated yet, or another library's function at a low address.
    Unrelocated,
    /// A function of another library.
    Foreign,
}

/// The facts about a function that decide on a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) ours: usize,
    pub(super) real: Option<usize>,
    pub(super) scope: Scope,
    /// The program's canonical PLT entry, if it has one.
    pub(super) canonical: Option<u64>,
}

/// The module whose slot is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'m> {
    pub(super) module: &'m Module<'m>,
    pub(super) base: u64,
    /// The module came with the program, so the loader searches only what came with the program.
    pub(super) is_early: bool,
}

pub(super) fn judge(
    candidate: &Candidate,
    relocation: &Relocation<'_>,
    value: usize,
    owner: &Owner<'_>,
) -> SlotValue {
    if value == candidate.ours {
        return SlotValue::Ours;
    }
    if candidate.real == Some(value) {
        return SlotValue::Free;
    }
    if candidate.canonical == Some(value as u64) {
        return SlotValue::Covered;
    }
    if is_unrelocated(relocation, value, owner) {
        return SlotValue::Unrelocated;
    }
    match candidate.real {
        Some(real) if is_unbound(relocation, value, owner.module) => {
            judge_unbound(candidate.scope, relocation, real, owner)
        }
        _ => SlotValue::Foreign,
    }
}

/// A slot that will be bound at its first call is patched if it can only be bound to the real function.
fn judge_unbound(scope: Scope, relocation: &Relocation<'_>, real: usize, owner: &Owner<'_>) -> SlotValue {
    let holds_real = owner.module.contains(real as u64, 1);
    let keeps_to_own = relocation.local.is_some() && !holds_real && owner.module.is_symbolic();
    if keeps_to_own || scope.has_versions {
        return SlotValue::Unsure;
    }
    if !scope.is_early {
        // The C++ runtime was loaded later. It stays as long as any module needs it.
        let mut needed = owner.module.needed();
        let stays = holds_real || needed.any(is_cxx_runtime);
        return if stays && !scope.has_others { SlotValue::Free } else { SlotValue::Unsure };
    }
    if owner.is_early {
        SlotValue::Free
    } else if scope.has_later {
        SlotValue::Unsure
    } else if scope.has_others {
        SlotValue::Doubtful
    } else {
        SlotValue::Free
    }
}

/// A slot that will be bound at its first call points into its own module's PLT. A slot that points to the module's
/// own definition of the function is bound already.
fn is_unbound(relocation: &Relocation<'_>, value: usize, module: &Module<'_>) -> bool {
    let bound_to_own = relocation.local.is_some_and(|own| own.indirect || own.address == value as u64);
    relocation.kind == RelocationKind::JumpSlot && module.is_code(value as u64) && !bound_to_own
}

fn is_unrelocated(relocation: &Relocation<'_>, value: usize, owner: &Owner<'_>) -> bool {
    let value = value as u64;
    relocation.kind == RelocationKind::JumpSlot
        && value < owner.base
        && owner.module.is_code(owner.base.wrapping_add(value))
}
