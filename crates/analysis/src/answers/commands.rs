//! The commands of the control socket, and their answers.

use std::sync::LazyLock;

use super::kinds::{
    all, count, fields, flag, list, number, object, others_or_null, parent, path, pid, remarks, signed, text,
    word,
};
use super::report::{OLD_SITES, REPORT, TOTALS, errors};
use super::{Field, Kind, SNAPSHOT};

/// Most bytes of a brief answer.
const BRIEF: u64 = 1 << 16;
const MIB: u64 = 1 << 20;

/// A command.
#[derive(Clone, Debug)]
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// What it answers, in words.
    pub about: &'static str,
    /// The most bytes of that.
    pub bytes: u64,
    /// The answer, if it is JSON.
    pub kind: Kind,
}

impl Command {
    /// Whether the answer is small, and does not count among the answers that are made at a time.
    #[must_use]
    pub fn is_brief(&self) -> bool {
        self.bytes == BRIEF
    }
}

/// The command of this name.
#[must_use]
pub fn command(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// All commands. The class `Commands` of Ruby has a method for each; `rake protocol` writes docs/protocol.md.
pub static COMMANDS: LazyLock<Vec<Command>> = LazyLock::new(|| {
    let of = |name, about, bytes, kind| Command { name, about, bytes, kind };
    vec![
        of("info", "pid, ppid, name, program, versions, tracking, mode, RSS, known commands", BRIEF, info()),
        of("start", "`state`: started, restarted, switched or unchanged; mode", BRIEF, start()),
        of("stop", "`state`: stopped or unchanged; totals", BRIEF, stop()),
        of("mark", "totals", BRIEF, mark()),
        of("clear", "totals", BRIEF, mark()),
        // With `older_than_gcs`; otherwise the answer is a report.
        of("top", "call sites, text or JSON", 256 * MIB, OLD_SITES.clone()),
        of("report", "a report, text or JSON", 256 * MIB, REPORT.clone()),
        of("snapshot", "what `Memintro.snapshot` saves", 256 * MIB, SNAPSHOT.clone()),
        of("doctor", "`Memintro.doctor`", 4 * MIB, doctor()),
        of("gc", "time, live objects and RSS before and after `GC.start`", BRIEF, gc()),
        of("vitals", "RSS, live objects, GC, totals and the first call sites", 4 * MIB, vitals()),
        of("account", "[where the resident memory is](account.md)", 4 * MIB, account()),
        of("leaks", "[blocks that nothing points to](leaks.md), and owners of others", 16 * MIB, leaks()),
        of("trim", "RSS before and after giving free memory back", BRIEF, trim()),
        of(
            "heap_dump",
            "writes a [dump](heap_dump.md); with `progress`, lines with `objects` before",
            4 * MIB,
            heap_dump(),
        ),
        of("holders", "[what holds](holders.md) objects of a class, line or age", 64 * MIB, holders()),
        of(
            "hunt",
            "the [hunt](hunt.md) and its findings; `hunted`: whether it hunted before",
            4 * MIB,
            hunt(),
        ),
    ]
});

fn info() -> Kind {
    object! {
        pid: pid();
        ppid?: parent();
        name?: text();
        program?: text();
        ruby?: word();
        memintro: word();
        tracking: flag();
        mode: word();
        preloaded?: flag();
        rss_bytes?: count();
        since?: word();
        commands?: list(word(), 100);
    }
}

fn start() -> Kind {
    object! {
        state: Kind::OneOf(&["started", "restarted", "switched", "unchanged"]);
        mode: word();
        tracking: flag();
        changes?: list(word(), 10);
    }
}

fn stop() -> Kind {
    object! {
        state: Kind::OneOf(&["stopped", "unchanged"]);
        totals: TOTALS.clone();
    }
}

fn mark() -> Kind {
    object! {
        tracking: flag();
        totals: TOTALS.clone();
    }
}

fn doctor() -> Kind {
    let slots = ["patched", "foreign", "lost", "refused", "malformed"];
    let slot = object! {
        module?: path();
        symbol?: text();
        slot?: count();
        value?: count();
        state?: word();
    };
    object! {
        memintro: word();
        ruby?: word();
        platform?: word();
        origin?: word();
        mode?: word();
        hook?: path();
        allocator?: path();
        modules?: count();
        slots?: object! { ..slots.map(|state| Field::optional(state, count())); };
        left_alone?: list(slot, 100_000);
        problems: remarks();
        notes?: remarks();
        escapes?: remarks();
    }
}

fn gc() -> Kind {
    object! {
        took_ms: number();
        live_objects_before: count();
        live_objects: count();
        rss_bytes_before?: count();
        rss_bytes?: count();
    }
}

fn vitals() -> Kind {
    let always = ["live_bytes", "growth", "live_blocks", "allocations"];
    let objects = ["live_objects", "object_bytes", "object_allocations", "retained_bytes"];
    let site = object! {
        name: path();
        ..all(&always, &signed());
        estimated?: flag();
        ..errors(&always);
        ..objects.map(|name| Field::optional(name, signed()));
        ..errors(&objects);
        old_bytes?: signed();
        ..errors(&["old_bytes"]);
    };
    object! {
        pid: pid();
        name?: text();
        program?: text();
        time: number();
        rss_bytes?: count();
        live_objects: count();
        fragmentation_bytes?: count();
        gc: object! {
            count: count();
            minor: count();
            major: count();
            time_ms: number();
        };
        tracking: flag();
        mode: word();
        totals: TOTALS.clone();
        sites: list(site, 1_000);
    }
}

fn account() -> Kind {
    let row = object! {
        name: word();
        bytes: count();
        shared_bytes?: count();
        basis: word();
        details?: Kind::Object(Vec::new(), others_or_null(Kind::Plain));
    };
    object! {
        memintro_account: count();
        pid: pid();
        rss: count();
        allocator: word();
        pause_ms: number();
        verdict: remarks();
        notes: remarks();
        rows: list(row, 100);
    }
}

fn leaks() -> Kind {
    let figures = [
        "leaked_blocks",
        "leaked_bytes",
        "indirectly_leaked_blocks",
        "indirectly_leaked_bytes",
        "undecided_blocks",
        "undecided_bytes",
        "scanned_blocks",
        "scanned_bytes",
        "copies",
        "searched_bytes",
    ];
    object! {
        memintro_leaks: count();
        pid: pid();
        ..all(&figures, &count());
        free_bytes?: count();
        allocator: word();
        basis: word();
        mode: word();
        search_ms: number();
        pause_ms: number();
        verdict: remarks();
        notes: remarks();
        garbage_collected?: flag();
        owners?: list(leak_owner(), 100);
        groups: list(leak_group(), 10_000);
    }
}

fn leak_group() -> Kind {
    object! {
        verdict: word();
        site?: path();
        size?: count();
        count: count();
        bytes: count();
        youngest?: count();
        oldest?: count();
        held_by?: path();
        held_bytes?: count();
        owner?: path();
        owners?: count();
        also_held_by?: path();
        also_held_bytes?: count();
        first_words?: list(path(), 16);
        example?: word();
    }
}

fn leak_owner() -> Kind {
    let owned = [
        "objects",
        "blocks",
        "bytes",
        "silent_objects",
        "tracked_objects",
        "tracked_bytes",
        "garbage_objects",
        "garbage_bytes",
        "silent_garbage_objects",
    ];
    let part = || {
        Kind::Row(fields! {
            site: path();
            bytes: count();
        })
    };
    object! {
        class_name: path();
        sites: list(part(), 100);
        garbage_sites: list(part(), 100);
        library?: path();
        ..all(&owned, &count());
    }
}

fn trim() -> Kind {
    object! {
        rss_before: count();
        rss: count();
        given_back_bytes: signed();
    }
}

fn heap_dump() -> Kind {
    object! {
        pid: pid();
        took_s: number();
        path: path();
        objects: count();
        bytes: count();
        uncompressed_bytes: count();
        compression: word();
        redacted: flag();
        pause_ms: number();
        unread_types: count();
    }
}

fn holders() -> Kind {
    object! {
        pid: pid();
        sentence: path();
        objects: count();
        bytes: count();
        unreachable: count();
        unreachable_bytes?: count();
        by?: word();
        groups: list(held_path(), 1_000);
        more_groups: count();
        other_ways?: list(held_path(), 10);
        more_other_ways?: count();
        notes: remarks();
        pause_ms?: number();
        text?: Kind::Text(32 << 20);
    }
}

fn held_path() -> Kind {
    let holder = object! {
        class_name: path();
        name?: path();
        edge?: path();
        type: word();
        address: word();
        at?: path();
        bytes?: count();
        repeated?: flag();
        left_out?: count();
        alike?: flag();
    };
    object! {
        objects: count();
        bytes?: count();
        holders: list(holder, 1 << 20);
        root: path();
        root_edge?: path();
        shortened?: flag();
        left_out?: count();
    }
}

fn hunt() -> Kind {
    object! {
        memintro_hunt: count();
        pid: pid();
        hunting: flag();
        hunted: flag();
        state?: word();
        every?: number();
        looks?: count();
        investigations?: count();
        watched?: count();
        cpu_seconds?: number();
        cpu_share?: number();
        pause_s?: number();
        errors?: count();
        next_look_s?: number();
        suspects?: list(path(), 1_000);
        last_error?: path();
        findings: list(finding(), 100);
    }
}

fn finding() -> Kind {
    object! {
        sentence: path();
        certainty: path();
        advice: path();
        what: path();
        kind: word();
        bytes_per_minute: signed();
        bytes_per_minute_interval: list(signed(), 2);
        grown_bytes: signed();
        since: word();
        found_at: word();
        slows_down: flag();
        look_again_at: word();
        confirmed_at?: word();
        ended_at?: word();
        objects?: count();
        site?: path();
        called_from?: path();
        site_bytes?: signed();
        stack: list(path(), 64);
        held_by?: path();
        holders: list(path(), 16);
        verdict?: word();
        also: list(path(), 1_000);
        notes: remarks();
        tracking: path();
        pid: pid();
    }
}
