//! A run of a cursor window, action by action: `CursorRun` and the steps it shares, as a model.
//!
//! `act` takes one action of one try and names the step point that the real run reaches by it. What
//! the real run decides between two actions is decided in the same call, after the action.

use crate::claims::Step;
use crate::mistakes::Mistake as M;
use crate::state::*;

/// How a try meets the world.
#[derive(Clone, Copy)]
pub struct Rules {
    pub mistake: Option<M>,
    /// Superseded tries cannot write to stores, as in Airflow.
    pub fenced: bool,
    /// Runs claim their windows.
    pub claims: bool,
}

impl Rules {
    pub fn is(&self, mistake: M) -> bool {
        self.mistake == Some(mistake)
    }
}

/// The name of the next action of a try, and of its end by an error.
pub fn fault_name(fault: Fault) -> &'static str {
    match fault {
        Fault::SinkHistoryLost => "error: SinkHistoryLost",
        Fault::MarkerConflict => "error: MarkerConflict",
        Fault::DataLoss => "error: DataLoss",
        Fault::Fenced => "error: FencedError",
        Fault::StagingGone => "error: FileNotFoundError",
    }
}

/// One try of one task, in its world.
pub struct Actor<'a> {
    pub rules: Rules,
    pub state: &'a mut State,
    pub task: usize,
    pub zombie: bool,
}

impl Actor<'_> {
    pub fn me(&mut self) -> &mut Try {
        let (task, zombie) = (self.task, self.zombie);
        self.state.of(task, zombie)
    }

    pub fn to(&mut self, pc: Pc, point: &'static str) -> &'static str {
        self.me().pc = pc;
        point
    }

    fn position(&mut self) -> Position {
        self.me().position.expect("a try has a position after step 1")
    }

    pub fn refused(&mut self) -> bool {
        self.rules.fenced && self.me().superseded
    }

    fn end(&mut self) {
        let task = &mut self.state.tasks[self.task];
        if self.zombie {
            task.zombie = None;
        } else {
            task.current = None;
        }
    }

    pub fn fail(&mut self, fault: Fault) -> &'static str {
        let excused = matches!(fault, Fault::Fenced | Fault::DataLoss | Fault::StagingGone);
        if !excused && !self.state.lake_lost && !self.me().excused {
            self.state.broken.get_or_insert(Broken::FalseAlarm);
        }
        self.end();
        fault_name(fault)
    }

    /// Take the next action; the name of the step point behind it.
    pub fn act(&mut self) -> &'static str {
        match self.me().pc {
            Pc::CursorRead => {
                let cursor = self.state.progress.cursor;
                let me = self.me();
                me.cursor = cursor;
                me.cursor_missing = cursor.is_none();
                self.to(Pc::EventRead, "load: cursor read")
            }
            Pc::EventRead => self.event_read(),
            Pc::MarkerOfCursor => {
                let cursor = self.me().cursor.expect("it was read");
                let marker = self.state.marker(cursor.seq);
                if marker.is_some_and(|m| m.end != cursor.next) {
                    return self.to(Pc::Raise(Fault::MarkerConflict), "load: marker of cursor read");
                }
                self.me().proven[cursor.seq as usize] = Some(cursor.next);
                self.list_or_follow();
                "load: marker of cursor read"
            }
            Pc::Listed => {
                let numbers = self.state.numbers();
                self.me().listed = Some(numbers);
                let before = (2u8 << self.position().seq) - 2;
                if self.rules.is(M::AgedWindowMissed) && before & !numbers != 0 {
                    return self.to(Pc::Raise(Fault::SinkHistoryLost), "load: windows listed");
                }
                self.walk(Walk::Load);
                "load: windows listed"
            }
            Pc::Follow(walk) => self.follow(walk),
            Pc::HoleListed => {
                let top = highest(self.state.numbers());
                self.refuse_hole(top);
                "load: windows listed"
            }
            Pc::LastMarker => self.to(Pc::Raise(Fault::SinkHistoryLost), "load: last marker read"),
            Pc::PositionMarker(look) => self.position_marker(look),
            Pc::LostListed => {
                let numbers = self.state.numbers();
                let load = !matches!(self.me().place, Place::There | Place::Removed);
                self.me().listed = Some(numbers);
                let next = if numbers == 0 { Pc::Raise(Fault::SinkHistoryLost) } else { Pc::LostMarker };
                self.to(next, if load { "load: windows listed" } else { "publish: windows listed" })
            }
            Pc::LostMarker => {
                let load = self.me().place == Place::None;
                let mut numbers = self.me().listed.expect("they were listed");
                let found = self.state.marker(highest(numbers)).is_some();
                numbers &= !(1 << highest(numbers));
                self.me().listed = Some(numbers);
                if found || numbers == 0 {
                    self.me().pc = Pc::Raise(Fault::SinkHistoryLost);
                }
                if load {
                    "load: marker read"
                } else {
                    "publish: marker read"
                }
            }
            Pc::FirstTaskPlan => {
                let own = self.state.progress.task_plans[self.task];
                self.me().own = own;
                self.to(Pc::FirstPlan, "load: task plan read")
            }
            Pc::FirstPlan => {
                let stored = self.state.progress.plans[1];
                let own = self.me().own.take();
                let first = own.filter(|p| p.seq == 1).or(stored);
                if let Some(plan) = first {
                    self.me().reach(Position { seq: 0, next: plan.bases() });
                    return self.to(Pc::TaskPlanRead, "load: first plan read");
                }
                self.to(Pc::Scopes, "load: first plan read")
            }
            Pc::Scopes => self.to(Pc::Initial, "load: scopes listed"),
            Pc::Initial => {
                let next = self.state.lows();
                self.me().reach(Position { seq: 0, next });
                self.to(Pc::TaskPlanRead, "load: initial position resolved")
            }
            Pc::TaskPlanRead => {
                let own = self.state.progress.task_plans[self.task];
                self.me().listed = None;
                self.me().own = own;
                match own {
                    Some(plan) if self.usable(&plan) => self.use_plan(plan, Pc::MarkerRead),
                    Some(_) => self.me().pc = Pc::MarkerOfTaskPlan,
                    None => self.me().pc = Pc::StoredPlanRead,
                }
                "plan: task plan read"
            }
            Pc::MarkerOfTaskPlan => {
                let plan = self.me().own.take().expect("it was read");
                if self.state.marker(plan.seq).is_some() {
                    self.use_plan(plan, Pc::MarkerRead);
                } else {
                    self.me().pc = Pc::StoredPlanRead;
                }
                "plan: marker of stored plan read"
            }
            Pc::StoredPlanRead => {
                let seq = self.position().seq + 1;
                let stored = self.state.progress.plans[seq as usize];
                match stored {
                    Some(plan) if self.usable(&plan) => self.use_plan(plan, Pc::TaskPlanStored),
                    Some(plan) => {
                        self.me().own = Some(plan);
                        self.me().pc = Pc::MarkerOfStoredPlan;
                    }
                    None => self.me().pc = Pc::PlanCreated,
                }
                "plan: stored plan read"
            }
            Pc::MarkerOfStoredPlan => {
                let plan = self.me().own.take().expect("it was read");
                if self.state.marker(plan.seq).is_some() {
                    self.use_plan(plan, Pc::TaskPlanStored);
                } else {
                    self.me().pc = Pc::PlanCreated;
                }
                "plan: marker of stored plan read"
            }
            Pc::PlanCreated => self.plan_created(),
            Pc::PlanStored => {
                if self.refused() {
                    return self.fail(Fault::Fenced);
                }
                let plan = self.me().plan.expect("it was created");
                self.state.progress.plans[plan.seq as usize] = Some(plan);
                self.to(Pc::TaskPlanStored, "plan: plan stored")
            }
            Pc::TaskPlanStored => {
                if self.refused() {
                    return self.fail(Fault::Fenced);
                }
                self.state.progress.task_plans[self.task] = self.me().plan;
                self.check_marker_next();
                "plan: task plan stored"
            }
            Pc::MarkerRead => self.marker_read(),
            Pc::TaskPlanReplaced => {
                if self.refused() {
                    return self.fail(Fault::Fenced);
                }
                let step = if self.me().place == Place::None {
                    "check_marker: task plan replaced"
                } else {
                    "publish: task plan replaced"
                };
                self.me().place = Place::None;
                self.state.progress.task_plans[self.task] = self.me().plan;
                self.arrive();
                step
            }
            Pc::Staging => {
                self.me().place = Place::There;
                self.to(Pc::Written, "ingest: staging ready")
            }
            Pc::Written => self.write(),
            Pc::ScopesAgain => {
                let next = self.read_again();
                self.to(next, "publish: scopes listed")
            }
            Pc::CursorReadAgain => {
                let cursor = self.state.progress.cursor;
                let plan = self.me().plan.expect("it is written");
                self.me().seen = false;
                if cursor.is_some_and(|c| c.seq >= plan.seq) {
                    self.me().pc = Pc::MarkerReadAgain;
                } else {
                    self.look(Look::Publish);
                }
                "publish: cursor read again"
            }
            Pc::MarkerReadAgain => {
                let plan = self.me().plan.expect("it is written");
                let there = self.state.marker(plan.seq).is_some();
                let next = if there { Pc::Published } else { Pc::Raise(Fault::SinkHistoryLost) };
                self.to(next, "publish: marker read again")
            }
            Pc::Published => self.publish(),
            Pc::Marked => {
                let plan = self.me().plan.expect("it is written");
                if let Some(window) = &mut self.state.lake[plan.seq as usize] {
                    window.marked = true;
                }
                self.arrive();
                "publish: marker written"
            }
            Pc::StagingDiscarded => {
                let found = self.me().own.take().expect("another one won");
                if !self.same_window(found) {
                    return self.to(Pc::Raise(Fault::MarkerConflict), "publish: staging discarded");
                }
                // The place is kept in mind until then: it tells where a task plan is replaced.
                self.adopt(found);
                "publish: staging discarded"
            }
            Pc::Tidied => {
                let seq = self.me().plan.expect("it is published").seq;
                let overwrites = self.rules.is(M::MarkerNotChecked) || self.rules.is(M::PublishOverwrites);
                self.me().place = Place::None;
                self.me().records = 0;
                for task in &mut self.state.tasks {
                    for other in [&mut task.current, &mut task.zombie].into_iter().flatten() {
                        if !overwrites && other.place == Place::There && other.plan.is_some_and(|p| p.seq == seq) {
                            other.place = Place::Removed;
                        }
                    }
                }
                let next = if self.rules.claims { Pc::Claimed(Step::Completed) } else { Pc::AdvanceCursorRead };
                self.to(next, "publish: tidied")
            }
            Pc::AdvanceCursorRead => {
                let cursor = self.state.progress.cursor;
                // A run without compare-and-set goes by what it read: see `Broken::CursorWentBack`.
                self.me().highest = cursor.map_or(0, |c| c.seq);
                let next = if self.may_advance(cursor) { Pc::CursorStored } else { Pc::Emitted };
                self.to(next, "advance: cursor read")
            }
            Pc::CursorStored => self.cursor_stored(),
            Pc::Emitted => self.to(Pc::Done, "commit_event: event emitted"),
            Pc::Done => {
                let me = *self.me();
                self.end();
                if !me.superseded {
                    self.state.tasks[self.task].succeeded = true;
                    self.state.progress.event = me.position;
                }
                "done"
            }
            Pc::Raise(fault) => self.fail(fault),
            Pc::Claimed(step) => self.act_claimed(step),
        }
    }

    // 1 load

    fn event_read(&mut self) -> &'static str {
        let event = self.state.progress.event;
        let cursor = self.me().cursor;
        if let Some(accepted) = event {
            self.me().reach(accepted);
        }
        match cursor {
            Some(cursor) if event.map_or(true, |e| cursor.seq >= e.seq) => {
                self.me().reach(cursor);
                self.list_or_follow();
            }
            Some(_) => self.me().pc = Pc::MarkerOfCursor,
            None => self.list_or_follow(),
        }
        "load: event read"
    }

    fn list_or_follow(&mut self) {
        if self.me().cursor_missing {
            self.walk(Walk::Load);
        } else {
            self.me().pc = Pc::Listed;
        }
        self.me().cursor = None;
    }

    /// Go on along the markers: read the next one, or stop where the listing has none.
    pub fn walk(&mut self, walk: Walk) {
        let me = self.me();
        let seq = me.position.map_or(1, |p| p.seq + 1);
        if me.listed.is_some_and(|listed| listed & (1 << seq) == 0) {
            return self.walked(walk);
        }
        me.pc = Pc::Follow(walk);
    }

    fn follow(&mut self, walk: Walk) -> &'static str {
        let seq = self.me().position.map_or(1, |p| p.seq + 1);
        match self.state.marker(seq) {
            None => self.walked(walk),
            Some(plan) => {
                if self.follow_plan(plan) {
                    self.me().seen = true;
                    self.walk(walk);
                } else {
                    self.me().pc = Pc::Raise(Fault::MarkerConflict);
                }
            }
        }
        if walk == Walk::Arrive {
            "publish: marker read"
        } else {
            "load: marker read"
        }
    }

    /// Step over a published window; whether it begins where the position ends.
    fn follow_plan(&mut self, plan: Plan) -> bool {
        let forgets = self.rules.is(M::JoinedForgotten);
        let me = self.me();
        if me.position.is_some_and(|p| p.seq > 0 && plan.bases() != p.next) {
            return false;
        }
        let mut next = plan.end;
        if forgets {
            for (p, offset) in next.iter_mut().enumerate() {
                *offset = if plan.joined & (1 << p) != 0 { ABSENT } else { *offset };
            }
        }
        me.reach(Position { seq: plan.seq, next });
        true
    }

    fn walked(&mut self, walk: Walk) {
        match walk {
            Walk::Load if self.me().cursor_missing => self.me().pc = Pc::HoleListed,
            Walk::Load => match (self.me().listed, self.me().position) {
                (Some(listed), Some(_)) if listed != 0 => self.refuse_hole(highest(listed)),
                _ => self.look(Look::Load),
            },
            Walk::Hole => {
                let reached = self.me().position.map_or(0, |p| p.seq);
                if self.me().highest <= reached {
                    self.look(Look::Load);
                } else {
                    self.me().pc = Pc::LastMarker;
                }
            }
            Walk::Arrive => self.arrived(),
        }
    }

    fn refuse_hole(&mut self, top: u8) {
        if top <= self.me().position.map_or(0, |p| p.seq) || self.rules.is(M::HoleNotSeen) {
            return self.look(Look::Load);
        }
        self.me().highest = top;
        self.me().listed = None;
        self.walk(Walk::Hole);
    }

    /// Whether the lake has the window on which the position stands.
    pub fn look(&mut self, look: Look) {
        self.me().listed = None;
        self.me().highest = 0;
        let me = *self.me();
        let none = me.position.map_or(true, |p| p.seq == 0);
        let skipped = self.rules.is(M::LostWindowNotSeen);
        if none || me.seen || skipped {
            return self.looked(look);
        }
        self.me().pc = Pc::PositionMarker(look);
    }

    fn position_marker(&mut self, look: Look) -> &'static str {
        let position = self.position();
        match self.state.marker(position.seq) {
            None if self.rules.claims => {
                self.me().missing = 1 << position.seq;
                self.refuse_lost_claims();
            }
            None => self.me().pc = Pc::LostListed,
            Some(plan) if plan.end != position.next => {
                self.me().pc = Pc::Raise(Fault::MarkerConflict);
            }
            Some(_) => self.looked(look),
        }
        match look {
            Look::Load => "load: marker of position read",
            Look::Publish => "publish: marker of position read",
        }
    }

    fn looked(&mut self, look: Look) {
        self.me().seen = false;
        if self.rules.claims {
            return self.looked_claimed(look);
        }
        let me = self.me();
        if look == Look::Publish {
            me.pc = Pc::Published;
            return;
        }
        me.unannounced = me.position.is_none();
        me.pc = if me.position.is_some() { Pc::TaskPlanRead } else { Pc::FirstTaskPlan };
    }

    // 2 plan

    fn usable(&mut self, plan: &Plan) -> bool {
        let position = self.position();
        if self.rules.is(M::AnyPlanUsed) {
            return true;
        }
        plan.seq <= position.seq || (plan.seq == position.seq + 1 && plan.bases() == position.next)
    }

    pub fn use_plan(&mut self, plan: Plan, pc: Pc) {
        let me = self.me();
        me.plan = Some(plan);
        me.own = None;
        me.pc = pc;
        if pc == Pc::MarkerRead {
            self.check_marker_next();
        }
    }

    pub fn check_marker_next(&mut self) {
        self.me().own = None;
        self.me().pc = if self.rules.is(M::MarkerNotChecked) { Pc::Staging } else { Pc::MarkerRead };
    }

    fn plan_created(&mut self) -> &'static str {
        let position = self.position();
        match self.planned(position) {
            Err(fault) => self.fail(fault),
            Ok(None) => self.to(Pc::Emitted, "plan: plan created"),
            Ok(plan) => {
                self.me().plan = plan;
                self.to(Pc::PlanStored, "plan: plan created")
            }
        }
    }

    /// The plan of the window behind `position`; none if there is nothing to read.
    pub fn planned(&mut self, position: Position) -> Result<Option<Plan>, Fault> {
        let me = *self.me();
        let mut plan =
            Plan { seq: position.seq + 1, start: position.next, end: position.next, from: position.next, joined: 0 };
        if plan.seq as usize >= WINDOWS {
            return Err(Fault::SinkHistoryLost);
        }
        let mut readable: Vec<usize> = Vec::new();
        for p in 0..self.state.partitions as usize {
            let log = self.state.logs[p];
            let latest = self.rules.is(M::EndInMemory);
            let known_end = if latest { log.len } else { log.stable };
            if plan.start[p] == ABSENT {
                plan.joined |= 1 << p;
                plan.start[p] = if self.rules.is(M::JoinsAtItsEnd) { known_end } else { log.low };
            }
            let start = plan.start[p];
            let end = start.max(known_end);
            plan.end[p] = end;
            plan.from[p] = start.max(log.low.min(end));
            if self.rules.is(M::RetentionNotSeen) {
                plan.from[p] = start;
            }
            if plan.from[p] > start && !me.skips {
                return Err(Fault::DataLoss);
            }
            if plan.from[p] < end {
                readable.push(p);
            }
        }
        let full = plan.end;
        let total: u8 = readable.iter().map(|p| plan.end[*p] - plan.from[*p]).sum();
        if me.capped && total > 1 {
            let turn = readable[position.seq as usize % readable.len()];
            for p in readable {
                plan.end[p] = if p == turn { plan.from[p] + 1 } else { plan.start[p] };
                plan.from[p] = plan.from[p].min(plan.end[p]).max(plan.start[p]);
            }
        }
        if self.rules.is(M::CapForgotten) && me.capped {
            // The window is cut, and says that it is not.
            plan.end = full;
        }
        Ok((plan.start != plan.end).then_some(plan))
    }

    // 3 check marker

    fn same_window(&mut self, found: Plan) -> bool {
        let mine = self.me().plan.expect("a window is taken");
        found.bases() == mine.bases() || (found.start, found.end) == (mine.start, mine.end) || mine.seq == 1
    }

    /// The marker wins: its plan is used from here on.
    fn adopt(&mut self, found: Plan) {
        let mine = self.me().plan.expect("a window is taken");
        let other = (found.start, found.end) != (mine.start, mine.end);
        let me = self.me();
        me.written = true;
        me.before = 0;
        if self.rules.is(M::OwnPlanKept) {
            return self.arrive();
        }
        self.me().plan = Some(found);
        if other {
            self.me().pc = Pc::TaskPlanReplaced;
        } else {
            self.arrive();
        }
    }

    /// Whether a window counts as published.
    fn counts(&mut self, seq: u8, position: Position) -> bool {
        match self.me().book.filter(|_| self.rules.claims) {
            Some(book) => book.published(seq),
            None => seq <= position.seq,
        }
    }

    fn marker_read(&mut self) -> &'static str {
        let plan = self.me().plan.expect("a window is taken");
        let position = self.position();
        match self.state.marker(plan.seq) {
            Some(found) if !self.same_window(found) => {
                self.me().pc = Pc::Raise(Fault::MarkerConflict);
            }
            Some(found) => self.adopt(found),
            None if self.counts(plan.seq, position) && !self.rules.is(M::WrittenAgain) => {
                self.me().pc = Pc::Raise(Fault::SinkHistoryLost);
            }
            None => self.me().pc = Pc::Staging,
        }
        "check_marker: marker read"
    }

    // 4 ingest, 5 publish

    fn write(&mut self) -> &'static str {
        let (me, plan) = (*self.me(), self.me().plan.expect("a window is taken"));
        let mut fault = (me.place == Place::Removed).then_some(Fault::StagingGone);
        let mut records = 0u16;
        for p in 0..PARTITIONS {
            let log = self.state.logs[p];
            for offset in plan.from[p]..plan.end[p] {
                if offset >= log.low && offset < log.len {
                    records |= 1 << log.records[offset as usize];
                } else if !self.rules.is(M::RetentionNotSeen) && !me.skips {
                    fault = fault.or(Some(Fault::DataLoss));
                }
            }
        }
        if let Some(fault) = fault {
            // A failed ingest is of no matter if another run has published the window meanwhile.
            let Some(found) = self.state.marker(plan.seq) else {
                return self.fail(fault);
            };
            self.me().place = Place::None;
            if !self.same_window(found) {
                return self.fail(Fault::MarkerConflict);
            }
            self.adopt(found);
            return match self.me().pc {
                Pc::TaskPlanReplaced => match self.act() {
                    "check_marker: task plan replaced" => "ingest: task plan replaced",
                    ended => ended,
                },
                _ => self.act(),
            };
        }
        if self.rules.is(M::CapForgotten) && me.capped {
            records &= records.wrapping_neg();
        }
        if self.rules.is(M::StopsEarly) && records.count_ones() > 1 {
            records &= !(1 << (15 - records.leading_zeros()));
        }
        self.me().records = records;
        if self.rules.is(M::EmittedBeforePublishing) && !self.me().superseded {
            self.follow_plan(plan);
            self.state.progress.event = self.me().position;
        }
        if self.rules.is(M::AdvancesBeforePublishing) {
            self.follow_plan(plan);
            self.state.progress.cursor = self.me().position;
        }
        let unannounced = me.unannounced;
        let asks = !self.rules.is(M::NotAskedAgain)
            && !self.rules.is(M::AdvancesBeforePublishing)
            && !self.rules.is(M::EmittedBeforePublishing);
        self.me().pc = match (!asks, unannounced) {
            (true, _) => Pc::Published,
            (_, true) => Pc::ScopesAgain,
            _ => self.read_again(),
        };
        "ingest: records written"
    }

    fn read_again(&self) -> Pc {
        if self.rules.claims {
            Pc::Claimed(Step::ReadAgain)
        } else {
            Pc::CursorReadAgain
        }
    }

    fn publish(&mut self) -> &'static str {
        let (me, plan) = (*self.me(), self.me().plan.expect("it is written"));
        let overwrites = self.rules.is(M::MarkerNotChecked) || self.rules.is(M::PublishOverwrites);
        if let Some(found) = self.state.marker(plan.seq).filter(|_| !overwrites) {
            self.me().own = Some(found);
            return self.to(Pc::StagingDiscarded, "publish: published");
        }
        if me.place == Place::Removed && !overwrites {
            return self.fail(Fault::StagingGone);
        }
        self.judge_publication(&plan);
        if self.state.begin.is_none() {
            self.state.begin = Some(plan.bases().map(|b| if b == ABSENT { 0 } else { b }));
        }
        let mut missing = 0;
        for p in (0..PARTITIONS).filter(|p| plan.end[*p] != ABSENT) {
            self.state.reached[p] = self.state.reached[p].max(plan.end[p]);
            let log = self.state.logs[p];
            for offset in plan.start[p]..plan.end[p] {
                let number = 1 << log.records[offset as usize];
                if me.records & number == 0 && (me.skips || offset < plan.from[p]) {
                    missing += 1;
                    self.state.gaps |= number;
                }
            }
        }
        if self.rules.is(M::RetentionNotSeen) {
            missing = 0;
        }
        let halves = self.rules.is(M::PublishedInTwoSteps);
        self.state.lake[plan.seq as usize] = Some(Window { plan, records: me.records, missing, marked: !halves });
        self.me().written = true;
        self.state.published_last = plan.seq;
        if halves {
            return self.to(Pc::Marked, "publish: published");
        }
        self.arrive();
        "publish: published"
    }

    fn judge_publication(&mut self, plan: &Plan) {
        let progress = &self.state.progress;
        let mut newest = progress.cursor.map_or(0, |c| c.seq).max(progress.event.map_or(0, |e| e.seq));
        // Windows of runs that died lead on from there; what is before them may be removed.
        while self.state.marker(newest + 1).is_some() {
            newest += 1;
        }
        if self.state.pruned_windows & (1 << plan.seq) != 0 {
            self.state.broken.get_or_insert(Broken::PublishedAgain);
        }
        if newest > 0 && self.state.gone & (1 << newest) != 0 {
            self.state.broken.get_or_insert(Broken::PublishedBehindLost);
        }
        if self.state.progress.book.is_some_and(|b| b.newest & self.state.gone != 0) {
            self.state.broken.get_or_insert(Broken::PublishedBehindLost);
        }
        self.state.gone &= !(1 << plan.seq);
    }

    /// The window is in the lake: the position moves on if it is the next one.
    fn arrive(&mut self) {
        let (plan, position) = (self.me().plan.expect("a window is taken"), self.position());
        if self.me().pc != Pc::TaskPlanReplaced {
            self.me().place = Place::None;
        }
        self.me().records = 0;
        if plan.seq > position.seq + 1 && !self.rules.claims {
            return self.walk(Walk::Arrive);
        }
        self.arrived();
    }

    fn arrived(&mut self) {
        let (plan, position) = (self.me().plan.expect("a window is taken"), self.position());
        if plan.seq == position.seq + 1 && !self.follow_plan(plan) {
            self.me().pc = Pc::Raise(Fault::MarkerConflict);
            return;
        }
        self.me().pc = Pc::Tidied;
    }

    // 6 advance

    fn may_advance(&mut self, cursor: Option<Position>) -> bool {
        let (plan, position) = (self.me().plan.expect("a window is taken"), self.position());
        if position.seq < plan.seq {
            return false;
        }
        match cursor {
            None => true,
            Some(_) if self.rules.is(M::CursorRewinds) => true,
            Some(cursor) => {
                let known = self.me().proven[cursor.seq as usize];
                cursor.seq < position.seq && known == Some(cursor.next)
            }
        }
    }

    fn cursor_stored(&mut self) -> &'static str {
        if self.refused() {
            return self.fail(Fault::Fenced);
        }
        let mut position = self.position();
        if self.rules.is(M::CursorRewinds) {
            let plan = self.me().plan.expect("a window is taken");
            position = Position { seq: plan.seq, next: plan.end };
        }
        if std::mem::take(&mut self.me().highest) > position.seq {
            self.state.broken.get_or_insert(Broken::CursorWentBack);
        }
        if self.rules.is(M::AdvancesToTheEnd) {
            for (next, log) in position.next.iter_mut().zip(&self.state.logs) {
                *next = if *next == ABSENT { ABSENT } else { log.stable };
            }
        }
        self.state.progress.cursor = Some(position);
        self.to(Pc::Emitted, "advance: cursor stored")
    }
}
