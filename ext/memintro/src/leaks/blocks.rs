//! The list of all blocks: those that the hook has followed, and all chunks of glibc.

use std::ffi::c_void;

use memintro_abi::{BlockRecord, HookApi, Status};
use memintro_analysis::account::chunks::{FLAGS, MAPPED};
use memintro_analysis::account::owners::{Owner, Owners};
use memintro_analysis::account::space::Space;
use memintro_analysis::leaks::nodes::{Node, State};

use crate::account::frozen::read;
use crate::copy::own_memory::slice;
use crate::native_stacks;

/// A chunk's head, before what malloc's caller has.
const HEAD: usize = 16;

/// Memory for lists: reserved, not taken. The most that the limits of the process let it have.
fn room(most: usize) -> Option<&'static mut [Node]> {
    (0..6).find_map(|step| slice::<Node>((most >> (2 * step)).max(1024)))
}

/// Blocks that the hook has followed, in the order of their addresses. `None`: there is no memory, or the hook cannot be
/// read.
pub(super) fn followed(api: &HookApi) -> Option<&'static mut [Node]> {
    struct List {
        nodes: &'static mut [Node],
        used: usize,
    }
    unsafe extern "C" fn add(context: *mut c_void, record: *const BlockRecord) {
        // SAFETY: the list below, and a record that is valid during the visit.
        let (list, record) = unsafe { (&mut *context.cast::<List>(), &*record) };
        if let Some(place) = list.nodes.get_mut(list.used) {
            *place = Node::new(record.address as usize, record.size as usize);
            place.site = record.site;
            place.age = record.age;
            if record.weight == 0.0 {
                // Its owner has freed it.
                place.state = State::Free;
            }
        }
        list.used += 1;
    }
    const MOST: usize = 1 << 28;
    let mut list = List { nodes: room(MOST)?, used: 0 };
    // SAFETY: the callback fits the record, and the context outlives the visit.
    let status = unsafe { (api.blocks)(native_stacks::all_sites(), 0, (&raw mut list).cast(), add) };
    if status != Status::OK {
        return None;
    }
    let nodes = list.nodes.get_mut(..list.used)?;
    nodes.sort_unstable_by_key(|node| node.start);
    Some(nodes)
}

/// All chunks of glibc that are in use, and those in caches, with what the hook knows of them; and bytes of those whose owner has
/// freed them, and that glibc did not have back yet.
pub(super) fn chunks(
    owners: &Owners<'_>,
    there: &Space<'_>,
    known: &[Node],
) -> Option<(&'static mut [Node], u64)> {
    const MOST: usize = 1 << 28;
    let list = room(MOST)?;
    let (mut used, mut next, mut given_up) = (0, 0, 0);
    owners.each(there, |chunk, owner| {
        // SAFETY: the walk has read this head.
        let head = unsafe { read(chunk + 8) };
        let size = (head & !FLAGS) as usize;
        // A block reaches into the next chunk, by the word that says how long a free one before it is.
        let bytes = if head & MAPPED == 0 { size.saturating_sub(8) } else { size.saturating_sub(HEAD) };
        let mut node = Node::new(chunk + HEAD, bytes);
        if owner == Owner::Cached {
            node.state = State::Free;
        }
        while let Some(one) = known.get(next).filter(|one| one.start <= node.start) {
            if one.start == node.start && one.bytes <= node.bytes && node.state != State::Free {
                node = *one;
                given_up += if one.state == State::Free { size as u64 } else { 0 };
            }
            next += 1;
        }
        if let Some(place) = list.get_mut(used) {
            *place = node;
        }
        used += 1;
    });
    Some((list.get_mut(..used)?, given_up))
}
