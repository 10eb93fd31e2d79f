//! What a process has made its own of the memory that it shared at a fork, in words: see docs/copy_on_write.md.

use memintro_abi::{AccountPart, AccountRow};

use super::Account;
use crate::text::units::{bytes, count, counted, share};
use crate::value::Value;

/// Less than this of Ruby's heap is never worth a sentence, nor less than this percentage of RSS.
const LEAST_BYTES: i64 = 8 << 20;
const LEAST_SHARE: i64 = 15;
const REMEDY: &str =
    "Make objects old, and free garbage, before the fork: Process.warmup (Ruby 3.3), or GC.start four times.";

pub(super) fn sentence(account: &Account) -> Option<String> {
    let heap = own(account, AccountPart::RubyHeap)?;
    let malloc = own(account, AccountPart::Malloc).unwrap_or(0);
    if heap < LEAST_BYTES || heap * 100 < LEAST_SHARE * account.rss {
        return None;
    }
    if !is_known(account) && !account.shares() {
        return None;
    }
    Some(format!(
        "{} of {} is Ruby's heap in pages of this process alone ({}; malloc: {}). {} {REMEDY}",
        share(heap, account.rss),
        bytes(account.rss),
        bytes(heap),
        bytes(malloc),
        cause(&account.details(AccountRow::RubyHeapLive))
    ))
}

/// Whether it is known what the parent had at the fork.
pub(super) fn is_known(account: &Account) -> bool {
    !account.details(AccountRow::RubyHeapLive).get("at_fork").is_null()
}

/// Private bytes of a part, if they are known of all its rows.
fn own(account: &Account, part: AccountPart) -> Option<i64> {
    account.rows.iter().filter(|row| row.row.part() == part).map(super::Row::private_bytes).sum()
}

/// A slot is written when its object becomes older and when it is freed.
fn cause(details: &Value) -> String {
    let (at_fork, pages) = (details.get("at_fork"), details.get("own_pages"));
    let of_pages = (!pages.is_null()).then(|| {
        format!(
            "{} of {}, {} of them with free slots",
            count(pages.get("pages").or_zero()),
            counted(pages.get("heap_pages").or_zero(), "page"),
            count(pages.get("with_free_slots").or_zero())
        )
    });
    if at_fork.is_null() {
        let of_pages = of_pages.map_or_else(String::new, |pages| format!(": {pages}"));
        return format!("These were shared at the fork unless they were made since{of_pages}.");
    }
    let young = at_fork.get("live_objects").or_zero() - at_fork.get("old_objects").or_zero();
    format!(
        "They were shared at the fork, when {} were young or garbage: the collector has aged or freed them since, and writes \
         to the slot of each{}.",
        counted(young, "object"),
        of_pages.map_or_else(String::new, |pages| format!(" ({pages})"))
    )
}
