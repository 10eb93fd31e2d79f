//! Has the linker lay side by side what runs together: see together.ld.

/// GNU's linker and LLVM's read such a file, for ELF; with others the order, which is a matter of memory only, is left out.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=together.ld");
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let reads_it = !["mold", "gold", "wild"].iter().any(|linker| flags.contains(linker));
    if reads_it && std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-link-arg-cdylib=-Wl,-T,{}/together.ld", std::env::var("CARGO_MANIFEST_DIR")?);
    }
    Ok(())
}
