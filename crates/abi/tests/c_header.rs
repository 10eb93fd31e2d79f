//! The header for C agrees with the types here in every size, every offset and every named value.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use memintro_abi::*;

/// Lines of C that print figures, and the expected figures.
#[derive(Default)]
struct Lines {
    prints: String,
    expected: String,
}

impl Lines {
    fn add(&mut self, name: &str, expression: &str, value: i64) {
        writeln!(self.prints, "printf(\"{name} %lld\\n\", (long long)({expression}));").unwrap();
        writeln!(self.expected, "{name} {value}").unwrap();
    }
}

macro_rules! layout {
    ($all:ident, $c:literal, $rust:ident, $($field:ident),* $(,)?) => {
        $all.add($c, concat!("sizeof(", $c, ")"), size_of::<$rust>() as i64);
        $($all.add(
            concat!($c, ".", stringify!($field)),
            concat!("offsetof(", $c, ", ", stringify!($field), ")"),
            offset_of!($rust, $field) as i64,
        );)*
        // A new field must be added to this list and to the header.
        let _ = |value: $rust| { let $rust { $($field: _),* } = value; };
    };
}

#[test]
fn c_and_rust_agree() {
    let mut all = Lines::default();
    layouts(&mut all);
    for (name, value) in [
        ("VERSION", i64::from(VERSION)),
        ("OK", i64::from(Status::OK.0)),
        ("UNCHANGED", i64::from(Status::UNCHANGED.0)),
        ("SWITCHED", i64::from(Status::SWITCHED.0)),
        ("NO_MEMORY", i64::from(Status::NO_MEMORY.0)),
        ("NOT_SEEN", i64::from(Status::NOT_SEEN.0)),
        ("BUSY", i64::from(Status::BUSY.0)),
        ("FIGURES_LOST", i64::from(Status::FIGURES_LOST.0)),
        ("OFF", i64::from(Mode::OFF.0)),
        ("FULL", i64::from(Mode::FULL.0)),
        ("SAMPLED", i64::from(Mode::SAMPLED.0)),
        ("PRELOADED", i64::from(Origin::PRELOADED.0)),
        ("LOADED", i64::from(Origin::LOADED.0)),
        ("RUBY", i64::from(SiteKind::RUBY.0)),
        ("NATIVE", i64::from(SiteKind::NATIVE.0)),
        ("PSEUDO", i64::from(SiteKind::PSEUDO.0)),
        ("PATCHED", i64::from(SlotState::PATCHED.0)),
        ("FOREIGN", i64::from(SlotState::FOREIGN.0)),
        ("LOST", i64::from(SlotState::LOST.0)),
        ("MALFORMED", i64::from(SlotState::MALFORMED.0)),
        ("REFUSED", i64::from(SlotState::REFUSED.0)),
    ] {
        all.add(name, &format!("MEMINTRO_{name}"), value);
    }
    assert_eq!(answer_of_c(&all.prints), all.expected);
}

fn layouts(all: &mut Lines) {
    let names = START_SETTINGS.map(|setting| setting.name);
    all.add("options", "sizeof(memintro_start_options)", size_of::<StartOptions>() as i64);
    for (place, name) in names.iter().chain(&["seed"]).enumerate() {
        let offset = offset_of!(StartOptions, seed) - (names.len() - place) * size_of::<u64>();
        all.add(name, &format!("offsetof(memintro_start_options, {name})"), offset as i64);
    }
    layout!(all, "memintro_estimated", Estimated, value, variance, skew);
    let mut figures = |structure: &str, size: usize, fields: &[Field]| {
        all.add(structure, &format!("sizeof({structure})"), size as i64);
        for Field { name, offset, .. } in fields {
            all.add(
                &format!("{structure}.{name}"),
                &format!("offsetof({structure}, {name})"),
                *offset as i64,
            );
        }
    };
    figures("memintro_figures", size_of::<Figures>(), Figures::FIELDS);
    figures("memintro_blocks", size_of::<BlockFigures>(), BlockFigures::FIELDS);
    figures("memintro_objects", size_of::<ObjectFigures>(), ObjectFigures::FIELDS);
    layout!(
        all,
        "memintro_thread_figures",
        ThreadFigures,
        allocated_bytes,
        freed_bytes,
        allocations,
        frees,
        dropped,
        estimated,
        bytes_per_sample,
        blocks_per_sample,
    );
    layout!(
        all,
        "memintro_site",
        SiteRecord,
        id,
        kind,
        path,
        path_len,
        line,
        address,
        module_offset,
        module_build,
        blocks,
        old_blocks,
        old_bytes,
        objects,
        stack,
    );
    layout!(all, "memintro_block", BlockRecord, address, size, site, age, weight);
    layout!(all, "memintro_measure_figures", MeasureFigures, moment, owner, lost, thread, process);
    layout!(all, "memintro_measured_site", MeasuredSite, site, allocations, total_bytes);
    layout!(all, "memintro_birth", BirthRecord, size, site, owner);
    layout!(all, "memintro_frame", Frame, key, detail, generation, path, line);
    layout!(
        all,
        "memintro_vm_source",
        VmSource,
        frame,
        locate,
        generation,
        stack_key,
        stack,
        stack_end,
        words,
        stack_words
    );
    layout!(
        all,
        "memintro_vm_words",
        VmWords,
        stride,
        context,
        marks,
        mask,
        masks,
        collecting_mask,
        collecting,
        collections,
        thread,
        without_lock,
        last_marked,
    );
    layout!(
        all,
        "memintro_object_words",
        ObjectWords,
        object,
        slot_bytes,
        page_bytes,
        slot_bytes_at,
        otherwise
    );
    layout!(all, "memintro_marked_page", MarkedPage, begin, bytes, unit, marked, old);
    layout!(all, "memintro_stack_frame", StackFrame, path, label, path_len, label_len, line, frame, caller,);
    layout!(all, "memintro_own_range", OwnRange, start, end);
    layout!(
        all,
        "memintro_caller_sample",
        CallerSample,
        site,
        epoch,
        weight,
        serial,
        block,
        size,
        ip,
        sp,
        bp,
        len,
        kind,
        loads,
        reserved,
        stack,
    );
    layout!(all, "memintro_module", ModuleRecord, path, base, headers, header_count, loaded, unloaded);
    layout!(all, "memintro_patch", PatchEntry, module, symbol, slot, value, state);
    layout!(
        all,
        "memintro_hook_api",
        HookApi,
        version,
        size,
        origin,
        mode,
        start,
        stop,
        set_vm,
        untracked_enter,
        untracked_leave,
        mark,
        clear,
        reset,
        totals,
        thread_totals,
        sites,
        blocks,
        refresh,
        patches,
        allocator,
        dump,
        dump_at_exit,
        track_objects,
        object_made,
        object_freed,
        object_moved,
        objects_marked,
        objects,
        sample_bytes,
        options,
        measure_begin,
        measure_end,
        measure_close,
        stacks,
        stack_frame,
        own_memory,
        sample_objects,
        object_drawn,
        object_distance,
        at_one_instant,
        sample_callers,
        take_callers,
        is_live,
        modules,
        other_process,
        object_words,
        object_event,
        contents_to_lines,
    );
    layout!(all, "memintro_other_process", OtherProcess, moved, context, word, block, site);
    layout!(all, "memintro_other_state", OtherState, mode, is_lost, generation, knows_generation, changing);
}

/// Compiles the header with these lines, as C and as C++, and returns what they print.
fn answer_of_c(prints: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_header");
    std::fs::create_dir_all(&folder).unwrap();
    let source = format!(
        "#include <stdio.h>\n#include <stddef.h>\n#include \"memintro_hook_api.h\"\nint main(void) {{\n{prints}return 0;\n}}\n"
    );
    let answers = [("cc", "c"), ("c++", "cc")].map(|(compiler, ending)| {
        let (file, program) =
            (folder.join(format!("figures.{ending}")), folder.join(format!("figures-{ending}")));
        std::fs::write(&file, &source).unwrap();
        let built = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-I"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
            .arg("-o")
            .args([&program, &file])
            .output()
            .expect("a C compiler");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap()
    });
    assert_eq!(answers[0], answers[1]);
    answers[0].clone()
}
