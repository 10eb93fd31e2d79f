//! Draws the view: a line about the process, the RSS curve beside GC, the table of call sites, the keys.

use super::state::{Condition, SORTS, State};
use super::vitals::{Site, Vitals};
use crate::units::{Figure, bytes, count, signed_bytes, signed_count};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Axis, Block, Cell, Chart, Dataset, GraphType, Paragraph, Row, Sparkline, Table};
use std::time::Instant;

const LEAST_COLUMNS: u16 = 60;
const LEAST_ROWS: u16 = 16;
const GC_COLUMNS: u16 = 34;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, colours: bool, now: Instant) {
    let area = frame.area();
    if area.width < LEAST_COLUMNS || area.height < LEAST_ROWS {
        return too_small(frame, area);
    }
    let curve_rows = (area.height / 3).clamp(7, 14);
    let [head, curves, table, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(curve_rows),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(area);
    let paint = Paint { colours };
    frame.render_widget(heading(state, head.width, paint, now), head);
    let [rss, gc] = Layout::horizontal([Constraint::Min(20), Constraint::Length(GC_COLUMNS)]).areas(curves);
    draw_rss(frame, rss, state, paint);
    draw_gc(frame, gc, state, paint);
    draw_sites(frame, table, state, paint);
    frame.render_widget(footing(state, paint, now), foot);
}

/// With NO_COLOR, only bold is used.
#[derive(Clone, Copy)]
struct Paint {
    colours: bool,
}

impl Paint {
    fn style(self, colour: Color) -> Style {
        if self.colours { Style::default().fg(colour) } else { Style::default() }
    }
}

fn too_small(frame: &mut Frame<'_>, area: Rect) {
    let text = format!(
        "The terminal is too small: {} columns and {} rows, at least {LEAST_COLUMNS} and {LEAST_ROWS} are needed. q quits.",
        area.width, area.height
    );
    frame.render_widget(Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true }), area);
}

/// A problem is shown before a long name.
fn heading(state: &State, columns: u16, paint: Paint, now: Instant) -> Line<'static> {
    let condition = match state.condition(now) {
        Condition::Connecting => vec![Span::from("connecting")],
        Condition::Quiet(seconds) => {
            let text = format!("no answer for {seconds} s{}", reason(state.target.pid));
            vec![Span::styled(text, paint.style(Color::Red))]
        }
        Condition::Gone => {
            let waiting = if state.returns { "; waiting for another of its name" } else { "" };
            vec![Span::styled(format!("has ended, or no longer listens{waiting}"), paint.style(Color::Red))]
        }
        Condition::Answering => tracking(state.vitals.as_ref(), paint),
    };
    let bold = Style::default().add_modifier(Modifier::BOLD);
    let mut spans = vec![Span::styled(format!("pid {}  ", state.target.pid), bold)];
    spans.extend(condition);
    let taken: usize = spans.iter().map(Span::width).sum();
    let room = usize::from(columns).saturating_sub(taken + 2);
    if let Some(vitals) = &state.vitals
        && room > 3
    {
        spans.insert(1, Span::styled(format!("{}  ", end_of(&vitals.program, room)), bold));
    }
    Line::from(spans)
}

fn tracking(vitals: Option<&Vitals>, paint: Paint) -> Vec<Span<'static>> {
    let Some(vitals) = vitals else { return Vec::new() };
    let figures = format!(
        "  malloc live {} in {} blocks",
        vitals.live_bytes.text(bytes),
        vitals.live_blocks.text(signed_count)
    );
    if vitals.tracking {
        vec![
            Span::styled(format!("tracking ({})", vitals.mode), paint.style(Color::Green)),
            Span::from(figures),
        ]
    } else {
        vec![
            Span::from("not tracking"),
            Span::from(if vitals.live_blocks.value > 0 { figures } else { String::new() }),
        ]
    }
}

/// The kernel's reason why an existing process does not answer, if it has one.
fn reason(pid: u32) -> &'static str {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name is in brackets and may contain any characters.
    let state = memchr::memrchr(b')', &stat).and_then(|at| stat.get(at + 2));
    match state {
        Some(b'T' | b't') => ": it is stopped (kill -CONT continues it)",
        Some(b'D') => ": it waits for a device",
        Some(b'Z') => ": it has ended",
        Some(_) => ": it is busy without letting other threads run",
        None => "",
    }
}

fn draw_rss(frame: &mut Frame<'_>, area: Rect, state: &State, paint: Paint) {
    let latest = state.moments.back().map_or(0.0, |moment| moment.rss_bytes);
    let first = state.moments.front().map_or(0.0, |moment| moment.rss_bytes);
    let free = state.vitals.as_ref().map_or_else(String::new, free_memory);
    let title = format!(" RSS {}  {} {free}", bytes(latest as i64), signed_bytes((latest - first) as i64));
    let (begin, end) = match (state.moments.front(), state.moments.back()) {
        (Some(front), Some(back)) => (front.time, back.time.max(front.time + 30.0)),
        _ => (0.0, 30.0),
    };
    let points: Vec<(f64, f64)> =
        state.moments.iter().map(|moment| (moment.time, moment.rss_bytes)).collect();
    let values = points.iter().map(|point| point.1);
    let (least, greatest) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max));
    let room = ((greatest - least) * 0.1).max(greatest * 0.01).max(1.0);
    let (from, to) = if points.is_empty() { (0.0, 1.0) } else { ((least - room).max(0.0), greatest + room) };
    let curve = Dataset::default()
        .marker(Marker::Braille)
        .graph_type(if points.len() < 2 { GraphType::Scatter } else { GraphType::Line })
        .style(paint.style(Color::Blue))
        .data(&points);
    let chart = Chart::new(vec![curve])
        .block(Block::bordered().title(title))
        .legend_position(None)
        .x_axis(Axis::default().bounds([begin, end]).labels([ago(end - begin), "now".to_string()]))
        .y_axis(Axis::default().bounds([from, to]).labels([bytes(from as i64), bytes(to as i64)]));
    frame.render_widget(chart, area);
}

/// What malloc has free, where it was asked for.
fn free_memory(vitals: &Vitals) -> String {
    match vitals.fragmentation_bytes {
        Some(free) => format!(" free in malloc {} ", bytes(i64::try_from(free).unwrap_or(i64::MAX))),
        None if vitals.asked_fragmentation => " free in malloc: not known ".to_owned(),
        None => String::new(),
    }
}

fn ago(seconds: f64) -> String {
    if seconds >= 120.0 { format!("-{:.0} min", seconds / 60.0) } else { format!("-{seconds:.0} s") }
}

fn draw_gc(frame: &mut Frame<'_>, area: Rect, state: &State, paint: Paint) {
    let block = Block::bordered().title(" GC ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let vitals = state.vitals.clone().unwrap_or_default();
    let [all, minor, major] = vitals.collections.map(count);
    let share = state.moments.back().map_or(0.0, |moment| moment.gc_share);
    let lines = vec![
        Line::from(format!("{} live objects", count(vitals.live_objects))),
        Line::from(format!("{all} runs: {minor} minor, {major} major")),
        Line::from(format!("{:.1} s in all, {:.1}% of now", vitals.gc_ms / 1_000.0, share * 100.0)),
    ];
    let [text, below] = Layout::vertical([Constraint::Length(3), Constraint::Min(0)]).areas(inner);
    frame.render_widget(Paragraph::new(lines), text);
    let shares: Vec<u64> = state.moments.iter().map(|moment| (moment.gc_share * 1_000.0) as u64).collect();
    let shown = shares.len().saturating_sub(usize::from(below.width));
    frame
        .render_widget(Sparkline::default().data(&shares[shown..]).style(paint.style(Color::Magenta)), below);
}

fn draw_sites(frame: &mut Frame<'_>, area: Rect, state: &State, paint: Paint) {
    let Some(vitals) = &state.vitals else { return };
    if vitals.sites.is_empty() {
        let text = if vitals.tracking {
            "no block has been allocated since the start"
        } else {
            "not tracking: s starts it"
        };
        return frame.render_widget(Paragraph::new(text).alignment(Alignment::Center), area);
    }
    let has_objects = vitals.has_objects();
    let header = SORTS.iter().enumerate().skip(state.first_sort()).map(|(at, (title, _))| {
        let chosen = at == state.sort();
        let style = if chosen { Style::default().add_modifier(Modifier::BOLD) } else { Style::default() };
        let text = if chosen { format!("{title} ▼") } else { (*title).to_string() };
        Cell::from(Line::from(text).alignment(Alignment::Right)).style(style)
    });
    let age = Cell::from(Line::from("older than 1 GC").alignment(Alignment::Right));
    let objects: &[u16] = if has_objects { &[12, 10] } else { &[] };
    let figures = objects.iter().chain(&[11, 12, 10, 14, 15]);
    let taken: u16 = figures.clone().map(|width| width + 1).sum();
    let name_columns = usize::from(area.width.saturating_sub(taken + 1));
    let rows = vitals.sites.iter().skip(state.first).map(|site| row(site, has_objects, name_columns, paint));
    let widths = figures.map(|width| Constraint::Length(*width)).chain([Constraint::Min(10)]);
    let table = Table::new(rows, widths)
        .header(Row::new(header.chain([age, Cell::from("call site")])).style(paint.style(Color::Cyan)));
    frame.render_widget(table, area);
}

/// The standard error of an estimate is shown below it, because there is no room beside it.
fn row(site: &Site, has_objects: bool, name_columns: usize, paint: Paint) -> Row<'static> {
    let figures = [
        site.live_bytes,
        site.growth,
        site.live_blocks,
        site.allocations,
        site.old_bytes.unwrap_or_default(),
    ];
    let right = |figure: Figure, form: fn(i64) -> String, error: fn(i64) -> String| {
        let (value, error) = figure.parts(form, error);
        Cell::from(Text::from(vec![Line::from(value), Line::from(error)]).alignment(Alignment::Right))
    };
    let growth = match site.growth.value {
        0 => Style::default(),
        growth if growth > 0 => paint.style(Color::Red),
        _ => paint.style(Color::Green),
    };
    let (retained, objects) = site.retained.unwrap_or((site.live_bytes, Figure::default()));
    let of_objects = [right(retained, bytes, bytes), right(objects, signed_count, signed_count)];
    let cells = [
        right(site.live_bytes, bytes, bytes),
        right(site.growth, signed_bytes, bytes).style(growth),
        right(site.live_blocks, signed_count, signed_count),
        right(site.allocations, signed_count, signed_count),
        site.old_bytes.map_or_else(
            || Cell::from(Line::from("-").alignment(Alignment::Right)),
            |old| right(old, bytes, bytes),
        ),
        Cell::from(end_of(&site.name, name_columns)),
    ];
    Row::new(of_objects.into_iter().filter(|_| has_objects).chain(cells))
        .height(if figures.iter().any(|figure| figure.error.is_some()) { 2 } else { 1 })
}

/// Cuts the beginning, because the end of a path says more.
fn end_of(name: &str, columns: usize) -> String {
    let letters = name.chars().count();
    if letters <= columns || columns < 2 {
        return name.to_string();
    }
    format!("…{}", name.chars().skip(letters - columns + 1).collect::<String>())
}

fn footing(state: &State, paint: Paint, now: Instant) -> Line<'static> {
    if let Some(remark) = state.remark(now) {
        return Line::styled(remark.to_string(), paint.style(Color::Yellow));
    }
    Line::from("s start  x stop  m mark  f free memory  o or ←→ sort  ↑↓ scroll  q quit")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::vitals::tests::{ANSWER, sampled_answer};
    use crate::watch::worker::{News, Target};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(columns: u16, rows: u16, colours: bool) -> (String, bool) {
        screen_of(ANSWER, columns, rows, colours)
    }

    fn screen_of(answer: &str, columns: u16, rows: u16, colours: bool) -> (String, bool) {
        let now = Instant::now();
        let mut state = State::new(Target { pid: 123, path: "/s".into() }, true);
        state.take(News::Vitals(Box::new(Vitals::read(answer.as_bytes(), 123).unwrap())), now);
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(frame, &state, colours, now)).unwrap();
        let buffer = terminal.backend().buffer();
        let coloured = buffer.content.iter().any(|cell| cell.fg != Color::Reset);
        let text = buffer
            .content
            .chunks(usize::from(columns))
            .map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n")
            .collect();
        (text, coloured)
    }

    #[test]
    fn shows_the_process_its_curves_and_sites() {
        let (text, coloured) = screen(100, 30, true);
        for part in [
            "pid 123  app.rb  tracking (full)  malloc live 4.8 MiB in 321 blocks",
            "RSS 100.0 MiB",
            "123,456 live objects",
            "12 runs: 9 minor, 3 major",
            "live ▼       growth     blocks    allocations older than 1 GC call site",
            "3.8 MiB   +976.6 KiB        300            400         2.9 MiB app/leak.rb:12",
            "-500 B         21             50               - lib/",
            "q quit",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(coloured);
        assert!(!screen(100, 30, false).1);
    }

    #[test]
    fn memory_that_malloc_has_free_stands_beside_rss_where_it_is_known() {
        let answer =
            ANSWER.replace("\"live_objects\":123456", "\"live_objects\":1,\"fragmentation_bytes\":31457280");
        assert!(screen_of(&answer, 100, 30, false).0.contains("RSS 100.0 MiB  0 B  free in malloc 30.0 MiB"));
        assert!(!screen(100, 30, false).0.contains("free in malloc"));
        let asked = Vitals { asked_fragmentation: true, ..Vitals::read(ANSWER.as_bytes(), 123).unwrap() };
        assert_eq!(free_memory(&asked), " free in malloc: not known ");
    }

    #[test]
    fn marks_each_estimate_and_shows_its_standard_error() {
        let (text, _) = screen_of(&sampled_answer(), 120, 30, false);
        for part in [
            "tracking (sampled)  malloc live ~4.8 MiB ±200.0 KiB in ~321 ±12 blocks",
            "   ~3.8 MiB  ~+976.6 KiB       ~300           ~400        ~2.9 MiB app/leak.rb:12",
            "±100.0 KiB     ±2.0 KiB         ±8             ±9       ±50.0 KiB",
            "-500 B         21             50               - lib/",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn objects_come_first_where_they_are_tracked() {
        let answer = ANSWER.replace(
            "\"allocations\":400",
            "\"allocations\":400,\"retained_bytes\":9000000,\"live_objects\":125000",
        );
        let (text, _) = screen_of(&answer, 130, 30, false);
        for part in [
            "  retained ▼    objects        live       growth",
            "     8.6 MiB    125,000     3.8 MiB   +976.6 KiB        300",
            "   976.6 KiB          0   976.6 KiB       -500 B",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!screen(130, 30, false).0.contains("retained"));
    }

    #[test]
    fn a_small_terminal_is_told_and_a_tiny_one_does_no_harm() {
        assert!(screen(50, 20, true).0.contains("The terminal is too small: 50 columns and 20 rows"));
        for (columns, rows) in [(1, 1), (60, 16), (61, 17), (300, 100)] {
            screen(columns, rows, true);
        }
    }

    #[test]
    fn long_names_lose_their_beginning() {
        assert_eq!(end_of("lib/a/b/c.rb:12", 8), "…c.rb:12");
        assert_eq!(end_of("c.rb:12", 8), "c.rb:12");
    }
}
