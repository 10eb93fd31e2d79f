//! What a check of a native library needs of the extension: whole native stacks, data that no function frees, and what the
//! blocks of registered addresses hold.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use magnus::{Error, RArray, RHash, RModule, RString, Ruby, function, prelude::*};
use memintro_abi::{BlockRecord, EACH_SITE, HookApi, StackFrame};

use super::heap::checked;
use super::names;
use super::native::{check, hook, visit_each};
use super::stacks;
use crate::heap::data;
use crate::{callers, hook_link, native_stacks, symbols, unfreed};

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("follow_native_stacks", function!(follow, 2))?;
    native.define_singleton_method("find_modules", function!(native_stacks::renew, 0))?;
    native.define_singleton_method("load_library", function!(load_library, 1))?;
    native.define_singleton_method("watched_libraries", function!(watched, 0))?;
    native.define_singleton_method("unfollowed", function!(native_stacks::unfollowed, 0))?;
    native.define_singleton_method("native_stack_sites", function!(sites, 0))?;
    native.define_singleton_method("native_stacks_of", function!(stacks_of, 1))?;
    native.define_singleton_method("unfreed_data", function!(unfreed_data, 0))?;
    native.define_singleton_method("registered_addresses", function!(registered, 1))
}

/// Makes whole native stacks call sites. Names of libraries; none: those in the folder. `false`: not on this Ruby.
fn follow(ruby: &Ruby, given: RArray, root: RString) -> Result<bool, Error> {
    let api = hook(ruby)?;
    callers::know_interpreter(ruby, api);
    // SAFETY: copied at once.
    let root = unsafe { root.as_slice() }.to_vec();
    let given = names::all_bytes(given)?;
    let given = given.into_iter().map(|name| String::from_utf8_lossy(&name).into_owned()).collect();
    let begun = native_stacks::begin(api, given, PathBuf::from(std::ffi::OsString::from_vec(root)));
    Ok(begun && unfreed::begin(ruby)?)
}

/// Loads a library as `require` would, but runs nothing of it but its constructors: so it is known before its `Init_` runs.
/// `false`: the loader refused.
fn load_library(path: RString) -> bool {
    // SAFETY: copied at once.
    let Ok(path) = std::ffi::CString::new(unsafe { path.as_slice() }) else { return false };
    // SAFETY: the loader's function; the library stays, as with a `require`.
    let loaded = unsafe { !libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL).is_null() };
    native_stacks::renew();
    loaded
}

fn watched(ruby: &Ruby) -> RArray {
    native_stacks::renew();
    ruby.ary_from_iter(native_stacks::watched().iter().map(|path| names::string(ruby, path)))
}

fn path_of(frame: &StackFrame) -> Vec<u8> {
    // SAFETY: the interner keeps texts until a clear or start, which need the GVL that we hold.
    unsafe { std::slice::from_raw_parts(frame.path, frame.path_len as usize) }.to_vec()
}

/// Live blocks and bytes of each site that is a native stack, by number.
fn sites(ruby: &Ruby) -> Result<RHash, Error> {
    let hash = ruby.hash_new();
    let Some(api) = hook_link::found() else { return Ok(hash) };
    for record in stacks::records(ruby, api)? {
        let innermost = u32::try_from(record.stack).ok().and_then(|number| stacks::frame(api, number));
        if innermost.is_some_and(|frame| path_of(&frame).first() == Some(&0)) {
            let row = ruby.ary_new_capa(2);
            row.push(record.allocations.wrapping_sub(record.frees))?;
            row.push(record.total_bytes.wrapping_sub(record.freed_bytes))?;
            hash.aset(record.id, row)?;
        }
    }
    Ok(hash)
}

/// The stacks of these sites, by number: an array of frames, the innermost first, and the line of Ruby. A frame is its name,
/// the path of its module, file and line of C, and whether its library is looked for.
fn stacks_of(ruby: &Ruby, wanted: Vec<u32>) -> Result<RHash, Error> {
    let hash = ruby.hash_new();
    let Some(api) = hook_link::found() else { return Ok(hash) };
    let wanted: HashSet<u32> = wanted.into_iter().collect();
    let mut numbers: HashMap<(Vec<u8>, u64), usize> = HashMap::new();
    let mut all: Vec<(Vec<u8>, u64)> = Vec::new();
    let mut stacks: Vec<(u32, Vec<usize>, Option<String>)> = Vec::new();
    for record in stacks::records(ruby, api)?.iter().filter(|record| wanted.contains(&record.id)) {
        let (mut frames, mut line, mut next) = (Vec::new(), None, u32::try_from(record.stack).unwrap_or(0));
        while let Some(frame) = stacks::frame(api, next) {
            let path = path_of(&frame);
            if let Some((0, path)) = path.split_first() {
                let key = (path.to_vec(), u64::from(frame.line));
                frames.push(*numbers.entry(key.clone()).or_insert_with(|| {
                    all.push(key);
                    all.len() - 1
                }));
            } else {
                line = Some(format!("{}:{}", String::from_utf8_lossy(&path), frame.line));
            }
            next = frame.caller;
        }
        stacks.push((record.id, frames, line));
    }
    let shown = callers::untracked(api, || native_stacks::named(&all));
    let made = ruby.ary_new();
    for one in &shown {
        let row = ruby.ary_new_capa(4);
        row.push(names::string(ruby, one.name.text.as_bytes()))?;
        row.push(names::string(ruby, &one.path))?;
        row.push(one.name.line.as_ref().map(|(file, line)| format!("{file}:{line}")))?;
        row.push(one.is_watched)?;
        made.push(row)?;
    }
    for (id, frames, line) in stacks {
        let stack = ruby.ary_new();
        for frame in frames {
            stack.push(made.entry::<RArray>(frame.cast_signed())?)?;
        }
        let pair = ruby.ary_new_capa(2);
        pair.push(stack)?;
        pair.push(line)?;
        hash.aset(id, pair)?;
    }
    Ok(hash)
}

fn each_block(ruby: &Ruby, api: &HookApi, each: impl FnMut(&BlockRecord)) -> Result<(), Error> {
    // SAFETY: the callback fits the record, the context outlives the visit.
    check(ruby, visit_each(|context, call| unsafe { (api.blocks)(EACH_SITE, 0, context, call) }, each))
}

/// Live blocks that objects without a free function point to, or pointed to when they were freed: name of the type or nil,
/// number of the site, whether the object is gone, blocks, bytes.
fn unfreed_data(ruby: &Ruby) -> Result<RArray, Error> {
    let rows = ruby.ary_new();
    let Some(api) = hook_link::found() else { return Ok(rows) };
    let mut known: HashMap<u64, (Option<String>, Option<u32>)> = HashMap::new();
    unfreed::gone(|gone| {
        for one in gone {
            known.insert(one.of.data as u64, (one.of.name(), Some(one.generation)));
        }
    });
    for one in checked(ruby, data::unfreed())? {
        known.insert(one.data as u64, (one.name(), None));
    }
    // Rust's own lists may be allocated meanwhile; Ruby objects may not.
    let mut found: HashMap<(Option<String>, u32, bool), (u64, u64)> = HashMap::new();
    let now = crate::vm::gc_count().unwrap_or(0) as u32;
    each_block(ruby, api, |block| {
        let Some((name, gone)) = known.get(&block.address) else { return };
        // Another block may have got the address since.
        if gone.is_some_and(|gone| now.wrapping_sub(block.age) > gone) {
            return;
        }
        let sum = found.entry((name.clone(), block.site, gone.is_some())).or_default();
        sum.0 += 1;
        sum.1 += block.size;
    })?;
    for ((name, site, is_gone), (blocks, bytes)) in found {
        let row = ruby.ary_new_capa(5);
        row.push(name)?;
        row.push(site)?;
        row.push(is_gone)?;
        row.push(blocks)?;
        row.push(bytes)?;
        rows.push(row)?;
    }
    Ok(rows)
}

/// Of blocks of these sites, which hold registered addresses: number of the site, what was registered, whether that is a
/// static of a library, and how often it is registered. Ruby's record of one begins with the address.
fn registered(ruby: &Ruby, wanted: Vec<u32>) -> Result<RArray, Error> {
    let rows = ruby.ary_new();
    let Some(api) = hook_link::found() else { return Ok(rows) };
    let wanted: HashSet<u32> = wanted.into_iter().collect();
    const RECORD_BYTES: u64 = 16;
    let mut found: HashMap<(u32, u64), u64> = HashMap::new();
    each_block(ruby, api, |block| {
        if wanted.contains(&block.site) && block.size == RECORD_BYTES {
            // SAFETY: a live block of two words.
            let address = unsafe { (block.address as *const u64).read_volatile() };
            *found.entry((block.site, address)).or_default() += 1;
        }
    })?;
    for ((site, address), times) in found {
        let name = symbols::of_address(address as usize);
        let row = ruby.ary_new_capa(4);
        row.push(site)?;
        row.push(name.clone().unwrap_or_else(|| format!("{address:#x}")))?;
        row.push(name.is_some())?;
        row.push(times)?;
        rows.push(row)?;
    }
    Ok(rows)
}
