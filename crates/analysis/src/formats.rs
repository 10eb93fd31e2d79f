//! The formats of a report, by name. Ruby's list of them is `Defaults::FORMATS`.
//!
//! Text and JSON have files of their own. The others show whole stacks: a page with a flame graph, folded stacks, and a
//! profile for www.speedscope.app.

mod folded;
mod html;
mod speedscope;
mod table;

use std::io::{self, Write};

use crate::figures::Reader;
use crate::report::Report;
use crate::sites::Sites;
use crate::text::{Options, stacks};

/// Options of a report.
#[derive(Clone, Debug)]
pub struct Choices {
    /// The figure that call sites are sorted by.
    pub figure: Reader,
    /// How many call sites, or stacks, are shown; `None`: all.
    pub most: Option<usize>,
    /// The folder that paths are shown relative to.
    pub root: Option<Vec<u8>>,
    /// Whether colours are wanted.
    pub colour: bool,
    /// Whether the command writes it, which gives other advice than the process itself.
    pub is_command: bool,
}

impl Report {
    /// Writes it in this format. Call sites beyond those that are shown are left out from then on.
    ///
    /// # Errors
    /// Those of `out`, and [`io::ErrorKind::Unsupported`] if there is no such format.
    pub fn write(&mut self, format: &str, choices: Choices, out: &mut impl Write) -> io::Result<()> {
        let Choices { figure, most, root, colour, is_command } = choices;
        let root_path = root.as_deref();
        match format {
            "text" => {
                arrange(&mut self.sites, figure, most);
                let stacks = stacks::heaviest(self, figure);
                let options = Options { by: figure.figure.name, root, colour, is_command };
                out.write_all(self.text(&options, &stacks).as_bytes())
            }
            "json" => {
                arrange(&mut self.sites, figure, most);
                self.write_json(out, "")
            }
            "html" => {
                arrange(self.whole_mut(), figure, None);
                self.write_page(out, most, root_path)
            }
            "folded" => {
                arrange(self.whole_mut(), figure, most);
                self.write_folded(out, figure, root_path)
            }
            "speedscope" => {
                arrange(self.whole_mut(), figure, most);
                self.write_speedscope(out, root_path)
            }
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, format!("no format {format}"))),
        }
    }
}

fn arrange(sites: &mut Sites, figure: Reader, most: Option<usize>) {
    sites.sort(figure);
    sites.leave_out_beyond(most.unwrap_or(usize::MAX));
}
