//! `memintro-tool valgrind-xml FILE`: reads the XML that Valgrind writes, and prints its errors as JSON.
//!
//! The file is untrusted: a test that crashes truncates it, and tests may print into it. It is read as a
//! stream, and everything in it is bounded. Entities are not expanded, but for the five that XML has itself.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::{Map, Value, json};

use crate::plot::write_out;

/// Most nested elements.
const DEEPEST: usize = 32;
/// Errors that are read.
const MOST_ERRORS: usize = 20_000;
/// Frames of one stack, and characters of one text.
const MOST_FRAMES: usize = 512;
const MOST_TEXT: usize = 16 << 10;
/// A longer tag or text is no XML of Valgrind's.
const MOST_EVENT: usize = 1 << 20;

/// Prints `{"whole": …, "errors": […]}`.
pub fn run(arguments: &[std::ffi::OsString]) -> Result<(), String> {
    let [path] = arguments else {
        return Err("memintro-tool valgrind-xml FILE: wrong arguments".to_string());
    };
    let path = Path::new(path);
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let answer = read(BufReader::new(file)).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut text = answer.to_string();
    text.push('\n');
    write_out(text.as_bytes())
}

/// The error that is being read.
#[derive(Default)]
struct Found {
    kind: String,
    what: String,
    bytes: u64,
    blocks: u64,
    /// The first stack: where it happened, or where the leaked block was allocated.
    frames: Vec<Value>,
    frame: Map<String, Value>,
    stacks: usize,
}

impl Found {
    fn done(self) -> Value {
        json!({
            "kind": self.kind, "what": self.what, "bytes": self.bytes, "blocks": self.blocks.max(1), "frames": self.frames,
        })
    }

    /// The text of an element, by its path below `error`.
    fn text(&mut self, path: &[String], text: &str) {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        match names.as_slice() {
            ["kind"] => self.kind = text.to_string(),
            ["what"] | ["xwhat", "text"] => self.what = text.to_string(),
            ["xwhat", "leakedbytes"] => self.bytes = text.parse().unwrap_or(0),
            ["xwhat", "leakedblocks"] => self.blocks = text.parse().unwrap_or(0),
            ["stack", "frame", name @ ("fn" | "obj" | "dir" | "file")] if self.stacks == 1 => {
                self.frame.insert((*name).to_string(), Value::from(text));
            }
            ["stack", "frame", "line"] if self.stacks == 1 => {
                self.frame.insert("line".to_string(), text.parse::<u32>().map_or(Value::Null, Value::from));
            }
            _ => {}
        }
    }
}

/// Reads a stream. Complete errors of a truncated stream are kept.
fn read(mut input: impl BufRead) -> Result<Value, String> {
    let first = input.fill_buf().map_err(|error| error.to_string())?;
    if first.is_empty() {
        return Ok(json!({ "whole": false, "errors": [] }));
    }
    let mut reader = Reader::from_reader(input);
    let mut buffer = Vec::new();
    let mut path: Vec<String> = Vec::new();
    let mut text = String::new();
    let mut errors: Vec<Value> = Vec::new();
    let mut found: Option<Found> = None;
    let (mut is_valgrind, mut is_whole) = (false, false);
    loop {
        buffer.clear();
        let event = match reader.read_event_into(&mut buffer) {
            Ok(event) => event,
            // A truncated document, or one into which other text was written.
            Err(error) if is_valgrind => {
                let _ = error;
                break;
            }
            Err(error) => return Err(format!("this is no XML: {error}")),
        };
        match event {
            Event::Eof => break,
            Event::Start(tag) => {
                if path.len() >= DEEPEST {
                    return Err(format!(
                        "more than {DEEPEST} elements within each other: this is not from Valgrind"
                    ));
                }
                let name: String = String::from_utf8_lossy(tag.name().as_ref()).chars().take(64).collect();
                if path.is_empty() {
                    if name != "valgrindoutput" {
                        return Err(format!(
                            "it begins with <{name}>, and Valgrind's output with <valgrindoutput>"
                        ));
                    }
                    is_valgrind = true;
                }
                if path.len() == 1 && name == "error" {
                    found = Some(Found::default());
                }
                path.push(name);
                if let Some(found) = &mut found
                    && path.len() == 3
                    && path.get(2).is_some_and(|name| name == "stack")
                {
                    found.stacks += 1;
                }
                text.clear();
            }
            Event::Text(piece) if text.len() < MOST_TEXT => {
                if piece.len() > MOST_EVENT {
                    return Err("a text of more than a MiB: this is not from Valgrind".to_string());
                }
                let piece = piece
                    .unescape()
                    .map_or_else(|_| String::from_utf8_lossy(&piece).into_owned(), Into::into);
                text.extend(piece.chars().take(MOST_TEXT));
            }
            Event::End(_) => {
                let below = path.get(2..).unwrap_or_default();
                if let Some(found) = &mut found {
                    if !text.is_empty() {
                        found.text(below, &text);
                    }
                    if below.len() == 2 && below.iter().eq(["stack", "frame"]) && found.stacks == 1 {
                        let frame = std::mem::take(&mut found.frame);
                        if found.frames.len() < MOST_FRAMES {
                            found.frames.push(Value::Object(frame));
                        }
                    }
                }
                if path.len() == 2
                    && let Some(found) = found.take()
                    && errors.len() < MOST_ERRORS
                {
                    errors.push(found.done());
                }
                text.clear();
                path.pop();
                if path.is_empty() {
                    is_whole = true;
                    break;
                }
            }
            _ => {}
        }
    }
    if !is_valgrind {
        return Err("this is no output of Valgrind's".to_string());
    }
    Ok(json!({ "whole": is_whole, "errors": errors }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: &str = "<?xml version=\"1.0\"?>\n<valgrindoutput><protocolversion>4</protocolversion>\
        <error><unique>0x1</unique><kind>InvalidRead</kind><what>Invalid read of size 4</what>\
        <stack><frame><ip>0x1</ip><obj>/a/thing.so</obj><fn>read&lt;int&gt;</fn><dir>/src</dir><file>thing.c</file>\
        <line>12</line></frame><frame><ip>0x2</ip></frame></stack><auxwhat>Address is freed</auxwhat>\
        <stack><frame><fn>free</fn></frame></stack></error>\
        <error><kind>Leak_DefinitelyLost</kind><xwhat><text>64 bytes</text><leakedbytes>64</leakedbytes>\
        <leakedblocks>2</leakedblocks></xwhat><stack><frame><fn>malloc</fn></frame></stack></error>\
        </valgrindoutput>\n";

    fn told(text: &[u8]) -> Result<Value, String> {
        read(text)
    }

    #[test]
    fn errors_have_their_first_stack_and_sums() {
        let answer = told(ONE.as_bytes()).unwrap();
        assert_eq!(
            answer,
            json!({ "whole": true, "errors": [
                { "kind": "InvalidRead", "what": "Invalid read of size 4", "bytes": 0, "blocks": 1, "frames": [
                    { "obj": "/a/thing.so", "fn": "read<int>", "dir": "/src", "file": "thing.c", "line": 12 }, {} ] },
                { "kind": "Leak_DefinitelyLost", "what": "64 bytes", "bytes": 64, "blocks": 2,
                  "frames": [{ "fn": "malloc" }] } ] })
        );
    }

    #[test]
    fn what_is_no_output_of_valgrind_is_refused_in_words() {
        assert_eq!(told(b"").unwrap(), json!({ "whole": false, "errors": [] }));
        assert!(told(b"<html></html>").unwrap_err().contains("begins with <html>"));
        assert!(told(b"==1== Memcheck").unwrap_err().contains("no output of Valgrind"));
        let deep = format!("<valgrindoutput>{}", "<a>".repeat(1000));
        assert!(told(deep.as_bytes()).unwrap_err().contains("within each other"));
        let bomb = "<!DOCTYPE a [<!ENTITY b \"&c;&c;\"><!ENTITY c \"x\">]><valgrindoutput><error><kind>&b;</kind></error></valgrindoutput>";
        assert_eq!(told(bomb.as_bytes()).unwrap()["whole"], json!(true));
    }

    proptest! {
        #[test]
        fn a_cut_or_damaged_document_gives_what_was_whole(
            cut in 0usize..ONE.len(),
            at in 0usize..ONE.len(),
            byte in any::<u8>(),
        ) {
            let cut_off = told(&ONE.as_bytes()[..cut]);
            if let Ok(answer) = cut_off {
                prop_assert!(answer["errors"].as_array().unwrap().len() <= 2);
                prop_assert_eq!(answer["whole"].as_bool().unwrap(), cut >= ONE.len() - 1);
            }
            let mut damaged = ONE.as_bytes().to_vec();
            damaged[at] = byte;
            let _ = told(&damaged);
        }
    }
}
