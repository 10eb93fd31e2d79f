//! Has the linker put together what runs in every call of malloc: see together.ld.
mod together;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(together::put_together()?)
}
