//! `memintro watch`: a live view of one process, in the terminal.
//!
//! Arguments: `PID SOCKET SECONDS [FINDER…]`, where FINDER is a command that prints the id and the socket of the
//! process that now has the name. It is run when the process has ended.

mod connection;
#[cfg(test)]
#[path = "../../fuzz/exercise/answer.rs"]
pub(crate) mod exercise;
mod peer;
mod state;
mod view;
mod vitals;
mod worker;

pub use vitals::{Site, Vitals};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::disable_raw_mode;
use state::{Key, Reaction, State};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};
use worker::{News, Order, Target};

/// Time between two checks for keys and news.
const TICK: Duration = Duration::from_millis(100);

/// Runs until the user quits.
pub fn run(arguments: &[OsString]) -> Result<(), String> {
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let [pid, _, seconds, finder @ ..] = words.as_slice() else {
        return Err("memintro-tool watch PID SOCKET SECONDS [FINDER…]: wrong arguments".to_string());
    };
    let target = Target {
        pid: pid.parse().map_err(|_| "PID is no number".to_string())?,
        path: arguments[1].clone().into(),
    };
    let pace = Duration::try_from_secs_f64(seconds.parse().unwrap_or(1.0)).unwrap_or(Duration::from_secs(1));
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err("watch needs a terminal".to_string());
    }
    let finder = (!finder.is_empty()).then(|| finder.to_vec());
    let state = State::new(target.clone(), finder.is_some());
    let (orders, taken) = mpsc::channel();
    let (tell, news) = mpsc::channel();
    std::thread::Builder::new()
        .spawn(move || worker::work(target, &finder, pace, &taken, &tell))
        .map_err(|error| format!("no thread can be started that asks the process: {error}"))?;
    show(state, &orders, &news)
}

fn show(mut state: State, orders: &Sender<Order>, news: &Receiver<News>) -> Result<(), String> {
    let asked_to_end = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        signal_hook::flag::register(signal, Arc::clone(&asked_to_end)).map_err(|error| error.to_string())?;
    }
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // Also restores the terminal after a panic.
    let mut terminal =
        ratatui::try_init().map_err(|error| format!("the terminal cannot be used: {error}"))?;
    let ended = loop {
        while let Ok(told) = news.try_recv() {
            state.take(told, Instant::now());
        }
        let drawn = terminal.draw(|frame| view::draw(frame, &state, colours, Instant::now()));
        if let Err(error) = drawn {
            break Err(format!("the terminal is gone: {error}"));
        }
        if asked_to_end.load(Ordering::Relaxed) {
            break Ok(());
        }
        match next_key() {
            Ok(Some(Pressed::Key(key))) => match state.press(key, Instant::now()) {
                Reaction::Quit => break Ok(()),
                Reaction::Order(order) => {
                    let _ = orders.send(order);
                }
                Reaction::None => {}
            },
            Ok(Some(Pressed::Suspend)) => {
                ratatui::restore();
                let _ = signal_hook::low_level::emulate_default_handler(libc::SIGTSTP);
                terminal = ratatui::try_init().map_err(|error| error.to_string())?;
            }
            Ok(None) => {}
            Err(error) => break Err(format!("the terminal is gone: {error}")),
        }
    };
    let restored = ratatui::try_restore();
    if restored.is_err() {
        let _ = disable_raw_mode();
    }
    ended
}

enum Pressed {
    Key(Key),
    Suspend,
}

fn next_key() -> std::io::Result<Option<Pressed>> {
    let polled = match event::poll(TICK) {
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(None),
        polled => polled?,
    };
    if !polled {
        return Ok(None);
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => meaning(key),
        _ => None,
    })
}

fn meaning(key: KeyEvent) -> Option<Pressed> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let key = match key.code {
        KeyCode::Char('c') if control => Key::Quit,
        KeyCode::Char('z') if control => return Some(Pressed::Suspend),
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        KeyCode::Char(letter) if !control => Key::Letter(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        _ => return None,
    };
    Some(Pressed::Key(key))
}
