//! Finds symbols by name, through `DT_GNU_HASH` or else `DT_HASH`. Both visit every symbol of a name until one is
//! accepted, because a name can have several versions.

use crate::dynamic::Tables;
use crate::error::Malformed;
use crate::memory::{u32_at, u64_at};
use crate::symbol::Symbol;

/// Calls `accept` with each symbol called `name`, and returns its first result that is not `None`.
pub(crate) fn find<T>(
    tables: &Tables<'_>,
    name: &[u8],
    mut accept: impl FnMut(u32, &Symbol) -> Option<T>,
) -> Result<Option<T>, Malformed> {
    let mut judge = |index: u32| -> Result<Option<T>, Malformed> {
        let symbol = Symbol::read(tables, index)?;
        Ok(if symbol.is_named(tables, name)? { accept(index, &symbol) } else { None })
    };
    match (tables.gnu_hash, tables.hash) {
        (Some(table), _) => by_gnu_hash(table, name, &mut judge),
        (None, Some(table)) => by_hash(table, name, &mut judge),
        (None, None) => Ok(None),
    }
}

fn by_gnu_hash<T>(
    table: &[u8],
    name: &[u8],
    judge: &mut impl FnMut(u32) -> Result<Option<T>, Malformed>,
) -> Result<Option<T>, Malformed> {
    let header = |at: usize| u32_at(table, at).ok_or(Malformed::HashHeader(0));
    let (buckets, first_symbol, words, shift) = (header(0)?, header(4)?, header(8)?, header(12)?);
    if buckets == 0 {
        return Ok(None);
    }
    let hash = name.iter().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));

    let wrong_words = Malformed::HashHeader(u64::from(words));
    let word = (hash / 64).checked_rem(words).ok_or(wrong_words)?;
    let filter = u64_at(table, (word as usize).saturating_mul(8).saturating_add(16)).ok_or(wrong_words)?;
    let second = hash.checked_shr(shift).unwrap_or(0);
    if filter >> (hash % 64) & filter >> (second % 64) & 1 == 0 {
        return Ok(None);
    }

    let buckets_at = (words as usize).saturating_mul(8).saturating_add(16);
    let chains_at = (buckets as usize).saturating_mul(4).saturating_add(buckets_at);
    let bucket_at = ((hash % buckets) as usize).saturating_mul(4).saturating_add(buckets_at);
    let mut index = u32_at(table, bucket_at).ok_or(Malformed::HashHeader(u64::from(buckets)))?;
    if index == 0 {
        return Ok(None);
    }
    loop {
        let wrong = Malformed::HashChain(u64::from(index));
        let link = index.checked_sub(first_symbol).ok_or(wrong)? as usize;
        let value = u32_at(table, link.saturating_mul(4).saturating_add(chains_at)).ok_or(wrong)?;
        if value | 1 == hash | 1
            && let Some(found) = judge(index)?
        {
            return Ok(Some(found));
        }
        if value & 1 == 1 {
            return Ok(None);
        }
        index = index.checked_add(1).ok_or(wrong)?;
    }
}

fn by_hash<T>(
    table: &[u8],
    name: &[u8],
    judge: &mut impl FnMut(u32) -> Result<Option<T>, Malformed>,
) -> Result<Option<T>, Malformed> {
    let header = |at: usize| u32_at(table, at).ok_or(Malformed::HashHeader(0));
    let (buckets, symbols) = (header(0)?, header(4)?);
    if buckets == 0 {
        return Ok(None);
    }
    let hash = name.iter().fold(0_u32, |hash, byte| {
        let hash = hash.wrapping_mul(16).wrapping_add(u32::from(*byte));
        let high = hash & 0xf000_0000;
        (hash ^ high >> 24) & !high
    });
    let chains_at = (buckets as usize).saturating_mul(4).saturating_add(8);
    let chains = (symbols as usize).checked_mul(4).and_then(|len| table.get(chains_at..)?.get(..len));
    let chains = chains.ok_or(Malformed::HashHeader(u64::from(symbols)))?;

    let bucket_at = ((hash % buckets) as usize).saturating_mul(4).saturating_add(8);
    let mut index = u32_at(table, bucket_at).ok_or(Malformed::HashHeader(u64::from(buckets)))?;
    // A chain that is longer than all symbols has a loop.
    for _ in 0..=symbols {
        if index == 0 {
            return Ok(None);
        }
        let wrong = Malformed::HashChain(u64::from(index));
        let next = u32_at(chains, (index as usize).saturating_mul(4)).ok_or(wrong)?;
        if let Some(found) = judge(index)? {
            return Ok(Some(found));
        }
        index = next;
    }
    Err(Malformed::HashChain(u64::from(index)))
}
