//! The data of the gate's twin: programs, threads, and shared words.

pub(crate) const NO_THREAD: u8 = u8::MAX;
/// Has the turn while threads fork.
pub(crate) const FORKERS: u8 = 200;
/// Added to a thread's number to denote its signal handler.
pub(crate) const HANDLER: u8 = 100;

/// One step of a thread's program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    /// Takes or releases a lock of libc's. (0: the list of streams, 1: a stream, 2: malloc's.)
    Lock(u8),
    Unlock(u8),
    /// An event that is to be recorded.
    Event,
    /// The first allocation of a thread: there are two threads from now on.
    Arrive,
    /// A reader's pause, and one that is given up if other threads do not finish.
    Pause,
    ShortPause,
    /// Before and after a fork.
    Hold,
    Release,
}

/// A thread's position within a step: the access that it makes next.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum At {
    #[default]
    Begin,
    /// Event: busy is stored, the gate is not read yet; the gate was closed; checks whether it is abandoned; is
    /// recording; is about to write down.
    BusyStored,
    MetGate,
    MayOpen,
    Recording,
    Note,
    Write,
    /// It has the turn and is about to be busy.
    Took,
    SetsBusy,
    /// It wants to open an abandoned gate, and checks whether other threads are busy.
    Looks,
    /// Opening: events are recorded, the gate is tried, the queue begins again.
    Drains,
    Tries,
    Restarts,
    EndsBusy,
    EndsTurn,
    RestartsLate,
    /// A pauser: closes, barrier, waits, records what an earlier pauser has left, reads.
    Closes,
    Barrier,
    Waits,
    CatchesUp,
    Reading,
    /// It leaves without having opened the gate.
    GivesUp,
    LeavesGate,
    LeavesTurn,
    /// Arrive: it has counted itself; it has announced that.
    Counted,
    Announced,
    /// Release: it is the last one.
    Last,
}

/// The step after opening the gate.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Then {
    Retry,
    #[default]
    Next,
}

/// The state in which a thread's fork began.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Held {
    #[default]
    NotPaused,
    Paused,
    OverRecording,
    OverPause,
}

/// An event in the queue, by its owner and the owner's number of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Place {
    Reserved(u8, u8),
    Written(u8, u8),
    PassedOver,
}

/// A running program: the thread's own, or its signal handler's.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Frame {
    pub(crate) step: usize,
    pub(crate) at: At,
    pub(crate) then: Then,
    pub(crate) event: u8,
    /// What it has read of the gate, if that is needed later.
    pub(crate) seen: (bool, bool, u8),
    /// Whether it takes the table's locks when it records.
    pub(crate) locked: bool,
    /// The queue and the place into which it writes.
    pub(crate) place: (u8, u8),
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Thread {
    pub(crate) frame: Frame,
    /// The program that its signal handler has interrupted.
    pub(crate) below: Option<Frame>,
    pub(crate) has_handled: bool,
    /// The value that other threads see, and the value that is still in the store buffer.
    pub(crate) busy: bool,
    pub(crate) busy_soon: bool,
    /// Number of events that it is writing down.
    pub(crate) noting: u8,
    /// Number of its nested forks, and the state in which the first one began.
    pub(crate) depth: u8,
    pub(crate) held: Held,
    pub(crate) is_forking: bool,
    /// Number of its handler's events that came while it was busy.
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
    /// Places handed out since the gate closed, and how many of them were read.
    pub(crate) noted: Vec<Place>,
    pub(crate) drained: usize,
    /// Number of the queue. The former queue is not used again after a place was passed over.
    pub(crate) queue: u8,
    pub(crate) is_spoiled: bool,
    pub(crate) pausing: u8,
    pub(crate) forks: u8,
    pub(crate) crowd: u8,
    pub(crate) shared: bool,
    pub(crate) recorded: Vec<(u8, u8)>,
    pub(crate) dropped: Vec<(u8, u8)>,
}

/// A deliberate error in the twin, which the search must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    None,
    /// A thread that meets a closed gate waits for it, as in an earlier version of the gate.
    WaitsAtGate,
    /// A pauser does not make stores visible.
    NoBarrier,
    /// A thread that opens the gate checks the number of threads only once.
    ForgetsNewcomer,
    /// A thread that becomes the pauser does not check whether the gate is still closed.
    TakesOpenForAbandoned,
    /// The gate opens even if events were written down meanwhile.
    OpensBlindly,
    /// A pauser is busy before it has the turn.
    BusyBeforeTurn,
    /// The queue begins again at a time when another thread may have the turn.
    RestartsLate,
    /// A thread that gives a pause up opens the gate even if events were written down after it stopped being busy.
    GivesUpBlindly,
    /// A thread that gives a pause up keeps the turn.
    KeepsTurn,
    /// A thread that has opened the gate stays busy.
    KeepsBusy,
    /// A handler records even if its thread is recording.
    RecordsOnTop,
    /// A handler waits for its own thread's turn to end.
    WaitsForOwnTurn,
    /// A handler's fork ends the pause that was in progress before it.
    EndsPauseBelow,
    /// A handler's fork takes its thread's turn for a closed gate.
    ForksOverOpenGate,
    /// A handler's fork opens the gate although its thread was recording.
    OpensOverRecording,
    /// Other threads join the pause of a handler's fork although its thread was recording.
    JoinsOverRecording,
    /// A handler opens the gate although its thread was writing down.
    OpensOverNote,
    /// A thread that opens the gate waits for a place whose writer is interrupted by a handler.
    WaitsForPlace,
    /// A queue is used again after a place of it was passed over.
    KeepsSpoiledQueue,
    /// A thread is found by its handler before it is counted.
    IsKnownUncounted,
    /// A reading begins before what an earlier pauser has left is recorded.
    ReadsAtOnce,
}
