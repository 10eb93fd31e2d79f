//! Passes the target Ruby's version and linker flags on to the compiler.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ruby = rb_sys_env::activate()?;
    // See src/built_for.rs.
    for (name, key) in [("MEMINTRO_RUBY", "RUBY_PROGRAM_VERSION"), ("MEMINTRO_RUBY_ABI", "RUBY_VERSION")] {
        let value =
            ruby.get_rbconfig_value(key).ok_or_else(|| format!("rbconfig.rb of this Ruby has no {key}"))?;
        println!("cargo:rustc-env={name}={value}");
    }
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
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
