//! The plot as characters, for a terminal or a text file.

use super::axis::{TimeAxis, ValueAxis};
use super::history::History;
use super::record::Metric;
use super::thin::thin;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

const COLOURS: [Color; 6] =
    [Color::Blue, Color::Red, Color::Green, Color::Magenta, Color::Yellow, Color::Cyan];
const PANEL_ROWS: u16 = 13;
const LEAST_COLUMNS: u16 = 40;

/// The space there is, and whether colours are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    /// Characters in a row.
    pub(super) columns: u16,
    /// Number of rows that the plot must fit into; `None` means no limit.
    pub(super) rows: Option<u16>,
    /// Whether escape sequences may be used.
    pub(super) colours: bool,
}

/// The text of the plot.
pub(super) fn text(history: &History, names: &[String], screen: Screen) -> String {
    let metrics = history.metrics();
    let columns = screen.columns.max(LEAST_COLUMNS);
    let head = heading(history, names, columns);
    let panel_rows = screen.rows.map_or(PANEL_ROWS, |rows| {
        (rows.saturating_sub(head.len() as u16 + 1) / metrics.len().max(1) as u16).clamp(6, PANEL_ROWS)
    });
    let area = Rect::new(0, 0, columns, head.len() as u16 + panel_rows * metrics.len() as u16);
    let mut buffer = Buffer::empty(area);
    for (row, line) in head.iter().enumerate() {
        buffer.set_line(0, row as u16, line, columns);
    }
    let below = Rect::new(0, head.len() as u16, columns, area.height - head.len() as u16);
    let rows = Layout::vertical(vec![Constraint::Length(panel_rows); metrics.len()]).split(below);
    for (panel, metric) in rows.iter().zip(metrics) {
        draw_panel(history, metric, *panel, &mut buffer);
    }
    written(&buffer, screen.colours)
}

/// The period, and the names in as many rows as they need, five at most.
fn heading(history: &History, names: &[String], columns: u16) -> Vec<Line<'static>> {
    let time = TimeAxis::new(history, 8).map_or(String::new(), |axis| axis.title());
    let mut lines = vec![Line::from(time), Line::default()];
    for (at, name) in names.iter().enumerate() {
        let entry = [Span::styled("━━ ", style(at)), Span::from(format!("{name}   "))];
        let width: usize = entry.iter().map(Span::width).sum();
        if lines[lines.len() - 1].width() + width > usize::from(columns) {
            if lines.len() == 6 {
                lines.push(Line::from(format!("and {} more", names.len() - at)));
                break;
            }
            lines.push(Line::default());
        }
        let last = lines.len() - 1;
        lines[last].spans.extend(entry);
    }
    lines
}

fn style(curve: usize) -> Style {
    Style::default().fg(COLOURS[curve % COLOURS.len()])
}

fn draw_panel(history: &History, metric: Metric, panel: Rect, buffer: &mut Buffer) {
    let values = ValueAxis::new(history, metric);
    let Some(time) = TimeAxis::new(history, 6) else { return };
    let seconds = |at: i64| (at - time.from) as f64 / 1e6;
    let whole = seconds(time.to);
    let curves: Vec<Vec<(f64, f64)>> = history
        .curves
        .iter()
        .map(|curve| {
            let points = curve.points(metric).map(|(at, value)| (seconds(at), value / values.scale));
            // A braille character is two dots wide.
            thin(points, 0.0, whole, usize::from(panel.width) * 2)
        })
        .collect();
    let datasets = curves
        .iter()
        .enumerate()
        .map(|(at, points)| {
            let graph = if points.len() == 1 { GraphType::Scatter } else { GraphType::Line };
            Dataset::default().marker(Marker::Braille).graph_type(graph).style(style(at)).data(points)
        })
        .collect();
    let label = |at: f64| values.label(values.from + (values.to - values.from) * at);
    let ends = [time.from, time.from + (time.to - time.from) / 2, time.to].map(|at| clock(at, &time));
    Chart::new(datasets)
        .legend_position(None)
        .x_axis(Axis::default().bounds([0.0, whole]).labels(ends))
        .y_axis(Axis::default().title(values.title.clone()).bounds([values.from, values.to]).labels([
            label(0.0),
            label(0.5),
            label(1.0),
        ]))
        .render(panel, buffer);
}

fn clock(at: i64, time: &TimeAxis) -> String {
    let form = if time.to - time.from > 86_400_000_000 { "%m-%d %H:%M" } else { "%H:%M:%S" };
    super::stamp::local_time(at, time.zone).strftime(form).to_string()
}

/// The buffer's characters, with escape sequences where the colour changes.
fn written(buffer: &Buffer, colours: bool) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let mut row = String::new();
        let mut colour = Color::Reset;
        for x in 0..buffer.area.width {
            let Some(cell) = buffer.cell((x, y)) else { continue };
            if colours && cell.fg != colour {
                colour = cell.fg;
                row.push_str(escape(colour));
            }
            row.push_str(cell.symbol());
        }
        text.push_str(row.trim_end());
        if colours && colour != Color::Reset {
            text.push_str("\x1b[0m");
        }
        text.push('\n');
    }
    text
}

fn escape(colour: Color) -> &'static str {
    match colour {
        Color::Blue => "\x1b[34m",
        Color::Red => "\x1b[31m",
        Color::Green => "\x1b[32m",
        Color::Magenta => "\x1b[35m",
        Color::Yellow => "\x1b[33m",
        Color::Cyan => "\x1b[36m",
        _ => "\x1b[0m",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_the_screen_and_has_no_escapes_without_colours() {
        let mut history = History::default();
        for second in 0..60 {
            let line = format!(
                "MEMORY[1]: time: 2026-01-01 12:00:{second:02} rss: {second}.5 MB, live_objects: 5\n"
            );
            history.take(0, line.as_bytes());
        }
        let names = ["pid 1".to_string()];
        let plain = text(&history, &names, Screen { columns: 80, rows: Some(24), colours: false });
        assert!(plain.lines().count() <= 24, "{plain}");
        assert!(plain.lines().all(|line| line.chars().count() <= 80));
        assert!(plain.contains("RSS, MiB") && plain.contains("12:00:59") && !plain.contains('\x1b'));
        assert!(
            text(&history, &names, Screen { columns: 80, rows: None, colours: true }).contains("\x1b[34m")
        );
    }
}
