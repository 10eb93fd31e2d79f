//! What was found as a text and as a page.

use std::io::{self, Write};

use super::{Group, LITTLE, Leaks, Owner, Verdict};
use crate::page::{Sheet, Table};
use crate::text::printable;
use crate::text::tables::dressed;
use crate::text::units::{bytes, count, counted};

/// Classes of owners that are shown.
const MOST_OWNERS: usize = 5;
const COLUMNS: [&str; 5] = ["bytes", "blocks", "size", "age in GCs", "call site"];

impl Group {
    /// What holds them, with the bytes where it is not all of them.
    #[must_use]
    pub fn holders(&self) -> Option<String> {
        let held_by = self.held_by.as_ref()?;
        let part = self.held_bytes.filter(|held| *held < self.bytes);
        let share = part.map_or_else(String::new, |held| format!(" ({} of it)", bytes(held)));
        // What holds less than a tenth of it is not worth a word.
        let other = self.also_held.as_ref().filter(|(_, held)| held * 10 >= self.bytes);
        let also = other.map_or_else(String::new, |(by, held)| format!(", also by {by} ({})", bytes(*held)));
        Some(format!("{held_by}{share}{also}"))
    }

    /// One line.
    #[must_use]
    pub fn text(&self) -> String {
        let part = |text: Option<String>| text.unwrap_or_default();
        let shown = |text: &String| printable(text.as_bytes());
        let ages = self.ages.map(|(youngest, oldest)| {
            let both =
                if youngest == oldest { oldest.to_string() } else { format!("{youngest} to {oldest}") };
            format!(" aged {both} GCs")
        });
        let words = self.first_words.as_ref().map(|(words, example)| {
            format!("; that at {} begins with {}", shown(example), shown(&words.join(", ")))
        });
        format!(
            "{}: {}{}{}{}{}",
            self.verdict.entry().2,
            self.blocks(),
            part(self.site.as_ref().map(|site| format!(" from {}", shown(site)))),
            part(ages),
            part(self.holders().map(|by| format!("; held by {}", shown(&by)))),
            part(words)
        )
    }

    fn cells(&self) -> Vec<String> {
        let ages = self.ages.map(|(youngest, oldest)| {
            if youngest == oldest { oldest.to_string() } else { format!("{youngest} to {oldest}") }
        });
        let unnamed = if self.verdict == Verdict::FreeButKept { "" } else { "(not tracked)" };
        let mut name = self.site.clone().unwrap_or_else(|| unnamed.to_owned());
        if let Some(by) = self.holders() {
            name = format!("{name}; held by {by}");
        }
        if let Some((words, _)) = &self.first_words {
            name = format!("{name}; begins with {}", words.join(", "));
        }
        let size = self.size.map(count).unwrap_or_default();
        vec![bytes(self.bytes), count(self.count), size, ages.unwrap_or_default(), name]
    }
}

impl Owner {
    /// One line.
    #[must_use]
    pub fn text(&self) -> String {
        let sites = self.sites.iter().take(3);
        let lines: Vec<String> = sites.map(|(site, held)| format!("{} from {site}", bytes(*held))).collect();
        let lines = if lines.is_empty() { String::new() } else { format!(" ({})", lines.join(", ")) };
        let silent = if self.is_silent() { "; their extension does not tell Ruby their size" } else { "" };
        let text = format!(
            "owned by {} of class {}: {}{lines}{silent}",
            counted(self.objects, "object"),
            self.class_name,
            bytes(self.bytes)
        );
        printable(text.as_bytes())
    }
}

impl Leaks {
    /// The owners of which a reader should know.
    fn weighty_owners(&self) -> impl Iterator<Item = &Owner> {
        let weight = |owner: &Owner| if owner.is_silent() { owner.bytes } else { owner.tracked_bytes };
        self.owners.iter().filter(move |owner| weight(owner) >= LITTLE).take(MOST_OWNERS)
    }

    /// Without all but so many groups of each verdict, in the order in which they are shown.
    #[must_use]
    pub fn chosen(&self, top: Option<usize>) -> Self {
        let groups =
            self.by_weight().into_iter().flat_map(|verdict| self.of(verdict).take(top.unwrap_or(usize::MAX)));
        Self { groups: groups.cloned().collect(), ..self.clone() }
    }

    /// What owns most of what is held, and a line for each call site and size. What leaked comes first, unless it is little.
    #[must_use]
    pub fn summary(&self, top: Option<usize>) -> String {
        let mut lines: Vec<String> = self.weighty_owners().map(Owner::text).collect();
        for verdict in self.by_weight() {
            let mut rows: Vec<&Group> = self.of(verdict).collect();
            if verdict == Verdict::Anchored {
                // What came while memintro tracked.
                rows.sort_by_key(|group| group.site.is_none());
            }
            let (shown, rest) = rows.split_at(top.unwrap_or(usize::MAX).min(rows.len()));
            lines.extend(shown.iter().map(|group| group.text()));
            if !rest.is_empty() {
                lines.push(format!(
                    "{} more blocks in {}, {}",
                    count(rest.iter().map(|group| group.count).sum()),
                    counted(rest.len() as i64, "group"),
                    bytes(rest.iter().map(|group| group.bytes).sum())
                ));
            }
        }
        lines.join("\n")
    }

    /// The sentences, and the groups.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = self.sentences();
        let summary = self.summary(Some(20));
        if !summary.is_empty() {
            lines.extend([String::new(), summary]);
        }
        lines.extend(self.note_lines());
        lines.join("\n")
    }

    /// The report of the command.
    #[must_use]
    pub fn report(&self, top: Option<usize>, colour: bool) -> String {
        let mut lines = self.sentences();
        if let Some(first) = lines.first_mut() {
            *first = dressed(colour, "1", first);
        }
        lines.extend([String::new(), self.summary(top)]);
        lines.extend(self.note_lines());
        lines.extend([String::new(), self.facts(), String::new()]);
        lines.join("\n")
    }

    fn sentences(&self) -> Vec<String> {
        self.verdict.iter().map(|sentence| printable(sentence.as_bytes())).collect()
    }

    fn note_lines(&self) -> Vec<String> {
        let notes = self.notes.iter().map(|note| format!("Note: {}.", printable(note.as_bytes())));
        let before = (!self.notes.is_empty()).then(String::new);
        before.into_iter().chain(notes).collect()
    }

    fn facts(&self) -> String {
        let looked = format!(
            "{} ({}) looked at, {} searched in {:?} ms in ",
            counted(self.scanned.0, "block"),
            bytes(self.scanned.1),
            bytes(self.searched.0),
            self.searched.1
        );
        let copies = match self.copies {
            0 => return looked + "a core file",
            1 => "a copy".to_owned(),
            copies => format!("{copies} copies"),
        };
        format!("{looked}{copies} of the process, which stood still for {:?} ms", self.pause_ms)
    }

    /// A page about a process that is called so.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_page(&self, out: &mut impl Write, name: &str, top: Option<usize>) -> io::Result<()> {
        let table = |verdict: Verdict| {
            let rows: Vec<_> = self.of(verdict).take(top.unwrap_or(usize::MAX)).map(Group::cells).collect();
            (!rows.is_empty()).then_some(Table { title: verdict.entry().3, heads: &COLUMNS, rows })
        };
        let tables: Vec<Table<'_>> = self.by_weight().into_iter().filter_map(table).collect();
        Sheet {
            heading: &format!("Leaks of {name}"),
            facts: &[self.facts()],
            verdict: &self.verdict,
            notes: &self.notes,
            tables: &tables,
            areas: None,
        }
        .write(out)
    }

    /// Whether little leaked, the order of the verdicts, and the places of the owners of which a reader should know.
    #[must_use]
    pub fn view(&self) -> (bool, Vec<&'static str>, Vec<usize>) {
        let places = self
            .weighty_owners()
            .filter_map(|one| self.owners.iter().position(|owner| std::ptr::eq(one, owner)));
        (self.is_little(), self.by_weight().iter().map(|verdict| verdict.name()).collect(), places.collect())
    }
}
