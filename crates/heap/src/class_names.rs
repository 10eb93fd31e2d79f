//! Names of classes, the names that objects of the VM have instead, as in the extension's histogram
//! (`ext/memintro/src/heap/classes.rs`), and all names by which users may select such objects.

use crate::kinds::Facts;
use crate::read::line::Type;

const SINGLETON: &str = "(singleton class)";
/// One that no `ObjectSpace.each_object` yields.
const HIDDEN_SINGLETON: &str = "(hidden singleton class)";
/// Before the name of the latter in a dump.
const HIDDEN: &[u8] = b"hidden ";
const INCLUDED: &str = "(included module)";
const ZOMBIE: &str = "(awaiting its finalizer)";
/// Before the name of a sort of the VM's objects.
const IMEMO: &str = "imemo_";

/// The sort and the label of a kind; for a class of one object, the name for such classes, and the owner.
pub(crate) fn sort_and_label<'a>(facts: &Facts<'a>) -> (&'a [u8], &'a [u8]) {
    match facts.label.strip_prefix(HIDDEN) {
        Some(label) if facts.singleton => (HIDDEN_SINGLETON.as_bytes(), label),
        _ if facts.singleton => (SINGLETON.as_bytes(), facts.label),
        _ if facts.sort.is_empty() => (facts.name, facts.label),
        _ => (facts.sort, facts.label),
    }
}

/// Whether a class with this sort is that of one object.
pub(crate) fn is_singleton(sort: &str) -> bool {
    sort == SINGLETON || sort == HIDDEN_SINGLETON
}

/// The name for objects of a type and a sort. `class` returns the name of their class, if they have one.
pub(crate) fn label(
    kind: Type,
    sort: &str,
    has_class: bool,
    class: impl FnOnce() -> Option<String>,
) -> String {
    match kind {
        Type::Class | Type::Module if !has_class => hidden(kind),
        Type::Imemo if sort.is_empty() => "imemo".to_string(),
        Type::Imemo => format!("{IMEMO}{sort}"),
        Type::Class if is_singleton(sort) => sort.to_string(),
        Type::Class => "Class".to_string(),
        Type::Module => "Module".to_string(),
        Type::Iclass => INCLUDED.to_string(),
        other => match class() {
            Some(name) => name,
            None if other == Type::Data && !sort.is_empty() => format!("({sort})"),
            None => hidden(other),
        },
    }
}

/// The name for objects without a class.
fn hidden(kind: Type) -> String {
    format!("(hidden T_{})", kind.name())
}

/// The name for objects of a class without a name; `above` is the name of the next named class above it.
pub(crate) fn anonymous(above: Option<&str>) -> String {
    above.map_or("(anonymous class)".to_string(), |above| format!("(anonymous class < {above})"))
}

/// Whether this name selects the objects: their type (`ARRAY`, `T_ARRAY`), their sort in the dump, a name
/// with an address in it, or a common name.
pub(crate) fn is_other_name(kind: Type, sort: &str, has_class: bool, asked: &str) -> bool {
    let name = kind.name();
    if kind != Type::Other && (asked == name || asked.strip_prefix("T_") == Some(name)) {
        return true;
    }
    match kind {
        Type::Imemo => inner(asked) == Some(sort),
        Type::Zombie => asked == ZOMBIE,
        Type::Class | Type::Module | Type::Iclass => false,
        Type::Data if !has_class && sort == asked => true,
        _ => !has_class && asked == hidden(kind),
    }
}

/// The name without an address, if it is that of a class below an anonymous one.
pub(crate) fn meant(asked: &str) -> String {
    without_addresses(asked)
}

fn inner(asked: &str) -> Option<&str> {
    asked.strip_prefix('(')?.strip_suffix(')')
}

/// `a Message`, `an Archive`
pub(crate) fn one(class: &str) -> String {
    let vowel = class.starts_with(['A', 'E', 'I', 'O', 'U', 'a', 'e', 'i', 'o']);
    format!("{} {class}", if vowel { "an" } else { "a" })
}

/// A class below an anonymous one is called `#<Class:0x…>::Name`. Without the address, all such classes have
/// one name, which is the same in each dump.
pub(crate) fn without_addresses(name: &str) -> String {
    if !name.starts_with("#<") {
        return name.to_string();
    }
    let mut pieces = name.split(":0x");
    let mut out = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        out.push_str(piece.trim_start_matches(|byte: char| byte.is_ascii_hexdigit()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_histogram() {
        let none = || None;
        let named = || Some("Message".to_string());
        let labels = [
            label(Type::Imemo, "env", false, none),
            label(Type::Class, SINGLETON, true, named),
            label(Type::Iclass, "", true, named),
            label(Type::Array, "", false, none),
            label(Type::Class, "", false, none),
            label(Type::Data, "VM/thread", false, none),
            label(Type::Data, "VM/thread", true, named),
            anonymous(Some("Struct")),
            without_addresses("#<Class:0x00007f12>::Part"),
        ];
        let expected = [
            "imemo_env",
            "(singleton class)",
            "(included module)",
            "(hidden T_ARRAY)",
            "(hidden T_CLASS)",
            "(VM/thread)",
            "Message",
            "(anonymous class < Struct)",
            "#<Class>::Part",
        ];
        assert_eq!(labels, expected);
    }

    #[test]
    fn objects_have_other_names_too() {
        let others = [
            (Type::Array, "", true, "ARRAY"),
            (Type::Array, "", true, "T_ARRAY"),
            (Type::Array, "", false, "(hidden T_ARRAY)"),
            (Type::Imemo, "callinfo", false, "(callinfo)"),
            (Type::Data, "VM/thread", false, "(hidden T_DATA)"),
            (Type::Zombie, "", true, "(awaiting its finalizer)"),
        ];
        for (kind, sort, has_class, asked) in others {
            assert!(is_other_name(kind, sort, has_class, asked), "{asked}");
        }
        for (kind, sort, has_class, asked) in [
            (Type::Array, "", true, "(hidden T_ARRAY)"),
            (Type::Array, "", true, "HASH"),
            (Type::Imemo, "callinfo", false, "(callcache)"),
        ] {
            assert!(!is_other_name(kind, sort, has_class, asked), "{asked}");
        }
    }
}
