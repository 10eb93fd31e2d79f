//! Yields rows to Ruby in slices, so that the block may let other threads run in between.

use magnus::{Error, IntoValue, Ruby, Value};

/// Rows of a slice. To make so many takes some milliseconds, as a walk does. With smaller slices, a program that
/// computes (and keeps the GVL for 100 ms each time) would keep the caller waiting for seconds.
const ROWS: usize = 2000;

/// Makes the rows and passes them to the block of the current method.
pub(super) fn yield_rows<T, R: IntoValue>(
    ruby: &Ruby,
    rows: &[T],
    make: impl Fn(&T) -> R,
) -> Result<(), Error> {
    yield_slices(ruby, rows, ROWS, make)
}

/// The same for rows of several figures each, one after the other in one array.
pub(super) fn yield_figures<const N: usize>(ruby: &Ruby, rows: &[[i64; N]]) -> Result<(), Error> {
    yield_slices(ruby, rows.as_flattened(), ROWS * N, |figure| *figure)
}

fn yield_slices<T, R: IntoValue>(
    ruby: &Ruby,
    rows: &[T],
    size: usize,
    make: impl Fn(&T) -> R,
) -> Result<(), Error> {
    for slice in rows.chunks(size) {
        let made = ruby.ary_new_capa(slice.len());
        for row in slice {
            made.push(make(row))?;
        }
        ruby.yield_value::<_, Value>(made)?;
    }
    Ok(())
}
