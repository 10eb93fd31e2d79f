use super::*;

/// The records of figures for C.
pub(super) fn header() -> (&'static str, String) {
    let mut text = format!(
        "/* Made by `rake figures` from crates/abi/src/lists.rs. */\n\
         #ifndef MEMINTRO_FIGURES_H\n#define MEMINTRO_FIGURES_H\n\n#include <stdint.h>\n\n\
         enum {{ MEMINTRO_VERSION = {VERSION} }};\n\n\
         typedef struct {{\n    uint64_t value;\n    double variance, skew;\n}} memintro_estimated;\n",
    );
    for (name, fields) in [
        ("memintro_figures", Figures::FIELDS),
        ("memintro_blocks", BlockFigures::FIELDS),
        ("memintro_objects", ObjectFigures::FIELDS),
    ] {
        text.push_str("\ntypedef struct {\n");
        for field in fields {
            writeln!(text, "    {} {};", field.c_type, field.name).unwrap();
        }
        writeln!(text, "}} {name};").unwrap();
    }
    text.push_str(&values());
    text.push_str("\n#endif\n");
    ("crates/abi/include/memintro_figures.h", text)
}

/// The totals without what is known of their errors.
fn values() -> String {
    let of = |field: &Field| if field.c_type == "uint64_t" { "" } else { ".value" };
    let mut text =
        String::from("\n/* The totals without what is known of their errors. */\ntypedef struct {\n");
    for field in Figures::FIELDS {
        writeln!(text, "    uint64_t {};", field.name).unwrap();
    }
    text.push_str("} memintro_values;\n\nstatic inline memintro_values memintro_values_of(const memintro_figures *all) {\n");
    text.push_str("    memintro_values values;\n");
    for field in Figures::FIELDS {
        writeln!(text, "    values.{0} = all->{0}{1};", field.name, of(field)).unwrap();
    }
    text.push_str("    return values;\n}\n");
    text
}
