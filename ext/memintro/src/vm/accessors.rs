//! Reads in the VM's own functions where they look.
//!
//! `rb_gc_count` and `rb_during_gc` follow a few pointers and answer with a word or a bit; `ruby_thread_has_gvl_p` compares a
//! word of the thread's structure with 0; it and `rb_profile_frames` begin with a thread-local word. Where they look differs
//! by version and build, so it is taken from their instructions. Only those forms are understood that compilers give such a
//! function; for any other nothing is found. What is found counts for nothing before [`super::words`] and [`super::context`]
//! have compared it with the functions' answers.

/// Bytes of a function that are read: these are shorter, or have what is looked for at the front.
const BYTES: usize = 48;

/// A place that a function answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: usize,
    /// Bits before the one that is answered; `None`: it is a whole word.
    pub(super) shift: Option<u8>,
}

/// The place that an accessor without arguments reads: loads through `rax`, each from where the one before led, and at
/// most one bit taken out of what was loaded last. The first pointer may be another accessor's answer, as in Ruby 3.4.
///
/// # Safety
/// It is such a function, or at least code with as many bytes behind it, and has been called before.
pub(super) unsafe fn place(function: usize) -> Option<Place> {
    // SAFETY: the caller's promise.
    if cfg!(target_arch = "x86_64") { unsafe { place_within(function, true) } } else { None }
}

/// The same; `may_call`: of a function that may begin with a call of another one.
///
/// # Safety
/// As for [`place`].
unsafe fn place_within(function: usize, may_call: bool) -> Option<Place> {
    // SAFETY: the caller's promise.
    let code = unsafe { code(function) };
    let mut at = after_mark(code);
    let mut address = None;
    loop {
        let rest = code.get(at..)?;
        match (rest, address) {
            // mov rax, [rip + distance]
            ([0x48, 0x8B, 0x05, ..], None) => {
                at += 7;
                address = Some((function + at).wrapping_add_signed(distance(rest.get(3..7)?)?));
            }
            // lea rax, [rip + distance]; mov rax, [rax]
            ([0x48, 0x8D, 0x05, _, _, _, _, 0x48, 0x8B, 0x00, ..], None) => {
                address = Some((function + at + 7).wrapping_add_signed(distance(rest.get(3..7)?)?));
                at += 10;
            }
            // sub rsp, 8; call
            ([0x48, 0x83, 0xEC, 0x08, 0xE8, ..], None) if may_call => {
                at += 9;
                let called = (function + at).wrapping_add_signed(distance(rest.get(5..9)?)?);
                // SAFETY: the function calls it, through the table of its library or directly, and has done so.
                let inner = unsafe { place_within(behind_table(called)?, false)? };
                address = Some(inner.address).filter(|_| inner.shift.is_none());
                address?;
            }
            // test rax, rax; je: the pointer is there, since the function is asked in a VM that runs
            ([0x48, 0x85, 0xC0, 0x74, _, ..], Some(_)) => at += 5,
            // mov rax, [rax + distance]
            ([0x48, 0x8B, form @ (0x00 | 0x40 | 0x80), ..], Some(place)) => {
                let (bytes, offset) = operand(*form, rest.get(3..)?)?;
                at += 3 + bytes;
                // SAFETY: the function reads this word whenever it is called.
                address = Some(unsafe { *(place as *const usize) }.wrapping_add_signed(offset));
            }
            // add rsp, 8; ret, or ret alone
            ([0x48, 0x83, 0xC4, 0x08, 0xC3, ..] | [0xC3, ..], Some(address)) => {
                return Some(Place { address, shift: None });
            }
            // movzx eax, byte [rax + distance]
            ([0x0F, 0xB6, form @ (0x00 | 0x40 | 0x80), ..], Some(place)) => {
                let (bytes, offset) = operand(*form, rest.get(3..)?)?;
                return bit(place, offset, rest.get(3 + bytes..)?);
            }
            // mov eax, [rax + distance]
            ([0x8B, form @ (0x00 | 0x40 | 0x80), ..], Some(place)) => {
                let (bytes, offset) = operand(*form, rest.get(2..)?)?;
                return bit(place, offset, rest.get(2 + bytes..)?);
            }
            _ => return None,
        }
    }
}

/// The first bytes of a function.
///
/// # Safety
/// It is code with as many bytes behind it.
unsafe fn code(function: usize) -> &'static [u8] {
    // SAFETY: the caller's promise; code is not written.
    unsafe { std::slice::from_raw_parts(function as *const u8, BYTES) }
}

/// Where the code goes on after the mark of a target of calls (endbr64), if it begins with one.
fn after_mark(code: &[u8]) -> usize {
    if code.starts_with(&[0xF3, 0x0F, 0x1E, 0xFA]) { 4 } else { 0 }
}

/// The function that is called here: this one, or the one to which an entry of a library's table (PLT) jumps.
///
/// # Safety
/// It is code that is called, with as many bytes behind it as [`place`] wants.
unsafe fn behind_table(called: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    let code = unsafe { code(called) };
    let at = after_mark(code);
    let at = at + usize::from(code.get(at) == Some(&0xF2));
    // jmp [rip + distance], with or without a prefix for bounds
    let Some([0xFF, 0x25, place @ ..]) = code.get(at..) else { return Some(called) };
    let pointer = (called + at + 6).wrapping_add_signed(distance(place.get(..4)?)?);
    // SAFETY: the jump reads this word.
    Some(unsafe { *(pointer as *const usize) })
}

/// The bit that is taken out of what is loaded from here.
fn bit(place: usize, offset: isize, rest: &[u8]) -> Option<Place> {
    // shr al or eax, bits; and eax, 1; ret
    let shift = match rest {
        [0xC0 | 0xC1, 0xE8, shift @ 0..32, 0x83, 0xE0, 0x01, 0xC3, ..] => *shift,
        _ => return None,
    };
    // SAFETY: as in `place`, which has passed on the word that leads there.
    let address = unsafe { *(place as *const usize) }.wrapping_add_signed(offset);
    Some(Place { address, shift: Some(shift) })
}

/// The distance in a thread's structure of the one word that a function compares with 0.
///
/// # Safety
/// As for [`place`].
pub(super) unsafe fn compared_with_zero(function: usize) -> Option<usize> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    // SAFETY: the caller's promise.
    let code = unsafe { code(function) };
    let mut found = None;
    for rest in code.windows(8) {
        // cmp qword [rax + distance], 0
        let offset = match rest {
            [0x48, 0x83, 0xB8, _, _, _, _, 0x00] => distance(rest.get(3..7)?)?,
            [0x48, 0x83, 0x78, near, 0x00, ..] => isize::from(near.cast_signed()),
            _ => continue,
        };
        if found.replace(offset).is_some() {
            return None;
        }
    }
    usize::try_from(found?).ok()
}

/// Where the thread-local word is that a function reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadLocal {
    /// The loader is asked: here are the number of a word's module and that word's distance in it, and the one that is read is
    /// so many bytes behind that word. Several words of Ruby's share one question.
    OfModule(usize, usize),
    /// So far from the thread pointer: a program that has Ruby in itself is linked so.
    At(isize),
}

/// Where the one thread-local word is that a function reads.
///
/// # Safety
/// As for [`place`].
pub(super) unsafe fn thread_local(function: usize) -> Option<ThreadLocal> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    // SAFETY: the caller's promise.
    let code = unsafe { code(function) };
    let mut found = (0..code.len()).filter_map(|at| thread_local_at(function, code, at));
    let word = found.next()?;
    found.next().is_none().then_some(word)
}

/// The thread-local word that the instruction at this place of the function reads.
fn thread_local_at(function: usize, code: &[u8], at: usize) -> Option<ThreadLocal> {
    let away = match code.get(at..)? {
        // lea rdi, [rip + distance]
        [0x48, 0x8D, 0x3D, place @ ..] => {
            let place = distance(place.get(..4)?)?;
            let behind = behind_answer(code.get(at + 7..).unwrap_or_default());
            return Some(ThreadLocal::OfModule((function + at + 7).wrapping_add_signed(place), behind));
        }
        // mov rax, fs:[0]; lea rax, [rax + distance]
        [0x64, 0x48, 0x8B, 0x04, 0x25, 0, 0, 0, 0, 0x48, 0x8D, 0x80, away @ ..]
        // mov rax, fs:[distance]
        | [0x64, 0x48, 0x8B, 0x04, 0x25, away @ ..] => away,
        // mov rax, distance; with mov rax, fs:[rax] behind it
        [0x48, 0xC7, 0xC0, away @ ..] if reads_there(away) => away,
        _ => return None,
    };
    let away = distance(away.get(..4)?)?;
    // What the C library has in front of the thread pointer is no variable: it has the canary of stacks there.
    (away < 0).then_some(ThreadLocal::At(away))
}

/// How many bytes behind the loader's answer the word is that is read after the call.
fn behind_answer(code: &[u8]) -> usize {
    // call, with or without prefixes; mov rax or rdi, [rax + distance]
    let call = code.iter().take_while(|byte| matches!(byte, 0x66 | 0x48)).count();
    let distance = match code.get(call..) {
        Some([0xE8, _, _, _, _, 0x48, 0x8B, 0x80 | 0xB8, far @ ..]) => far.get(..4).and_then(distance),
        Some([0xE8, _, _, _, _, 0x48, 0x8B, 0x40 | 0x78, near, ..]) => Some(isize::from(near.cast_signed())),
        _ => None,
    };
    distance.and_then(|distance| usize::try_from(distance).ok()).unwrap_or(0)
}

/// Whether `mov rax, fs:[rax]` is in this code.
fn reads_there(code: &[u8]) -> bool {
    code.windows(4).any(|bytes| bytes == [0x64, 0x48, 0x8B, 0x00])
}

fn distance(bytes: &[u8]) -> Option<isize> {
    i32::from_le_bytes(bytes.try_into().ok()?).try_into().ok()
}

/// Length and value of the distance behind such a form of an instruction.
fn operand(form: u8, rest: &[u8]) -> Option<(usize, isize)> {
    match form {
        0x00 => Some((0, 0)),
        0x40 => rest.first().map(|near| (1, isize::from(near.cast_signed()))),
        _ => Some((4, distance(rest.get(..4)?)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function of these bytes, and nothing known behind them.
    fn found(code: &[u8]) -> Option<(usize, ThreadLocal)> {
        let mut bytes = [0x90; BYTES];
        bytes[..code.len()].copy_from_slice(code);
        let function = bytes.as_ptr() as usize;
        // SAFETY: so many bytes are there.
        unsafe { thread_local(function) }.map(|word| (function, word))
    }

    #[test]
    fn words_of_the_thread_are_found_however_ruby_is_linked() {
        // In libruby.so of Debian 13: push; lea rdi, [rip + 0x34e7d9]; call.
        let (function, word) =
            found(&[0x41, 0x54, 0x48, 0x8D, 0x3D, 0xD9, 0xE7, 0x34, 0x00, 0xE8, 1, 2, 3, 4]).expect("a word");
        assert_eq!(word, ThreadLocal::OfModule(function + 9 + 0x34_E7D9, 0));
        // In libruby.so of 4.0, where words share a question: lea rdi, [rip + 0x100]; call; mov rax, [rax + 8].
        let shared = [0x48, 0x8D, 0x3D, 0, 1, 0, 0, 0xE8, 1, 2, 3, 4, 0x48, 0x8B, 0x40, 0x08];
        let (function, word) = found(&shared).expect("a word");
        assert_eq!(word, ThreadLocal::OfModule(function + 7 + 0x100, 8));
        // In a program with Ruby in it: mov rax, fs:[-0x60]; test; je; cmp qword [rax + 0xf8], 0.
        let direct = [0x64, 0x48, 0x8B, 0x04, 0x25, 0xA0, 0xFF, 0xFF, 0xFF, 0x48, 0x85, 0xC0, 0x74, 0x12];
        assert_eq!(found(&direct).map(|(_, word)| word), Some(ThreadLocal::At(-0x60)));
        let with_canary = [&[0x64, 0x48, 0x8B, 0x04, 0x25, 0x28, 0, 0, 0], &direct[..]].concat();
        assert_eq!(found(&with_canary).map(|(_, word)| word), Some(ThreadLocal::At(-0x60)));
        // mov rax, -0x50; mov r8, rcx; mov rax, fs:[rax].
        let by_number = [
            0x48, 0xC7, 0xC0, 0xB0, 0xFF, 0xFF, 0xFF, 0x49, 0x89, 0xC8, 0x64, 0x48, 0x8B, 0x00, 0x48, 0x85,
            0xC0,
        ];
        assert_eq!(found(&by_number).map(|(_, word)| word), Some(ThreadLocal::At(-0x50)));
        // mov rax, fs:[0]; lea rax, [rax - 0x50], which the linker makes of a call.
        let relaxed = [
            0x64, 0x48, 0x8B, 0x04, 0x25, 0, 0, 0, 0, 0x48, 0x8D, 0x80, 0xB0, 0xFF, 0xFF, 0xFF, 0x48, 0x8B,
            0x00,
        ];
        assert_eq!(found(&relaxed).map(|(_, word)| word), Some(ThreadLocal::At(-0x50)));
    }

    #[test]
    fn nothing_is_found_where_there_is_no_word_or_more_than_one() {
        assert_eq!(found(&[0x31, 0xC0, 0xC3]), None);
        // A number alone, which nothing is read with.
        assert_eq!(found(&[0x48, 0xC7, 0xC0, 0xB0, 0xFF, 0xFF, 0xFF, 0xC3]), None);
        let twice = [0x64, 0x48, 0x8B, 0x04, 0x25, 0xA0, 0xFF, 0xFF, 0xFF].repeat(2);
        assert_eq!(found(&twice), None);
        // The canary of the stack: mov rax, fs:[0x28].
        assert_eq!(found(&[0x64, 0x48, 0x8B, 0x04, 0x25, 0x28, 0, 0, 0]), None);
        // The instruction is cut off where the bytes end.
        let mut late = vec![0x90; BYTES - 5];
        late.extend([0x64, 0x48, 0x8B, 0x04, 0x25]);
        assert_eq!(found(&late), None);
    }
}
