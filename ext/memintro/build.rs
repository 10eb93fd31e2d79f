//! Passes the target Ruby's version and linker flags on to the compiler.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _ = rb_sys_env::activate()?;
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        put_together()?;
        // See src/lookup/stand_ins.rs.
        for (name, stand_in) in [
            ("ruby_thread_has_gvl_p", "memintro_thread_has_gvl"),
            ("ruby_native_thread_p", "memintro_is_ruby_thread"),
        ] {
            println!("cargo:rustc-link-arg-cdylib=-Wl,--defsym={name}={stand_in}");
        }
    }
    Ok(())
}

/// As in crates/hook/build.rs.
fn put_together() -> Result<(), std::env::VarError> {
    println!("cargo:rerun-if-changed=together.ld");
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    if !["mold", "gold", "wild"].iter().any(|linker| flags.contains(linker)) {
        println!("cargo:rustc-link-arg-cdylib=-Wl,-T,{}/together.ld", std::env::var("CARGO_MANIFEST_DIR")?);
    }
    Ok(())
}
