//! The client's end of the control socket. A request is a line of JSON; an answer is a line of JSON and as many bytes
//! as that line announces. Any program may listen at the socket, so the client asks the kernel which user listens,
//! and limits the time and the size of an answer.

use super::peer;
use memintro_analysis::answers::{self, Header, Json, NoHeader};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit of an answer, for a busy process.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_HEADER_BYTES: usize = 1 << 16;

/// Why there is no answer.
#[derive(Debug, PartialEq)]
pub(super) enum Failure {
    /// The process is gone, or no longer listens.
    Gone,
    /// It did not answer in time.
    Silent,
    /// It answered with this error.
    Refused(String),
    /// The answer is not valid, or another user listens there.
    Invalid(String),
}

/// An open connection for many requests.
pub(super) struct Connection {
    stream: UnixStream,
    /// Bytes that have arrived and were not read yet.
    buffer: Vec<u8>,
    patience: Duration,
}

impl Connection {
    /// Connects to the socket at `path`; the listener must be the owner of its folder.
    pub(super) fn open(path: &Path) -> Result<Connection, Failure> {
        Connection::open_within(path, PATIENCE)
    }

    fn open_within(path: &Path, patience: Duration) -> Result<Connection, Failure> {
        let uid = peer::owner_of_folder(path).map_err(Failure::Invalid)?;
        let stream = peer::connect(path, patience).map_err(|error| failure(&error))?;
        let listens = peer::user(&stream).map_err(|error| failure(&error))?;
        if listens != uid {
            let message = format!("user {listens} listens there, and not user {uid}, whose folder it is");
            return Err(Failure::Invalid(message));
        }
        Ok(Connection { stream, buffer: Vec::new(), patience })
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(&mut self, command: &str, arguments: &Value) -> Result<Vec<u8>, Failure> {
        let request =
            json!({ "memintro": env!("CARGO_PKG_VERSION"), "command": command, "arguments": arguments });
        let deadline = Instant::now() + self.patience;
        // Bytes that arrived before the request are not an answer to it.
        self.buffer.clear();
        self.stream.write_all(format!("{request}\n").as_bytes()).map_err(|error| failure(&error))?;
        let header = self.line(deadline)?;
        let bytes = body_bytes(&header, command)?;
        while (self.buffer.len() as u64) < bytes {
            self.fill(deadline)?;
        }
        // No more than the command may answer.
        let rest = self.buffer.split_off(bytes as usize);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    fn line(&mut self, deadline: Instant) -> Result<Vec<u8>, Failure> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer) {
                let rest = self.buffer.split_off(at + 1);
                return Ok(std::mem::replace(&mut self.buffer, rest));
            }
            if self.buffer.len() > LONGEST_HEADER_BYTES {
                return Err(strange());
            }
            self.fill(deadline)?;
        }
    }

    /// Reads some bytes. The deadline is for the whole answer, so a process that sends single bytes cannot extend it.
    fn fill(&mut self, deadline: Instant) -> Result<(), Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Silent);
        }
        self.stream.set_read_timeout(Some(left)).map_err(|error| failure(&error))?;
        let mut piece = [0; 1 << 14];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(Failure::Gone),
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(failure(&error)),
        }
    }
}

/// How many bytes follow a header before the answer to this command.
pub(super) fn body_bytes(header: &[u8], command: &str) -> Result<u64, Failure> {
    let most = answers::command(command).map_or(0, |command| command.bytes);
    match answers::header(header, most, &Json) {
        Ok(Header::Accepted(_, Some(bytes))) => Ok(bytes),
        Ok(Header::Accepted(_, None)) => Err(Failure::Invalid("it has no size".into())),
        Ok(Header::Refused(why)) => Err(Failure::Refused(why["message"].as_str().unwrap_or_default().into())),
        Err(NoHeader::Wrong(wrong)) => Err(Failure::Invalid(wrong)),
        Err(NoHeader::Strange) => Err(strange()),
    }
}

fn strange() -> Failure {
    Failure::Invalid("it does not speak memintro's protocol".into())
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
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    /// A listener in a folder of its own; `serve` gets the stream of the first client.
    fn listener(name: &str, serve: impl FnOnce(BufReader<UnixStream>) + Send + 'static) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("memintro-tool-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        let path = folder.join("1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || serve(BufReader::new(listener.accept().unwrap().0)));
        path
    }

    fn remove(path: &Path) {
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    /// A server that answers each request on one connection with the next of these answers.
    fn server(name: &str, answers: Vec<Vec<u8>>) -> PathBuf {
        listener(name, move |mut reader| {
            for answer in answers {
                let mut request = String::new();
                reader.read_line(&mut request).unwrap();
                assert!(request.starts_with('{') && request.ends_with("}\n"), "{request}");
                let _ = reader.get_mut().write_all(&answer);
            }
        })
    }

    #[test]
    fn asks_several_times_on_one_connection() {
        let answers = [
            "{\"ok\":true,\"bytes\":2,\"format\":\"json\"}\n{}",
            "{\"ok\":false,\"error\":\"Memintro::BusyError\",\"message\":\"busy\"}\n",
            "{\"ok\":true,\"bytes\":9}\nshort",
        ];
        let path = server("several", answers.map(Vec::from).to_vec());
        let mut connection = Connection::open(&path).unwrap();
        assert_eq!(connection.ask("vitals", &json!({})), Ok(b"{}".to_vec()));
        assert_eq!(connection.ask("start", &json!({})), Err(Failure::Refused("busy".to_string())));
        assert_eq!(connection.ask("vitals", &json!({})), Err(Failure::Gone));
        remove(&path);
    }

    #[test]
    fn what_is_no_socket_is_gone() {
        assert!(matches!(Connection::open(Path::new("/nowhere/1.sock")), Err(Failure::Invalid(_))));
        let path = server("nobody", vec![]);
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Connection::open(&path), Err(Failure::Gone)));
        remove(&path);
    }

    #[test]
    fn what_is_no_answer_is_told_and_takes_neither_time_nor_memory() {
        let cases: [(&str, Vec<u8>, &str); 10] = [
            ("mail", b"220 mail.example.com ESMTP\n".to_vec(), "does not speak"),
            ("array", b"[1]\n".to_vec(), "does not speak"),
            ("yes", b"{\"ok\":1,\"bytes\":2}\n{}".to_vec(), "does not speak"),
            (
                "silent-no",
                b"{\"ok\":false,\"message\":[]}\n".to_vec(),
                "message is a list; it must be a text",
            ),
            ("binary", vec![0xff; 100].into_iter().chain([b'\n']).collect(), "does not speak"),
            ("line", vec![b'x'; 1 << 20], "does not speak"),
            ("deep", vec![b'['; 60_000].into_iter().chain([b'\n']).collect(), "does not speak"),
            ("text", b"{\"ok\":true,\"bytes\":\"7\"}\n1234567".to_vec(), "bytes is \"7\"; it must be"),
            ("none", b"{\"ok\":true,\"bytes\":null}\n0\n".to_vec(), "no size"),
            (
                "huge",
                b"{\"ok\":true,\"bytes\":1000000000000000}\n".to_vec(),
                "it has 1000000000000000 bytes, and may have 4194304",
            ),
        ];
        for (name, answer, part) in cases {
            let path = server(name, vec![answer]);
            let answer = Connection::open(&path).unwrap().ask("vitals", &json!({}));
            assert!(
                matches!(&answer, Err(Failure::Invalid(message)) if message.contains(part)),
                "{name}: {answer:?}"
            );
            remove(&path);
        }
    }

    #[test]
    fn a_byte_now_and_then_is_no_answer() {
        let path = listener("drip", |mut reader| {
            while reader.get_mut().write_all(b"1").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let begun = Instant::now();
        let answer =
            Connection::open_within(&path, Duration::from_millis(300)).unwrap().ask("vitals", &json!({}));
        assert_eq!(answer, Err(Failure::Silent));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        remove(&path);
    }

    #[test]
    fn who_does_not_accept_is_not_waited_for_without_end() {
        let folder = std::env::temp_dir().join(format!("memintro-tool-full-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        let path = folder.join("1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: the descriptor is open, and this only shortens its queue.
        unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) };
        let first = UnixStream::connect(&path).unwrap();
        let begun = Instant::now();
        let second = Connection::open_within(&path, Duration::from_millis(300));
        assert!(matches!(second, Err(Failure::Silent)));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        drop(first);
        remove(&path);
    }

    #[test]
    fn a_folder_that_is_open_to_others_is_not_trusted() {
        let path = server("open", vec![]);
        let folder = path.parent().unwrap();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        let opened = Connection::open(&path);
        assert!(matches!(opened, Err(Failure::Invalid(message)) if message.contains("open to others")));
        remove(&path);
    }
}
