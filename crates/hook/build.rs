//! Has the linker put together what runs in every call of malloc: see together.ld.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=together.ld");
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    // GNU's linker and LLVM's read such a file, for ELF; the order is a matter of memory only.
    let reads_it = !["mold", "gold", "wild"].iter().any(|linker| flags.contains(linker));
    if reads_it && std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-link-arg-cdylib=-Wl,-T,{}/together.ld", std::env::var("CARGO_MANIFEST_DIR")?);
    }
    Ok(())
}
