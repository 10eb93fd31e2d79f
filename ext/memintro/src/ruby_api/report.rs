//! `Memintro::Native::Report`: a report in Rust's memory, without Ruby objects: of this process, or read from outside.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use magnus::typed_data::Obj;
use magnus::{
    Error, RArray, RClass, RHash, RModule, RString, Ruby, Symbol, Value, function, method, prelude::*,
};
use memintro_abi::{DUMP_MAGIC, Figures, Mode, Origin};
use memintro_analysis::formats::Choices;
use memintro_analysis::raw_dump;
use memintro_analysis::report::{Error as NoReport, Fact, Process, Report as Model};
use memintro_analysis::sites::Sites;

use super::errors;
use super::json::OfRuby;
use super::json_document::JsonDocument;
use super::names;
use super::native::figures_array;
use super::ractor_safe::ractor_safe;
use super::site_rows::rows;
use super::sites;
use super::top_sites;
use super::trial;
use super::values;
use super::without_gvl::without_gvl;
use crate::{callers, hook_link, process, vm};

pub(crate) fn init(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Report", ruby.class_object())?;
    super::know_class::<Report>(ruby);
    class.undef_default_alloc_func();
    class.define_singleton_method("take", function!(Report::take, 5))?;
    // Ractors may read snapshots.
    ractor_safe(|| {
        class.define_singleton_method("read", function!(Report::read, 1))?;
        class.define_singleton_method("read_snapshot", function!(Report::read_snapshot, 1))?;
        class.define_method("process", method!(Report::process, 0))?;
        class.define_method("totals", method!(Report::totals, 0))?;
        class.define_method("rows", method!(Report::rows, 0))?;
        class.define_method("left_out", method!(Report::left_out, 0))?;
        class.define_method("clear", method!(Report::clear, 0))
    })?;
    class.define_singleton_method("read_old", function!(Report::read_old, 2))?;
    class.define_singleton_method("sum", function!(Report::sum, 1))?;
    class.define_method("root", method!(Report::root, 0))?;
    class.define_method("default_figure", method!(Report::default_figure, 0))?;
    class.define_method("write", method!(Report::write, 5))?;
    class.define_method("json", method!(Report::json, 1))
}

/// A report.
#[magnus::wrap(class = "Memintro::Native::Report", free_immediately)]
pub(super) struct Report(RefCell<Model>);

/// What Ruby says of this process: the versions of memintro and Ruby, what Ruby was built for, the time, and the program's
/// name.
pub(super) type Facts = (String, String, String, String, RString);

/// What is known of this process, and its totals.
pub(super) fn own(ruby: &Ruby, facts: Facts) -> Result<(Process, Figures), Error> {
    let (memintro, version, platform, time, program) = facts;
    let mut totals = Figures::default();
    let mut process = Process {
        pid: Some(std::process::id().into()),
        // SAFETY: copied at once.
        program: Some(memintro_analysis::json::shown(unsafe { program.as_slice() })),
        ruby: Some(version),
        platform: Some(platform),
        memintro: Some(memintro),
        mode: Some("off".to_owned()),
        tracking: Some(false),
        preloaded: Some(false),
        generation: Some(vm::generation(ruby)?.cast_signed() as i64),
        time: Some(time),
        rss_bytes: process::own_statm().ok().map(|sizes| sizes.rss.cast_signed()),
        problem: trial::unseen(),
        ..Process::default()
    };
    if let Some(api) = hook_link::found() {
        // SAFETY: a valid record.
        unsafe { (api.totals)(&raw mut totals) };
        let mode = (api.mode)();
        process.tracking = Some(mode != Mode::OFF);
        process.preloaded = Some((api.origin)() == Origin::PRELOADED);
        let name = match mode {
            Mode::OFF => "off",
            Mode::SAMPLED => "sampled",
            _ => "full",
        };
        process.mode = Some(name.to_owned());
        process.sample_bytes = (totals.estimated != 0).then(|| (api.sample_bytes)().cast_signed());
    }
    Ok((process, totals))
}

/// The bytes of a text, or of the current folder.
pub(super) fn root(given: Option<RString>) -> Option<Vec<u8>> {
    // SAFETY: copied at once.
    let given = given.map(|text| unsafe { text.as_slice() }.to_vec());
    given.or_else(|| std::env::current_dir().ok().map(OsString::from).map(OsStringExt::into_vec))
}

impl Report {
    /// The report, or an empty one once it was cleared.
    pub(super) fn model(&self) -> Ref<'_, Model> {
        self.0.borrow()
    }

    /// For a change. Another thread may be writing it at this moment.
    fn change(&self, ruby: &Ruby) -> Result<RefMut<'_, Model>, Error> {
        self.0.try_borrow_mut().map_err(|_| errors::error(ruby, "BusyError", "this report is being written"))
    }

    fn new(model: Model) -> Self {
        Self(RefCell::new(model))
    }

    /// Of this process, now: at most so many sites, those with the greatest figure, greatest first. With an age, only sites
    /// with blocks or objects of that age, and only these count as live. `whole`: also the whole stacks, if there are any.
    fn take(
        ruby: &Ruby,
        facts: Facts,
        by: Symbol,
        most: Option<usize>,
        older_than: Option<u32>,
        whole: bool,
    ) -> Result<Self, Error> {
        let figure = top_sites::figure(ruby, &by.name()?)?;
        let (process, totals) = own(ruby, facts)?;
        let sites = sites::take(ruby, figure, most, older_than)?;
        let stacks = if whole { sites::whole(ruby)? } else { None };
        Ok(Self::new(Model { process, totals, sites, stacks, older_than, root: None }))
    }

    /// Of a text: a JSON report, a snapshot, or a raw dump.
    fn read(ruby: &Ruby, text: RString) -> Result<Self, Error> {
        // SAFETY: copied at once.
        let text = unsafe { text.as_slice() }.to_vec();
        if text.starts_with(&DUMP_MAGIC) {
            return of_dump(ruby, &text).map(Self::new);
        }
        if !text.starts_with(b"{") {
            let wrong =
                "neither a raw dump nor a JSON report of memintro (a text report can be read as it is)";
            return Err(errors::error(ruby, "DumpError", wrong));
        }
        read_by(ruby, text, Model::read)
    }

    /// Of an answer in which only blocks and objects of some age count.
    fn read_old(ruby: &Ruby, text: RString, collections: u32) -> Result<Self, Error> {
        // SAFETY: copied at once.
        let text = unsafe { text.as_slice() }.to_vec();
        read_by(ruby, text, move |text| Model::read_old(text, collections))
    }

    /// Of a snapshot, with a Hash of what it has besides totals and call sites.
    fn read_snapshot(ruby: &Ruby, text: RString) -> Result<(Self, Value), Error> {
        // SAFETY: copied at once.
        let text = unsafe { text.as_slice() }.to_vec();
        let (model, others) = Model::read_snapshot(&text, &OfRuby(ruby))
            .map_err(|wrong| Error::new(ruby.exception_arg_error(), wrong.to_string()))?;
        Ok((Self::new(model), others))
    }

    /// The folder that paths are relative to, if an answer says it.
    fn root(&self) -> Option<String> {
        self.model().root.clone()
    }

    /// The sum of several, the master's first.
    fn sum(reports: RArray) -> Result<Self, Error> {
        let mut models = Vec::new();
        for at in 0..reports.len() {
            models.push(reports.entry::<Obj<Self>>(at.cast_signed())?.model().clone());
        }
        Ok(Self::new(without_gvl(move || Model::sum(&models))?))
    }

    /// What is known of the process.
    fn process(ruby: &Ruby, this: &Self) -> Result<RHash, Error> {
        let hash = ruby.hash_new();
        for (name, fact) in this.model().process.facts() {
            let key = ruby.to_symbol(name);
            match fact {
                Fact::Text(text) => hash.aset(key, names::string(ruby, text.as_bytes()))?,
                Fact::Number(number) => hash.aset(key, number)?,
                Fact::Flag(flag) => hash.aset(key, flag)?,
            }
        }
        Ok(hash)
    }

    /// The totals in the order that `Memintro::Totals` expects.
    fn totals(ruby: &Ruby, this: &Self) -> Result<RArray, Error> {
        figures_array(ruby, &this.model().totals)
    }

    /// The sites as rows.
    fn rows(ruby: &Ruby, this: &Self) -> Result<RArray, Error> {
        rows(ruby, &this.model().sites, false)
    }

    /// Number, live bytes and their variance of the sites that are left out.
    fn left_out(&self) -> (usize, i64, Option<f64>) {
        let Sites { left_out, live_bytes_left_out, variance_left_out, .. } = self.model().sites;
        (left_out, live_bytes_left_out, variance_left_out)
    }

    /// What sites are sorted by unless something else is asked for.
    fn default_figure(ruby: &Ruby, this: &Self) -> Symbol {
        ruby.to_symbol(this.model().default_figure())
    }

    /// As this format writes it, sorted by a figure, paths relative to a folder (nil: the current one), perhaps with
    /// colours, for the process or for the command. Sites beyond `most` are left out from now on.
    fn write(
        ruby: &Ruby,
        this: &Self,
        format: Symbol,
        by: Symbol,
        most: Option<usize>,
        folder: Option<RString>,
        (colour, is_command): (bool, bool),
    ) -> Result<JsonDocument, Error> {
        let figure = top_sites::figure(ruby, &by.name()?)?;
        let choices = Choices { figure, most, root: root(folder), colour, is_command };
        let format = format.name()?.into_owned();
        let mut model = this.change(ruby)?;
        let model = &mut *model;
        JsonDocument::written(ruby, |out| model.write(&format, choices, out))
    }

    /// As JSON, with the members of a hash behind its own.
    fn json(ruby: &Ruby, this: &Self, tail: RHash) -> Result<JsonDocument, Error> {
        let tail = values::members(tail, memintro_analysis::json::Bytes::Shown)?;
        let model = this.model();
        JsonDocument::written(ruby, |out| model.write_json(out, &tail))
    }

    /// Frees the memory, which otherwise would wait for Ruby's collector.
    fn clear(&self) {
        if let Ok(mut model) = self.0.try_borrow_mut() {
            *model = Model::default();
        }
    }
}

fn read_by(
    ruby: &Ruby,
    text: Vec<u8>,
    read: impl FnOnce(&[u8]) -> Result<Model, NoReport> + Send,
) -> Result<Report, Error> {
    match without_gvl(move || read(&text))? {
        Ok(model) => Ok(Report::new(model)),
        Err(NoReport::NotJson(_)) => {
            let wrong = "begins like a JSON report, but is not valid JSON; was it cut short?";
            Err(errors::error(ruby, "DumpError", wrong))
        }
        Err(error) => Err(errors::error(ruby, "DumpError", error.to_string())),
    }
}

fn of_dump(ruby: &Ruby, text: &[u8]) -> Result<Model, Error> {
    let dump = raw_dump::parse(text)
        .map_err(|error| errors::error(ruby, "DumpError", format!("it is not a usable raw dump: {error}")))?;
    let names: HashMap<_, _> = callers::of_dump(&dump);
    let time =
        UNIX_EPOCH.checked_add(Duration::from_secs(dump.header.time)).unwrap_or(SystemTime::UNIX_EPOCH);
    Ok(Model::of_dump(&dump, &names, utc(ruby, time)?))
}

/// Such as `2026-11-28T12:00:00Z`.
fn utc(ruby: &Ruby, time: SystemTime) -> Result<String, Error> {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time: magnus::Value =
        ruby.class_object().const_get::<_, RClass>("Time")?.funcall("at", (seconds,))?;
    time.funcall::<_, _, magnus::Value>("utc", ())?.funcall("strftime", ("%FT%TZ",))
}
