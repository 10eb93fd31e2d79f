//! What a check of a native library needs of the extension: whole native stacks, data that no function frees, and what the
//! blocks of registered addresses hold.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use magnus::{Error, RArray, RHash, RModule, RString, Ruby, function, prelude::*};
use memintro_abi::{BlockRecord, EACH_SITE, HookApi, SiteRecord, StackFrame, Status};

use super::errors;
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
    native.define_singleton_method("probe_native_stacks", function!(probe, 0))?;
    native.define_singleton_method("lost_native_stacks", function!(lost, 0))?;
    native.define_singleton_method("watched_libraries", function!(watched, 0))?;
    native.define_singleton_method("native_stack_sites", function!(sites, 0))?;
    native.define_singleton_method("native_stacks_of", function!(stacks_of, 1))?;
    native.define_singleton_method("unfreed_data", function!(unfreed_data, 0))?;
    native.define_singleton_method("registered_addresses", function!(registered, 1))
}

/// Makes whole native stacks call sites. Names of libraries; none: those in the folder. Words: why that is not possible.
fn follow(ruby: &Ruby, given: RArray, root: RString) -> Result<Option<&'static str>, Error> {
    let api = hook(ruby)?;
    callers::know_interpreter(ruby, api);
    // SAFETY: copied at once.
    let root = unsafe { root.as_slice() }.to_vec();
    let given = names::all_bytes(given)?;
    let given = given.into_iter().map(|name| String::from_utf8_lossy(&name).into_owned()).collect();
    if let Err(why) = native_stacks::begin(api, given, PathBuf::from(std::ffi::OsString::from_vec(root))) {
        return Ok(Some(why));
    }
    Ok((!unfreed::begin(ruby)?).then_some("this Ruby does not report freed objects"))
}

/// Tries whether an allocation gets its native stack as its site. Words: why it did not.
fn probe(ruby: &Ruby) -> Result<Option<&'static str>, Error> {
    let Some(api) = hook_link::found() else { return Ok(Some("the hook is gone")) };
    native_stacks::probe(api, |address| {
        let mut site = None;
        each_block(ruby, api, |block| {
            if block.address == address {
                site = Some(block.site);
            }
        })?;
        let Some(site) = site else {
            return Ok(Some("an allocation was not recorded: have the tests stopped memintro's tracking?"));
        };
        let record = stacks::records(ruby, api)?.into_iter().find(|record| record.id == site);
        let innermost = match record.map_or(0, |record| record.stack) {
            0 => None,
            number => Some(frame(ruby, api, number)?),
        };
        let is_native = innermost.is_some_and(|frame| path_of(&frame).first() == Some(&0));
        Ok((!is_native).then_some("the native stack of an allocation could not be followed or kept"))
    })
}

/// How many allocations of the libraries have no native stack as their site, though it was followed.
fn lost(ruby: &Ruby) -> Result<u64, Error> {
    // Another thread may be between the two just now.
    const TRIES: usize = 3;
    let mut least = u64::MAX;
    for _ in 0..TRIES {
        let asked = native_stacks::asked();
        let mut kept = 0_u64;
        each_native(ruby, |record| {
            kept = kept.wrapping_add(record.blocks.allocations.value);
            Ok(())
        })?;
        least = least.min(asked.saturating_sub(kept));
    }
    Ok(least)
}

/// A frame of a stack that is there; an error if the lists of stacks are busy.
fn frame(ruby: &Ruby, api: &HookApi, number: u64) -> Result<StackFrame, Error> {
    let number = u32::try_from(number).unwrap_or(0);
    stacks::frame(api, number).ok_or_else(|| errors::from_status(ruby, Status::BUSY))
}

/// Each site that is a native stack.
fn each_native(ruby: &Ruby, mut each: impl FnMut(&SiteRecord) -> Result<(), Error>) -> Result<(), Error> {
    let Some(api) = hook_link::found() else { return Ok(()) };
    for record in stacks::records(ruby, api)?.iter().filter(|record| record.stack != 0) {
        if path_of(&frame(ruby, api, record.stack)?).first() == Some(&0) {
            each(record)?;
        }
    }
    Ok(())
}

/// The part of the loader's record that `<link.h>` declares.
#[repr(C)]
struct LoadedLibrary {
    _base: usize,
    name: *const std::ffi::c_char,
}

/// Loads a library as `require` would, but runs nothing of it but its constructors: so it is known before its `Init_` runs.
/// `false`: it is loaded, and does not become known.
fn load_library(path: RString) -> bool {
    // SAFETY: copied at once.
    let Ok(path) = std::ffi::CString::new(unsafe { path.as_slice() }) else { return true };
    // SAFETY: the loader's function; the library stays, as with a `require`.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    // It may have been loaded by another name.
    let mut record: *const LoadedLibrary = std::ptr::null();
    // SAFETY: a library that is loaded, and room for the answer, which is the loader's record of it.
    let name = unsafe {
        if library.is_null() || libc::dlinfo(library, libc::RTLD_DI_LINKMAP, (&raw mut record).cast()) != 0 {
            return true;
        }
        std::ffi::CStr::from_ptr((*record).name)
    };
    native_stacks::know(name.to_bytes())
}

/// Paths of the libraries that are looked for and loaded, each with whether nothing was followed of what it has allocated.
fn watched(ruby: &Ruby) -> Result<RArray, Error> {
    let rows = ruby.ary_new();
    for (path, is_late) in native_stacks::watched() {
        let row = ruby.ary_new_capa(2);
        row.push(names::string(ruby, &path))?;
        row.push(is_late)?;
        rows.push(row)?;
    }
    Ok(rows)
}

fn path_of(frame: &StackFrame) -> Vec<u8> {
    // SAFETY: the interner keeps texts until a clear or start, which need the GVL that we hold.
    unsafe { std::slice::from_raw_parts(frame.path, frame.path_len as usize) }.to_vec()
}

/// Live blocks and bytes of each site that is a native stack, by number.
fn sites(ruby: &Ruby) -> Result<RHash, Error> {
    let hash = ruby.hash_new();
    each_native(ruby, |record| {
        let row = ruby.ary_new_capa(2);
        let blocks = &record.blocks;
        row.push(blocks.allocations.value.wrapping_sub(blocks.frees.value))?;
        row.push(blocks.total_bytes.value.wrapping_sub(blocks.freed_bytes.value))?;
        hash.aset(record.id, row)
    })?;
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
        let (mut frames, mut line, mut next) = (Vec::new(), None, record.stack);
        while next != 0 {
            let frame = frame(ruby, api, next)?;
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
            next = u64::from(frame.caller);
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
