//! Passes the target Ruby's version and linker flags on to the compiler.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _ = rb_sys_env::activate()?;
    // See src/lookup/stand_ins.rs.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        for (name, stand_in) in [
            ("ruby_thread_has_gvl_p", "memintro_thread_has_gvl"),
            ("ruby_native_thread_p", "memintro_is_ruby_thread"),
        ] {
            println!("cargo:rustc-link-arg-cdylib=-Wl,--defsym={name}={stand_in}");
        }
    }
    Ok(())
}
