//! Growing lists in small steps: the usual doubling would leave up to half of the memory unused.

/// Adds a value; the list grows by an eighth when it is full. The allocator moves large lists without copying.
#[inline]
pub(crate) fn push<T>(list: &mut Vec<T>, value: T) {
    if list.len() == list.capacity() {
        more(list, 1);
    }
    list.push(value);
}

/// Makes room for so many more.
#[inline]
pub(crate) fn room<T>(list: &mut Vec<T>, count: usize) {
    if list.capacity() - list.len() < count {
        more(list, count);
    }
}

#[cold]
fn more<T>(list: &mut Vec<T>, count: usize) {
    list.reserve_exact(count.max(list.len() / 16).max(1024));
}
