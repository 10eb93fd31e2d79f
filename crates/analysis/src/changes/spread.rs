//! Where a kind of thing grew: at one place, in the files of one folder, or in many places.

use std::collections::HashMap;

use super::Change;

/// The share of the growth from which a place is named as its place.
const MOST: f64 = 0.5;
/// A folder is narrowed down while its content has at least this share.
const FOLDER: f64 = 0.8;
/// From this share on, it counts as all of the growth.
const NEARLY_ALL: f64 = 0.98;

/// What grew, most first.
pub(super) struct Spread<'a> {
    pub(super) grown: Vec<&'a Change>,
    whole: f64,
}

impl<'a> Spread<'a> {
    /// `total`: growth of all; a list that was cut short may come to less.
    pub(super) fn new(changes: impl Iterator<Item = &'a Change>, total: f64) -> Self {
        let mut grown: Vec<&Change> = changes.filter(|change| change.growth() > 0.0).collect();
        grown.sort_by(|one, other| other.growth().total_cmp(&one.growth()));
        let whole = total.max(grown.iter().map(|change| change.growth()).sum());
        Self { grown, whole }
    }

    /// The one place that has most of it.
    pub(super) fn place(&self) -> Option<&'a Change> {
        self.grown.first().copied().filter(|first| first.growth() >= self.whole * MOST)
    }

    /// How much of it that place has, in a word.
    pub(super) fn share(&self, place: &Change) -> &'static str {
        if self.grown.len() == 1 && place.growth() >= self.whole {
            "all"
        } else if place.growth() >= self.whole * NEARLY_ALL {
            "nearly all"
        } else {
            "most"
        }
    }

    /// The deepest folder that most of it is in, and what grew there. None: there is none with several, or one place has
    /// most.
    pub(super) fn folder(&self) -> Option<(&'a [u8], Vec<&'a Change>)> {
        if self.place().is_some() || self.grown.len() < 2 {
            return None;
        }
        let mut sums: HashMap<&[u8], f64> = HashMap::new();
        for change in &self.grown {
            for folder in folders(&change.name) {
                *sums.entry(folder).or_default() += change.growth();
            }
        }
        let (deepest, _) = sums
            .into_iter()
            .filter(|(_, growth)| *growth >= self.whole * FOLDER)
            .max_by_key(|(folder, _)| folder.len())?;
        let inside: Vec<&Change> =
            self.grown.iter().copied().filter(|change| change.name.starts_with(deepest)).collect();
        (inside.len() > 1).then_some((deepest, inside))
    }

    /// Whether nothing grew elsewhere.
    pub(super) fn all_in(&self, inside: &[&Change]) -> bool {
        inside.len() == self.grown.len()
            && inside.iter().map(|change| change.growth()).sum::<f64>() >= self.whole
    }
}

/// The folders of a name with a trailing slash, the deepest first; without the root folder, which says nothing.
fn folders(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = name.iter().enumerate().skip(1).rev().filter(|(_, byte)| **byte == b'/');
    ends.filter_map(|(at, _)| name.get(..=at))
}
