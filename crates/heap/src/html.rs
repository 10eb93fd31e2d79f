//! page
use crate::answer::Answer;
use crate::graph::Graph;
use crate::options::Options;
/// page
pub fn write(_graph: &mut Graph, _options: &Options, _file: &str) -> Result<Answer, String> {
    Err("x".into())
}
