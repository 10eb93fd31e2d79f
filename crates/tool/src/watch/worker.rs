//! The thread that talks to the process, so that the view never waits. It asks for vitals repeatedly, and sends the
//! commands of keys in between.

use super::connection::{Connection, Failure};
use super::vitals::Vitals;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// More rows than fit on any screen.
const SITES: usize = 100;
/// Time between two searches for a process that has ended.
const SEARCH_PACE: Duration = Duration::from_secs(2);

/// The address of the process.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    /// Process id.
    pub(super) pid: u32,
    /// Path of its socket.
    pub(super) path: PathBuf,
}

/// What a key asks the worker to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Order {
    /// A command of the protocol without arguments: start, stop or mark.
    Send(&'static str),
    /// Sort vitals by this figure from now on.
    SortBy(&'static str),
    /// From now on vitals say how much memory malloc has free but keeps, or no longer do.
    Fragmentation,
}

/// What vitals are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Wanted {
    /// The process chooses until the user does: `retained_bytes` if it tracks objects, otherwise `live_bytes`.
    sort: Option<&'static str>,
    /// A copy of the process counts it, so only on request.
    fragmentation: bool,
}

impl Wanted {
    fn change(&mut self, order: Order) {
        match order {
            Order::SortBy(figure) => self.sort = Some(figure),
            Order::Fragmentation => self.fragmentation = !self.fragmentation,
            Order::Send(_) => {}
        }
    }

    fn request(self) -> Value {
        let mut request = json!({ "top": SITES });
        if let Some(by) = self.sort {
            request["by"] = json!(by);
        }
        if self.fragmentation {
            request["fragmentation"] = json!(true);
        }
        request
    }
}

/// Messages to the view.
#[derive(Debug, PartialEq)]
pub(super) enum News {
    /// New figures.
    Vitals(Box<Vitals>),
    /// A command was carried out.
    Done(&'static str),
    /// A command was refused, or vitals were.
    Refused(String),
    /// No answer within the time limit; it tries again.
    Silent,
    /// The process has ended. It may be found again by its name.
    Gone,
    /// Another process has replaced it.
    Found(Target),
}

/// How to find the process again after a restart: a command that prints its id and its socket's path.
pub(super) type Finder = Option<Vec<String>>;

/// Works until the view ends.
pub(super) fn work(
    mut target: Target,
    finder: &Finder,
    pace: Duration,
    orders: &Receiver<Order>,
    news: &Sender<News>,
) {
    let mut wanted = Wanted::default();
    loop {
        let ended = converse(&target, pace, &mut wanted, orders, news);
        if ended.is_err() || news.send(News::Gone).is_err() {
            return;
        }
        loop {
            match orders.recv_timeout(SEARCH_PACE) {
                Ok(order) => wanted.change(order),
                Err(RecvTimeoutError::Timeout) => match find(finder, &target) {
                    Some(found) => {
                        target = found;
                        if news.send(News::Found(target.clone())).is_err() {
                            return;
                        }
                        break;
                    }
                    None => continue,
                },
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// The view has ended.
struct Dismissed;

/// Asks the process until it has ended.
fn converse(
    target: &Target,
    pace: Duration,
    wanted: &mut Wanted,
    orders: &Receiver<Order>,
    news: &Sender<News>,
) -> Result<(), Dismissed> {
    let mut connection = None;
    let mut due = Instant::now();
    loop {
        let order = match orders.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(order) => Some(order),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Err(Dismissed),
        };
        if let Some(order) = order {
            wanted.change(order);
        }
        let told = ask(&mut connection, target, *wanted, order);
        // After an error or an invalid answer, late bytes could count as the next answer, so the connection is
        // closed.
        if told.is_err() {
            connection = None;
        }
        match told {
            Ok(told) => news.send(told).map_err(|_| Dismissed)?,
            Err(Failure::Gone) => return Ok(()),
            Err(Failure::Silent) => news.send(News::Silent).map_err(|_| Dismissed)?,
            Err(Failure::Refused(message) | Failure::Invalid(message)) => {
                news.send(News::Refused(message)).map_err(|_| Dismissed)?;
            }
        }
        // So the view shows the effect of a key at once.
        due = Instant::now() + if order.is_some() { Duration::ZERO } else { pace };
    }
}

fn ask(
    connection: &mut Option<Connection>,
    target: &Target,
    wanted: Wanted,
    order: Option<Order>,
) -> Result<News, Failure> {
    let used = connection.is_some();
    let told = ask_on(connection, target, wanted, order);
    // A server closes connections that were idle for a while, so this does not mean that the process has ended.
    if used && told == Err(Failure::Gone) {
        *connection = None;
        return ask_on(connection, target, wanted, order);
    }
    told
}

fn ask_on(
    connection: &mut Option<Connection>,
    target: &Target,
    wanted: Wanted,
    order: Option<Order>,
) -> Result<News, Failure> {
    let open = match connection {
        Some(open) => open,
        None => connection.insert(Connection::open(&target.path)?),
    };
    match order {
        Some(Order::Send(command)) => open.ask(command, &json!({})).map(|_| News::Done(command)),
        _ => {
            let answer = open.ask("vitals", &wanted.request())?;
            let mut vitals = Vitals::read(&answer, target.pid).map_err(Failure::Invalid)?;
            vitals.asked_fragmentation = wanted.fragmentation;
            Ok(News::Vitals(Box::new(vitals)))
        }
    }
}

/// Finds a process other than the one that has ended, whose socket may still exist for a while.
fn find(finder: &Finder, gone: &Target) -> Option<Target> {
    let (program, arguments) = finder.as_ref()?.split_first()?;
    let output = Command::new(program).args(arguments).stdin(std::process::Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (pid, path) = text.trim_end().split_once(' ')?;
    let found = Target { pid: pid.parse().ok()?, path: PathBuf::from(path) };
    (output.status.success() && found != *gone).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc;

    #[test]
    fn vitals_are_asked_for_what_the_user_wants() {
        let mut wanted = Wanted::default();
        assert_eq!(wanted.request(), json!({ "top": 100 }));
        for order in [Order::SortBy("growth"), Order::Fragmentation, Order::Send("mark")] {
            wanted.change(order);
        }
        assert_eq!(wanted.request(), json!({ "top": 100, "by": "growth", "fragmentation": true }));
        wanted.change(Order::Fragmentation);
        assert_eq!(wanted.request(), json!({ "top": 100, "by": "growth" }));
    }

    #[test]
    fn what_follows_a_refusal_is_no_answer() {
        let folder = std::env::temp_dir().join(format!("memintro-tool-refusal-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        let path = folder.join("1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (tell_end, ends) = mpsc::channel();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut reader = BufReader::new(client.unwrap());
                let mut request = String::new();
                reader.read_line(&mut request).unwrap();
                let refusal = "{\"ok\":false,\"error\":\"Memintro::BusyError\",\"message\":\"busy\"}\n";
                let late = "{\"ok\":true,\"bytes\":2,\"format\":\"json\"}\n{}";
                let _ = reader.get_mut().write_all(format!("{refusal}{late}").as_bytes());
                // Waits for the next request, or for the end.
                let _ = tell_end.send(reader.read(&mut [0; 100]).unwrap_or(0));
            }
        });
        let target = Target { pid: 1, path };
        let (orders, taken) = mpsc::channel();
        let (tell, news) = mpsc::channel();
        let worker =
            std::thread::spawn(move || work(target, &None, Duration::from_millis(10), &taken, &tell));
        for _ in 0..3 {
            assert_eq!(news.recv_timeout(Duration::from_secs(20)), Ok(News::Refused("busy".into())));
            assert_eq!(
                ends.recv_timeout(Duration::from_secs(20)),
                Ok(0),
                "asked again on the same connection"
            );
        }
        drop((orders, news));
        worker.join().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
