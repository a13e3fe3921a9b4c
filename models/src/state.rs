//! What the model knows: brokers' logs, what a group has stored, the lake, and the tries of tasks.
//!
//! Everything is small and copied. Records are numbered over all time and never again, so a broker
//! that hands an offset out twice stores two different records there.

use crate::claims::{Book, Claims, Step};

/// Partitions of the topic.
pub const PARTITIONS: usize = 2;
/// Tasks that run beside each other.
pub const TASKS: usize = 3;
/// The largest number of a window, and one more.
pub const WINDOWS: usize = 7;
/// The most records that a history has.
pub const RECORDS: usize = 6;
/// Stands for a partition that a position does not know.
pub const ABSENT: u8 = 255;

/// Next starts by partition.
pub type Next = [u8; PARTITIONS];

/// The log of a partition, with the numbers of its records; offsets count from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Log {
    pub records: [u8; RECORDS],
    pub len: u8,
    /// The end that a crash of the broker cannot take back.
    pub stable: u8,
    /// Where retention has left the beginning.
    pub low: u8,
}

/// Up to where windows are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    pub seq: u8,
    pub next: Next,
}

/// The frozen ranges of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    pub seq: u8,
    pub start: Next,
    pub end: Next,
    /// Where reading begins, if retention took what is before and a policy allows that.
    pub from: Next,
    /// Partitions that join here: a bit each.
    pub joined: u8,
}

impl Plan {
    /// The position that this window continues.
    pub fn bases(&self) -> Next {
        let mut bases = self.start;
        for (p, base) in bases.iter_mut().enumerate() {
            if self.joined & (1 << p) != 0 {
                *base = ABSENT;
            }
        }
        bases
    }
}

/// A window in the lake: its marker is the plan, and `records` is what is stored with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    pub plan: Plan,
    pub records: u16,
    /// How many offsets it says it lacks.
    pub missing: u8,
    /// Whether readers see it; only a planted mistake publishes in two steps.
    pub marked: bool,
}

/// What the metadata database has of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Progress {
    /// With claims it is the position of the book.
    pub cursor: Option<Position>,
    /// The claims, if runs have any.
    pub book: Option<Book>,
    pub event: Option<Position>,
    pub plans: [Option<Plan>; WINDOWS],
    pub task_plans: [Option<Plan>; TASKS],
}

/// Why a try has ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    SinkHistoryLost,
    MarkerConflict,
    DataLoss,
    /// The store refuses writes of a try that was superseded.
    Fenced,
    /// Another try has removed this one's staging place.
    StagingGone,
}

/// For whom a walk along the markers is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Walk {
    Load,
    Hole,
    Arrive,
}

/// For whom the window of the position is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    Load,
    Publish,
}

/// The next action of a try; its name is the step point that the real run reaches after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pc {
    CursorRead,
    EventRead,
    MarkerOfCursor,
    Listed,
    Follow(Walk),
    HoleListed,
    LastMarker,
    PositionMarker(Look),
    LostListed,
    LostMarker,
    FirstTaskPlan,
    FirstPlan,
    Scopes,
    Initial,
    TaskPlanRead,
    MarkerOfTaskPlan,
    StoredPlanRead,
    MarkerOfStoredPlan,
    PlanCreated,
    PlanStored,
    TaskPlanStored,
    MarkerRead,
    TaskPlanReplaced,
    Staging,
    Written,
    ScopesAgain,
    CursorReadAgain,
    MarkerReadAgain,
    Published,
    Marked,
    StagingDiscarded,
    Tidied,
    AdvanceCursorRead,
    CursorStored,
    Emitted,
    Done,
    Raise(Fault),
    Claimed(Step),
}

/// A try's staging place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    None,
    There,
    Removed,
}

/// A try of a task: what the real run keeps in its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Try {
    pub pc: Pc,
    /// At most one record a window.
    pub capped: bool,
    /// `gap_policy="skip"`.
    pub skips: bool,
    pub superseded: bool,
    pub cursor_missing: bool,
    pub cursor: Option<Position>,
    pub position: Option<Position>,
    /// Next starts by number, at each point of the chain that this try has seen.
    pub proven: [Option<Next>; WINDOWS],
    /// Numbers of the windows that the lake has, a bit each, if they were listed.
    pub listed: Option<u8>,
    pub highest: u8,
    /// Whether the marker of the position's window was read on the way.
    pub seen: bool,
    pub unannounced: bool,
    pub own: Option<Plan>,
    pub plan: Option<Plan>,
    pub written: bool,
    pub place: Place,
    pub records: u16,
    /// The claims as this try knows them.
    pub book: Option<Book>,
    /// Claims about whose tasks this try has still to ask.
    pub asked: Option<Claims>,
    /// Numbers of windows that were published last and are not in the lake, a bit each.
    pub missing: u8,
    /// Numbers of windows that were published before this try's, a bit each.
    pub before: u8,
    /// Whether this try may refuse because of a window that was removed by age: it was removed, or
    /// progress was lost behind it, while the try lived; or progress named it when the try began.
    pub excused: bool,
}

impl Try {
    pub fn new(pc: Pc, capped: bool, skips: bool) -> Try {
        Try {
            pc,
            capped,
            skips,
            superseded: false,
            cursor_missing: false,
            cursor: None,
            position: None,
            proven: [None; WINDOWS],
            listed: None,
            highest: 0,
            seen: false,
            unannounced: false,
            own: None,
            plan: None,
            written: false,
            place: Place::None,
            records: 0,
            book: None,
            asked: None,
            missing: 0,
            before: 0,
            excused: false,
        }
    }

    /// All windows up to `position` are published.
    pub fn reach(&mut self, position: Position) {
        self.position = Some(position);
        self.proven[position.seq as usize] = Some(position.next);
    }
}

/// A task: its tries, the newer one and one that was superseded and may still act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Task {
    pub tries: u8,
    pub succeeded: bool,
    /// Airflow has given it up; an earlier try of it may still act.
    pub over: bool,
    pub current: Option<Try>,
    pub zombie: Option<Try>,
}

/// What must never be, found while an action was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A run has stored a cursor below the one that it had read just before. (A slow run may put an
    /// older one in the place of one that was stored between the two: later runs go along the
    /// markers from there.)
    CursorWentBack,
    PublishedBehindLost,
    PublishedAgain,
    FalseAlarm,
}

/// The whole world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub logs: [Log; PARTITIONS],
    pub partitions: u8,
    pub records: u8,
    pub progress: Progress,
    pub backup: Option<Progress>,
    pub lake: [Option<Window>; WINDOWS],
    pub tasks: [Task; TASKS],
    pub faults: u8,
    /// Where the first window began; what a partition that joined later had before counts from 0.
    pub begin: Option<Next>,
    /// How far windows have ever reached.
    pub reached: Next,
    /// Records in windows that the lake has lost.
    pub lost: u16,
    /// Numbers of windows that the lake has lost, a bit each.
    pub gone: u8,
    /// Whether the lake has ever lost a window, by age or otherwise.
    pub damaged: bool,
    /// Whether it has ever lost one otherwise than by age.
    pub lake_lost: bool,
    /// The window that was published last, if no lake was lost since; 0 if there is none.
    pub published_last: u8,
    /// Records in windows that were removed by age, and the numbers of those windows.
    pub pruned: u16,
    pub pruned_windows: u8,
    /// Records that a window says it lacks, as retention took them.
    pub gaps: u16,
    pub broken: Option<Broken>,
}

impl State {
    pub fn of(&mut self, task: usize, zombie: bool) -> &mut Try {
        let task = &mut self.tasks[task];
        let found = if zombie { &mut task.zombie } else { &mut task.current };
        found.as_mut().expect("a try that acts is alive")
    }

    /// Where the logs begin.
    pub fn lows(&self) -> Next {
        let mut next = [ABSENT; PARTITIONS];
        for p in 0..self.partitions as usize {
            next[p] = self.logs[p].low;
        }
        next
    }

    pub fn marker(&self, seq: u8) -> Option<Plan> {
        self.lake.get(seq as usize)?.filter(|w| w.marked).map(|w| w.plan)
    }

    /// Whether a run that begins now may refuse as windows were removed by age: none is left that
    /// progress stands on.
    pub fn excuses(&self) -> bool {
        let counted = [self.progress.cursor, self.progress.event].into_iter().flatten();
        let newest = counted.map(|position| position.seq).max().unwrap_or(0);
        self.pruned_windows != 0 && self.marker(newest).is_none()
    }

    /// A window was removed by age while they live, or progress was lost behind one.
    pub fn excuse_the_living(&mut self) {
        if self.pruned_windows != 0 {
            let living = self.tasks.iter_mut().flat_map(|t| [&mut t.current, &mut t.zombie]).flatten();
            living.for_each(|one| one.excused = true);
        }
    }

    /// Numbers of the windows in the lake, a bit each.
    pub fn numbers(&self) -> u8 {
        (0..WINDOWS as u8).filter(|n| self.marker(*n).is_some()).map(|n| 1 << n).sum()
    }
}

/// The highest number in a set of bits; 0 if there is none.
pub fn highest(bits: u8) -> u8 {
    7u8.saturating_sub(bits.leading_zeros() as u8)
}

/// New numbers for records, which are alike: by where they are, and in which sets.
pub struct Order {
    count: usize,
    to: [u8; RECORDS],
}

impl Order {
    /// None if each record keeps its number. `kinds` tells records apart that are not alike.
    pub fn of(count: usize, logs: &[Log], sets: &[u16], kinds: &[u8; RECORDS]) -> Option<Order> {
        let mut place = [u32::MAX; RECORDS];
        for (p, log) in logs.iter().enumerate() {
            for (offset, record) in log.records[..log.len as usize].iter().enumerate() {
                place[*record as usize] = (p * RECORDS + offset) as u32;
            }
        }
        let signature = |record: &usize| {
            let bits = sets.iter().fold(0u32, |all, set| all << 1 | u32::from((set >> record) & 1));
            (place[*record], kinds[*record], bits)
        };
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(signature);
        if order.iter().enumerate().all(|(new, old)| new == *old) {
            return None;
        }
        let mut to = [0; RECORDS];
        for (new, old) in order.iter().enumerate() {
            to[*old] = new as u8;
        }
        Some(Order { count, to })
    }

    pub fn renumber(&self, logs: &mut [Log]) {
        for log in logs {
            for record in &mut log.records[..log.len as usize] {
                *record = self.to[*record as usize];
            }
        }
    }

    pub fn renumbered(&self, set: u16) -> u16 {
        (0..self.count).filter(|old| set & (1 << old) != 0).map(|old| 1 << self.to[old]).sum()
    }

    pub fn moved(&self, kinds: &[u8; RECORDS]) -> [u8; RECORDS] {
        let mut moved = *kinds;
        for old in 0..self.count {
            moved[self.to[old] as usize] = kinds[old];
        }
        moved
    }
}
