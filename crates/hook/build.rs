//! Passes together.ld to the linker, which places functions that run together side by side.

/// Only GNU's and LLVM's linkers read this file, for ELF. Other linkers keep their own order, which costs
/// some memory.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=together.ld");
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let reads_it = !["mold", "gold", "wild"].iter().any(|linker| flags.contains(linker));
    if reads_it && std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-link-arg-cdylib=-Wl,-T,{}/together.ld", std::env::var("CARGO_MANIFEST_DIR")?);
    }
    Ok(())
}
