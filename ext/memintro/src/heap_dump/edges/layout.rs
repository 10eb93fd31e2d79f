//! Where this Ruby keeps what it does not tell: found in samples, before the first copy is made.
//!
//! | what | how it is found | without it |
//! |---|---|---|
//! | tables of constants and methods of a class | a module with one of each: the one place whose table has it | constants and methods have no names |
//! | names of local variables | three blocks: the one place of their codes' bodies that leads to their names, and the one number that is how many | local variables have no names |
//! | environments | one whose code, pointer and variables are known | the same |
//! | a thread's context, frames in it | [`crate::vm`] | frames have no names |
//! | values of a thread by name | one that is set for a moment | they have no names |
//! | a fiber's context | the running one's | frames of other fibers have no names |
//!
//! Guesses are read through the kernel ([`Probe`]), which refuses what is not mapped.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use magnus::{RArray, Ruby, Value, rb_sys::AsRawValue};
use rb_sys::{ID, VALUE};

use super::super::vm::{OnReference, OnRoot};
use super::memory::{IdTable, name_of_serial};
use crate::atlas::Object;
use crate::lookup::look_up;
use crate::vm::Probe;

pub(super) type StData = usize;
type OnVariable = extern "C" fn(ID, VALUE, StData) -> c_int;
type OnPair = extern "C" fn(StData, StData, StData) -> c_int;
pub(in crate::heap_dump) type OnVariables = unsafe extern "C" fn(VALUE, OnVariable, StData);
pub(in crate::heap_dump) type OnPairs = unsafe extern "C" fn(VALUE, OnPair, StData) -> c_int;
type OfValue = unsafe extern "C" fn(VALUE) -> VALUE;

/// Functions that only read.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) references: unsafe extern "C" fn(VALUE, OnReference, *mut c_void),
    pub(super) roots: unsafe extern "C" fn(OnRoot, *mut c_void),
    pub(super) each_variable: OnVariables,
    pub(super) each_pair: OnPairs,
    pub(super) variable: unsafe extern "C" fn(VALUE, ID) -> VALUE,
    pub(super) superclass: OfValue,
    pub(super) struct_size: OfValue,
    pub(super) struct_member: unsafe extern "C" fn(VALUE, VALUE) -> VALUE,
    pub(super) iseq_of_proc: unsafe extern "C" fn(VALUE, *mut c_int) -> *const c_void,
    pub(super) iseq_path: OfValue,
    pub(super) iseq_label: OfValue,
    pub(super) iseq_line: OfValue,
    pub(super) line_of: unsafe extern "C" fn(VALUE, usize) -> u32,
    pub(super) singleton_of: Option<OfValue>,
}

impl Functions {
    fn find() -> Option<Self> {
        // SAFETY: each name stands for a function of this type in every Ruby that has it.
        unsafe {
            Some(Self {
                references: look_up!(
                    c"rb_objspace_reachable_objects_from",
                    unsafe extern "C" fn(VALUE, OnReference, *mut c_void)
                )?,
                roots: look_up!(
                    c"rb_objspace_reachable_objects_from_root",
                    unsafe extern "C" fn(OnRoot, *mut c_void)
                )?,
                each_variable: look_up!(c"rb_ivar_foreach", OnVariables)?,
                each_pair: look_up!(c"rb_hash_stlike_foreach", OnPairs)?,
                variable: look_up!(c"rb_attr_get", unsafe extern "C" fn(VALUE, ID) -> VALUE)?,
                superclass: look_up!(c"rb_class_get_superclass", OfValue)?,
                struct_size: look_up!(c"rb_struct_size", OfValue)?,
                struct_member: look_up!(c"rb_struct_aref", unsafe extern "C" fn(VALUE, VALUE) -> VALUE)?,
                iseq_of_proc: look_up!(
                    c"rb_proc_get_iseq",
                    unsafe extern "C" fn(VALUE, *mut c_int) -> *const c_void
                )?,
                iseq_path: look_up!(c"rb_iseq_path", OfValue)?,
                iseq_label: look_up!(c"rb_iseq_label", OfValue)?,
                iseq_line: look_up!(c"rb_iseq_first_lineno", OfValue)?,
                line_of: look_up!(c"rb_iseq_line_no", unsafe extern "C" fn(VALUE, usize) -> u32)?,
                singleton_of: look_up!(c"rb_class_attached_object", OfValue),
            })
        }
    }
}

/// Where a class has the address of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// In this word of its slot.
    InSlot(usize),
    /// In a word of the record that a word of its slot leads to.
    Behind(usize, usize),
}

/// In a code's body, the word with the names of local variables, and the half word with their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocalTable {
    pub(super) table: usize,
    pub(super) count: usize,
}

pub(super) struct Layout {
    pub(super) functions: Functions,
    /// The name under which a Struct's class has its members.
    pub(super) members: ID,
    /// The name under which a singleton class has its object, before 3.2.
    pub(super) of_singleton: ID,
    /// The least serial number of a name that is no operator.
    pub(super) first_serial: usize,
    /// Whether the first copy was made by the main Ractor.
    pub(super) main_ractor: bool,
    pub(super) constants: Option<Table>,
    pub(super) methods: Option<Table>,
    pub(super) locals: Option<LocalTable>,
    pub(super) envs: bool,
    pub(super) threads: Option<Threads>,
    /// Where memintro's own code in Ruby is.
    pub(super) own_folder: Vec<u8>,
}

/// Where threads and fibers have their contexts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threads {
    /// The word of a thread's structure that leads to its context.
    pub(super) context: usize,
    /// Words from a frame to its caller's.
    pub(super) stride: usize,
    /// The word of a context that leads to values by name.
    pub(super) values: Option<usize>,
    /// The word of a fiber's structure with which its context begins.
    pub(super) in_fiber: Option<usize>,
}

/// The context that has asked for the newest copy.
static ASKING: AtomicUsize = AtomicUsize::new(0);

pub(super) fn asking() -> usize {
    ASKING.load(Ordering::Relaxed)
}

/// Whether this context has asked, so that memintro's frames are on its stack.
pub(super) fn has_asked(context: usize) -> bool {
    asking() == context
}

static LAYOUT: OnceLock<Option<Layout>> = OnceLock::new();

/// What [`prepare`] has found.
pub(super) fn get() -> Option<&'static Layout> {
    LAYOUT.get()?.as_ref()
}

/// Once, under the GVL.
pub(super) fn prepare() {
    if LAYOUT.get().is_none() {
        let _ = LAYOUT.set(find());
    }
    ASKING.store(crate::vm::own_context().map_or(0, |(context, _)| context), Ordering::Relaxed);
}

/// Blocks with one, three and seven local variables, a module with a constant and a method, and a value.
/// Within a block, because local variables of evaluated code would stay those of the program.
const SAMPLES: &str = "
proc do
  mark = Object.new
  outer = proc do
    memintro_one = memintro_two = 1
    memintro_three = mark
    [memintro_one, memintro_two, memintro_three]
    proc { memintro_inner = memintro_three }
  end
  seven = proc do
    memintro_a = memintro_b = memintro_c = memintro_d = memintro_e = memintro_f = memintro_g = 1
    [memintro_a, memintro_b, memintro_c, memintro_d, memintro_e, memintro_f, memintro_g]
  end
  sample = Module.new do
    const_set(:MEMINTRO_SAMPLE, mark)
    def memintro_sample; end
  end
  [mark, outer, outer.call, seven, sample]
end.call
";

fn find() -> Option<Layout> {
    let functions = Functions::find()?;
    let ruby = Ruby::get().ok()?;
    let first_serial = (intern("max") >> 4) as usize;
    let mut layout = Layout {
        functions,
        members: intern("__members__"),
        of_singleton: intern("__attached__"),
        first_serial,
        main_ractor: is_main_ractor(&ruby),
        constants: None,
        methods: None,
        locals: None,
        envs: false,
        threads: None,
        own_folder: ruby.eval::<String>("Memintro::Paths::CODE").map(String::into_bytes).unwrap_or_default(),
    };
    let Some(probe) = Probe::new() else { return Some(layout) };
    if let Ok(samples) = ruby.eval::<RArray>(SAMPLES) {
        let sample = |index: isize| samples.entry::<Value>(index).map_or(0, |value| value.as_raw() as usize);
        let [mark, outer, inner, seven, module] = [0, 1, 2, 3, 4].map(sample);
        if outer != 0 && inner != 0 && seven != 0 && module != 0 {
            let search = Search { probe: &probe, layout: &layout };
            let found = (
                search.table(module, "MEMINTRO_SAMPLE", |value| {
                    probe.words::<2>(value).is_some_and(|words| words[1] == mark)
                }),
                search.table(module, "memintro_sample", |value| {
                    probe.words::<5>(value).is_some_and(|words| words[4] == module)
                }),
                search.locals(&[
                    (outer, "memintro_one", 3),
                    (inner, "memintro_inner", 1),
                    (seven, "memintro_a", 7),
                ]),
                search.is_env(inner, outer, mark),
            );
            (layout.constants, layout.methods, layout.locals, layout.envs) = found;
        }
        std::hint::black_box(samples);
    }
    layout.threads = threads(&probe, &layout);
    Some(layout)
}

fn intern(name: &str) -> ID {
    // SAFETY: so many bytes of ASCII.
    unsafe { rb_sys::rb_intern2(name.as_ptr().cast(), name.len() as _) }
}

fn is_main_ractor(ruby: &Ruby) -> bool {
    ruby.eval("!defined?(Ractor) || Ractor.count == 1 || Ractor.current == Ractor.main").unwrap_or(true)
}

struct Search<'a> {
    probe: &'a Probe,
    layout: &'a Layout,
}

/// Words of a class's slot and of the record behind it that are searched.
const SLOT: usize = 20;
const RECORD: usize = 24;
/// Words of a code's body that are searched.
const BODY: usize = 48;

impl Search<'_> {
    /// The one place of a class with a table in which this name has a value that fits.
    fn table(&self, class: usize, name: &str, fits: impl Fn(usize) -> bool) -> Option<Table> {
        let name = intern(name);
        let (mut found, mut found_behind) = (Vec::new(), Vec::new());
        let slot = self.probe.words::<SLOT>(class)?;
        // The first three are flags, class and what is above.
        for (index, word) in slot.iter().enumerate().skip(3) {
            if self.has(*word, name, &fits) {
                found.push(Table::InSlot(index));
            } else if let Some(record) = self.probe.words::<RECORD>(*word).filter(|_| index == 3) {
                let behind = record.iter().enumerate().filter(|(_, word)| self.has(**word, name, &fits));
                found_behind.extend(behind.map(|(behind, _)| Table::Behind(index, behind)));
            }
        }
        // Where the slot has it, what lies behind is not the class's record, and may have the address by chance.
        let found = if found.is_empty() { found_behind } else { found };
        if let [place] = found[..] { Some(place) } else { None }
    }

    /// Whether a table by name is here, in which this name has a value that fits.
    fn has(&self, address: usize, name: ID, fits: impl Fn(usize) -> bool) -> bool {
        self.entry(address, name).is_some_and(fits)
    }

    fn entry(&self, address: usize, name: ID) -> Option<usize> {
        const MOST: usize = 1024;
        if !address.is_multiple_of(8) {
            return None;
        }
        let (entries, places) = self.probe.words(address).and_then(IdTable::from)?.entries();
        (0..places.min(MOST)).find_map(|index| {
            let [key, value] = self.probe.words(entries + index * 16)?;
            // The lower four bits of a name say what it is the name of.
            (name_of_serial(key & 0xffff_ffff, self.layout.first_serial) >> 4 == name >> 4).then_some(value)
        })
    }

    fn body(&self, block: usize) -> Option<[usize; BODY]> {
        let mut lambda = 0;
        // SAFETY: a block of a sample.
        let iseq = unsafe { (self.layout.functions.iseq_of_proc)(block as VALUE, &raw mut lambda) } as usize;
        let [body] = self.probe.words(iseq + 2 * size_of::<usize>())?;
        self.probe.words(body)
    }

    /// Blocks, the first local variable of each, and how many each has.
    fn locals(&self, blocks: &[(usize, &str, usize)]) -> Option<LocalTable> {
        let bodies: Vec<_> = blocks
            .iter()
            .map(|(block, first, count)| Some((self.body(*block)?, intern(first) as usize, *count)))
            .collect::<Option<_>>()?;
        let mut tables = (2..BODY).filter(|index| {
            bodies.iter().all(|(body, first, _)| {
                body.get(*index)
                    .and_then(|word| self.probe.words::<1>(*word))
                    .is_some_and(|[name]| name == *first)
            })
        });
        let (Some(table), None) = (tables.next(), tables.next()) else { return None };
        let half = |body: &[usize; BODY], index: usize| {
            body.get(index / 2).map(|word| (word >> (32 * (index % 2))) & 0xffff_ffff)
        };
        // The number stands behind the table; parameters, of which the samples have none, before it.
        let mut counts = (2 * table + 2..2 * BODY)
            .filter(|index| bodies.iter().all(|(body, _, count)| half(body, *index) == Some(*count)));
        Some(LocalTable { table, count: counts.next()? })
    }

    /// Whether the inner block's environment has its words where [`super::closures`] reads them.
    fn is_env(&self, inner: usize, outer: usize, mark: usize) -> bool {
        // SAFETY: blocks of samples.
        let (block, code) = unsafe {
            let mut lambda = 0;
            let code = (self.layout.functions.iseq_of_proc)(outer as VALUE, &raw mut lambda) as usize;
            (Object::read(inner).structure(), code)
        };
        let check = || {
            let [_, pointer, _] = self.probe.words(block)?;
            let [_, env] = self.probe.words(pointer)?;
            let [_, iseq, same_pointer, first] = self.probe.words(env)?;
            let locals: [usize; 3] = self.probe.words(first)?;
            Some(iseq == code && same_pointer == pointer && locals[2] == mark)
        };
        check() == Some(true)
    }
}

fn threads(probe: &Probe, layout: &Layout) -> Option<Threads> {
    const WORDS: usize = 64;
    let (context, stride) = crate::vm::own_context().or_else(|| {
        // Compared outside of any method, whatever method asks.
        let ruby = Ruby::get().ok()?;
        let _ = ruby.eval::<Value>("TOPLEVEL_BINDING.eval('Memintro::Native.open_short_cut')");
        crate::vm::own_context()
    })?;
    // SAFETY: under the GVL; a thread has an object.
    let thread = unsafe { Object::read(rb_sys::rb_thread_current() as usize) };
    let words = probe.words::<32>(thread.structure())?;
    let place = words.iter().position(|word| *word == context)?;
    let mut threads = Threads { context: place, stride, values: None, in_fiber: None };
    let name = intern("__memintro_sample");
    let sample = thread.value();
    let set = |value: VALUE| {
        // SAFETY: a thread and a value; what it raises, if the program has frozen the thread, is caught.
        let set = magnus::rb_sys::protect(|| unsafe { rb_sys::rb_thread_local_aset(sample, name, value) });
        if set.is_err() {
            // SAFETY: forgets what was raised.
            unsafe { rb_sys::rb_set_errinfo(rb_sys::Qnil as VALUE) };
        }
    };
    set(sample);
    let search = Search { probe, layout };
    if let Some(words) = probe.words::<WORDS>(context) {
        let found = words.iter().position(|word| search.has(*word, name, |value| value == thread.address));
        threads.values = found;
    }
    set(rb_sys::Qnil as VALUE);
    // SAFETY: under the GVL; the fiber that runs has an object, or gets one.
    let fiber = unsafe { Object::read(rb_sys::rb_fiber_current() as usize) };
    let distance = context.wrapping_sub(fiber.structure()) / size_of::<usize>();
    threads.in_fiber = (distance < 128).then_some(distance);
    Some(threads)
}
