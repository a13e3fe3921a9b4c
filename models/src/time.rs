//! Windows of time: `StandaloneRun`, its planner and the book of boundaries, as a model of its own.
//!
//! A window of time is the records between two boundaries. A boundary is resolved once, by whichever
//! run needs it first, is fitted between its neighbours, and fixed in a turn: in a place that can be
//! written once, by a run that has read all turns before. Steps are coarser than those of the real
//! run, except where boundaries are fixed: there each turn is an action of its own.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use serde_json::{json, Map, Value};
use stateright::{Model, Property, Representative};

use crate::state::{Log, Next, Order, ABSENT, PARTITIONS, RECORDS};
use crate::traces::Recorded;

/// Windows, which lie between one boundary more.
pub const HOURS: usize = 3;
const INSTANTS: usize = HOURS + 1;
const TASKS: usize = 3;

/// Mistakes that can be planted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mistake {
    NotFixed,
    NotFitted,
    NoTurns,
    NotKept,
    JoinsEverywhere,
}

impl Mistake {
    pub const ALL: &'static [(Mistake, &'static str, &'static str)] = &[
        (Mistake::NotFixed, "NotFixed", "each run resolves its boundaries itself"),
        (Mistake::NotFitted, "NotFitted", "a boundary is not fitted between its neighbours"),
        (Mistake::NoTurns, "NoTurns", "a boundary is fixed though others were fixed since it was fitted"),
        (Mistake::NotKept, "NotKept", "no run looks at its boundaries again before publishing"),
        (Mistake::JoinsEverywhere, "JoinsEverywhere", "a partition joins before the boundary that has it first"),
    ];
}

#[derive(Clone, Copy)]
pub struct Bounds {
    pub tasks: u8,
    pub tries: u8,
    /// So many hours pass at most.
    pub hours: u8,
    pub records: u8,
    pub partitions: (u8, u8),
    pub faults: u8,
    /// Whether boundaries are all that is lost.
    pub only_boundaries: bool,
    /// Whether a try begins only after all others are dead.
    pub serial: bool,
    /// Whether histories are left out that come to what others come to, as `reduction` says for
    /// cursors; `serial` only.
    pub reduced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    start: Next,
    end: Next,
    from: Next,
    joined: u8,
}

impl Plan {
    fn bases(&self) -> Next {
        let mut bases = self.start;
        for (p, base) in bases.iter_mut().enumerate() {
            *base = if self.joined & (1 << p) != 0 { ABSENT } else { *base };
        }
        bases
    }
}

impl Plan {
    /// The boundaries at which this window begins and ends. One whose ends are all 0 was planned
    /// before any partition had joined: its boundaries have none.
    fn edges(&self) -> [Next; 2] {
        if self.end.iter().all(|end| matches!(*end, 0 | ABSENT)) {
            return [[ABSENT; PARTITIONS]; 2];
        }
        [self.bases(), self.end]
    }

    /// Whether this window begins, or ends, at `boundary`. A partition that joins with it may be there
    /// at the offset where it begins.
    fn fits(&self, side: usize, boundary: Next) -> bool {
        let mut edge = self.edges()[side];
        for p in (0..PARTITIONS).filter(|p| side == 0 && self.joined & (1 << p) != 0 && boundary[*p] != ABSENT) {
            edge[p] = self.start[p];
        }
        same_edge(edge, boundary)
    }

    /// Whether two plans of a window begin at the same offsets. A partition that only one of them has
    /// makes no difference if its range is empty.
    fn begins_as(&self, other: &Plan) -> bool {
        let (mine, yours) = (self.bases(), other.bases());
        let reads = |plan: &Plan, p: usize| plan.end[p] != ABSENT && plan.start[p] != plan.end[p];
        (0..PARTITIONS).all(|p| match (mine[p], yours[p]) {
            (ABSENT, ABSENT) => true,
            (ABSENT, _) | (_, ABSENT) => !reads(self, p) && !reads(other, p),
            (one, another) => one == another,
        }) || (self.start, self.end) == (other.start, other.end)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Window {
    plan: Plan,
    records: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pc {
    /// Read boundaries, published windows and this task's plan.
    Look,
    /// Fix this boundary in the next turn.
    Turn(u8, Next),
    Stored,
    Marker,
    Written,
    /// Look again, right before publishing.
    LookAgain,
    TurnAgain(u8, Next),
    Published,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Try {
    pc: Pc,
    superseded: bool,
    skips: bool,
    turn: u8,
    plan: Option<Plan>,
    records: u16,
}

impl Try {
    /// Take the plan with which another run has published the window. One that begins elsewhere is
    /// refused: the next try takes it.
    fn adopt(&mut self, published: Plan) -> Option<End> {
        if self.plan.is_some_and(|own| !own.begins_as(&published)) {
            return Some(End::Refused);
        }
        self.plan = Some(published);
        self.pc = Pc::Done;
        None
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Task {
    hour: u8,
    tries: u8,
    plan: Option<Plan>,
    current: Option<Try>,
    zombie: Option<Try>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Success,
    /// The next try plans anew.
    Again,
    DataLoss,
    /// An operator has to look.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    logs: [Log; PARTITIONS],
    partitions: u8,
    records: u8,
    /// The hour of each record, by its number: it may come late.
    hours: [u8; RECORDS],
    now: u8,
    fixed: [Option<Next>; INSTANTS],
    turn: u8,
    lake: [Option<Window>; HOURS],
    accepted: [Option<Plan>; HOURS],
    /// Plans of windows that are not published yet, for any task.
    plans: [Option<Plan>; HOURS],
    tasks: [Task; TASKS],
    faults: u8,
    lost: u16,
    gaps: u16,
    /// Hours whose windows the lake has lost, a bit each.
    gone: u8,
    boundaries_lost: bool,
    false_alarm: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Step { task: u8, zombie: bool },
    Start { task: u8, hour: u8 },
    Retry { task: u8 },
    Append { partition: u8, hour: u8, synced: bool },
    Hour,
    AddPartition,
    Stop,
    LoseWindow { hour: u8 },
    LoseBoundary { instant: u8 },
    LoseBoundaries,
    Wipe,
    Purge,
    Crash,
    Retain { partition: u8 },
}

#[derive(Clone)]
pub struct TimeProtocol {
    pub bounds: Bounds,
    pub mistake: Option<Mistake>,
}

fn merged(first: Option<Next>, second: Option<Next>) -> Option<Next> {
    first.or(second)
}

impl TimeProtocol {
    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// The boundary at `instant` as windows of the lake have it.
    fn of_windows(state: &State, instant: usize) -> Option<Next> {
        let after = state.lake.get(instant).copied().flatten().map(|w| w.plan.edges()[0]);
        let before = instant.checked_sub(1).and_then(|h| state.lake[h]).map(|w| w.plan.edges()[1]);
        merged(after, before)
    }

    /// A boundary as windows have it: a partition at 0 that the next boundary lacks joins later.
    fn restored(known: &[Option<Next>; INSTANTS], instant: usize, mut next: Next) -> Next {
        if let Some(above) = known[instant + 1..].iter().find_map(|b| *b) {
            for (offset, above) in next.iter_mut().zip(above) {
                if *offset == 0 && above == ABSENT {
                    *offset = ABSENT;
                }
            }
        }
        next
    }

    /// Where an instant is in each partition, as its records are now: behind the last older one.
    fn resolved(state: &State, instant: usize) -> Next {
        let mut next = [ABSENT; PARTITIONS];
        for p in 0..state.partitions as usize {
            let log = state.logs[p];
            let older = (log.low..log.stable).rev().find(|o| {
                let number = log.records[*o as usize];
                usize::from(state.hours[number as usize]) < instant
            });
            next[p] = older.map_or(log.low, |o| o + 1);
        }
        next
    }

    fn fitted(&self, known: &[Option<Next>; INSTANTS], instant: usize, answer: Next) -> Next {
        let below = known[..instant].iter().rev().find_map(|b| *b);
        let above = known[instant + 1..].iter().find_map(|b| *b);
        if self.is(Mistake::NotFitted) {
            return answer;
        }
        let mut next = below.unwrap_or([ABSENT; PARTITIONS]);
        for p in (0..PARTITIONS).filter(|p| answer[*p] != ABSENT) {
            let joins_later = above.is_some_and(|a| a[p] == ABSENT);
            if joins_later && !self.is(Mistake::JoinsEverywhere) {
                continue;
            }
            let low = below.map_or(0, |b| if b[p] == ABSENT { 0 } else { b[p] });
            next[p] = answer[p].max(low);
            if let Some(high) = above.map(|a| a[p]).filter(|a| *a != ABSENT) {
                next[p] = next[p].min(high);
            }
        }
        next
    }

    /// All boundaries that a run knows, fixed or in a window; whether they agree.
    fn known(state: &State) -> ([Option<Next>; INSTANTS], bool) {
        let mut known = state.fixed;
        let mut agree = true;
        for instant in 0..INSTANTS {
            if let Some(fixed) = known[instant] {
                let after = state.lake.get(instant).copied().flatten();
                let before = instant.checked_sub(1).and_then(|h| state.lake[h]);
                agree &=
                    after.map_or(true, |w| w.plan.fits(0, fixed)) && before.map_or(true, |w| w.plan.fits(1, fixed));
            }
            known[instant] = merged(known[instant], Self::of_windows(state, instant));
        }
        (known, agree && in_order(&known))
    }

    fn act(&self, state: &mut State, task: usize, zombie: bool) -> Option<End> {
        let found = &mut state.tasks[task];
        let slot = if zombie { &mut found.zombie } else { &mut found.current };
        let mut me = slot.take().expect("it lives");
        let end = self.step(state, task, &mut me);
        let found = &mut state.tasks[task];
        let slot = if zombie { &mut found.zombie } else { &mut found.current };
        if end.is_none() {
            *slot = Some(me);
        }
        let harmed = state.gone != 0 || state.boundaries_lost;
        if end == Some(End::Refused) && !harmed {
            state.false_alarm = true;
        }
        end
    }

    fn step(&self, state: &mut State, task: usize, me: &mut Try) -> Option<End> {
        let hour = usize::from(state.tasks[task].hour);
        match me.pc {
            Pc::Look => return self.look(state, task, me, hour),
            Pc::Turn(instant, next) => {
                if state.turn == me.turn || self.is(Mistake::NoTurns) {
                    state.turn += 1;
                    state.fixed[instant as usize].get_or_insert(next);
                }
                me.pc = Pc::Look;
            }
            Pc::Stored => {
                if me.superseded {
                    return Some(End::Again);
                }
                state.tasks[task].plan = me.plan;
                me.pc = Pc::Marker;
            }
            Pc::Marker => match state.lake[hour] {
                Some(window) => return me.adopt(window.plan),
                None => me.pc = Pc::Written,
            },
            Pc::Written => {
                let plan = me.plan.expect("it was planned");
                me.records = 0;
                for p in (0..PARTITIONS).filter(|p| plan.end[*p] != ABSENT) {
                    let log = state.logs[p];
                    for offset in plan.from[p]..plan.end[p] {
                        if offset >= log.low && offset < log.len {
                            me.records |= 1 << log.records[offset as usize];
                        } else if !me.skips {
                            // Another run may have read and published them meanwhile.
                            return state.lake[hour].map_or(Some(End::DataLoss), |w| me.adopt(w.plan));
                        }
                    }
                }
                me.pc = if self.is(Mistake::NotKept) { Pc::Published } else { Pc::LookAgain };
            }
            Pc::LookAgain => {
                let plan = me.plan.expect("it was planned");
                // If another run has published this window since, its marker decides, later.
                let own = state.lake[hour].take();
                let (known, agree) = Self::known(state);
                state.lake[hour] = own;
                if !agree {
                    return Some(End::Refused);
                }
                for (side, edge) in plan.edges().into_iter().enumerate() {
                    let instant = hour + side;
                    let lost = state.fixed[instant].is_none();
                    // A boundary that was lost is taken from all windows of now.
                    let known = if lost { Self::known(state).0 } else { known };
                    if known[instant].is_some_and(|b| !plan.fits(side, b)) {
                        return Some(End::Again);
                    }
                    if lost && !self.is(Mistake::NotFixed) {
                        let next = Self::restored(&known, instant, known[instant].unwrap_or(edge));
                        let mut with = known;
                        with[instant] = Some(next);
                        if !in_order(&with) {
                            return Some(End::Again);
                        }
                        me.turn = state.turn;
                        me.pc = Pc::TurnAgain(instant as u8, next);
                        return None;
                    }
                }
                me.pc = Pc::Published;
            }
            Pc::TurnAgain(instant, next) => {
                if state.turn == me.turn {
                    state.turn += 1;
                    state.fixed[instant as usize].get_or_insert(next);
                }
                me.pc = Pc::LookAgain;
            }
            Pc::Published => {
                let plan = me.plan.expect("it was planned");
                if let Some(window) = state.lake[hour] {
                    return me.adopt(window.plan);
                }
                for p in (0..PARTITIONS).filter(|p| plan.end[*p] != ABSENT) {
                    let log = state.logs[p];
                    for offset in plan.start[p]..plan.end[p] {
                        let number = 1u16 << log.records[offset as usize];
                        if me.records & number == 0 && (me.skips || offset < plan.from[p]) {
                            state.gaps |= number;
                        }
                    }
                }
                state.gone &= !(1 << hour);
                state.lake[hour] = Some(Window { plan, records: me.records });
                me.pc = Pc::Done;
            }
            Pc::Done => {
                state.plans[hour] = None;
                if !me.superseded {
                    state.accepted[hour] = me.plan;
                }
                return Some(End::Success);
            }
        }
        None
    }

    fn look(&self, state: &mut State, task: usize, me: &mut Try, hour: usize) -> Option<End> {
        if let Some(window) = state.lake[hour] {
            me.plan = Some(window.plan);
            me.pc = Pc::Stored;
            return None;
        }
        let (known, agree) = Self::known(state);
        // A lake that has lost every window of the group is not written to.
        let all_lost = state.accepted.iter().any(Option::is_some) && state.lake.iter().all(Option::is_none);
        if !agree || all_lost {
            return Some(End::Refused);
        }
        me.turn = state.turn;
        let mut edges = [[ABSENT; PARTITIONS]; 2];
        for (edge, instant) in edges.iter_mut().zip([hour, hour + 1]) {
            let next = match (state.fixed[instant], known[instant]) {
                (Some(fixed), _) => fixed,
                (None, Some(edge)) => Self::restored(&known, instant, edge),
                (None, None) => self.fitted(&known, instant, Self::resolved(state, instant)),
            };
            if state.fixed[instant].is_none() && !self.is(Mistake::NotFixed) {
                me.pc = Pc::Turn(instant as u8, next);
                return None;
            }
            *edge = next;
        }
        let [mut before, after] = edges;
        // A partition at 0 in a window without records may join only later.
        for (start, _) in before.iter_mut().zip(after).filter(|(start, end)| **start == 0 && *end == ABSENT) {
            *start = ABSENT;
        }
        let own = state.tasks[task].plan;
        let stands = |p: &Plan| p.bases() == before && p.end == after;
        if let Some(plan) = own.filter(stands) {
            me.plan = Some(plan);
            me.pc = Pc::Marker;
            return None;
        }
        if let Some(plan) = state.plans[hour].filter(stands) {
            me.plan = Some(plan);
            me.pc = Pc::Stored;
            return None;
        }
        let mut plan = Plan { start: before, end: after, from: before, joined: 0 };
        for p in 0..PARTITIONS {
            if after[p] == ABSENT {
                if before[p] != ABSENT && before[p] != 0 {
                    return Some(End::Refused);
                }
                plan.start[p] = ABSENT;
                plan.from[p] = ABSENT;
                continue;
            }
            let low = state.logs[p].low;
            if before[p] == ABSENT {
                plan.joined |= 1 << p;
                plan.start[p] = low.min(after[p]);
            }
            if plan.start[p] > after[p] {
                return Some(End::Refused);
            }
            plan.from[p] = plan.start[p].max(low.min(after[p]));
            if plan.from[p] > plan.start[p] && !me.skips {
                return Some(End::DataLoss);
            }
        }
        if after == [ABSENT; PARTITIONS] {
            for p in 0..state.partitions as usize {
                (plan.start[p], plan.from[p], plan.end[p]) = (0, 0, 0);
            }
        }
        // The lake has lost this window together with its boundaries: other offsets would be written
        // under its name.
        if state.accepted[hour].is_some_and(|a| a.start != plan.start || a.end != plan.end) {
            return Some(End::Refused);
        }
        if !me.superseded {
            state.plans[hour] = Some(plan);
        }
        me.plan = Some(plan);
        me.pc = Pc::Stored;
        None
    }

    fn begin(&self, skips: bool) -> Try {
        Try { pc: Pc::Look, superseded: false, skips, turn: 0, plan: None, records: 0 }
    }

    fn stop(&self, state: &mut State) {
        for task in &mut state.tasks {
            task.current = None;
            task.zombie = None;
        }
    }

    fn apply(&self, state: &mut State, action: Action) {
        match action {
            Action::Step { task, zombie } => {
                self.act(state, task as usize, zombie);
                return;
            }
            Action::Start { task, .. } | Action::Retry { task } => {
                if self.bounds.serial {
                    self.stop(state);
                }
                let found = &mut state.tasks[task as usize];
                if let Action::Start { hour, .. } = action {
                    found.hour = hour;
                }
                if let Some(mut older) = found.current.take() {
                    older.superseded = true;
                    found.zombie = Some(older);
                }
                found.tries += 1;
                found.current = Some(self.begin(false));
                return;
            }
            Action::Append { partition, hour, synced } => {
                let log = &mut state.logs[partition as usize];
                log.records[log.len as usize] = state.records;
                state.hours[state.records as usize] = hour;
                log.len += 1;
                if synced {
                    log.stable = log.len;
                }
                state.records += 1;
                return;
            }
            Action::Hour => {
                state.now += 1;
                return;
            }
            Action::AddPartition => {
                state.partitions += 1;
                return;
            }
            Action::LoseWindow { hour } => {
                let window = state.lake[hour as usize].take().expect("it is there");
                state.lost |= window.records;
                state.gone |= 1 << hour;
                self.stop(state);
            }
            Action::LoseBoundary { instant } => {
                state.fixed[instant as usize] = None;
                state.boundaries_lost = true;
            }
            Action::LoseBoundaries => {
                state.fixed = [None; INSTANTS];
                state.boundaries_lost = true;
            }
            Action::Stop => return self.stop(state),
            Action::Wipe => {
                state.tasks.iter_mut().for_each(|t| t.plan = None);
                state.plans = [None; HOURS];
            }
            Action::Purge => state.accepted = [None; HOURS],
            Action::Crash => {
                for log in &mut state.logs {
                    log.len = log.stable;
                    for offset in log.len as usize..RECORDS {
                        log.records[offset] = 0;
                    }
                }
            }
            Action::Retain { partition } => state.logs[partition as usize].low += 1,
        }
        state.faults += 1;
    }

    pub fn problem(&self, state: &State) -> Option<&'static str> {
        self.broken(state).or_else(|| (!self.recovers(state)).then_some("a group comes to its end"))
    }

    /// The promise that the lake does not keep as it is.
    fn broken(&self, state: &State) -> Option<&'static str> {
        if state.false_alarm {
            return Some("no error where nothing was lost");
        }
        let mut there = 0u16;
        for (hour, window) in state.lake.iter().enumerate() {
            let Some(window) = window else { continue };
            if there & window.records != 0 {
                return Some("each record once");
            }
            there |= window.records;
            if let Some(next) = state.lake.get(hour + 1).copied().flatten() {
                if !same_edge(window.plan.edges()[1], next.plan.edges()[0]) {
                    return Some("windows follow each other");
                }
            }
            for p in (0..PARTITIONS).filter(|p| window.plan.end[*p] != ABSENT) {
                let log = state.logs[p];
                for offset in window.plan.start[p].max(log.low)..window.plan.end[p].min(log.len) {
                    if (window.records | state.gaps) & (1 << log.records[offset as usize]) == 0 {
                        return Some("a window holds its records");
                    }
                }
            }
        }
        self.misses_a_record(state).then_some("no record is missing")
    }

    /// Whether a record between the first and the last of windows that follow each other is in no
    /// window, no gap and none that the lake has lost.
    fn misses_a_record(&self, state: &State) -> bool {
        let known = state.lake.iter().flatten().fold(state.lost | state.gaps, |all, w| all | w.records);
        let mut begin = [None; PARTITIONS];
        for window in state.lake {
            let Some(Window { plan, .. }) = window else {
                begin = [None; PARTITIONS];
                continue;
            };
            for p in 0..PARTITIONS {
                // A partition that joins later is read from its beginning.
                let start = if plan.start[p] == ABSENT { 0 } else { plan.start[p] };
                let (begin, log) = (*begin[p].get_or_insert(start), state.logs[p]);
                let end = if plan.end[p] == ABSENT { 0 } else { plan.end[p] };
                let missing = |offset: u8| known & (1 << log.records[offset as usize]) == 0;
                if (begin.max(log.low)..end.min(log.len)).any(missing) {
                    return true;
                }
            }
        }
        false
    }

    /// Whether undisturbed runs of each hour publish it, with every promise kept, or come to an error
    /// that lost windows or boundaries explain.
    fn recovers(&self, state: &State) -> bool {
        thread_local! {
            static KNOWN: RefCell<(HashSet<u64>, RandomState)> = RefCell::default();
        }
        let mut alone = state.clone();
        alone.tasks = Default::default();
        alone.faults = 0;
        alone.turn = 0;
        let key = KNOWN.with_borrow(|(_, hasher)| hasher.hash_one((&alone, self.mistake)));
        if KNOWN.with_borrow(|(known, _)| known.contains(&key)) {
            return true;
        }
        let fine = self.alone(&mut alone);
        if fine {
            KNOWN.with_borrow_mut(|(known, _)| known.insert(key));
        }
        fine
    }

    fn alone(&self, state: &mut State) -> bool {
        let now = usize::from(state.now);
        let harmed = state.gone != 0 || state.boundaries_lost;
        for hour in 0..now {
            let mut skips = false;
            for _ in 0..4 {
                if state.lake[hour].is_some() {
                    break;
                }
                state.tasks = Default::default();
                state.tasks[0].hour = hour as u8;
                let mut me = self.begin(skips);
                let end = loop {
                    if let Some(end) = self.step(state, 0, &mut me) {
                        break end;
                    }
                };
                match end {
                    End::DataLoss => skips = true,
                    End::Refused => return harmed,
                    End::Again | End::Success => {}
                }
            }
            if state.lake[hour].is_none() {
                return false;
            }
        }
        self.broken(state).is_none()
    }
}

/// Whether two boundaries are the same: a partition that one of them lacks counts as 0.
fn same_edge(one: Next, other: Next) -> bool {
    let at = |o: u8| if o == ABSENT { 0 } else { o };
    (0..PARTITIONS).all(|p| at(one[p]) == at(other[p]))
}

fn in_order(known: &[Option<Next>; INSTANTS]) -> bool {
    let mut at = [0; PARTITIONS];
    for boundary in known.iter().flatten() {
        for p in 0..PARTITIONS {
            let here = if boundary[p] == ABSENT { 0 } else { boundary[p] };
            if here < at[p] {
                return false;
            }
            at[p] = here;
        }
    }
    true
}

impl Model for TimeProtocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            logs: [Log::default(); PARTITIONS],
            partitions: self.bounds.partitions.0,
            records: 0,
            hours: [0; RECORDS],
            now: 0,
            fixed: [None; INSTANTS],
            turn: 0,
            lake: [None; HOURS],
            accepted: [None; HOURS],
            plans: [None; HOURS],
            tasks: [Task::default(); TASKS],
            faults: 0,
            lost: 0,
            gaps: 0,
            gone: 0,
            boundaries_lost: false,
            false_alarm: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.false_alarm {
            return;
        }
        self.possible(state, actions);
        if self.bounds.reduced {
            actions.push(Action::Stop);
            actions.retain(|action| due(state, action));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.apply(&mut next, action);
        if self.bounds.reduced {
            self.reduce(&mut next);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("guarantees", |model: &TimeProtocol, state| model.problem(state).is_none())]
    }
}

impl TimeProtocol {
    /// All that can happen in `state`.
    fn possible(&self, state: &State, actions: &mut Vec<Action>) {
        let bounds = &self.bounds;
        for task in 0..bounds.tasks {
            let found = &state.tasks[task as usize];
            for (zombie, one) in [(false, found.current), (true, found.zombie)] {
                if one.is_some() {
                    actions.push(Action::Step { task, zombie });
                }
            }
            let turn = task == 0 || state.tasks[task as usize - 1].tries > 0;
            if found.tries == 0 && turn {
                actions.extend((0..state.now).map(|hour| Action::Start { task, hour }));
            } else if found.tries > 0 && found.tries < bounds.tries && found.zombie.is_none() {
                actions.push(Action::Retry { task });
            }
        }
        let unsynced = state.faults < bounds.faults && !bounds.only_boundaries;
        for partition in (0..state.partitions).filter(|_| state.records < bounds.records) {
            // A record is of the present hour, or late by some.
            for hour in 0..=state.now.min(bounds.hours - 1) {
                actions.push(Action::Append { partition, hour, synced: true });
                if unsynced {
                    actions.push(Action::Append { partition, hour, synced: false });
                }
            }
        }
        if state.now < bounds.hours {
            actions.push(Action::Hour);
        }
        if state.partitions < bounds.partitions.1 {
            actions.push(Action::AddPartition);
        }
        if state.faults >= bounds.faults {
            return;
        }
        let tries = || state.tasks.iter().flat_map(|t| [t.current, t.zombie]).flatten();
        // No boundary is lost between a try's last look and its publication.
        if tries().all(|t| t.pc != Pc::Published) {
            let fixed = |i: &u8| state.fixed[*i as usize].is_some();
            actions.extend((0..INSTANTS as u8).filter(fixed).map(|instant| Action::LoseBoundary { instant }));
            if state.fixed.iter().flatten().count() > 1 {
                actions.push(Action::LoseBoundaries);
            }
        }
        if bounds.only_boundaries {
            return;
        }
        actions.extend(
            (0..HOURS as u8).filter(|h| state.lake[*h as usize].is_some()).map(|hour| Action::LoseWindow { hour }),
        );
        if state.tasks.iter().any(|t| t.plan.is_some()) || state.plans != [None; HOURS] {
            actions.push(Action::Wipe);
        }
        if state.accepted != [None; HOURS] {
            actions.push(Action::Purge);
        }
        if state.logs.iter().any(|log| log.stable < log.len) {
            actions.push(Action::Crash);
        }
        for partition in 0..state.partitions {
            let log = &state.logs[partition as usize];
            if log.low < log.stable {
                actions.push(Action::Retain { partition });
            }
        }
    }

    /// Take the steps that need no state of their own, and forget what is read no more.
    fn reduce(&self, state: &mut State) {
        while let Some((task, zombie, one)) = living(state) {
            let bounds = &self.bounds;
            let more = state.faults < bounds.faults;
            let logs = state.records < bounds.records
                || state.now < bounds.hours
                || state.partitions < bounds.partitions.1
                || (more && !bounds.only_boundaries);
            let (touches_logs, touches_stores, writes) = touched(one.pc);
            if writes || (touches_logs && logs) || (touches_stores && more) {
                break;
            }
            self.act(state, task, zombie);
        }
        for task in &mut state.tasks {
            if task.current.is_none() && task.zombie.is_none() && task.tries == self.bounds.tries {
                task.plan = None;
                task.hour = 0;
            }
        }
        if living(state).is_none() {
            state.turn = 0;
        }
    }
}

fn living(state: &State) -> Option<(usize, bool, Try)> {
    (0..TASKS).find_map(|task| {
        let found = &state.tasks[task];
        found.current.map(|one| (task, false, one)).or(found.zombie.map(|one| (task, true, one)))
    })
}

/// Whether the next step of the only try reads logs, reads stores, and writes.
fn touched(pc: Pc) -> (bool, bool, bool) {
    match pc {
        // Windows are lost only together with every try.
        Pc::Marker => (false, false, false),
        // It stores a plan.
        Pc::Look => (true, true, true),
        Pc::Written => (true, false, false),
        Pc::LookAgain => (false, true, false),
        Pc::Turn(..) | Pc::TurnAgain(..) | Pc::Stored | Pc::Published | Pc::Done => (false, true, true),
    }
}

/// Whether `action` has to be searched in `state`, or may wait: see `reduction`.
fn due(state: &State, action: &Action) -> bool {
    let Some((_, _, one)) = living(state) else {
        return *action != Action::Stop;
    };
    let (logs, stores, _) = touched(one.pc);
    match action {
        Action::Step { .. } | Action::Stop => true,
        Action::Append { .. } | Action::Hour | Action::AddPartition | Action::Crash | Action::Retain { .. } => logs,
        Action::LoseBoundary { .. } | Action::LoseBoundaries | Action::Wipe | Action::Purge => stores,
        Action::Start { .. } | Action::Retry { .. } | Action::LoseWindow { .. } => false,
    }
}

impl Representative for State {
    /// Tasks are alike, and so are records of one hour.
    fn representative(&self) -> State {
        let mut state = self.clone();
        let hasher = std::hash::BuildHasherDefault::<std::collections::hash_map::DefaultHasher>::default();
        state.tasks.sort_by_cached_key(|task| (task.tries == 0, hasher.hash_one(task)));
        let mut sets = Vec::with_capacity(16);
        state.each_set(|set| sets.push(*set));
        if let Some(order) = Order::of(usize::from(state.records), &state.logs, &sets, &state.hours) {
            order.renumber(&mut state.logs);
            state.hours = order.moved(&state.hours);
            state.each_set(|set| *set = order.renumbered(*set));
        }
        state
    }
}

impl State {
    fn each_set(&mut self, mut act: impl FnMut(&mut u16)) {
        self.lake.iter_mut().flatten().for_each(|window| act(&mut window.records));
        let tries = self.tasks.iter_mut().flat_map(|t| [&mut t.current, &mut t.zombie]).flatten();
        tries.for_each(|one| act(&mut one.records));
        act(&mut self.lost);
        act(&mut self.gaps);
    }
}

// -- traces of the real run ---------------------------------------------------------------------

/// How far a step of a recorded trace goes: up to this point of the real run.
fn reached(point: &str, me: Option<&Try>) -> Option<bool> {
    let pc = me.map(|one| one.pc);
    Some(match point {
        "fitted" => matches!(pc, Some(Pc::Turn(..) | Pc::TurnAgain(..))),
        "turn" => matches!(pc, Some(Pc::Look | Pc::LookAgain)),
        "planned" => pc == Some(Pc::Marker),
        "marker read" => matches!(pc, Some(Pc::Written | Pc::Done)),
        "written" => matches!(pc, Some(Pc::LookAgain | Pc::Done)),
        "compared" => pc == Some(Pc::Published),
        "published" => pc == Some(Pc::Done),
        _ if point == "done" || point.starts_with("error: ") => pc.is_none(),
        _ => return None,
    })
}

/// Whether the protocol as shipped takes the steps of a recorded trace of windows of time.
pub fn accept(trace: &Value) -> Result<(), String> {
    let bounds = Bounds {
        tasks: TASKS as u8,
        tries: u8::MAX,
        hours: HOURS as u8,
        records: RECORDS as u8,
        partitions: (trace["partitions"].as_u64().unwrap_or(1) as u8, PARTITIONS as u8),
        faults: u8::MAX,
        only_boundaries: false,
        serial: false,
        reduced: false,
    };
    let model = TimeProtocol { bounds, mistake: None };
    let mut state = model.init_states().remove(0);
    let mut recorded = Recorded::default();
    for (number, value) in trace["actions"].as_array().ok_or("no actions")?.iter().enumerate() {
        let refuse = |why: String| Err(format!("action {number}, {}: {why}", value["do"]));
        let Some(taken) = read(value) else {
            return refuse("it is none of the model".into());
        };
        let mut possible = Vec::new();
        model.possible(&state, &mut possible);
        if !possible.contains(&taken) {
            return refuse("the model cannot do it here".into());
        }
        if let Action::Step { task, zombie } = taken {
            let point = value["point"].as_str().unwrap_or("");
            loop {
                let end = model.act(&mut state, task as usize, zombie);
                let found = &state.tasks[task as usize];
                let me = if zombie { found.zombie.as_ref() } else { found.current.as_ref() };
                let Some(there) = reached(point, me) else {
                    return refuse(format!("{point:?} is no point of the model"));
                };
                let said = end.map(|end| match end {
                    End::Success => "done",
                    End::Again => "error: again",
                    End::DataLoss => "error: data loss",
                    End::Refused => "error: refused",
                });
                if said.is_some_and(|said| said != point) {
                    return refuse(format!("the model comes to {said:?}, the run to {point:?}"));
                }
                if there {
                    break;
                }
                // To store the task's plan has no point; every other step has one.
                if me.map(|one| one.pc) != Some(Pc::Stored) {
                    return refuse(format!("the model comes to {:?}, the run to {point:?}", me.map(|one| one.pc)));
                }
            }
        } else {
            model.apply(&mut state, taken);
        }
        recorded.take(&value["after"]);
        if !recorded.is(&seen(&state)) {
            return refuse(format!("the model has {}, the run {}", seen(&state), recorded.text()));
        }
        if let Some(broken) = model.problem(&state) {
            return refuse(format!("{broken:?} does not hold"));
        }
    }
    Ok(())
}

fn offsets(next: Next) -> Value {
    let known = next.iter().enumerate().filter(|(_, o)| **o != ABSENT);
    Value::Object(known.map(|(p, o)| (p.to_string(), json!(o))).collect())
}

/// What everybody can see: boundaries and the lake.
fn seen(state: &State) -> Value {
    let fixed = state.fixed.iter().enumerate();
    let fixed = fixed.filter_map(|(n, next)| next.map(|next| (n.to_string(), offsets(next)))).collect();
    let mut lake = Map::new();
    for (hour, window) in state.lake.iter().enumerate() {
        let Some(window) = window else { continue };
        let records: Vec<u8> = (0..16).filter(|n| window.records & (1 << n) != 0).collect();
        let (start, end) = (offsets(window.plan.start), offsets(window.plan.end));
        lake.insert(hour.to_string(), json!({"start": start, "end": end, "records": records}));
    }
    let accepted: Vec<usize> = (0..HOURS).filter(|hour| state.accepted[*hour].is_some()).collect();
    json!({"fixed": Value::Object(fixed), "lake": lake, "accepted": accepted})
}

fn read(value: &Value) -> Option<Action> {
    let number = |name: &str| value[name].as_u64().map(|n| n as u8);
    let flag = |name: &str| value[name].as_bool();
    Some(match value["do"].as_str()? {
        "step" => Action::Step { task: number("task")?, zombie: flag("zombie")? },
        "start" => Action::Start { task: number("task")?, hour: number("hour")? },
        "retry" => Action::Retry { task: number("task")? },
        "append" => Action::Append { partition: number("partition")?, hour: number("hour")?, synced: flag("synced")? },
        "hour" => Action::Hour,
        "add partition" => Action::AddPartition,
        "lose window" => Action::LoseWindow { hour: number("hour")? },
        "lose boundary" => Action::LoseBoundary { instant: number("instant")? },
        "lose boundaries" => Action::LoseBoundaries,
        "wipe" => Action::Wipe,
        "purge" => Action::Purge,
        "crash" => Action::Crash,
        "retain" => Action::Retain { partition: number("partition")? },
        _ => return None,
    })
}
