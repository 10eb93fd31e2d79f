//! Reports of whole stacks: a page with a flame graph, folded stacks, and a profile for www.speedscope.app.

mod folded;
mod html;
mod speedscope;
mod table;
