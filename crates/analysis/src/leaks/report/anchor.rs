//! What holds blocks, in words.

use crate::text::units::count;

/// What holds blocks where it is not known whether it is in use or free.
pub const UNTRACKED: &str = "memory of malloc that is not tracked";

/// What holds blocks.
#[derive(Clone, Debug, PartialEq)]
pub enum Anchor {
    /// So many Ruby objects, and what is known of their class: `of class A`.
    Objects(i64, String),
    /// A static, and its name.
    Static(String),
    /// A stack; of which thread, if that is known.
    Stack(String),
    /// An internal object of Ruby.
    Internal,
    /// Memory that was mapped past malloc.
    Mapped,
    /// See [`UNTRACKED`].
    Untracked,
    /// Code that was made at run time.
    Code,
    /// An object that waits for its finalizer.
    Zombie,
    /// An object of Ruby's VM.
    Vm,
    /// The stack of a fiber.
    Fiber,
    /// Objects that nothing points to, in a core file.
    Garbage,
    /// A block that is not decided.
    Undecided,
}

impl Anchor {
    /// Such as `120 Ruby objects of class A`.
    #[must_use]
    pub fn text(&self) -> String {
        let text = match self {
            Self::Objects(1, class) => return format!("a Ruby object {class}"),
            Self::Objects(objects, class) => return format!("{} Ruby objects {class}", count(*objects)),
            Self::Static(name) => return format!("a static, {name}"),
            Self::Stack(thread) => return format!("the stack of {thread}"),
            Self::Internal => "an internal object of Ruby",
            Self::Mapped => "memory that was mapped past malloc",
            Self::Untracked => UNTRACKED,
            Self::Code => "code that was made at run time",
            Self::Zombie => "an object that waits for its finalizer",
            Self::Vm => "an object of Ruby's VM",
            Self::Fiber => "the stack of a fiber",
            Self::Garbage => "objects that nothing points to, which Ruby had not collected",
            Self::Undecided => "a block that is not decided",
        };
        text.to_owned()
    }
}

/// What hardly ever is the cause: what Ruby itself has, and what has no name.
pub(super) fn is_untold(held_by: &str) -> bool {
    [Anchor::Internal, Anchor::Vm, Anchor::Mapped, Anchor::Code].iter().any(|anchor| anchor.text() == held_by)
}
