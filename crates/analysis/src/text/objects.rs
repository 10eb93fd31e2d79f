//! Objects of Ruby's heap, and what holds them, in a line each.

use super::units::bytes;
use crate::value::Value;

/// Such as `17.5 MiB retained (40 bytes of its own): Hash, held by Cache::STORE`.
#[must_use]
pub fn large_object(object: &Value) -> String {
    let text = |name| object.get(name).text();
    let class = text("class_name").unwrap_or_default();
    let what = match text("name") {
        Some(name) if matches!(class, "Class" | "Module") => format!("{} {name}", class.to_lowercase()),
        name => name.unwrap_or(class).to_owned(),
    };
    let at = text("at").map_or_else(String::new, |at| format!(" at {at}"));
    let own = bytes(object.get("bytes").or_zero());
    let sizes = match object.get("retained_bytes").whole() {
        Some(retained) => format!("{} retained ({own} of its own)", bytes(retained)),
        None => own,
    };
    format!("{sizes}: {what}{at}, held by {}", text("held_by").unwrap_or_default())
}

/// Such as `vm: $name → Archive 0x7f00`.
#[must_use]
pub fn held_value(value: &Value) -> String {
    let text = |name| value.get(name).text();
    format!(
        "{}: {} → {} {}",
        text("holder").unwrap_or_default(),
        text("name").unwrap_or("(internal)"),
        text("class_name").unwrap_or_default(),
        text("address").unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::members;

    #[test]
    fn says_what_an_object_retains() {
        let object = |class: &str, name: Value, retained: Value| {
            large_object(&members([
                ("class_name", class.into()),
                ("name", name),
                ("bytes", 40_u64.into()),
                ("retained_bytes", retained),
                ("held_by", "Cache::STORE".into()),
                ("at", Value::Null),
            ]))
        };
        assert_eq!(
            object("Hash", Value::Null, (35_u64 << 19).into()),
            "17.5 MiB retained (40 B of its own): Hash, held by Cache::STORE"
        );
        assert_eq!(object("Class", "Cache".into(), Value::Null), "40 B: class Cache, held by Cache::STORE");
    }
}
