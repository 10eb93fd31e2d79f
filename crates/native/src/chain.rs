//! Finds the frames of a stack that are the native callers of an allocation.
//!
//! From the inside, the frames are memintro's own, the allocator's and libc's, perhaps Ruby's (`ruby_xmalloc`
//! and its callers), then those of the library that requested memory, and finally the interpreter, which runs
//! the line. The native callers are the frames of that library. If the interpreter comes first, Ruby itself
//! requested the memory.
//!
//! The interpreter's function has no symbol in Ruby 3.3 and later. It is found by its frame: [`Unwinder::learn`] is called
//! where the interpreter is on the stack twice.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gimli::UnwindContext;
use memintro_abi::{ALLOCATORS, CallerSample, SiteKind};
use rustc_hash::FxHashMap;

use crate::frame::{Registers, Rule};
use crate::modules::{Loaded, Modules, Place};

/// Most frames of one stack.
const MOST_FRAMES: usize = 96;
/// Frames of a library that are kept for a line of Ruby, and callers that are kept for a native site.
const KEPT_FOR_RUBY: usize = 3;
const KEPT_FOR_NATIVE: usize = 6;
/// Rules that are remembered, one for each return address.
const MOST_RULES: usize = 8192;
/// Name prefixes of libraries that only pass on their callers' requests: those of C and C++. Allocators do
/// the same.
const PASSED_OVER: [&str; 9] = [
    "libmemintro_hook",
    "libc.so",
    "libc-2",
    "ld-linux",
    "libpthread",
    "libdl.so",
    "libstdc++",
    "libc++",
    "libgcc_s",
];

/// The requester of the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chain {
    /// A library: its innermost frame, the one that called that, and the innermost one of the next library.
    Native(Vec<Place>),
    /// Ruby itself.
    Ruby,
    /// The stack could not be followed as far as that.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    PassedOver,
    Ruby,
    Program,
    Library,
}

/// Unwinds stacks of this process, and remembers what it has read.
#[derive(Debug)]
pub struct Unwinder {
    modules: Modules,
    rules: FxHashMap<u64, Option<Rule>>,
    context: Box<UnwindContext<usize>>,
    /// By number of the module.
    roles: FxHashMap<u32, Role>,
    /// Addresses in modules whose frames are passed over.
    passed_over: Vec<u64>,
    /// An address in the module that is Ruby.
    ruby: u64,
    /// Addresses of the interpreter.
    interpreter: Vec<Range<u64>>,
}

struct Frame {
    address: u64,
    function: Range<u64>,
    module: usize,
}

impl Unwinder {
    /// With an address in the module that is Ruby, and one in each skipped module. None of these is ever
    /// unloaded.
    #[must_use]
    pub fn new(ruby: u64, passed_over: Vec<u64>) -> Self {
        let lasting = passed_over.iter().copied().chain([ruby]).collect();
        Self {
            modules: Modules::new(lasting),
            rules: FxHashMap::default(),
            context: Box::new(UnwindContext::new()),
            roles: FxHashMap::default(),
            passed_over,
            ruby,
            interpreter: Vec::new(),
        }
    }

    /// For the stacks of a process that has ended, whose modules these are.
    #[must_use]
    pub fn of_ended(modules: Modules) -> Self {
        Self { modules, ..Self::new(0, Vec::new()) }
    }

    /// The requester of memory at a native site of a process that has ended.
    pub fn chain_of_ended(&mut self, of: Registers, read: impl Fn(u64) -> Option<u64>) -> Chain {
        let chain = catch_unwind(AssertUnwindSafe(|| self.follow(of, read, false, &Nothing)));
        chain.unwrap_or(Chain::Unknown)
    }

    /// The modules.
    #[must_use]
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The addresses of the interpreter, if it was found.
    #[must_use]
    pub fn interpreter(&self) -> &[Range<u64>] {
        &self.interpreter
    }

    /// The addresses of the code of the module that is Ruby.
    pub fn ruby_code(&mut self, loaded: &dyn Loaded) -> Option<Range<u64>> {
        self.refresh(loaded);
        let module = self.modules.find(self.ruby)?;
        self.modules.get(module).map(|module| module.code.clone())
    }

    /// Finds the interpreter, which must be on this stack at least twice. Returns whether it was found.
    pub fn learn(&mut self, of: Registers, read: impl Fn(u64) -> Option<u64>, loaded: &dyn Loaded) -> bool {
        self.refresh(loaded);
        let mut frames = Vec::new();
        self.walk(of, read, loaded, |_, frame| {
            frames.push(frame);
            true
        });
        let mut of_ruby: Vec<(Range<u64>, Option<Range<u64>>)> = Vec::new();
        for (at, frame) in frames.iter().enumerate() {
            if self.role(frame.module) == Role::Ruby {
                let caller = frames.get(at + 1).filter(|next| self.role(next.module) == Role::Ruby);
                of_ruby.push((frame.function.clone(), caller.map(|caller| caller.function.clone())));
            }
        }
        // It is by far the largest function that runs there.
        let Some(largest) = of_ruby.iter().map(|(function, _)| function).max_by_key(|it| it.end - it.start)
        else {
            return false;
        };
        let callers: Vec<_> =
            of_ruby.iter().filter(|(function, _)| function == largest).map(|(_, caller)| caller).collect();
        if callers.len() < 2 {
            return false;
        }
        self.interpreter = vec![largest.clone()];
        // The function that only calls it, however that function was called.
        if let Some(Some(caller)) = callers.first().copied()
            && callers.iter().all(|other| other.as_ref() == Some(caller))
        {
            self.interpreter.push(caller.clone());
        }
        true
    }

    /// Addresses of the frames, from the inside, as far as they can be followed.
    pub fn frames(
        &mut self,
        of: Registers,
        read: impl Fn(u64) -> Option<u64>,
        loaded: &dyn Loaded,
    ) -> Vec<u64> {
        self.refresh(loaded);
        let mut addresses = Vec::new();
        self.walk(of, read, loaded, |_, frame| {
            addresses.push(frame.address);
            true
        });
        addresses
    }

    /// Reads the list of modules again if it has changed.
    pub fn refresh(&mut self, loaded: &dyn Loaded) {
        if self.modules.refresh(loaded) || self.rules.len() > MOST_RULES {
            self.rules.clear();
        }
    }

    /// The requester of this memory. [`Unwinder::refresh`] must have been called since the sample was taken.
    pub fn chain(&mut self, sample: &CallerSample, loaded: &dyn Loaded) -> Chain {
        // Tables may be damaged. The libraries that read them promise not to panic, but this code does not
        // rely on that.
        let chain = catch_unwind(AssertUnwindSafe(|| self.chain_of(sample, loaded)));
        chain.unwrap_or_else(|_| {
            self.rules.clear();
            *self.context = UnwindContext::new();
            Chain::Unknown
        })
    }

    fn chain_of(&mut self, sample: &CallerSample, loaded: &dyn Loaded) -> Chain {
        let of = Registers { ip: sample.ip, sp: sample.sp, bp: sample.bp };
        self.follow(of, stack_of(sample), sample.kind == SiteKind::RUBY, loaded)
    }

    fn follow(
        &mut self,
        of: Registers,
        read: impl Fn(u64) -> Option<u64>,
        is_ruby: bool,
        loaded: &dyn Loaded,
    ) -> Chain {
        let kept = if is_ruby { KEPT_FOR_RUBY } else { KEPT_FOR_NATIVE };
        let mut places: Vec<Place> = Vec::new();
        let mut is_from_ruby = false;
        self.walk(of, read, loaded, |unwinder, frame| {
            let role = unwinder.role(frame.module);
            let is_end = match role {
                Role::PassedOver => return true,
                Role::Ruby if !is_ruby => false,
                Role::Ruby if !places.is_empty() => true,
                Role::Ruby => {
                    is_from_ruby = unwinder.interpreter.iter().any(|it| it.contains(&(frame.address - 1)));
                    if !is_from_ruby {
                        return true;
                    }
                    true
                }
                Role::Program if is_ruby => true,
                Role::Program | Role::Library => false,
            };
            if is_end {
                return false;
            }
            if let Some(place) = unwinder.place(&frame)
                && (!is_ruby || is_kept(&places, place))
            {
                places.push(place);
            }
            places.len() < kept
        });
        match (places.is_empty(), is_from_ruby) {
            (false, _) => Chain::Native(places),
            (true, true) => Chain::Ruby,
            (true, false) => Chain::Unknown,
        }
    }

    fn place(&self, frame: &Frame) -> Option<Place> {
        let module = self.modules.get(frame.module)?;
        Some(Place { module: module.number, offset: frame.address.wrapping_sub(module.base) })
    }

    fn role(&mut self, module: usize) -> Role {
        let Some(module) = self.modules.get(module) else { return Role::Library };
        if let Some(role) = self.roles.get(&module.number) {
            return *role;
        }
        let path = self.modules.identity(module.number).map_or(&b""[..], |identity| &identity.path);
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let role = if module.code.contains(&self.ruby) {
            Role::Ruby
        } else if self.passed_over.iter().any(|address| module.code.contains(address))
            || PASSED_OVER
                .iter()
                .chain(ALLOCATORS.iter().map(|allocator| &allocator.library))
                .any(|name| file.starts_with(name.as_bytes()))
        {
            Role::PassedOver
        } else if std::fs::read_link("/proc/self/exe")
            .is_ok_and(|program| program.as_os_str().as_encoded_bytes() == path)
        {
            Role::Program
        } else {
            Role::Library
        };
        self.roles.insert(module.number, role);
        role
    }

    /// Visits the frames from the inside, until one answers `false` or the stack cannot be followed.
    fn walk(
        &mut self,
        mut of: Registers,
        read: impl Fn(u64) -> Option<u64>,
        loaded: &dyn Loaded,
        mut visit: impl FnMut(&mut Self, Frame) -> bool,
    ) {
        // For a caller, the instruction before the return address counts: the call may be a function's last instruction.
        let mut inside = of.ip;
        for _ in 0..MOST_FRAMES {
            let Some(module) = self.modules.find(inside) else { return };
            let Some(base) = self.modules.get(module).map(|module| module.base) else { return };
            let Some(rule) = self.rule(module, base, inside, loaded) else {
                // Its caller is unknown, but it is a frame itself.
                visit(self, Frame { address: of.ip, function: 0..0, module });
                return;
            };
            let function = rule.function.start.wrapping_add(base)..rule.function.end.wrapping_add(base);
            if !visit(self, Frame { address: of.ip, function, module }) {
                return;
            }
            let Some(caller) = rule.apply(of, &read) else { return };
            of = caller;
            inside = of.ip.wrapping_sub(1);
        }
    }

    fn rule(&mut self, module: usize, base: u64, address: u64, loaded: &dyn Loaded) -> Option<Rule> {
        if let Some(known) = self.rules.get(&address) {
            return known.clone();
        }
        let found = self
            .modules
            .tables(module, loaded)
            .and_then(|tables| Rule::find(tables, &mut self.context, address.wrapping_sub(base)));
        self.rules.insert(address, found.clone());
        found
    }
}

/// Memory of a process that has ended.
struct Nothing;

impl Loaded for Nothing {
    fn each(&self, _: &mut dyn FnMut(&memintro_abi::ModuleRecord)) {}
}

/// Whether another frame of the chain adds information: the first two do, and then the first one of another
/// library.
fn is_kept(places: &[Place], place: Place) -> bool {
    match places {
        [] | [_] => true,
        [first, second, ..] => first.module == second.module && place.module != first.module,
    }
}

/// The words of a copied stack.
fn stack_of(sample: &CallerSample) -> impl Fn(u64) -> Option<u64> {
    let len = usize::try_from(sample.len).unwrap_or(0).min(sample.stack.len());
    let stack = sample.stack.get(..len).unwrap_or_default();
    move |address| {
        let at = usize::try_from(address.checked_sub(sample.sp)?).ok()?;
        stack.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }
}
