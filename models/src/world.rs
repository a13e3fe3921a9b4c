//! The model: what can happen to a group, its brokers, its metadata and its lake.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use stateright::{Model, Property, Representative};

use crate::claims::{renumber, Step};
use crate::cursor::{Actor, Rules};
use crate::mistakes::Mistake;
use crate::reduction::due;
use crate::state::*;

/// How much may happen in one history.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub tasks: u8,
    pub tries: u8,
    pub records: u8,
    /// Partitions in the beginning, and at most.
    pub partitions: (u8, u8),
    pub faults: u8,
    /// Which faults there are: a bit for each of `FAULTS`.
    pub kinds: u16,
    pub fenced: bool,
    /// Whether tries may cap their windows.
    pub caps: bool,
    /// Whether a task begins only where every try before is dead.
    pub serial: bool,
    /// Whether the first task's tries live on then.
    pub sleeper: bool,
    /// Whether runs claim their windows.
    pub claims: bool,
    /// Whether histories are left out that come to what others come to (`reduction`); `serial` only.
    pub reduced: bool,
}

/// Faults by name, in the order of their bits.
pub const FAULTS: &[&str] = &["wipe", "purge", "lose newest", "lose oldest", "lose some", "restore", "crash", "retain"];

/// So many undisturbed runs bring every history to its end.
const ALONE: usize = 10;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Step {
        task: u8,
        zombie: bool,
    },
    Start {
        task: u8,
        capped: bool,
    },
    Retry {
        task: u8,
        capped: bool,
    },
    Append {
        partition: u8,
        synced: bool,
    },
    /// Airflow will not try the task again; what lives of it may still act.
    GiveUp {
        task: u8,
    },
    AddPartition,
    /// The try that lives dies.
    Stop,
    Wipe,
    Purge,
    LoseNewest,
    LoseOldest,
    LoseSome {
        seq: u8,
    },
    Backup,
    Restore,
    Crash,
    Retain {
        partition: u8,
    },
}

/// The protocol over a world within bounds, with or without a planted mistake.
#[derive(Clone)]
pub struct Protocol {
    pub bounds: Bounds,
    pub mistake: Option<Mistake>,
}

impl Protocol {
    pub fn rules(&self) -> Rules {
        Rules { mistake: self.mistake, fenced: self.bounds.fenced, claims: self.bounds.claims }
    }

    fn first_step(&self) -> Pc {
        if self.bounds.claims {
            Pc::Claimed(Step::EventRead)
        } else {
            Pc::CursorRead
        }
    }

    pub fn initial(&self) -> State {
        State {
            logs: [Log::default(); PARTITIONS],
            partitions: self.bounds.partitions.0,
            records: 0,
            progress: Progress {
                cursor: None,
                book: None,
                event: None,
                plans: [None; WINDOWS],
                task_plans: [None; TASKS],
            },
            backup: None,
            lake: [None; WINDOWS],
            tasks: [Task::default(); TASKS],
            faults: 0,
            begin: None,
            reached: [0; PARTITIONS],
            lost: 0,
            gone: 0,
            damaged: false,
            lake_lost: false,
            published_last: 0,
            pruned: 0,
            pruned_windows: 0,
            gaps: 0,
            broken: None,
        }
    }

    /// Do `action`; the name of the step point, if it is a step of a try.
    pub fn apply(&self, state: &mut State, action: Action) -> Option<&'static str> {
        match action {
            Action::Step { task, zombie } => {
                let mut actor = Actor { rules: self.rules(), state, task: task as usize, zombie };
                return Some(actor.act());
            }
            Action::Start { task, capped } | Action::Retry { task, capped } => {
                if self.bounds.serial {
                    let sleeper = state.tasks[0];
                    self.stop(state);
                    if self.bounds.sleeper {
                        state.tasks[0] = sleeper;
                    }
                }
                let removed = state.pruned_windows;
                let planned = state.progress.task_plans[task as usize].is_some_and(|p| removed & (1 << p.seq) != 0);
                let excused = planned || state.excuses();
                let task = &mut state.tasks[task as usize];
                if let Some(mut older) = task.current.take() {
                    older.superseded = true;
                    task.zombie = Some(older);
                }
                // An earlier try that is not refused may store its plan yet.
                let excused = excused || (removed != 0 && task.zombie.is_some());
                task.tries += 1;
                task.succeeded = false;
                task.over = false;
                task.current = Some(Try { excused, ..Try::new(self.first_step(), capped, false) });
            }
            Action::Append { partition, synced } => {
                let log = &mut state.logs[partition as usize];
                log.records[log.len as usize] = state.records;
                log.len += 1;
                if synced {
                    log.stable = log.len;
                }
                state.records += 1;
            }
            Action::AddPartition => state.partitions += 1,
            Action::Stop => self.stop(state),
            Action::Wipe => {
                if state.progress.book.take().is_some() {
                    self.stop(state);
                }
                state.progress.cursor = None;
                state.progress.plans = [None; WINDOWS];
                state.excuse_the_living();
            }
            Action::GiveUp { task } => {
                let task = &mut state.tasks[task as usize];
                if let Some(mut older) = task.current.take() {
                    older.superseded = true;
                    task.zombie = Some(older);
                }
                task.over = true;
            }
            Action::Purge => {
                state.progress.event = None;
                state.excuse_the_living();
            }
            Action::LoseNewest => self.lose(state, self.newest(state)),
            Action::LoseSome { seq } => self.lose(state, seq),
            Action::LoseOldest => {
                let seq = state.numbers().trailing_zeros() as usize;
                let window = state.lake[seq].take().expect("there is one");
                state.pruned |= window.records;
                state.pruned_windows |= 1 << seq;
                state.damaged = true;
                state.excuse_the_living();
            }
            Action::Backup => state.backup = Some(state.progress),
            Action::Restore => {
                state.progress = state.backup.take().expect("there is one");
                self.stop(state);
            }
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
        if !matches!(
            action,
            Action::Start { .. }
                | Action::Retry { .. }
                | Action::GiveUp { .. }
                | Action::Append { .. }
                | Action::AddPartition
                | Action::Stop
                | Action::Backup
        ) {
            state.faults += 1;
            self.forget_if_nothing_is_left(state);
        }
        None
    }

    /// Where cursor, events and every window of the lake are gone, nothing tells of a group any
    /// more: what follows is another group, and what was stored before is asked for no longer.
    fn forget_if_nothing_is_left(&self, state: &mut State) {
        let progress = &state.progress;
        let known = progress.cursor.is_some() || progress.event.is_some();
        if known || state.lake.iter().any(Option::is_some) || !state.damaged {
            return;
        }
        self.stop(state);
        state.backup = None;
        state.begin = None;
        state.reached = [0; PARTITIONS];
        (state.lost, state.gone) = (0, 0);
        (state.pruned, state.pruned_windows) = (0, 0);
        state.gaps = 0;
    }

    /// The window that a lake of a moment ago lacks: with claims it need not be the one with the
    /// highest number.
    fn newest(&self, state: &State) -> u8 {
        if self.bounds.claims {
            state.published_last
        } else {
            highest(state.numbers())
        }
    }

    /// Lakes and databases are restored while nothing is under way.
    fn stop(&self, state: &mut State) {
        for task in &mut state.tasks {
            task.current = None;
            task.zombie = None;
        }
    }

    fn lose(&self, state: &mut State, seq: u8) {
        let window = state.lake[seq as usize].take().expect("there is one");
        state.lost |= window.records;
        state.gone |= 1 << seq;
        state.damaged = true;
        state.lake_lost = true;
        state.published_last = 0;
        self.stop(state);
    }

    fn may(&self, state: &State, fault: usize) -> bool {
        state.faults < self.bounds.faults && self.bounds.kinds & (1 << fault) != 0
    }

    /// The promise that does not hold in `state`, by its name; None if all do.
    pub fn problem(&self, state: &State) -> Option<&'static str> {
        match state.broken {
            Some(Broken::CursorWentBack) => return Some("no run moves the cursor back"),
            Some(Broken::PublishedBehindLost) => return Some("nothing is published behind a window that is lost"),
            Some(Broken::PublishedAgain) => return Some("a window is published once"),
            Some(Broken::FalseAlarm) => return Some("no error where nothing was lost"),
            None => {}
        }
        let mut there = 0u16;
        let mut before: Option<Plan> = None;
        for window in state.lake.iter().flatten() {
            if there & window.records != 0 || window.records & state.pruned != 0 {
                return Some("each record once");
            }
            there |= window.records;
            let plan = window.plan;
            if before.is_some_and(|b| b.seq + 1 == plan.seq && b.end != plan.bases()) {
                return Some("windows follow each other");
            }
            before = Some(plan);
            let mut entries = 0;
            for p in (0..PARTITIONS).filter(|p| plan.start[*p] != ABSENT) {
                entries += plan.end[p] - plan.start[p];
                let log = state.logs[p];
                for offset in plan.start[p].max(log.low)..plan.end[p].min(log.len) {
                    let number = 1u16 << log.records[offset as usize];
                    if (window.records | state.gaps) & number == 0 {
                        return Some("a window holds its records");
                    }
                }
            }
            if window.records.count_ones() as u8 + window.missing != entries {
                return Some("a window holds its records");
            }
        }
        let known = there | state.lost | state.pruned | state.gaps;
        if let Some(begin) = state.begin {
            for p in 0..PARTITIONS {
                let log = state.logs[p];
                for offset in begin[p].max(log.low)..self.covered(state, p).min(log.len) {
                    if known & (1 << log.records[offset as usize]) == 0 {
                        return Some("no record is missing");
                    }
                }
            }
        }
        let done = state.progress.book.iter().flat_map(|b| b.done.iter().flatten());
        let done = done.map(|plan| Position { seq: plan.seq, next: plan.end });
        for claim in [state.progress.cursor, state.progress.event].into_iter().flatten().chain(done) {
            let away = (state.gone | state.pruned_windows) & (1 << claim.seq) != 0;
            let marker = state.marker(claim.seq);
            if claim.seq > 0 && !away && marker.map(|m| m.end) != Some(claim.next) {
                return Some("what counts as published is");
            }
        }
        if !self.recovers(state) {
            return Some("a group comes to its end");
        }
        None
    }

    /// Up to where each record of a partition has to be there: claimed windows may come later.
    fn covered(&self, state: &State, p: usize) -> u8 {
        if !self.bounds.claims {
            return state.reached[p];
        }
        let counted = [state.progress.cursor, state.progress.event];
        counted.into_iter().flatten().map(|c| c.next[p]).filter(|n| *n != ABSENT).max().unwrap_or(0)
    }

    /// Whether undisturbed runs come to the end of the log from here, or to an error that lost
    /// windows explain; every try that lives is dead from here on.
    fn recovers(&self, state: &State) -> bool {
        thread_local! {
            static KNOWN: RefCell<(HashSet<u64>, RandomState)> = RefCell::default();
        }
        let mut alone = state.clone();
        self.nobody(&mut alone);
        alone.backup = None;
        alone.faults = 0;
        let key = KNOWN.with_borrow(|(_, hasher)| hasher.hash_one((&alone, self.mistake.map(|m| m as u8))));
        if KNOWN.with_borrow(|(known, _)| known.contains(&key)) {
            return true;
        }
        let fine = self.alone_to_the_end(&mut alone, true);
        if fine {
            KNOWN.with_borrow_mut(|(known, _)| known.insert(key));
        }
        fine
    }

    /// What undisturbed runs leave behind, if that is what does not hold.
    pub fn left_alone(&self, state: &State) -> State {
        let mut alone = state.clone();
        self.alone_to_the_end(&mut alone, false);
        alone
    }

    fn alone_to_the_end(&self, state: &mut State, judged: bool) -> bool {
        let mut skips = false;
        for _ in 0..ALONE {
            let windows = state.numbers();
            self.nobody(state);
            let excused = state.excuses();
            state.tasks[0].current = Some(Try { excused, ..Try::new(self.first_step(), false, skips) });
            let mut last = "";
            let mut had_window = false;
            while let Some(me) = state.tasks[0].current {
                had_window |= me.plan.is_some();
                last = Actor { rules: self.rules(), state, task: 0, zombie: false }.act();
            }
            if judged && state.broken.is_some() {
                return false;
            }
            if last == "error: DataLoss" && !skips {
                skips = true; // as the error says
            } else if last != "done" {
                return state.gone != 0 || excused;
            } else if !had_window && state.numbers() == windows {
                return self.holds_all(state) && !state.progress.book.is_some_and(|b| b.busy());
            }
        }
        false
    }

    /// Every task has ended for good.
    fn nobody(&self, state: &mut State) {
        state.tasks = [Task { over: self.bounds.claims, ..Task::default() }; TASKS];
        state.progress.task_plans = [None; TASKS];
    }

    fn holds_all(&self, state: &State) -> bool {
        let there = state.lake.iter().flatten().fold(0, |all, w| all | w.records);
        let known = there | state.lost | state.pruned | state.gaps;
        let begin = state.begin.unwrap_or_default();
        (0..PARTITIONS).all(|p| {
            let log = state.logs[p];
            (begin[p].max(log.low)..log.stable).all(|o| known & (1 << log.records[o as usize]) != 0)
        })
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.initial()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        let bounds = &self.bounds;
        for task in 0..bounds.tasks {
            let found = &state.tasks[task as usize];
            for (zombie, one) in [(false, found.current), (true, found.zombie)] {
                if one.is_some() {
                    actions.push(Action::Step { task, zombie });
                }
            }
            let first = found.tries == 0;
            let turn = task == 0 || state.tasks[task as usize - 1].tries > 0;
            if first && turn || (!first && found.tries < bounds.tries && found.zombie.is_none()) {
                for capped in [false, true] {
                    if capped && !bounds.caps {
                        continue;
                    }
                    actions.push(if first { Action::Start { task, capped } } else { Action::Retry { task, capped } });
                }
            }
        }
        for task in (0..bounds.tasks).filter(|_| bounds.claims) {
            let found = &state.tasks[task as usize];
            let fails = found.current.is_some() || (found.tries > 0 && !found.succeeded);
            if fails && !found.over && (found.zombie.is_none() || found.current.is_none()) {
                actions.push(Action::GiveUp { task });
            }
        }
        for partition in 0..state.partitions {
            if state.records < bounds.records {
                actions.push(Action::Append { partition, synced: true });
                if bounds.kinds & (1 << 6) != 0 && state.faults < bounds.faults {
                    actions.push(Action::Append { partition, synced: false });
                }
            }
        }
        if state.partitions < bounds.partitions.1 {
            actions.push(Action::AddPartition);
        }
        let lake = state.numbers();
        // Claims that are lost together with the events are for an operator to tell.
        let kept = |other: bool| !bounds.claims || other;
        let there = state.progress.cursor.is_some() || state.progress.plans != [None; WINDOWS];
        if self.may(state, 0) && there && kept(state.progress.event.is_some()) {
            actions.push(Action::Wipe);
        }
        if self.may(state, 1) && state.progress.event.is_some() && kept(state.progress.book.is_some()) {
            actions.push(Action::Purge);
        }
        if self.may(state, 2) && lake & (1 << self.newest(state)) & !1 != 0 {
            actions.push(Action::LoseNewest);
        }
        // Windows are removed by age long after progress has counted them and one behind them.
        let counted = [state.progress.cursor, state.progress.event];
        let newest = counted.into_iter().flatten().map(|c| c.seq).max().unwrap_or(0);
        // No try sleeps for so long between its last look and its publication.
        let oldest = lake.trailing_zeros() as u8;
        let late = state.tasks.iter().flat_map(|t| [t.current, t.zombie]).flatten();
        let late = late.filter(|t| t.pc == Pc::Published && t.plan.is_some_and(|p| p.seq == oldest)).count();
        let late = late + usize::from(state.progress.book.is_some_and(|b| b.newest & (1 << (oldest % 8)) != 0));
        let newest = if bounds.claims { state.progress.cursor.map_or(0, |c| c.seq) } else { newest };
        if self.may(state, 3) && lake.count_ones() > 1 && oldest < newest && late == 0 {
            actions.push(Action::LoseOldest);
        }
        if self.may(state, 4) && !bounds.claims {
            for seq in 1..WINDOWS as u8 {
                if lake & (1 << seq) != 0 && seq != highest(lake) {
                    actions.push(Action::LoseSome { seq });
                }
            }
        }
        if self.may(state, 5) && !bounds.claims {
            match state.backup {
                None if state.progress.cursor.is_some() => actions.push(Action::Backup),
                Some(backup) if backup != state.progress => actions.push(Action::Restore),
                _ => {}
            }
        }
        if self.may(state, 6) && state.logs.iter().any(|log| log.stable < log.len) {
            actions.push(Action::Crash);
        }
        if self.may(state, 7) {
            for partition in 0..state.partitions {
                let log = &state.logs[partition as usize];
                if log.low < log.stable {
                    actions.push(Action::Retain { partition });
                }
            }
        }
        if bounds.reduced {
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
        vec![Property::always("guarantees", |model: &Protocol, state| model.problem(state).is_none())]
    }
}

impl Representative for State {
    /// Tasks are alike: they are put in order.
    fn representative(&self) -> State {
        let mut order: Vec<usize> = (0..TASKS).collect();
        let hasher = std::hash::BuildHasherDefault::<std::collections::hash_map::DefaultHasher>::default();
        let weight = |t: &usize| {
            let kept = self.backup.map(|b| b.task_plans[*t]);
            (self.tasks[*t].tries == 0, hasher.hash_one((self.tasks[*t], self.progress.task_plans[*t], kept)))
        };
        order.sort_by_key(weight);
        let mut state = self.clone();
        let number = |by: u8| order.iter().position(|from| *from == by as usize).map_or(by, |to| to as u8);
        state.progress.book = state.progress.book.map(|b| b.renumbered(number));
        for (to, from) in order.iter().copied().enumerate() {
            state.tasks[to] = self.tasks[from];
            state.progress.task_plans[to] = self.progress.task_plans[from];
            if let (Some(mine), Some(kept)) = (&mut state.backup, &self.backup) {
                mine.task_plans[to] = kept.task_plans[from];
            }
        }
        for one in state.tasks.iter_mut().flat_map(|t| [&mut t.current, &mut t.zombie]).flatten() {
            one.book = one.book.map(|b| b.renumbered(number));
            if let Some(asked) = &mut one.asked {
                renumber(asked, number);
            }
        }
        state
    }
}

impl State {
    /// Tasks and records are alike: a search that is reduced takes them so.
    pub fn canonical(&self) -> State {
        let mut state = self.representative();
        state.records_in_order();
        state
    }

    /// Number records by where they are.
    fn records_in_order(&mut self) {
        let mut sets = Vec::with_capacity(16);
        self.each_set(|set| sets.push(*set));
        if let Some(order) = Order::of(usize::from(self.records), &self.logs, &sets, &[0; RECORDS]) {
            order.renumber(&mut self.logs);
            self.each_set(|set| *set = order.renumbered(*set));
        }
    }

    /// Every set of records, in the same order each time.
    fn each_set(&mut self, mut act: impl FnMut(&mut u16)) {
        self.lake.iter_mut().flatten().for_each(|window| act(&mut window.records));
        let tries = self.tasks.iter_mut().flat_map(|t| [&mut t.current, &mut t.zombie]).flatten();
        tries.for_each(|one| act(&mut one.records));
        act(&mut self.lost);
        act(&mut self.pruned);
        act(&mut self.gaps);
    }
}
