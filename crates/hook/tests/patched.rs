//! Loads the built hook into running C programs. Each program tests one difficulty of entering a process or of
//! leaving it.
//!
//! The programs are in `programs/`. They make their own assertions with exact counts, and print what was wrong.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A folder for the files that one test builds.
struct Workshop(PathBuf);

impl Workshop {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("patched").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Compiles `source` to `output`; `flags` follow the source, as libraries must.
    fn build(&self, source: &str, output: &str, flags: &[&str]) -> &Self {
        let compiler = if source.ends_with(".cc") { "c++" } else { "cc" };
        let file = self.path(output);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let built = Command::new(compiler)
            .args(["-O1", "-g", "-Wall", "-Wextra", "-fno-builtin", "-I"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi/include"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source))
            .arg("-o")
            .arg(file)
            .args(flags)
            .current_dir(&self.0)
            .output()
            .expect("a C compiler");
        assert!(built.status.success(), "{source}: {}", String::from_utf8_lossy(&built.stderr));
        self
    }

    fn library(&self, source: &str, output: &str, flags: &[&str]) -> &Self {
        self.build(source, output, &[&["-shared", "-fPIC"], flags].concat())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.path(program));
        command.env("MEMINTRO_HOOK", hook());
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        succeed(self.command(program).args(arguments))
    }
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    output
}

/// The library that `MEMINTRO_HOOK` names, or else one that is built as these tests were: cargo does not build a
/// cdylib for the tests of its own package.
fn hook() -> PathBuf {
    static HOOK: OnceLock<PathBuf> = OnceLock::new();
    HOOK.get_or_init(|| std::env::var_os("MEMINTRO_HOOK").map_or_else(build_hook, PathBuf::from)).clone()
}

fn build_hook() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).expect("target/<profile>/deps/<test>");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "--package", env!("CARGO_PKG_NAME"), "--target-dir"]);
    cargo.arg(profile.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    succeed(&mut cargo);
    profile.join("libmemintro_hook.so")
}

const LAZY: &[&str] = &["-Wl,-z,lazy"];
const FULL_RELRO: &[&str] = &["-Wl,-z,relro,-z,now"];

#[test]
fn full_relro() {
    Workshop::new("relro").build("relro.c", "relro", FULL_RELRO).run("relro", &[]);
}

#[test]
fn a_lazily_bound_library() {
    Workshop::new("lazy")
        .library("lazy_lib.c", "liblazy.so", LAZY)
        .build("lazy.c", "lazy", &[])
        .run("lazy", &[]);
}

#[test]
fn a_program_at_a_fixed_address() {
    let shop = Workshop::new("no_pie");
    shop.library("no_pie_lib.c", "libno_pie.so", LAZY);
    let flags = ["-no-pie", "-fno-pie", "-L.", "-lno_pie", "-Wl,-rpath,$ORIGIN"];
    for (program, binding) in [("no_pie_lazy", "-Wl,-z,lazy"), ("no_pie_now", "-Wl,-z,relro,-z,now")] {
        shop.build("no_pie.c", program, &[&flags[..], &[binding]].concat()).run(program, &[]);
    }
}

#[test]
fn pointers_in_data() {
    Workshop::new("data")
        .library("data_lib.c", "libdata.so", &[])
        .build("data.c", "data", &[])
        .run("data", &[]);
}

#[test]
fn lost_slots() {
    Workshop::new("lost")
        .library("lazy_lib.c", "liblazy.so", LAZY)
        .build("lost.c", "lost", &[])
        .run("lost", &[]);
}

#[test]
fn a_library_that_is_unloaded() {
    let shop = Workshop::new("unload");
    shop.library("lazy_lib.c", "liblazy.so", LAZY).build("unload.c", "unload", &[]).run("unload", &[]);
}

#[test]
fn a_runpath_that_starts_at_the_caller() {
    let shop = Workshop::new("origin");
    shop.library("origin_inner.c", "plugins/inner/libinner.so", LAZY)
        .library(
            "origin_outer.c",
            "plugins/libouter.so",
            &["-Lplugins/inner", "-linner", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/inner"],
        )
        .library("origin_host.c", "plugins/libhost.so", &["-Wl,--enable-new-dtags,-rpath,$ORIGIN"])
        .build("origin.c", "origin", &[])
        .run("origin", &[]);
}

#[test]
fn a_malformed_library() {
    let shop = Workshop::new("malformed");
    shop.library("lazy_lib.c", "libmalformed.so", LAZY);
    let path = shop.path("libmalformed.so");
    let mut file = std::fs::read(&path).unwrap();
    // DT_SYMENT, the size of a symbol, 24: the loader does not look at it.
    let entry = [11_u64.to_le_bytes(), 24_u64.to_le_bytes()].concat();
    let at = file.windows(16).position(|window| window == entry).expect("DT_SYMENT");
    file[at + 8] = 25;
    std::fs::write(&path, file).unwrap();
    shop.build("malformed.c", "malformed", &[]).run("malformed", &[]);
}

#[test]
fn another_allocator() {
    let shop = Workshop::new("allocator");
    shop.library("allocator_lib.c", "liballocator.so", FULL_RELRO).library("lazy_lib.c", "liblazy.so", LAZY);
    shop.build("allocator.c", "allocator", &[]);
    succeed(shop.command("allocator").env("LD_PRELOAD", shop.path("liballocator.so")));
}

#[test]
fn cxx_that_is_loaded_later() {
    for (name, binding) in [("cxx_lazy", LAZY), ("cxx_now", FULL_RELRO)] {
        let shop = Workshop::new(name);
        shop.library("cxx_lib.cc", "libcxx.so", binding).build("cxx.c", "cxx", &[]).run("cxx", &[]);
    }
}

#[test]
fn cxx_that_comes_and_goes() {
    let shop = Workshop::new("cxx_storm");
    shop.library("cxx_lib.cc", "libcxx_lazy.so", LAZY).library("cxx_lib.cc", "libcxx_now.so", FULL_RELRO);
    shop.build("cxx_storm.c", "cxx_storm", &["-pthread"]).run("cxx_storm", &["200"]);
}

#[test]
fn libraries_that_are_loaded_meanwhile() {
    let shop = Workshop::new("loading");
    shop.library("lazy_lib.c", "liblazy.so", LAZY).library("full_lib.c", "libfull.so", FULL_RELRO);
    shop.build("loading.c", "loading", &["-pthread"]).run("loading", &["200"]);
}

#[test]
fn forks_while_another_thread_patches() {
    let shop = Workshop::new("forks");
    shop.library("lazy_lib.c", "liblazy.so", LAZY);
    shop.build("forks.c", "forks", &["-pthread"]).run("forks", &["40"]);
}

#[test]
fn a_hundred_rounds_with_four_threads() {
    Workshop::new("rounds").build("rounds.c", "rounds", &["-pthread"]).run("rounds", &["100"]);
}

#[test]
#[ignore = "two minutes without optimization"]
fn a_thousand_rounds_with_four_threads() {
    Workshop::new("more_rounds").build("rounds.c", "rounds", &["-pthread"]).run("rounds", &["1000"]);
}

/// The limit, of processor time, holds for the library as it is shipped. Without optimisation there is only a
/// rough limit. The cost of a module does not depend on the number of other modules.
#[test]
#[cfg(target_arch = "x86_64")]
fn three_hundred_modules_in_fifty_milliseconds() {
    let shop = Workshop::new("many");
    shop.build("many_lib.s", "libmany.so", &["-shared", "-nostdlib", "-Wl,-z,lazy"]);
    for index in 0..300 {
        std::fs::copy(shop.path("libmany.so"), shop.path(&format!("libmany{index}.so"))).unwrap();
    }
    let many = shop.build("many.c", "many", &[]);
    let best_us = |modules: &str| {
        let output = many.run("many", &[modules]);
        let text = String::from_utf8(output.stdout).unwrap();
        [0, 1, 2].map(|column| {
            let values = text.lines().filter_map(|line| line.split(' ').nth(column)?.parse::<u64>().ok());
            values.min().expect("five rounds")
        })
    };
    let ([few_start_us, few_stop_us, _], [start_us, stop_us, refresh_us]) = (best_us("75"), best_us("300"));
    println!("75 modules: start {few_start_us} us, stop {few_stop_us} us");
    println!("300 modules: start {start_us} us, stop {stop_us} us, refresh without changes {refresh_us} us");
    let limit_us = if cfg!(debug_assertions) { 1_000_000 } else { 50_000 };
    assert!(start_us < limit_us.min(8 * few_start_us), "start took {start_us} us");
    assert!(stop_us < limit_us.min(8 * few_stop_us), "stop took {stop_us} us");
    assert!(refresh_us < limit_us / 50, "a refresh with nothing to do took {refresh_us} us");
}
