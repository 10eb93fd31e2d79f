//! `memintro-tool heap-write FILE plain|gzip|zstd [BYTES]`: writes the lines of a heap into a file. They come from standard
//! input or, where the bytes of a piece are given, from memory that is shared ([`input`]).
//!
//! A frozen copy of a program starts it. The file appears under its name only when it is complete: the last
//! line has come, the file system has accepted all bytes, and no step has failed. It does not wait for the
//! disk.

mod compress;
mod file;
mod input;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use compress::Compression;
use file::NewFile;
use input::Input;

/// The beginning of the last line.
const END: &[u8] = b"{\"type\":\"ROOT\", \"root\":\"end\", \"objects\":";

/// Writes the file, and prints a summary as one line of JSON.
pub fn run(arguments: &[OsString]) -> Result<(), String> {
    let (path, compression, piece) = match arguments {
        [path, compression] => (path, compression, None),
        [path, compression, piece] => {
            let piece = piece.to_str().and_then(|text| text.parse::<usize>().ok()).filter(|piece| *piece > 0);
            (path, compression, Some(piece.ok_or("the bytes of a piece are no number")?))
        }
        _ => return Err("heap-write takes a file and plain, gzip or zstd".to_owned()),
    };
    let compression = compression
        .to_str()
        .and_then(Compression::named)
        .ok_or_else(|| format!("{} is no compression: plain, gzip, zstd", compression.display()))?;
    // If the parent closes the pipe early, this program removes the file. SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    let path = Path::new(path);
    let file = NewFile::create(path)?;
    let input = Input::new(std::io::stdin(), piece).map(Mutex::new);
    let input = input.map_err(|error| format!("the lines cannot be read: {error}"))?;
    let failed =
        |error: std::io::Error, written: u64| file::explain(path, &error, written, compression.is_plain());
    if let Err(error) = compression.write(&input, file.file()) {
        return Err(failed(error, file.bytes()));
    }
    let input = input.into_inner().map_err(|_| "a thread that reads lines has ended".to_owned())?;
    let objects = input.objects().ok_or_else(|| {
        format!(
            "the dump broke off after {} bytes, so {} was not written: the process or its copy was ended",
            input.bytes,
            path.display()
        )
    })?;
    let bytes = file.bytes();
    file.finish().map_err(|error| failed(error, bytes))?;
    let answer = serde_json::json!({
        "path": path.to_string_lossy(),
        "objects": objects,
        "bytes": bytes,
        "uncompressed_bytes": input.bytes,
        "compression": compression.name(),
    });
    writeln!(std::io::stdout(), "{answer}").map_err(|error| error.to_string())
}
