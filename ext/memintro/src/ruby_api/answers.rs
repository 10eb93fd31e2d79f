//! The answers of the control socket, by their one definition in [`memintro_analysis::answers`]: what sends one picks its
//! fields by that, and what gets one has it checked.

use super::json::OfRuby;
use super::ractor_safe::ractor_safe;
use super::values;
use magnus::{Error, RArray, RHash, RModule, RString, Ruby, Value, function, prelude::*};
use memintro_analysis::answers::{self, COMMANDS, Command, Header, Kind, LONGEST_TEXT, NoHeader};
use memintro_analysis::json::Bytes;

pub(crate) fn init(native: RModule) -> Result<(), Error> {
    native.const_set("LONGEST_TEXT", LONGEST_TEXT)?;
    ractor_safe(|| {
        native.define_singleton_method("commands", function!(commands, 0))?;
        native.define_singleton_method("write_answer", function!(write, 2))?;
        native.define_singleton_method("read_answer", function!(read, 3))?;
        native.define_singleton_method("read_header", function!(read_header, 2))?;
        native.define_singleton_method("snapshot_head", function!(snapshot_head, 1))
    })
}

/// Of each command its name, what it answers, the most bytes of that, whether it is brief, and the fields, as they
/// are in docs/protocol.md.
type Listed = (&'static str, &'static str, u64, bool, Vec<String>);

fn commands(ruby: &Ruby) -> RArray {
    let field = |field: &answers::Field| {
        let mark = if field.is_optional { "?" } else { "" };
        format!("{}{mark}", field.name)
    };
    ruby.ary_from_iter(COMMANDS.iter().map(|command| -> Listed {
        let fields = command.kind.fields().iter().map(field).collect();
        (command.name, command.about, command.bytes, command.is_brief(), fields)
    }))
}

fn known(ruby: &Ruby, name: &str) -> Result<&'static Command, Error> {
    answers::command(name)
        .ok_or_else(|| Error::new(ruby.exception_arg_error(), format!("there is no command {name:?}")))
}

fn copied(text: RString) -> Vec<u8> {
    // SAFETY: copied at once.
    unsafe { text.as_slice() }.to_vec()
}

fn wrong(ruby: &Ruby, message: String) -> Error {
    Error::new(ruby.exception_arg_error(), message)
}

/// The answer of this process to a command, with the fields that it has.
///
/// # Errors
/// ArgumentError names the first field that is wrong.
fn read(ruby: &Ruby, name: String, text: RString, pid: u64) -> Result<Value, Error> {
    let kind = &known(ruby, &name)?.kind;
    let answer = answers::read(&copied(text), kind, "the answer", &OfRuby(ruby))
        .map_err(|error| wrong(ruby, error.to_string()))?;
    if let Some(said) = RHash::try_convert(answer)?.lookup::<_, Option<u64>>("pid")? {
        answers::check_pid(said, pid).map_err(|error| wrong(ruby, error.to_string()))?;
    }
    Ok(answer)
}

/// The line before an answer of at most so many bytes; nil if it is of another protocol.
///
/// # Errors
/// ArgumentError names the first field that is wrong.
fn read_header(ruby: &Ruby, line: RString, most: u64) -> Result<Option<Value>, Error> {
    match answers::header(&copied(line), most, &OfRuby(ruby)) {
        Ok(Header::Accepted(header, _) | Header::Refused(header)) => Ok(Some(header)),
        Err(NoHeader::Strange) => Ok(None),
        Err(NoHeader::Wrong(message)) => Err(wrong(ruby, message)),
    }
}

/// The layout of a snapshot as the text has it, nil if it has none; and whether the text has call sites.
///
/// # Errors
/// ArgumentError: it is not JSON.
fn snapshot_head(ruby: &Ruby, text: RString) -> Result<(Option<String>, bool), Error> {
    answers::head(&copied(text)).map_err(|error| wrong(ruby, error.to_string()))
}

/// The answer to a command as a line of JSON: the fields of the command, from a Hash or from what `to_h` gives.
///
/// # Errors
/// KeyError: a field is missing.
fn write(ruby: &Ruby, name: String, value: Value) -> Result<String, Error> {
    let mut out = String::new();
    append(ruby, &mut out, &known(ruby, &name)?.kind, value)?;
    out.push('\n');
    Ok(out)
}

fn append(ruby: &Ruby, out: &mut String, kind: &Kind, value: Value) -> Result<(), Error> {
    match kind {
        _ if value.is_nil() => values::append(out, value, Bytes::Shown),
        Kind::Object(fields, _) if !fields.is_empty() => {
            let hash = match RHash::from_value(value) {
                Some(hash) => hash,
                None => value.funcall("to_h", ())?,
            };
            out.push('{');
            let mut between = "";
            for field in fields {
                match hash.get(ruby.to_symbol(&*field.name)) {
                    Some(value) if field.is_optional || !value.is_nil() => {
                        out.push_str(&format!("{between}\"{}\":", field.name));
                        append(ruby, out, &field.kind, value)?;
                        between = ",";
                    }
                    None if field.is_optional => {}
                    _ => {
                        let message = format!("an answer has no {}: {}", field.name, value.inspect());
                        return Err(Error::new(ruby.exception_key_error(), message));
                    }
                }
            }
            out.push('}');
            Ok(())
        }
        Kind::List(kind, _) => {
            let list: RArray = value.funcall("to_a", ())?;
            out.push('[');
            for index in 0..list.len() {
                if index > 0 {
                    out.push(',');
                }
                append(ruby, out, kind, list.entry(index.cast_signed())?)?;
            }
            out.push(']');
            Ok(())
        }
        _ => values::append(out, value, Bytes::Shown),
    }
}
