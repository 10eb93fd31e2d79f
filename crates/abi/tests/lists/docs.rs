use super::*;

const PAGE: &str = "docs/api.md";
const BEGIN: &str = "<!-- figures: made by `rake figures` -->\n";
const END: &str = "<!-- /figures -->\n";

/// The page with the table of a call site's figures.
pub(super) fn page() -> (&'static str, String) {
    let page = std::fs::read_to_string(root().join(PAGE)).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("where the table begins");
    let (_, after) = rest.split_once(END).expect("where the table ends");
    let mut table = String::from("\n| figure of a call site | what it is |\n|---|---|\n");
    for figure in SITE_FIGURES {
        let doc = figure.doc.trim().replace("{Memintro.mark}", "`Memintro.mark`");
        writeln!(table, "| `{}` | {doc} |", figure.name).unwrap();
    }
    (PAGE, format!("{before}{BEGIN}{table}\n{END}{after}"))
}
