//! What a search for leaked blocks has found: groups of blocks, the objects that own them, and sentences about both.

mod anchor;
mod lines;
mod owners;
mod reading;
mod standing;
mod text;
mod verdict;

pub use anchor::{Anchor, UNTRACKED};
pub use lines::{Look, NO_SITE};
pub use reading::{Facts, read};

use crate::advice::Advice;
use crate::value::{Value, members};

/// The number of the layout of its JSON.
pub const LAYOUT: u32 = 1;
/// Less than this in all is what most programs have from their start.
const LITTLE: i64 = 64 << 10;
/// Call sites of blocks that something holds, those with most bytes.
pub const MOST_ANCHORED: usize = 50;

/// What a block can be found to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing points to it.
    Leaked,
    /// Only leaked blocks do.
    IndirectlyLeaked,
    /// Something did in one copy, or may.
    Undecided,
    /// Something does.
    #[default]
    Anchored,
    /// malloc has it free and keeps it.
    FreeButKept,
}

impl Verdict {
    /// All of them: their names, what sentences call them, and the titles of their tables.
    const ALL: [(Self, &'static str, &'static str, &'static str); 5] = [
        (Self::Leaked, "leaked", "leaked", "Leaked: nothing points to them"),
        (
            Self::IndirectlyLeaked,
            "indirectly_leaked",
            "indirectly leaked",
            "Indirectly leaked: only leaked ones do",
        ),
        (Self::Undecided, "undecided", "undecided", "Undecided"),
        (Self::Anchored, "anchored", "held", "Held: something points to them"),
        (Self::FreeButKept, "free_but_kept", "free but kept", "Free, but kept by malloc"),
    ];

    const fn entry(self) -> &'static (Self, &'static str, &'static str, &'static str) {
        let [leaked, indirectly, undecided, anchored, free] = &Self::ALL;
        match self {
            Self::Leaked => leaked,
            Self::IndirectlyLeaked => indirectly,
            Self::Undecided => undecided,
            Self::Anchored => anchored,
            Self::FreeButKept => free,
        }
    }

    fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|entry| entry.1 == name).map(|entry| entry.0)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.entry().1
    }
}

/// Blocks of one verdict, call site and size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// What they were found to be.
    pub verdict: Verdict,
    /// The call site; `None`: they were allocated while nothing was tracked.
    pub site: Option<String>,
    /// Bytes of each; `None`: several sizes.
    pub size: Option<i64>,
    /// Blocks.
    pub count: i64,
    /// Bytes of all.
    pub bytes: i64,
    /// Ages in collections of the youngest and the oldest, where they are known.
    pub ages: Option<(i64, i64)>,
    /// Of indirectly leaked blocks the leaked one, of anchored ones what holds most.
    pub held_by: Option<String>,
    /// Bytes of them that it holds.
    pub held_bytes: Option<i64>,
    /// The class of the objects that hold most, and how many objects.
    pub owner: Option<(String, i64)>,
    /// What holds most of the others, and their bytes.
    pub also_held: Option<(String, i64)>,
    /// What the first words of the first block look like, and its address.
    pub first_words: Option<(Vec<String>, String)>,
}

impl Group {
    fn to_value(&self) -> Value {
        let (owner, owners) = self.owner.clone().unzip();
        let (also, also_bytes) = self.also_held.clone().unzip();
        let (words, example) = self.first_words.clone().unzip();
        members([
            ("verdict", Value::name(self.verdict.name())),
            ("site", self.site.clone().into()),
            ("size", self.size.into()),
            ("count", self.count.into()),
            ("bytes", self.bytes.into()),
            ("youngest", self.ages.map(|ages| ages.0).into()),
            ("oldest", self.ages.map(|ages| ages.1).into()),
            ("held_by", self.held_by.clone().into()),
            ("held_bytes", self.held_bytes.into()),
            ("owner", owner.into()),
            ("owners", owners.into()),
            ("also_held_by", also.into()),
            ("also_held_bytes", also_bytes.into()),
            ("first_words", words.into()),
            ("example", example.into()),
        ])
    }

    /// As Ruby has it.
    #[must_use]
    pub fn of_value(value: &Value) -> Option<Self> {
        let text = |name| value.get(name).text().map(str::to_owned);
        let whole = |name| value.get(name).whole();
        let words = value.get("first_words");
        Some(Self {
            verdict: Verdict::find(value.get("verdict").text()?)?,
            site: text("site"),
            size: whole("size"),
            count: value.get("count").or_zero(),
            bytes: value.get("bytes").or_zero(),
            ages: whole("oldest").map(|oldest| (whole("youngest").unwrap_or(oldest), oldest)),
            held_by: text("held_by"),
            held_bytes: whole("held_bytes"),
            owner: text("owner").zip(whole("owners")),
            also_held: text("also_held_by").zip(whole("also_held_bytes")),
            first_words: (!words.is_null()).then(|| (words.texts(), text("example").unwrap_or_default())),
        })
    }
}

/// Call sites with their bytes.
pub type Sites = Vec<(String, i64)>;

/// Ruby objects of one class that own blocks, and those that did until garbage was collected.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Owner {
    class_name: String,
    objects: i64,
    blocks: i64,
    bytes: i64,
    silent_objects: i64,
    tracked_objects: i64,
    tracked_bytes: i64,
    sites: Sites,
    garbage_objects: i64,
    garbage_bytes: i64,
    silent_garbage_objects: i64,
    garbage_sites: Sites,
    library: Option<String>,
}

fn sites_value(sites: &[(String, i64)]) -> Value {
    let row = |(name, bytes): &(String, i64)| Value::List(vec![name.as_str().into(), (*bytes).into()]);
    sites.iter().map(row).collect::<Vec<_>>().into()
}

fn sites_of(value: &Value) -> Sites {
    let row = |row: &Value| {
        let [name, bytes] = row.items() else { return None };
        Some((name.text()?.to_owned(), bytes.whole()?))
    };
    value.items().iter().filter_map(row).collect()
}

impl Owner {
    fn to_value(&self) -> Value {
        members([
            ("class_name", self.class_name.as_str().into()),
            ("objects", self.objects.into()),
            ("blocks", self.blocks.into()),
            ("bytes", self.bytes.into()),
            ("silent_objects", self.silent_objects.into()),
            ("tracked_objects", self.tracked_objects.into()),
            ("tracked_bytes", self.tracked_bytes.into()),
            ("sites", sites_value(&self.sites)),
            ("garbage_objects", self.garbage_objects.into()),
            ("garbage_bytes", self.garbage_bytes.into()),
            ("silent_garbage_objects", self.silent_garbage_objects.into()),
            ("garbage_sites", sites_value(&self.garbage_sites)),
            ("library", self.library.clone().into()),
        ])
    }

    /// As Ruby has it.
    #[must_use]
    pub fn of_value(value: &Value) -> Self {
        let whole = |name| value.get(name).or_zero();
        Self {
            class_name: value.get("class_name").text().unwrap_or_default().to_owned(),
            objects: whole("objects"),
            blocks: whole("blocks"),
            bytes: whole("bytes"),
            silent_objects: whole("silent_objects"),
            tracked_objects: whole("tracked_objects"),
            tracked_bytes: whole("tracked_bytes"),
            sites: sites_of(value.get("sites")),
            garbage_objects: whole("garbage_objects"),
            garbage_bytes: whole("garbage_bytes"),
            silent_garbage_objects: whole("silent_garbage_objects"),
            garbage_sites: sites_of(value.get("garbage_sites")),
            library: value.get("library").text().map(str::to_owned),
        }
    }

    /// Whether Ruby does not know how large most of these objects are.
    fn is_silent(&self) -> bool {
        self.silent_objects > 0 && self.silent_objects * 2 >= self.objects
    }

    /// The same of those that were garbage.
    fn is_silent_garbage(&self) -> bool {
        self.silent_garbage_objects > 0 && self.silent_garbage_objects * 2 >= self.garbage_objects
    }
}

/// Blocks that nothing points to, and what holds the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leaks {
    /// Blocks and bytes of the first three verdicts.
    pub lost: [(i64, i64); 3],
    /// All blocks that were looked at.
    pub scanned: (i64, i64),
    /// Bytes that malloc has free and keeps, where that is known.
    pub free_bytes: Option<i64>,
    /// The allocator.
    pub allocator: String,
    /// Whether all chunks of glibc were judged, or tracked blocks alone.
    pub judges_chunks: bool,
    /// Whether lines are known: `off`, `full` or `sampled`.
    pub mode: String,
    /// How many copies were searched; 0: a core file was.
    pub copies: i64,
    /// Bytes that were searched, and the milliseconds that this took.
    pub searched: (i64, f64),
    /// Milliseconds for which Ruby stood still.
    pub pause_ms: f64,
    /// Whether garbage was collected before; `None`: a core file was searched.
    pub is_collected: Option<bool>,
    /// Sentences.
    pub verdict: Vec<String>,
    /// What could not be read.
    pub notes: Vec<String>,
    /// Objects that own blocks.
    pub owners: Vec<Owner>,
    /// Leaked ones first, the largest first, then those of the other verdicts.
    pub groups: Vec<Group>,
}

impl Leaks {
    /// As Ruby and JSON have it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let [leaked, indirect, undecided] = self.lost;
        members([
            ("leaked_blocks", leaked.0.into()),
            ("leaked_bytes", leaked.1.into()),
            ("indirectly_leaked_blocks", indirect.0.into()),
            ("indirectly_leaked_bytes", indirect.1.into()),
            ("undecided_blocks", undecided.0.into()),
            ("undecided_bytes", undecided.1.into()),
            ("scanned_blocks", self.scanned.0.into()),
            ("scanned_bytes", self.scanned.1.into()),
            ("free_bytes", self.free_bytes.into()),
            ("allocator", Value::name(&self.allocator)),
            ("basis", Value::name(if self.judges_chunks { "chunks" } else { "tracked" })),
            ("mode", Value::name(&self.mode)),
            ("copies", self.copies.into()),
            ("searched_bytes", self.searched.0.into()),
            ("search_ms", self.searched.1.into()),
            ("pause_ms", self.pause_ms.into()),
            ("garbage_collected", self.is_collected.into()),
            ("verdict", self.verdict.clone().into()),
            ("notes", self.notes.clone().into()),
            ("owners", self.owners.iter().map(Owner::to_value).collect::<Vec<_>>().into()),
            ("groups", self.groups.iter().map(Group::to_value).collect::<Vec<_>>().into()),
        ])
    }

    /// As JSON about this process.
    #[must_use]
    pub fn json(&self, pid: Option<u32>) -> String {
        let mut head = members([("memintro_leaks", LAYOUT.into()), ("pid", pid.into())]);
        if let (Value::Members(head), Value::Members(all)) = (&mut head, self.to_value()) {
            head.extend(all);
        }
        serde_json::to_string(&head).unwrap_or_default()
    }

    /// As Ruby has it.
    #[must_use]
    pub fn of_value(value: &Value) -> Self {
        let whole = |name: &str| value.get(name).or_zero();
        let float = |name| value.get(name).float().unwrap_or(0.0);
        let text = |name| value.get(name).text().unwrap_or_default().to_owned();
        let lost = |name: &str| (whole(&format!("{name}_blocks")), whole(&format!("{name}_bytes")));
        Self {
            lost: [lost("leaked"), lost("indirectly_leaked"), lost("undecided")],
            scanned: lost("scanned"),
            free_bytes: value.get("free_bytes").whole(),
            allocator: text("allocator"),
            judges_chunks: value.get("basis").text() == Some("chunks"),
            mode: text("mode"),
            copies: whole("copies"),
            searched: (whole("searched_bytes"), float("search_ms")),
            pause_ms: float("pause_ms"),
            is_collected: match value.get("garbage_collected") {
                Value::Bool(is_collected) => Some(*is_collected),
                _ => None,
            },
            verdict: value.get("verdict").texts(),
            notes: value.get("notes").texts(),
            owners: value.get("owners").items().iter().map(Owner::of_value).collect(),
            groups: value.get("groups").items().iter().filter_map(Group::of_value).collect(),
        }
    }

    /// With sentences about it. `rubys`: lines for whose leaked blocks Ruby itself asked.
    #[must_use]
    pub fn judged(self, rubys: &[String], advice: Advice, pid: u32) -> Self {
        Self { verdict: verdict::of(&self, rubys, advice, pid), ..self }
    }

    /// Whether what leaked is no more than what most programs lose at their start.
    fn is_little(&self) -> bool {
        let [leaked, indirect, _] = self.lost;
        leaked.1 + indirect.1 < LITTLE
    }

    fn of(&self, verdict: Verdict) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(move |group| group.verdict == verdict)
    }

    /// The verdicts in the order in which they are shown.
    fn by_weight(&self) -> [Verdict; 5] {
        let [leaked, indirect, undecided, anchored, free] = Verdict::ALL.map(|entry| entry.0);
        if self.is_little() {
            [anchored, leaked, indirect, undecided, free]
        } else {
            [leaked, indirect, undecided, anchored, free]
        }
    }
}

#[cfg(test)]
mod tests;
