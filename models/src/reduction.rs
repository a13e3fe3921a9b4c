//! Fewer states for the same histories, where no two tries live at once.
//!
//! Three facts make a history needless, as another one that is searched comes to the same stores,
//! lake and logs, which is all that promises are about:
//!
//! - *A step that only reads what nothing else can change* is taken at once: whatever happens before
//!   it could as well happen behind it, and a try that dies before it leaves what one leaves that
//!   dies behind it.
//! - *What happens to logs* waits until the next step reads logs, or no try lives; and what happens
//!   to stores and lake waits until the next step reads or writes these. Everything that kills the
//!   try happens where none lives: the try is stopped first.
//! - *What is read no more* is cleared: plans of tasks that have no try left, a backup when there
//!   are no faults left.
//!
//! `window-model compare-reduced` fails if a planted mistake is found only without this.

use crate::claims::Step;
use crate::cursor::Actor;
use crate::state::*;
use crate::world::{Action, Bounds, Protocol};

/// What a step reads or writes besides its own try.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    pub logs: bool,
    /// Cursor, event, stored plans, the lake.
    pub stores: bool,
    /// Whether tasks have ended.
    pub tasks: bool,
    pub writes: bool,
}

const NOTHING: Touch = Touch { logs: false, stores: false, tasks: false, writes: false };
const STORES: Touch = Touch { stores: true, ..NOTHING };
const WRITES: Touch = Touch { writes: true, ..STORES };
const LOGS: Touch = Touch { logs: true, ..NOTHING };

impl Touch {
    fn of(one: &Try, lake_lost: bool) -> Touch {
        match one.pc {
            Pc::CursorRead
            | Pc::EventRead
            | Pc::MarkerOfCursor
            | Pc::Listed
            | Pc::Follow(_)
            | Pc::HoleListed
            | Pc::PositionMarker(_)
            | Pc::LostListed
            | Pc::LostMarker
            | Pc::FirstPlan
            | Pc::MarkerOfTaskPlan
            | Pc::StoredPlanRead
            | Pc::MarkerOfStoredPlan
            | Pc::MarkerRead
            | Pc::CursorReadAgain
            | Pc::MarkerReadAgain
            | Pc::AdvanceCursorRead => STORES,
            // No other try lives that could change plans of tasks, or whose staging is tidied.
            Pc::FirstTaskPlan
            | Pc::TaskPlanRead
            | Pc::LastMarker
            | Pc::Scopes
            | Pc::Staging
            | Pc::ScopesAgain
            | Pc::StagingDiscarded
            | Pc::Tidied
            | Pc::Emitted => NOTHING,
            Pc::Initial | Pc::PlanCreated => LOGS,
            // It reads the marker where it fails.
            Pc::Written => Touch { logs: true, ..WRITES },
            Pc::PlanStored
            | Pc::TaskPlanStored
            | Pc::TaskPlanReplaced
            | Pc::Published
            | Pc::CursorStored
            | Pc::Done => WRITES,
            Pc::Marked => Touch { logs: true, ..WRITES },
            // An error that nothing lost explains breaks a promise.
            Pc::Raise(Fault::Fenced | Fault::DataLoss | Fault::StagingGone) => NOTHING,
            Pc::Raise(_) if lake_lost || one.excused => NOTHING,
            Pc::Raise(_) => WRITES,
            Pc::Claimed(step) => Touch::of_claims(step),
        }
    }

    fn of_claims(step: Step) -> Touch {
        match step {
            // Claims are lost only together with every try.
            Step::Read
            | Step::ReadForRebuild
            | Step::OlderReadAgain
            | Step::EarlierCursor
            | Step::RebuildScopes
            | Step::RebuildMarker
            | Step::LostMarker
            | Step::TaskPlanRead
            | Step::ResumedCompared
            | Step::OwnCompared => NOTHING,
            Step::EventRead
            | Step::RebuildListed
            | Step::NewestMarker(_)
            | Step::LostListed
            | Step::OlderListed
            | Step::OlderMarker { .. }
            | Step::ResumedMarker
            | Step::CoveredListed
            | Step::CoveredMarker
            | Step::ClaimMarker
            | Step::ReadAgain => STORES,
            Step::ClaimantAsked => Touch { tasks: true, ..NOTHING },
            Step::PlanCreated => LOGS,
            Step::Created => Touch { logs: true, ..WRITES },
            Step::ClaimCompleted | Step::ClaimAdopted | Step::PlanClaimed | Step::TaskPlanStored | Step::Completed => {
                WRITES
            }
        }
    }
}

/// The try that lives: its task, whether it was superseded, and what it has in mind.
pub fn living(state: &State) -> Option<(u8, bool, Try)> {
    (0..TASKS as u8).find_map(|task| {
        let found = &state.tasks[task as usize];
        found.current.map(|one| (task, false, one)).or(found.zombie.map(|one| (task, true, one)))
    })
}

/// Whether `action` has to be searched in `state`, or may wait.
pub fn due(state: &State, action: &Action) -> bool {
    let Some((lives, _, one)) = living(state) else {
        return *action != Action::Stop;
    };
    let touch = Touch::of(&one, state.lake_lost);
    match action {
        Action::Step { .. } | Action::Stop => true,
        Action::Append { .. } | Action::AddPartition | Action::Crash | Action::Retain { .. } => touch.logs,
        Action::Wipe if state.progress.book.is_some() => false,
        Action::Wipe | Action::Purge | Action::Backup | Action::LoseOldest => touch.stores,
        Action::GiveUp { task } => *task == lives || touch.tasks,
        Action::Start { .. } | Action::Retry { .. } => false,
        Action::LoseNewest | Action::LoseSome { .. } | Action::Restore => false,
    }
}

impl Protocol {
    /// Take the steps that need no state of their own, and forget what is read no more.
    pub fn reduce(&self, state: &mut State) {
        while let Some((task, zombie, one)) = living(state) {
            if !self.at_once(state, task, &one) {
                break;
            }
            Actor { rules: self.rules(), state, task: task as usize, zombie }.act();
        }
        let bounds = &self.bounds;
        for (number, task) in state.tasks.iter_mut().enumerate() {
            if task.current.is_some() || task.zombie.is_some() {
                continue;
            }
            task.succeeded &= bounds.claims;
            if task.tries == bounds.tries {
                state.progress.task_plans[number] = None;
                if let Some(backup) = &mut state.backup {
                    backup.task_plans[number] = None;
                }
            }
        }
        if state.faults >= bounds.faults {
            state.backup = None;
        }
    }

    fn at_once(&self, state: &State, task: u8, one: &Try) -> bool {
        let touch = Touch::of(one, state.lake_lost);
        let Bounds { records, partitions, faults, kinds, .. } = self.bounds;
        let more = state.faults < faults;
        let logs = state.records < records || state.partitions < partitions.1 || (more && kinds & 0b1100_0000 != 0);
        let stores = more && kinds & 0b10_1011 != 0;
        !touch.writes
            && !(touch.logs && logs)
            && !(touch.stores && stores)
            && !(touch.tasks && self.may_end(state, task))
    }

    /// Whether a task may end for good while a try of `lives` asks for it.
    fn may_end(&self, state: &State, lives: u8) -> bool {
        (0..TASKS as u8).any(|t| {
            let task = &state.tasks[t as usize];
            t != lives && task.tries > 0 && !task.succeeded && !task.over
        })
    }
}
