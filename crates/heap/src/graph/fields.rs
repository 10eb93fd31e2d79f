//! Since Ruby 4.0, objects other than plain ones have their instance variables in an internal object of their own, "fields". What
//! that refers to counts as references of the object itself, so that ways and holders name the object and the variable.

use super::Graph;
use crate::pages::NONE;

/// The sort of such internal objects.
const FIELDS: &str = "fields";

impl Graph {
    /// Makes references of fields those of their owners.
    pub(super) fn hand_over_fields(&mut self) {
        let is_fields: Vec<bool> =
            self.kinds.list.iter().map(|kind| self.kinds.texts.text(kind.sort) == FIELDS).collect();
        if !is_fields.contains(&true) {
            return;
        }
        let has_fields =
            |object: u32| is_fields.get(self.kind_of[object as usize] as usize).copied().unwrap_or(false);
        let all = 0..self.len() as u32;
        let owned: Vec<bool> = {
            let mut owned = vec![false; self.len()];
            let holders = all.clone().filter(|holder| !has_fields(*holder));
            for to in holders.flat_map(|holder| self.targets(holder)).filter(|to| **to != NONE) {
                owned[*to as usize] |= has_fields(*to);
            }
            owned
        };
        let (mut starts, mut targets) = (Vec::with_capacity(self.len()), Vec::new());
        targets.reserve_exact(self.targets.len());
        let mut names = Vec::with_capacity(self.names.len());
        let mut taken = vec![false; self.len()];
        for object in all {
            starts.push(targets.len() as u32);
            let mut add = |from: u32| {
                let range = self.range(from);
                targets.extend_from_slice(&self.targets[range.clone()]);
                names.extend_from_slice(self.names.get(range).unwrap_or_default());
            };
            // What no object has is told as it is.
            if owned[object as usize] {
                continue;
            }
            add(object);
            for to in self.targets(object) {
                if *to != NONE && owned[*to as usize] && !std::mem::replace(&mut taken[*to as usize], true) {
                    add(*to);
                }
            }
        }
        (self.starts, self.targets, self.names) = (starts, targets, names);
    }
}
