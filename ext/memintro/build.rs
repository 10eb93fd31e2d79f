//! Passes the target Ruby's version and linker flags on to the compiler.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _ = rb_sys_env::activate()?;
    Ok(())
}
