//! The plot as an image: one panel for each metric, one below the other, with a curve for each process.

use super::axis::{TimeAxis, ValueAxis};
use super::history::{Curve, History};
use super::record::Metric;
use super::thin::thin;
use memintro_analysis::text::printable;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};
use std::sync::Once;

const WIDTH: u32 = 1_200;
const PANEL_HEIGHT: u32 = 230;
const HEADER_HEIGHT: u32 = 34;
const LEGEND_ROW_HEIGHT: i32 = 20;
const MARGIN: i32 = 16;
const VALUE_LABELS: u32 = 70;
const TIME_LABELS: u32 = 24;
const TIME_MARKS: usize = 12;
/// Most names in the legend.
const MOST_NAMES: usize = 16;
const FONT: &str = "sans-serif";

/// Eight colours that most people can tell apart, also in print. Further curves repeat them.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 240),
    RGBColor(90, 90, 90),
];
const INK: RGBColor = RGBColor(40, 40, 40);
const PALE: RGBColor = RGBColor(226, 226, 226);

/// The text of an SVG file.
pub(super) fn svg(history: &History, names: &[String]) -> Result<String, String> {
    let layout = Layout::new(history, names);
    let mut text = String::new();
    draw(&SVGBackend::with_string(&mut text, (WIDTH, layout.height)).into_drawing_area(), &layout)?;
    Ok(text)
}

/// The bytes of a PNG file.
pub(super) fn png(history: &History, names: &[String]) -> Result<Vec<u8>, String> {
    let layout = Layout::new(history, names);
    let mut pixels = vec![0; (WIDTH * layout.height * 3) as usize];
    draw(&BitMapBackend::with_buffer(&mut pixels, (WIDTH, layout.height)).into_drawing_area(), &layout)?;
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, WIDTH, layout.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
    writer.write_image_data(&pixels).map_err(|error| error.to_string())?;
    writer.finish().map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// The name of each curve: its process, and its file if there are several.
pub(super) fn names(history: &History, files: &[String]) -> Vec<String> {
    let name = |curve: &Curve| {
        let process = if curve.pid == 0 { "process".to_string() } else { format!("pid {}", curve.pid) };
        if files.len() > 1 {
            format!("{} {process}", printable(files[curve.source].as_bytes()))
        } else {
            process
        }
    };
    history.curves.iter().map(name).collect()
}

/// A range with marks at given positions.
struct Marked {
    from: f64,
    to: f64,
    marks: Vec<f64>,
}

impl Ranged for Marked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.from) / (self.to - self.from);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.from..self.to
    }
}

/// Position, name and curve of an entry of the legend. An entry without a curve is a remark.
type Entry = (i32, i32, String, Option<usize>);

struct Layout<'a> {
    history: &'a History,
    metrics: Vec<Metric>,
    legend: Vec<Entry>,
    legend_height: i32,
    height: u32,
}

impl<'a> Layout<'a> {
    fn new(history: &'a History, names: &[String]) -> Layout<'a> {
        load_font();
        let metrics = history.metrics();
        let (legend, legend_height) = legend(history, names);
        let height = HEADER_HEIGHT + legend_height as u32 + PANEL_HEIGHT * metrics.len() as u32 + 8;
        Layout { history, metrics, legend, legend_height, height }
    }
}

/// Plots must look the same where no font is installed, as in most containers.
fn load_font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // The bytes are those of a font, so this cannot fail.
        let _ = register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
    });
}

/// Places the names in rows, those of the greatest processes first.
fn legend(history: &History, names: &[String]) -> (Vec<Entry>, i32) {
    let mut order: Vec<usize> = (0..history.curves.len()).collect();
    if order.len() > MOST_NAMES {
        let peak =
            |at: &usize| history.curves[*at].points(Metric::Rss).map(|(_, rss)| rss).fold(0.0_f64, f64::max);
        order.sort_by(|a, b| peak(b).total_cmp(&peak(a)));
    }
    let more = order.len().saturating_sub(MOST_NAMES);
    let mut entries: Vec<(String, Option<usize>)> =
        order.into_iter().take(MOST_NAMES).map(|at| (short(&names[at]), Some(at))).collect();
    if more > 0 {
        entries.push((format!("and {more} more"), None));
    }
    let (mut x, mut y) = (MARGIN, 0);
    let mut placed = Vec::new();
    for (name, curve) in entries {
        let width = text_width(&name, 13) + if curve.is_some() { 28 } else { 0 };
        if x + width > WIDTH as i32 - MARGIN && x > MARGIN {
            x = MARGIN;
            y += LEGEND_ROW_HEIGHT;
        }
        placed.push((x, y, name, curve));
        x += width + 22;
    }
    (placed, y + LEGEND_ROW_HEIGHT + 6)
}

/// Cuts the beginning, because the end of a path says more.
fn short(name: &str) -> String {
    let letters = name.chars().count();
    if letters <= 60 {
        name.to_string()
    } else {
        format!("…{}", name.chars().skip(letters - 59).collect::<String>())
    }
}

fn text_width(text: &str, size: i32) -> i32 {
    (FONT, size).into_font().box_size(text).map_or(text.len() as i32 * size, |(width, _)| width as i32)
}

fn draw<B: DrawingBackend>(area: &DrawingArea<B, Shift>, layout: &Layout<'_>) -> Result<(), String> {
    try_draw(area, layout).map_err(|error| format!("the plot could not be drawn: {error}"))
}

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn try_draw<B: DrawingBackend>(area: &DrawingArea<B, Shift>, layout: &Layout<'_>) -> Drawn<B> {
    area.fill(&WHITE)?;
    let Some(time) = TimeAxis::new(layout.history, TIME_MARKS) else { return area.present() };
    let text = |size: i32, colour: &RGBColor| (FONT, size).into_font().color(colour);
    area.draw(&Text::new(time.title(), (MARGIN, 10), text(15, &INK)))?;
    let (header, panels) = area.split_vertically(HEADER_HEIGHT as i32 + layout.legend_height);
    for (x, y, name, curve) in &layout.legend {
        let (x, y) = (*x, *y + HEADER_HEIGHT as i32);
        if let Some(curve) = curve {
            header.draw(&Rectangle::new([(x, y + 5), (x + 20, y + 9)], colour(*curve).filled()))?;
        }
        let beside = x + if curve.is_some() { 28 } else { 0 };
        let style = text(13, &INK).pos(Pos::new(HPos::Left, VPos::Top));
        header.draw(&Text::new(name.clone(), (beside, y), style))?;
    }
    let (panels, _) = panels.split_vertically(PANEL_HEIGHT * layout.metrics.len() as u32);
    for (panel, metric) in panels.split_evenly((layout.metrics.len(), 1)).iter().zip(&layout.metrics) {
        draw_panel(panel, layout.history, *metric, &time)?;
    }
    area.present()
}

fn draw_panel<B: DrawingBackend>(
    panel: &DrawingArea<B, Shift>,
    history: &History,
    metric: Metric,
    time: &TimeAxis,
) -> Drawn<B> {
    let values = ValueAxis::new(history, metric);
    panel.draw(&Text::new(values.title.clone(), (MARGIN, 2), (FONT, 14).into_font().color(&INK)))?;
    let seconds = |at: i64| (at - time.from) as f64 / 1e6;
    let marks = time.marks();
    let moments: Vec<f64> = marks.iter().map(|mark| seconds(*mark)).collect();
    let whole = seconds(time.to);
    let mut chart = ChartBuilder::on(panel)
        .margin_top(24)
        .margin_right(40)
        .y_label_area_size(VALUE_LABELS)
        .x_label_area_size(TIME_LABELS)
        .build_cartesian_2d(
            Marked { from: 0.0, to: whole, marks: moments.clone() },
            Marked { from: values.from, to: values.to, marks: values.marks() },
        )?;
    let moment_label = |at: &f64| {
        let place = moments.iter().position(|moment| moment == at);
        place.map_or(String::new(), |place| time.label(marks[place]))
    };
    chart
        .configure_mesh()
        .x_labels(TIME_MARKS * 4)
        .y_labels(40)
        .max_light_lines(0)
        .bold_line_style(PALE)
        .axis_style(RGBColor(150, 150, 150))
        .label_style((FONT, 12).into_font().color(&INK))
        .x_label_formatter(&moment_label)
        .y_label_formatter(&|value| values.label(*value))
        .draw()?;
    let columns = chart.plotting_area().dim_in_pixel().0 as usize;
    for (at, curve) in history.curves.iter().enumerate() {
        let points = curve.points(metric).map(|(at, value)| (seconds(at), value / values.scale));
        let points = thin(points, 0.0, whole, columns);
        // A curve of a single point would draw nothing.
        if points.len() <= 60 {
            let dots = points.iter().map(|point| Circle::new(*point, 2, colour(at).filled()));
            chart.draw_series(dots)?;
        }
        chart.draw_series(LineSeries::new(points, colour(at).stroke_width(1)))?;
    }
    Ok(())
}

fn colour(curve: usize) -> RGBColor {
    COLOURS[curve % COLOURS.len()]
}

/// The colours as a page has them.
pub(super) fn colour_of_page(curve: usize) -> String {
    let RGBColor(red, green, blue) = colour(curve);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_called_by_what_no_terminal_obeys() {
        let mut history = History::default();
        history.take(1, b"MEMORY[7]: time: 2026-01-01 12:00:00 rss: 1.5 MB, live_objects: 5\n");
        let files = ["a".to_string(), "b\u{1b}[2J\u{9b}\u{202e}\u{61c}é.log".to_string()];
        assert_eq!(names(&history, &files), ["b\\x1B[2J\\xC2\\x9B\\xE2\\x80\\xAE\\xD8\\x9Cé.log pid 7"]);
    }
}
