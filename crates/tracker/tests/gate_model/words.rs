//! What the twin of the gate consists of: programs, threads, words that all see.

pub(crate) const NOBODY: u8 = u8::MAX;
/// Who has the turn while threads fork.
pub(crate) const FORKERS: u8 = 200;
/// Added to a thread's number: what its signal handler does is told apart.
pub(crate) const HANDLER: u8 = 100;

/// What a thread does, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    /// Takes or gives a lock of libc's. (0: the list of streams, 1: a stream, 2: malloc's.)
    Lock(u8),
    Unlock(u8),
    /// Something happened that is to be recorded.
    Event,
    /// A first allocation: there are two threads now.
    Arrive,
    /// A reader's pause, and one that is given up when others do not finish.
    Pause,
    ShortPause,
    /// Before and after a fork.
    Hold,
    Release,
}

/// Where a thread is within a step: the access that it makes next.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum At {
    #[default]
    Begin,
    /// Event: busy is stored, the gate not read yet; the gate was met; is it abandoned; recording; about to write down.
    BusyStored,
    MetGate,
    MayOpen,
    Recording,
    Note,
    Write,
    /// Has the turn; is about to be busy.
    Took,
    SetsBusy,
    /// Who wants to open an abandoned gate has looked at the others.
    Looks,
    /// Opening: events are recorded, the gate is tried, the queue begins anew.
    Drains,
    Tries,
    Restarts,
    EndsBusy,
    EndsTurn,
    RestartsLate,
    /// A pauser: closes, barrier, waits, looks.
    Closes,
    Barrier,
    Waits,
    Reading,
    /// Who goes away without having opened the gate.
    GivesUp,
    LeavesGate,
    LeavesTurn,
    /// Arrive: counted itself; said so.
    Counted,
    Announced,
    /// Release: the last one.
    Last,
}

/// What comes after opening the gate.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Then {
    Retry,
    #[default]
    Next,
}

/// How a thread's fork found the world.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Held {
    #[default]
    NotPaused,
    Paused,
    OverRecording,
    OverPause,
}

/// What was written down, or is to be. The numbers are whose it is, and which of his.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Place {
    Reserved(u8, u8),
    Written(u8, u8),
    PassedOver,
}

/// A program under way: the thread's own, or its signal handler's.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Frame {
    pub(crate) step: usize,
    pub(crate) at: At,
    pub(crate) then: Then,
    pub(crate) event: u8,
    /// What it has read of the gate, when that matters later.
    pub(crate) seen: (bool, bool, u8),
    /// Whether it records with the table's locks.
    pub(crate) locked: bool,
    /// Which queue and place it writes into.
    pub(crate) place: (u8, u8),
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Thread {
    pub(crate) frame: Frame,
    /// What its signal handler has interrupted.
    pub(crate) below: Option<Frame>,
    pub(crate) has_handled: bool,
    /// What the others see, and what is still in the store buffer.
    pub(crate) busy: bool,
    pub(crate) busy_soon: bool,
    /// Whether it is writing down.
    pub(crate) noting: u8,
    /// Its forks on top of each other, and how the first one found the world.
    pub(crate) depth: u8,
    pub(crate) held: Held,
    pub(crate) is_forking: bool,
    /// Events of its handler that came while it was busy.
    pub(crate) skipped: u8,
}

impl Thread {
    pub(crate) fn frames(&self) -> impl Iterator<Item = &Frame> + Clone {
        core::iter::once(&self.frame).chain(&self.below)
    }
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct World {
    pub(crate) threads: Vec<Thread>,
    pub(crate) locks: [u8; 3],
    pub(crate) closed: bool,
    pub(crate) newcomer: bool,
    /// Places handed out since the gate closed, and how many of them have been read.
    pub(crate) noted: Vec<Place>,
    pub(crate) drained: usize,
    /// Which queue it is: the former one does not serve again once a place was passed over.
    pub(crate) queue: u8,
    pub(crate) is_spoiled: bool,
    pub(crate) pausing: u8,
    pub(crate) forks: u8,
    pub(crate) crowd: u8,
    pub(crate) shared: bool,
    pub(crate) recorded: Vec<(u8, u8)>,
    pub(crate) dropped: Vec<(u8, u8)>,
}

/// What the twin is to have wrong, to see that the search finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    None,
    /// Who meets a closed gate waits for it, as the gate once did.
    WaitsAtGate,
    /// A pauser does not make stores visible.
    NoBarrier,
    /// Whoever opens looks at the crowd only once.
    ForgetsNewcomer,
    /// Who becomes the pauser does not look whether the gate still is closed.
    TakesOpenForAbandoned,
    /// The gate opens whatever was written down meanwhile.
    OpensBlindly,
    /// A pauser is busy before it has the turn.
    BusyBeforeTurn,
    /// The queue begins anew once somebody else may have the turn.
    RestartsLate,
    /// Who gives a pause up opens the gate whatever was written down since it was not busy any more.
    GivesUpBlindly,
    /// Who gives a pause up keeps the turn.
    KeepsTurn,
    /// Who has opened the gate stays busy.
    KeepsBusy,
    /// A handler records whatever its thread was doing.
    RecordsOnTop,
    /// A handler waits for its own thread's turn to end.
    WaitsForOwnTurn,
    /// A handler's fork ends the pause that it came upon.
    EndsPauseBelow,
    /// A handler's fork takes its thread's turn for a closed gate.
    ForksOverOpenGate,
    /// A handler's fork opens the gate though its thread was recording.
    OpensOverRecording,
    /// Others take part in the pause of a handler's fork whose thread was recording.
    JoinsOverRecording,
    /// A handler opens the gate though its thread was writing down.
    OpensOverNote,
    /// Who opens waits for a place whose writer a handler holds up.
    WaitsForPlace,
    /// A queue serves again whose place was passed over.
    KeepsSpoiledQueue,
    /// A thread is found by its handler before it is counted.
    IsKnownUncounted,
}
