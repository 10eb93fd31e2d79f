use super::*;

/// The lists for Ruby, and the readers of figures that a row holds.
pub(super) fn lists() -> (&'static str, String) {
    let mut text = String::from(
        "# frozen_string_literal: true\n\n\
         # Made by `rake figures` from crates/abi/src/lists.rs.\nmodule Memintro\n  \
         # The lists of figures: for each its name, how it adds up, its unit, its column in tables with its place, and the\n  \
         # heading of that column. {Figures} reads them.\n  # @api private\n  module FigureLists\n",
    );
    for (name, list) in [("SITE", SITE_FIGURES), ("OBJECTS", OBJECT_FIGURES), ("TOTALS", TOTAL_FIGURES)] {
        writeln!(text, "    {name} = [").unwrap();
        let rows: Vec<String> = list.iter().map(row).collect();
        writeln!(text, "{}\n    ].each(&:freeze).freeze", rows.join(",\n")).unwrap();
    }
    text.push_str("    # The rows of an {Account}, and what each is a part of.\n    ACCOUNT = {\n");
    let rows: Vec<String> = AccountRow::ALL.iter().map(account_row).collect();
    writeln!(text, "{}\n    }}.freeze", rows.join(",\n")).unwrap();
    text.push_str("\n    # Readers of the figures that a row of {CallSite} holds.\n    module Readers\n");
    let readers: Vec<String> = counted().map(|(figure, column)| reader(figure, "@row", column)).collect();
    write!(text, "{}    end\n\n", readers.join("\n")).unwrap();
    text.push_str("    # Readers of the figures that {Totals} hold.\n    module TotalReaders\n");
    let with = |adds: Adds| TOTAL_FIGURES.iter().filter(move |figure| figure.adds == adds);
    let held = with(Adds::Sum).chain(with(Adds::Exact)).enumerate();
    let readers: Vec<String> = held.map(|(place, figure)| reader(figure, "@figures", place)).collect();
    write!(text, "{}    end\n  end\nend\n", readers.join("\n")).unwrap();
    ("lib/memintro/support/figure_lists.rb", text)
}

fn account_row(row: &AccountRow) -> String {
    format!("      {}: :{}", row.name(), snake(&format!("{:?}", row.part())))
}

fn row(figure: &Figure) -> String {
    let Figure { name, heading, .. } = figure;
    let symbol = |value: String| format!(":{}", snake(&value));
    let (column, place) = match figure.column {
        Column::Always(place) => (":always", place.to_string()),
        Column::Objects(place) => (":objects", place.to_string()),
        Column::Sorted => (":sorted", "nil".to_owned()),
        Column::Never => ("nil", "nil".to_owned()),
    };
    let (adds, unit) = (symbol(format!("{:?}", figure.adds)), symbol(format!("{:?}", figure.unit)));
    format!("      [:{name}, {adds}, {unit}, {column}, {place}, {heading:?}]")
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// The figures that rows hold, with their columns: sums, then maxima, behind id, kind, name and line.
pub(super) fn counted() -> impl Iterator<Item = (&'static Figure, usize)> {
    let with = |adds: Adds| SITE_FIGURES.iter().filter(move |figure| figure.adds == adds);
    with(Adds::Sum).chain(with(Adds::Max)).zip(4..)
}

/// A method with its documentation, in lines of at most 120 characters.
fn reader(figure: &Figure, list: &str, place: usize) -> String {
    let mut text = String::from("      # @return [Integer]");
    let mut width = text.len();
    for word in figure.doc.split_whitespace() {
        if width + 1 + word.len() > 118 {
            text.push_str("\n      #  ");
            width = "      #  ".len();
        }
        write!(text, " {word}").unwrap();
        width += 1 + word.len();
    }
    writeln!(text, "\n      def {} = {list}[{place}]", figure.name).unwrap();
    text
}

/// The signatures of figures.
pub(super) fn signatures() -> (&'static str, String) {
    let sortable: Vec<_> = SITE_FIGURES.iter().filter(|figure| figure.is_sortable()).collect();
    let names: Vec<_> = sortable.iter().map(|figure| format!(":{}", figure.name)).collect();
    let rows: Vec<_> = AccountRow::ALL.iter().map(|row| format!(":{}", row.name())).collect();
    let mut text = format!(
        "# Made by `rake figures` from crates/abi/src/lists.rs.\nmodule Memintro\n  type figure = {}\n  \
         type account_row = {}\n\n  class CallSite\n",
        names.join(" | "),
        rows.join(" | ")
    );
    for figure in SITE_FIGURES {
        let class = match (figure.unit, figure.adds) {
            (Unit::MeanAge, _) => "Float",
            (_, Adds::Old) => "Integer?",
            _ => "Integer",
        };
        writeln!(text, "    def {}: () -> {class}", figure.name).unwrap();
    }
    for figure in sortable.iter().filter(|figure| figure.is_estimated()) {
        writeln!(text, "    def {}_standard_error: () -> Float", figure.name).unwrap();
    }
    text.push_str("  end\n\n  class Totals\n");
    let totals = || TOTAL_FIGURES.iter().filter(|figure| figure.adds != Adds::State);
    for figure in totals() {
        writeln!(text, "    def {}: () -> Integer", figure.name).unwrap();
    }
    for figure in totals().filter(|figure| figure.is_estimated()) {
        writeln!(text, "    def {}_standard_error: () -> Float", figure.name).unwrap();
    }
    text.push_str("  end\nend\n");
    ("sig/memintro/figures.rbs", text)
}
