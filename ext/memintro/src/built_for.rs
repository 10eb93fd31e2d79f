//! The Ruby that this library was compiled for, as an ELF note: `lib/memintro/support/paths.rb` reads it from the file before Ruby
//! loads it. Another Ruby has other layouts and would crash. The linker puts notes in front of all else that is loaded.

/// The text of the note: the version of Ruby, such as 3.1.2, and of its ABI, such as 3.1.0.
const TEXT: &str = concat!("Ruby ", env!("MEMINTRO_RUBY"), " ABI ", env!("MEMINTRO_RUBY_ABI"));

const OWNER: [u8; 9] = *b"memintro\0";
const PADDED: usize = OWNER.len().next_multiple_of(4);

/// `Elf64_Nhdr`, the owner's name and the text, both padded to words.
#[repr(C, align(4))]
struct Note {
    owner_bytes: u32,
    text_bytes: u32,
    kind: u32,
    owner: [u8; PADDED],
    text: [u8; TEXT.len()],
}

#[used]
#[unsafe(link_section = ".note.memintro")]
static NOTE: Note = Note {
    owner_bytes: OWNER.len() as u32,
    text_bytes: TEXT.len() as u32,
    kind: 1,
    owner: padded(),
    text: text(),
};

const fn padded() -> [u8; PADDED] {
    let mut padded = [0; PADDED];
    padded.split_at_mut(OWNER.len()).0.copy_from_slice(&OWNER);
    padded
}

const fn text() -> [u8; TEXT.len()] {
    let mut text = [0; TEXT.len()];
    text.copy_from_slice(TEXT.as_bytes());
    text
}
