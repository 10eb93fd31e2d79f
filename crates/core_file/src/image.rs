//! A core file: pieces of memory, threads with their registers, names of mapped files.

use std::cell::Cell;

use memintro_analysis::leaks::mark::Memory;
use memintro_analysis::leaks::unused::Read;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, LittleEndian};

/// A page of the kernel.
pub const PAGE: usize = 4096;
/// Addresses of programs have 47 bits.
const HIGHEST: u64 = 1 << 47;
/// More pieces of memory than any process may have (`vm.max_map_count` is 65,530 unless it is raised).
const MOST_SEGMENTS: usize = 1 << 20;
/// Before the registers of a thread in its note; the same on all machines of 64 bits.
const REGISTERS_AT: usize = 112;
/// Where the thread's number is there.
const NUMBER_AT: usize = 32;
/// More files than a process maps.
const MOST_FILES: u64 = 1 << 20;

/// A piece of memory.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Its first address.
    pub start: usize,
    /// The address after its last one.
    pub end: usize,
    /// What the file has of it, from its beginning on.
    pub bytes: &'a [u8],
    /// Bytes that the file should have of it.
    pub wanted: usize,
    /// Whether the process could write it.
    pub is_writable: bool,
    /// Whether it was code.
    pub is_executable: bool,
    /// Whether the process could do neither, nor read it: a guard before a stack, or reserved addresses.
    pub is_closed: bool,
    /// The mapped file, as a place in [`Image::files`].
    pub file: Option<usize>,
}

impl Segment<'_> {
    /// The address after the last byte that the file has.
    #[must_use]
    pub fn known_end(&self) -> usize {
        self.start + self.bytes.len()
    }
}

/// A mapped file.
#[derive(Clone, Debug)]
pub struct Mapped<'a> {
    /// Its first address.
    pub start: usize,
    /// The address after its last one.
    pub end: usize,
    /// Where in the file this is.
    pub offset: u64,
    /// Its path.
    pub path: &'a [u8],
}

/// A thread.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// The kernel's number of it; 0 if the file does not say it.
    pub number: u32,
    /// All registers that the file has and that may be in use, as words.
    pub registers: Vec<usize>,
    /// Whether it waited in the kernel: a function had called it, and none keeps anything in vectors across a call.
    pub is_in_kernel: bool,
    /// Its stack pointer.
    pub stack_pointer: usize,
}

/// What the file says.
#[derive(Debug)]
pub struct Image<'a> {
    /// In the order of their addresses; none overlap.
    pub segments: Vec<Segment<'a>>,
    /// In the order of their addresses.
    pub files: Vec<Mapped<'a>>,
    /// The first is the one that ended the process.
    pub threads: Vec<Thread>,
    /// The process.
    pub pid: Option<u32>,
    last: Cell<usize>,
}

impl<'a> Image<'a> {
    /// Reads the file's head and notes.
    ///
    /// # Errors
    /// If this is no core file of a machine that is known, or if a part of it is missing.
    pub fn read(bytes: &'a [u8]) -> Result<Self, String> {
        const NONE: &str =
            "this is no core file (an ELF file of the kind that the kernel, gcore or gdb write)";
        type Head = elf::FileHeader64<Endianness>;
        let head = Head::parse(bytes).map_err(|_| NONE.to_owned())?;
        let endian = head.endian().map_err(|_| NONE.to_owned())?;
        if head.e_type(endian) != elf::ET_CORE {
            return Err(NONE.to_owned());
        }
        let machine = head.e_machine(endian);
        // The second one does not show whether a thread is in a system call.
        let places = match machine {
            elf::EM_X86_64 => (19, Some(15)),
            elf::EM_AARCH64 => (31, None),
            _ => {
                return Err(format!(
                    "this is a core file of another machine ({}): x86-64 and aarch64 are known",
                    machine.0
                ));
            }
        };
        if endian != Endianness::Little {
            return Err("this is a core file of a machine with another order of bytes".to_owned());
        }
        let headers = head
            .program_headers(endian, bytes)
            .map_err(|_| "the core file is cut off in its head: no verdict is given".to_owned())?;
        let mut image = Self {
            segments: Vec::new(),
            files: Vec::new(),
            threads: Vec::new(),
            pid: None,
            last: Cell::new(0),
        };
        let (mut written, mut missing) = (0_u64, 0_u64);
        for header in headers {
            let kind = header.p_type(endian);
            let (at, size) = (header.p_offset(endian), header.p_filesz(endian));
            let found = piece(bytes, at, size);
            written = written.saturating_add(size);
            missing = missing.saturating_add(size - found.len() as u64);
            if kind == elf::PT_NOTE {
                image.notes(found, places);
            } else if kind == elf::PT_LOAD && image.segments.len() < MOST_SEGMENTS {
                let flags = header.p_flags(endian).0;
                image.add_segment(
                    header.p_vaddr(endian),
                    header.p_memsz(endian),
                    found,
                    (
                        flags & elf::PF_W.0 != 0,
                        flags & elf::PF_X.0 != 0,
                        flags & (elf::PF_R.0 | elf::PF_W.0 | elf::PF_X.0) == 0,
                    ),
                );
            }
        }
        if missing > 0 {
            return Err(format!(
                "the core file was cut off (ulimit -c, or a full disk): {missing} of {written} bytes are missing, and blocks \
                 that only these point to would look leaked, so no verdict is given"
            ));
        }
        if written > bytes.len() as u64 {
            return Err(
                "the parts of the core file overlap, so it is damaged: no verdict is given".to_owned()
            );
        }
        image.segments.sort_by_key(|segment| segment.start);
        let mut end = 0;
        image.segments.retain(|segment| {
            let is_apart = segment.start >= end;
            end = if is_apart { segment.end } else { end };
            is_apart
        });
        if image.segments.is_empty() || image.threads.is_empty() {
            return Err("the core file has no memory or no thread".to_owned());
        }
        image.files.sort_by_key(|file| file.start);
        image.name_segments();
        Ok(image)
    }

    fn add_segment(&mut self, start: u64, size: u64, bytes: &'a [u8], (w, x, closed): (bool, bool, bool)) {
        let Some(end) = start.checked_add(size).filter(|end| *end <= HIGHEST && size > 0) else { return };
        let (start, end) = (start as usize, end as usize);
        let bytes = bytes.get(..bytes.len().min(end - start)).unwrap_or_default();
        // What is not aligned is no mapping, and words would be read at odd places.
        if start.is_multiple_of(PAGE) {
            self.segments.push(Segment {
                start,
                end,
                bytes,
                wanted: end - start,
                is_writable: w,
                is_executable: x,
                is_closed: closed,
                file: None,
            });
        }
    }

    /// `places`: of the stack pointer, and of the number of the system call, among a thread's registers.
    fn notes(&mut self, notes: &'a [u8], (stack_pointer_at, call_at): (usize, Option<usize>)) {
        let Ok(iterator) =
            object::read::elf::NoteIterator::<elf::FileHeader64<LittleEndian>>::new(LittleEndian, 4, notes)
        else {
            return;
        };
        for note in iterator.map_while(Result::ok) {
            let text = note.desc();
            match note.n_type(LittleEndian) {
                elf::NT_PRSTATUS => {
                    let registers: Vec<usize> = words(text.get(REGISTERS_AT..).unwrap_or_default()).collect();
                    let stack_pointer = registers.get(stack_pointer_at).copied().unwrap_or(0);
                    let call = call_at.and_then(|at| registers.get(at));
                    let is_in_kernel = call.is_some_and(|call| call.cast_signed() >= 0);
                    let number = number(text, NUMBER_AT).unwrap_or(0);
                    self.threads.push(Thread { number, registers, stack_pointer, is_in_kernel });
                }
                elf::NT_FPREGSET | elf::NT_X86_XSTATE => {
                    if let Some(thread) = self.threads.last_mut().filter(|thread| !thread.is_in_kernel) {
                        thread.registers.extend(words(text));
                    }
                }
                elf::NT_PRPSINFO => self.pid = number(text, 24),
                elf::NT_FILE => self.mapped_files(text),
                _ => {}
            }
        }
    }

    /// Two words, three for each file, and their paths.
    fn mapped_files(&mut self, text: &'a [u8]) {
        let mut numbers = words(text);
        let (Some(count), Some(unit)) = (numbers.next(), numbers.next()) else { return };
        let count = (count as u64).min(MOST_FILES) as usize;
        let Some(paths) = count.checked_mul(24).and_then(|bytes| text.get(16 + bytes..)) else { return };
        let mut paths = paths.split(|byte| *byte == 0);
        for _ in 0..count {
            let (Some(start), Some(end), Some(place), Some(path)) =
                (numbers.next(), numbers.next(), numbers.next(), paths.next())
            else {
                return;
            };
            if start < end && end as u64 <= HIGHEST {
                self.files.push(Mapped {
                    start,
                    end,
                    offset: (place as u64).saturating_mul(unit as u64),
                    path,
                });
            }
        }
    }

    fn name_segments(&mut self) {
        let files = &self.files;
        for segment in &mut self.segments {
            let next = files.partition_point(|file| file.end <= segment.start);
            segment.file = files.get(next).filter(|file| file.start <= segment.start).map(|_| next);
        }
    }

    /// The segment that an address is in.
    #[must_use]
    pub fn segment(&self, address: usize) -> Option<&Segment<'a>> {
        let is_here = |segment: &&Segment<'_>| segment.start <= address && address < segment.end;
        if let Some(segment) = self.segments.get(self.last.get()).filter(is_here) {
            return Some(segment);
        }
        let next = self.segments.partition_point(|segment| segment.end <= address);
        self.last.set(next);
        self.segments.get(next).filter(is_here)
    }

    /// Bytes of writable memory that the process had and the file has not.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.segments
            .iter()
            .filter(|segment| segment.is_writable)
            .map(|segment| segment.wanted.saturating_sub(segment.bytes.len()))
            .sum()
    }
}

impl Read for Image<'_> {
    fn word(&self, address: usize) -> Option<u64> {
        let segment = self.segment(address).filter(|_| address.is_multiple_of(8))?;
        let at = address - segment.start;
        let bytes = segment.bytes.get(at..at.checked_add(8)?)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}

impl Memory for Image<'_> {
    fn words(&self, from: usize, to: usize, mut visit: impl FnMut(usize, usize)) {
        let mut at = from.next_multiple_of(8);
        while at < to {
            let next = self.segments.partition_point(|segment| segment.end <= at);
            let Some(segment) = self.segments.get(next) else { return };
            let first = at.max(segment.start);
            let last = to.min(segment.known_end());
            if let Some(bytes) = segment
                .bytes
                .get(first - segment.start..last.saturating_sub(segment.start).max(first - segment.start))
            {
                for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
                    visit(first + index * 8, u64::from_le_bytes(*word) as usize);
                }
            }
            at = segment.end;
        }
    }
}

/// The number of 32 bits at a place.
fn number(text: &[u8], at: usize) -> Option<u32> {
    text.get(at..at + 4).and_then(|number| number.try_into().ok()).map(u32::from_le_bytes)
}

fn words(text: &[u8]) -> impl Iterator<Item = usize> {
    text.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word) as usize)
}

/// As many of these bytes as there are.
fn piece(bytes: &[u8], at: u64, size: u64) -> &[u8] {
    let length = bytes.len() as u64;
    let (from, to) = (at.min(length), at.saturating_add(size).min(length));
    usize::try_from(from)
        .ok()
        .zip(usize::try_from(to).ok())
        .and_then(|(from, to)| bytes.get(from..to))
        .unwrap_or_default()
}
