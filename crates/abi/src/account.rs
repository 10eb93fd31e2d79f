//! What is made from the list of an account's rows.

/// A part of a process's memory that several rows of an account belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountPart {
    /// Pages of Ruby's heap.
    RubyHeap,
    /// What malloc has from the kernel.
    Malloc,
    /// Files, and what is in them: all processes that map them share their pages.
    Files,
    /// None of these.
    Other,
}

/// What must be known for a row to be measured. A row whose pages are not known is estimated, any other one is derived from
/// sizes that others count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// The kernel's sums of mappings, which are always there.
    Mappings,
    /// Which pages are resident.
    Pages,
    /// This, and the allocator's chunks.
    Chunks,
    /// This, and which objects own blocks.
    Owners,
}

macro_rules! define_account {
    ($(#[doc = $doc:literal] $row:ident $name:ident: $part:ident, $needs:ident;)+) => {
        /// A row of an account.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum AccountRow {
            $(#[doc = $doc] $row,)+
        }

        impl AccountRow {
            /// All rows, in their order.
            pub const ALL: &[Self] = &[$(Self::$row),+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$row => stringify!($name),)+
                }
            }

            /// What sentences call it.
            #[must_use]
            pub fn heading(self) -> &'static str {
                match self {
                    $(Self::$row => $doc.trim_start(),)+
                }
            }

            /// What it is a part of.
            #[must_use]
            pub const fn part(self) -> AccountPart {
                match self {
                    $(Self::$row => AccountPart::$part,)+
                }
            }

            /// What must be known for it to be measured.
            #[must_use]
            pub const fn needs(self) -> Needs {
                match self {
                    $(Self::$row => Needs::$needs,)+
                }
            }

            /// The row of this name.
            #[must_use]
            pub fn find(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|row| row.name() == name)
            }
        }
    };
}
crate::account_rows!(define_account);
