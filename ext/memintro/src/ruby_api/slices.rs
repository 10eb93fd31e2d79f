//! Rows for Ruby, some at a time: between two slices the block may let other threads have their turn.

use magnus::{Error, IntoValue, Ruby, Value};

/// Making so many takes some milliseconds, as a walk does. With fewer, a program that computes (which keeps each turn for
/// 100 ms) would have the asker wait for seconds.
const ROWS: usize = 2000;

/// Makes the rows and hands them to the block of the current method.
pub(super) fn yield_rows<T, R: IntoValue>(
    ruby: &Ruby,
    rows: &[T],
    make: impl Fn(&T) -> R,
) -> Result<(), Error> {
    for slice in rows.chunks(ROWS) {
        let made = ruby.ary_new_capa(slice.len());
        for row in slice {
            made.push(make(row))?;
        }
        ruby.yield_value::<_, Value>(made)?;
    }
    Ok(())
}
