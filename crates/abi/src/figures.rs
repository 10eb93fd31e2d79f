//! What is made from the lists of figures: records, tables, and how records add up and are read.

use crate::Estimated;

/// How a figure adds up: over stacks, groups of call sites, and processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adds {
    /// By its sum. It is an estimate where blocks are sampled.
    Sum,
    /// By its sum. It is always exact.
    Exact,
    /// By its maximum: the greatest that was seen, in a sample of those sampled.
    Max,
    /// It is computed from others.
    Derived,
    /// It is computed from the figures of objects.
    Object,
    /// By its sum, where it is known: a raw dump does not have it.
    Old,
    /// It is a state, and is not shown.
    State,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of blocks, objects or calls.
    Count,
    /// Bytes.
    Bytes,
    /// Bytes with a sign.
    Change,
    /// An age in GC generations.
    Age,
    /// A mean of ages.
    MeanAge,
    /// A sum of ages.
    Ages,
}

/// When a table has a column for a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Always, in this place.
    Always(u32),
    /// In this place, before those above, if objects were tracked.
    Objects(u32),
    /// Last, if the table is sorted by it.
    Sorted,
    /// Never.
    Never,
}

/// One figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// How it adds up.
    pub adds: Adds,
    /// Its unit.
    pub unit: Unit,
    /// When tables have a column for it.
    pub column: Column,
    /// The heading of that column.
    pub heading: &'static str,
    /// What it is.
    pub doc: &'static str,
}

impl Figure {
    /// Whether call sites can be sorted by it.
    #[must_use]
    pub const fn is_sortable(&self) -> bool {
        !matches!(self.adds, Adds::Old | Adds::State)
    }

    /// Whether it has a standard error where blocks are sampled.
    #[must_use]
    pub const fn is_estimated(&self) -> bool {
        matches!(self.adds, Adds::Sum | Adds::Derived | Adds::Object | Adds::Old)
    }
}

/// A field of a record, as C sees it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub c_type: &'static str,
    /// Its distance from the beginning of the record.
    pub offset: usize,
}

macro_rules! fields {
    ($(estimated $estimated:ident)* $(whole $whole:ident)* $(old $old:ident)* $(double $double:ident)*) => {
        &[
            $(fields!(@ "memintro_estimated" $estimated),)*
            $(fields!(@ "uint64_t" $whole),)*
            $(fields!(@ "memintro_estimated" $old),)*
            $(fields!(@ "double" $double),)*
            fields!(@ "uint64_t" estimated),
        ]
    };
    (@ $c_type:literal $name:ident) => {
        Field { name: stringify!($name), c_type: $c_type, offset: core::mem::offset_of!(Self, $name) }
    };
}

/// Numbers of 8 bytes, as a raw dump has them.
type Words<'a> = &'a mut dyn FnMut() -> Option<u64>;

macro_rules! define_table {
    ($(#[$about:meta])* $table:ident $all:tt) => { define_table! { @ [$(#[$about])*] $table $all } };
    (@ [$(#[$about:meta])*] $table:ident { $(
        $(#[doc = $doc:literal])+ $adds:ident $name:ident: $unit:ident, $column:ident $(($place:literal))? $heading:literal;
    )+ }) => {
        $(#[$about])*
        pub const $table: &[Figure] = &[$(Figure {
            name: stringify!($name),
            adds: Adds::$adds,
            unit: Unit::$unit,
            column: Column::$column $(($place))?,
            heading: $heading,
            doc: concat!($($doc),+),
        }),+];
    };
}

macro_rules! define_blocks {
    (
        sums { $($(#[doc = $sum_doc:literal])+ $sum:ident: $sum_unit:ident;)+ }
        exact {}
        maxima { $($(#[doc = $max_doc:literal])+ $max:ident: $max_unit:ident;)+ }
        old { $($old:tt)* }
        all $all:tt
    ) => {
        define_table! {
            /// The figures of a call site, in the order of JSON.
            SITE_FIGURES $all
        }

        /// The figures of a call site's blocks.
        #[repr(C)]
        #[derive(Clone, Copy, Default, Debug, PartialEq)]
        pub struct BlockFigures {
            $($(#[doc = $sum_doc])+ pub $sum: Estimated,)+
            $($(#[doc = $max_doc])+ pub $max: u64,)+
            /// Live bytes at the last mark (0 without one). The variance is that of the growth since then.
            pub marked_bytes: Estimated,
            /// Covariance of `age_total` with `frees`.
            pub age_covariance: f64,
            /// 1 if blocks were sampled.
            pub estimated: u64,
        }

        impl BlockFigures {
            /// Its fields, in their order.
            pub const FIELDS: &[Field] =
                fields! { $(estimated $sum)+ $(whole $max)+ old marked_bytes double age_covariance };
            /// Units of [`Self::sums`].
            pub const SUM_UNITS: [Unit; [$(stringify!($sum)),+].len()] = [$(Unit::$sum_unit),+];
            /// The names of [`Self::cells`].
            pub const VALUES: [&str; [$(stringify!($sum),)+ $(stringify!($max),)+ "marked_bytes"].len()] =
                [$(stringify!($sum),)+ $(stringify!($max),)+ "marked_bytes"];

            /// Adds what another stack, site or process has. Samples are drawn independently, so their variances add up.
            pub fn add(&mut self, part: &Self) {
                $(self.$sum.add(&part.$sum);)+
                $(self.$max = if part.$max > self.$max { part.$max } else { self.$max };)+
                self.marked_bytes.add(&part.marked_bytes);
                self.age_covariance += part.age_covariance;
                self.estimated |= part.estimated;
            }

            /// The figures that add up by their sum.
            #[must_use]
            pub const fn sums(&self) -> [Estimated; Self::SUM_UNITS.len()] {
                [$(self.$sum),+]
            }

            /// Sums, maxima and the bytes at the mark.
            #[must_use]
            pub const fn cells(&self) -> [Estimated; Self::VALUES.len()] {
                [$(self.$sum,)+ $(Estimated::exact(self.$max),)+ self.marked_bytes]
            }

            /// From [`Self::cells`]. What is missing at their end is 0.
            #[must_use]
            pub fn from_cells(cells: impl IntoIterator<Item = Estimated>, age_covariance: f64, estimated: bool) -> Self {
                let mut cells = cells.into_iter();
                let mut next = || cells.next().unwrap_or_default();
                Self {
                    $($sum: next(),)+
                    $($max: next().value,)+
                    marked_bytes: next(),
                    age_covariance,
                    estimated: estimated as u64,
                }
            }

            /// Reads it from the numbers that make it up in memory.
            pub fn read(next: Words<'_>) -> Option<Self> {
                Some(Self {
                    $($sum: Estimated::read(next)?,)+
                    $($max: next()?,)+
                    marked_bytes: Estimated::read(next)?,
                    age_covariance: crate::records::doubt(next()?),
                    estimated: next()?,
                })
            }
        }
    };
}
crate::site_figures!(define_blocks);

/// A record of figures that add up: sums, exact ones, and those of what is old.
macro_rules! define_record {
    (
        $(#[$about:meta])* $record:ident $(#[$about_estimated:meta])* estimated
        sums { $($(#[doc = $sum_doc:literal])+ $sum:ident: $sum_unit:ident;)+ }
        exact { $($(#[doc = $exact_doc:literal])+ $exact:ident: $exact_unit:ident;)+ }
        old { $($(#[doc = $old_doc:literal])+ $old:ident: $old_unit:ident;)* }
    ) => {
        $(#[$about])*
        #[repr(C)]
        #[derive(Clone, Copy, Default, Debug, PartialEq)]
        pub struct $record {
            $($(#[doc = $sum_doc])+ pub $sum: Estimated,)+
            $($(#[doc = $exact_doc])+ pub $exact: u64,)+
            $($(#[doc = $old_doc])+ pub $old: Estimated,)*
            $(#[$about_estimated])*
            pub estimated: u64,
        }

        impl $record {
            /// Its fields, in their order.
            pub const FIELDS: &[Field] = fields! { $(estimated $sum)+ $(whole $exact)+ $(old $old)* };
            /// The names of [`Self::cells`].
            pub const VALUES: [&str; [$(stringify!($sum),)+ $(stringify!($exact),)+ $(stringify!($old),)*].len()] =
                [$(stringify!($sum),)+ $(stringify!($exact),)+ $(stringify!($old),)*];

            /// Adds what another stack or process has.
            pub fn add(&mut self, part: &Self) {
                $(self.$sum.add(&part.$sum);)+
                $(self.$exact = self.$exact.wrapping_add(part.$exact);)+
                $(self.$old.add(&part.$old);)*
                self.estimated |= part.estimated;
            }

            /// The figures alone.
            #[must_use]
            pub const fn cells(&self) -> [Estimated; Self::VALUES.len()] {
                [$(self.$sum,)+ $(Estimated::exact(self.$exact),)+ $(self.$old,)*]
            }

            /// From [`Self::cells`]. What is missing at their end is 0.
            #[must_use]
            pub fn from_cells(cells: impl IntoIterator<Item = Estimated>, estimated: bool) -> Self {
                let mut cells = cells.into_iter();
                let mut next = || cells.next().unwrap_or_default();
                Self {
                    $($sum: next(),)+
                    $($exact: next().value,)+
                    $($old: next(),)*
                    estimated: estimated as u64,
                }
            }

            /// Reads it from the numbers that make it up in memory.
            pub fn read(next: Words<'_>) -> Option<Self> {
                Some(Self {
                    $($sum: Estimated::read(next)?,)+
                    $($exact: next()?,)+
                    $($old: Estimated::read(next)?,)*
                    estimated: next()?,
                })
            }
        }
    };
}

macro_rules! define_objects {
    (sums $sums:tt exact $exact:tt maxima {} old $old:tt all $all:tt) => {
        define_table! {
            /// The figures of a call site's objects.
            OBJECT_FIGURES $all
        }
        define_record! {
            /// The objects of a call site. Their bytes are those of their slots; what an object has from malloc is a block.
            ObjectFigures
            /// 1 if objects of the site were sampled.
            estimated
            sums $sums exact $exact old $old
        }
        define_estimates! { ObjectFigures $sums $old }
    };
}

macro_rules! define_estimates {
    ($record:ident
     { $($(#[$sum_doc:meta])+ $sum:ident: $sum_unit:ident;)+ }
     { $($(#[$old_doc:meta])+ $old:ident: $old_unit:ident;)+ }) => {
        impl $record {
            /// Those of [`Self::VALUES`] that are estimates where objects are sampled.
            pub const ESTIMATES: [&str; [$(stringify!($sum),)+ $(stringify!($old),)+].len()] =
                [$(stringify!($sum),)+ $(stringify!($old),)+];
        }
    };
}
crate::object_figures!(define_objects);

macro_rules! define_totals {
    (sums $sums:tt exact $exact:tt maxima {} old {} all $all:tt) => {
        define_table! {
            /// The figures of the process, in the order of JSON.
            TOTAL_FIGURES $all
        }
        define_record! {
            /// Totals of the whole process since the last start or clear.
            Figures
            /// 1 if there has been sampling since the last start or clear.
            estimated
            sums $sums exact $exact old {}
        }
    };
}
crate::total_figures!(define_totals);
