//! The client's end of the control socket: a request is a line of JSON, an answer a line of JSON and as many bytes as
//! that says.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Take, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A process that is busy answers when it can.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_HEADER_BYTES: u64 = 1 << 16;
const LONGEST_ANSWER_BYTES: u64 = 64 << 20;

/// Why there is no answer.
#[derive(Debug, PartialEq)]
pub(super) enum Failure {
    /// The process is gone, or does not listen any more.
    Gone,
    /// It did not answer in time.
    Silent,
    /// It answered that it will not, in these words.
    Refused(String),
}

/// An open connection, good for many requests.
pub(super) struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    /// Connects to the socket at `path`.
    pub(super) fn open(path: &Path) -> Result<Connection, Failure> {
        let stream = UnixStream::connect(path).map_err(|_| Failure::Gone)?;
        let patient =
            stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        patient.map_err(|_| Failure::Gone)?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(&mut self, command: &str, arguments: &Value) -> Result<Vec<u8>, Failure> {
        let request =
            json!({ "memintro": env!("CARGO_PKG_VERSION"), "command": command, "arguments": arguments });
        self.stream
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())
            .map_err(|error| failure(&error))?;
        let mut header = Vec::new();
        limited(&mut self.stream, LONGEST_HEADER_BYTES)
            .read_until(b'\n', &mut header)
            .map_err(|error| failure(&error))?;
        if header.last() != Some(&b'\n') {
            return Err(Failure::Gone);
        }
        let header: Value = serde_json::from_slice(&header)
            .map_err(|_| Failure::Refused("it does not speak memintro's protocol".into()))?;
        if header["ok"] != json!(true) {
            let message = header["message"].as_str().unwrap_or("without a reason");
            return Err(Failure::Refused(message.to_string()));
        }
        let bytes = header["bytes"].as_u64().filter(|bytes| *bytes <= LONGEST_ANSWER_BYTES);
        let bytes = bytes.ok_or_else(|| Failure::Refused("its answer is of no known size".into()))?;
        let mut answer = Vec::new();
        limited(&mut self.stream, bytes).read_to_end(&mut answer).map_err(|error| failure(&error))?;
        if answer.len() as u64 == bytes { Ok(answer) } else { Err(Failure::Gone) }
    }
}

fn limited(stream: &mut BufReader<UnixStream>, bytes: u64) -> Take<&mut BufReader<UnixStream>> {
    stream.take(bytes)
}

fn failure(error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => Failure::Silent,
        _ => Failure::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that gives each of the answers to one request, on one connection.
    fn server(name: &str, answers: Vec<&'static str>) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("memintro-tool-{name}-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            for answer in answers {
                let mut request = String::new();
                reader.read_line(&mut request).unwrap();
                assert!(request.starts_with('{') && request.ends_with("}\n"), "{request}");
                reader.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        });
        path
    }

    #[test]
    fn asks_several_times_on_one_connection() {
        let path = server(
            "several",
            vec![
                "{\"ok\":true,\"bytes\":2,\"format\":\"json\"}\n{}",
                "{\"ok\":false,\"error\":\"Memintro::BusyError\",\"message\":\"busy\"}\n",
                "{\"ok\":true,\"bytes\":9}\nshort",
            ],
        );
        let mut connection = Connection::open(&path).unwrap();
        assert_eq!(connection.ask("vitals", &json!({})), Ok(b"{}".to_vec()));
        assert_eq!(connection.ask("start", &json!({})), Err(Failure::Refused("busy".to_string())));
        assert_eq!(connection.ask("vitals", &json!({})), Err(Failure::Gone));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_no_socket_is_gone() {
        assert!(matches!(Connection::open(Path::new("/nowhere")), Err(Failure::Gone)));
        let path = server("strange", vec!["220 mail.example.com ESMTP\n"]);
        let answer = Connection::open(&path).unwrap().ask("vitals", &json!({}));
        assert!(matches!(answer, Err(Failure::Refused(message)) if message.contains("protocol")));
        std::fs::remove_file(path).unwrap();
    }
}
