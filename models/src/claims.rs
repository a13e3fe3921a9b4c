//! A run with claims, action by action: `ClaimedRun`, `ClaimBook` and `rebuilt`, as a model.
//!
//! Checking the marker, reading and publishing are those of a cursor's run, in `cursor`.

use crate::cursor::Actor;
use crate::mistakes::Mistake as M;
use crate::state::*;

/// A plan that a task has taken for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    pub plan: Plan,
    /// Number of the task; `NOBODY` if a hole between windows was made a claim.
    pub by: u8,
}

/// Stands for the task of a claim that none has made.
pub const NOBODY: u8 = 255;

pub type Claims = [Option<Claim>; WINDOWS];

pub fn renumber(claims: &mut Claims, number: impl Fn(u8) -> u8) {
    for claim in claims.iter_mut().flatten().filter(|c| c.by != NOBODY) {
        claim.by = number(claim.by);
    }
}

/// Position of a group, with the windows beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Book {
    pub position: Position,
    pub pending: Claims,
    pub done: [Option<Plan>; WINDOWS],
    /// Numbers of the windows that may have been published last, a bit each.
    pub newest: u8,
}

impl Book {
    pub fn at(position: Position) -> Book {
        Book { position, pending: [None; WINDOWS], done: [None; WINDOWS], newest: 0 }
    }

    /// The end of all windows, published or claimed.
    pub fn frontier(&self) -> Position {
        let last = (0..WINDOWS).rev().find_map(|n| self.pending[n].map(|c| c.plan).or(self.done[n]));
        last.map_or(self.position, |plan| Position { seq: plan.seq, next: plan.end })
    }

    pub fn published(&self, seq: u8) -> bool {
        seq <= self.position.seq || self.done.get(seq as usize).is_some_and(Option::is_some)
    }

    fn knows(&self, seq: usize) -> bool {
        self.pending[seq].is_some() || self.done[seq].is_some()
    }

    /// The same claims, after tasks have got other numbers.
    pub fn renumbered(mut self, number: impl Fn(u8) -> u8) -> Book {
        renumber(&mut self.pending, number);
        self
    }

    pub fn busy(&self) -> bool {
        self.pending.iter().any(Option::is_some) || self.done.iter().any(Option::is_some)
    }

    fn own(&self, by: u8) -> Option<Plan> {
        self.pending.iter().flatten().find(|c| c.by == by).map(|c| c.plan)
    }

    /// Mark `plan` as published; false if a later window begins at another end of it.
    fn complete(&mut self, plan: Plan, before: u8, folds_over: bool) -> bool {
        let seq = plan.seq as usize;
        if self.published(plan.seq) {
            return true;
        }
        if self.frontier().seq > plan.seq && self.pending[seq].is_some_and(|c| c.plan.end != plan.end) {
            return false;
        }
        self.pending[seq] = None;
        self.done[seq] = Some(plan);
        self.newest = (self.newest & !before) | (1 << seq);
        self.fold(folds_over);
        true
    }

    fn fold(&mut self, over: bool) {
        loop {
            let first = self.pending.iter().flatten().map(|c| c.plan.seq).min().unwrap_or(u8::MAX);
            let next = self.position.next;
            let follows = |plan: &&Plan| over || (plan.bases() == next && plan.seq < first);
            let Some(plan) = self.done.iter().flatten().find(follows).copied() else {
                return;
            };
            self.done[plan.seq as usize] = None;
            self.position = Position { seq: plan.seq, next: plan.end };
        }
    }

    /// A lost book from a known position and the windows beyond it; an error where they do not fit.
    fn rebuilt(position: Position, beyond: &[Plan], skips_holes: bool) -> Result<Book, Fault> {
        let mut book = Book::at(position);
        let mut reached = position;
        for plan in beyond {
            if plan.bases() != reached.next && !skips_holes {
                let ends = plan.bases();
                let left = (0..PARTITIONS).any(|p| reached.next[p] != ABSENT && ends[p] == ABSENT);
                if left || reached.seq + 1 >= plan.seq {
                    return Err(Fault::SinkHistoryLost);
                }
                let mut hole =
                    Plan { seq: reached.seq + 1, start: reached.next, end: ends, from: reached.next, joined: 0 };
                for p in (0..PARTITIONS).filter(|p| ends[*p] != ABSENT) {
                    if reached.next[p] == ABSENT {
                        hole.joined |= 1 << p;
                        hole.start[p] = 0;
                        hole.from[p] = 0;
                    } else if ends[p] < reached.next[p] {
                        return Err(Fault::MarkerConflict);
                    }
                }
                book.pending[hole.seq as usize] = Some(Claim { plan: hole, by: NOBODY });
            }
            book.done[plan.seq as usize] = Some(*plan);
            reached = Position { seq: plan.seq, next: plan.end };
        }
        book.fold(skips_holes);
        Ok(book)
    }
}

/// The next action of a run with claims, where it differs from a cursor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    EventRead,
    Read,
    EarlierCursor,
    RebuildListed,
    RebuildScopes,
    RebuildMarker,
    ReadForRebuild,
    Created,
    NewestMarker(Look),
    LostListed,
    LostMarker,
    OlderListed,
    OlderMarker { again: bool },
    OlderReadAgain,
    TaskPlanRead,
    ResumedCompared,
    ResumedMarker,
    CoveredListed,
    CoveredMarker,
    OwnCompared,
    ClaimantAsked,
    ClaimMarker,
    ClaimCompleted,
    ClaimAdopted,
    PlanCreated,
    PlanClaimed,
    TaskPlanStored,
    ReadAgain,
    Completed,
}

impl Actor<'_> {
    fn book(&mut self) -> Book {
        self.me().book.expect("claims are known after step 1")
    }

    /// Take the stored claims for the known ones; false if there are none.
    fn keep(&mut self) -> bool {
        let book = self.state.progress.book;
        if book.is_some() {
            self.me().book = book;
        }
        book.is_some()
    }

    fn store(&mut self, book: Book) {
        self.state.progress.book = Some(book);
        self.state.progress.cursor = Some(book.position);
        self.me().book = Some(book);
    }

    /// The claims on which a change is based: those that are stored now.
    fn changing(&mut self) -> Option<Book> {
        let known = self.me().book;
        let stored = self.state.progress.book;
        if self.rules.is(M::ClaimsOverwritten) && stored.is_some() {
            return known;
        }
        stored
    }

    fn reach_book(&mut self) {
        let position = self.book().position;
        self.me().reach(position);
    }

    fn lost(&mut self) {
        self.me().pc = Pc::Raise(Fault::SinkHistoryLost);
    }

    fn then(&mut self, step: Step) {
        self.me().pc = Pc::Claimed(step);
    }

    fn is_over(&self, by: u8) -> bool {
        by as usize != self.task && self.state.tasks.get(by as usize).map_or(true, |t| t.over || t.succeeded)
    }

    /// Take the next action; the name of the step point behind it.
    pub fn act_claimed(&mut self, step: Step) -> &'static str {
        match step {
            Step::EventRead => {
                // The event is kept where a plan will be: in what a run knows as accepted.
                let event = self.state.progress.event;
                self.me().cursor = event;
                self.then(Step::Read);
                "load: event read"
            }
            Step::Read => {
                if self.keep() {
                    self.known();
                } else {
                    self.then(Step::EarlierCursor);
                }
                "load: claims read"
            }
            Step::EarlierCursor => {
                self.then(Step::RebuildListed);
                "load: earlier cursor read"
            }
            Step::RebuildListed => {
                let after = self.me().cursor.map_or(0, |e| e.seq);
                let beyond = (0..=after).fold(self.state.numbers(), |all, n| all & !(1 << n));
                self.me().listed = Some(beyond);
                self.me().highest = 0;
                if self.me().cursor.is_none() {
                    self.then(Step::RebuildScopes);
                } else {
                    self.rebuild_on();
                }
                "load: windows listed"
            }
            Step::RebuildScopes => {
                self.rebuild_on();
                "load: scopes listed"
            }
            Step::RebuildMarker => {
                let (listed, done) = (self.me().listed.unwrap_or(0), self.me().highest);
                let next = (done + 1..WINDOWS as u8).find(|n| listed & (1 << n) != 0).expect("one is left");
                self.me().highest = next;
                self.rebuild_on();
                "load: marker read"
            }
            Step::ReadForRebuild => {
                if self.state.progress.book.is_some() {
                    self.me().listed = None;
                }
                self.then(Step::Created);
                "load: claims read again"
            }
            Step::Created => self.created(),
            Step::NewestMarker(look) => {
                let left = self.me().listed.expect("there are some");
                let seq = left.trailing_zeros() as u8;
                self.me().listed = Some(left & !(1 << seq));
                if self.state.marker(seq).is_none() {
                    self.me().missing |= 1 << seq;
                }
                self.newest_on(look);
                match look {
                    Look::Load => "load: marker of newest window read",
                    Look::Publish => "publish: marker of newest window read",
                }
            }
            Step::LostListed => {
                let (top, frontier) = (highest(self.state.numbers()), self.book().frontier());
                if top < frontier.seq {
                    self.lost();
                } else {
                    self.then(Step::LostMarker);
                }
                "load: windows listed"
            }
            Step::LostMarker => {
                self.lost();
                "load: last marker read"
            }
            Step::OlderListed => {
                let numbers = self.state.numbers();
                self.me().listed = Some(numbers);
                self.compare_older(false);
                "load: windows listed"
            }
            Step::OlderMarker { again } => {
                let next = self.book().frontier();
                let follows = self.state.marker(next.seq + 1).is_some_and(|m| m.bases() == next.next);
                let others = self.unknown() & !(1 << (next.seq + 1)) != 0;
                self.compared_older(again, others || !follows);
                "load: marker of unknown window read"
            }
            Step::OlderReadAgain => {
                if self.keep() {
                    self.compare_older(true);
                } else {
                    self.lost();
                }
                "load: claims read again"
            }
            Step::TaskPlanRead => {
                let own = self.state.progress.task_plans[self.task];
                self.me().own = own;
                self.me().listed = None;
                match own {
                    Some(plan) if self.book().pending[plan.seq as usize].is_some() => self.then(Step::ResumedCompared),
                    Some(_) => self.then(Step::ResumedMarker),
                    None => self.plan_own(),
                }
                "plan: task plan read"
            }
            Step::ResumedCompared => {
                let seq = self.me().own.expect("it was read").seq;
                let claim = self.book().pending[seq as usize].expect("it is pending");
                self.use_plan(claim.plan, Pc::MarkerRead);
                "plan: claim compared with its logs"
            }
            Step::ResumedMarker => {
                let plan = self.me().own.expect("it was read");
                match self.state.marker(plan.seq) {
                    Some(found) if found.bases() == plan.bases() => self.use_plan(found, Pc::MarkerRead),
                    None if self.book().published(plan.seq) => self.then(Step::CoveredListed),
                    _ => self.plan_own(),
                }
                "plan: marker of task plan read"
            }
            Step::CoveredListed => {
                let seq = self.me().own.expect("it was read").seq;
                let before = self.state.numbers() & ((1 << seq) - 1);
                self.me().highest = highest(before);
                self.then(Step::CoveredMarker);
                "plan: windows listed"
            }
            Step::CoveredMarker => {
                let plan = self.me().own.expect("it was read");
                let seq = std::mem::take(&mut self.me().highest);
                let before = self.state.marker(seq).filter(|_| seq > 0);
                let covered = before.is_some_and(|b| {
                    (0..PARTITIONS).filter(|p| plan.end[*p] != ABSENT).all(|p| {
                        let (low, high) =
                            if b.end[p] == ABSENT { (plan.end[p], plan.end[p]) } else { (b.start[p], b.end[p]) };
                        low <= plan.start[p] && plan.end[p] <= high
                    })
                });
                if covered {
                    self.plan_own();
                } else {
                    self.use_plan(plan, Pc::MarkerRead);
                }
                "plan: marker before task plan read"
            }
            Step::OwnCompared => {
                let by = self.task as u8;
                let plan = self.book().own(by).expect("there is one");
                self.take(plan);
                "plan: claim compared with its logs"
            }
            Step::ClaimantAsked => {
                let claim = self.asked().expect("one is asked for");
                if self.is_over(claim.by) {
                    self.then(Step::ClaimMarker);
                } else {
                    self.ask_next();
                }
                "plan: claimant asked for"
            }
            Step::ClaimMarker => {
                let claim = self.asked().expect("one is asked for");
                let found = self.state.marker(claim.plan.seq);
                let counts = self.rules.is(M::DeadClaimCounts);
                if found.is_some() || counts {
                    self.then(Step::ClaimCompleted);
                } else if self.state.progress.book.is_some() {
                    self.then(Step::ClaimAdopted);
                } else {
                    self.lost();
                }
                "plan: marker of claim read"
            }
            Step::ClaimCompleted => {
                let claim = self.asked().expect("one is asked for");
                let plan = self.state.marker(claim.plan.seq).unwrap_or(claim.plan);
                if self.refused() {
                    return self.fail(Fault::Fenced);
                }
                if let Err(fault) = self.complete(plan, 0) {
                    return self.fail(fault);
                }
                self.ask_next();
                "plan: claim completed"
            }
            Step::ClaimAdopted => self.adopt_claim(),
            Step::PlanCreated => {
                let frontier = self.book().frontier();
                match self.planned(frontier) {
                    Err(fault) => return self.fail(fault),
                    Ok(None) => self.me().pc = Pc::Emitted,
                    Ok(plan) => {
                        self.me().own = plan;
                        self.then(Step::PlanClaimed);
                    }
                }
                "plan: plan created"
            }
            Step::PlanClaimed => self.claim(),
            Step::TaskPlanStored => {
                if self.refused() {
                    return self.fail(Fault::Fenced);
                }
                self.state.progress.task_plans[self.task] = self.me().plan;
                self.check_marker_next();
                "plan: task plan stored"
            }
            Step::ReadAgain => {
                let seq = self.me().plan.expect("it is written").seq;
                if !self.keep() {
                    self.lost();
                } else if self.book().published(seq) {
                    self.me().pc = Pc::MarkerReadAgain;
                } else {
                    self.reach_book();
                    self.look_for_newest(Look::Publish);
                }
                "publish: claims read again"
            }
            Step::Completed => {
                let (plan, before) = (self.me().plan.expect("it is published"), self.me().before);
                if self.refused() {
                    return self.fail(Fault::Fenced);
                }
                if let Err(fault) = self.complete(plan, before) {
                    return self.fail(fault);
                }
                self.reach_book();
                self.to(Pc::Emitted, "advance: claim completed")
            }
        }
    }

    // 1 load

    fn rebuild_on(&mut self) {
        let me = *self.me();
        let listed = me.listed.unwrap_or(0);
        if listed >> (me.highest + 1) != 0 {
            return self.then(Step::RebuildMarker);
        }
        let first = listed.trailing_zeros();
        if me.cursor.is_none() && listed != 0 && first != 1 {
            return self.then(Step::ReadForRebuild);
        }
        self.then(Step::Created);
    }

    fn created(&mut self) -> &'static str {
        let me = *self.me();
        let made = match me.listed {
            None => Ok(None), // others have begun since
            Some(listed) => {
                let beyond: Vec<Plan> = (1..WINDOWS as u8)
                    .filter(|n| listed & (1 << n) != 0)
                    .filter_map(|n| self.state.lake[n as usize].map(|w| w.plan))
                    .collect();
                let position = match (me.cursor, beyond.first()) {
                    (Some(accepted), _) => Ok(accepted),
                    (None, None) => Ok(Position { seq: 0, next: self.state.lows() }),
                    (None, Some(first)) if first.seq == 1 => Ok(Position { seq: 0, next: first.bases() }),
                    _ => Err(Fault::SinkHistoryLost),
                };
                let skips = self.rules.is(M::HoleNotClaimed);
                position.and_then(|p| Book::rebuilt(p, &beyond, skips)).map(Some)
            }
        };
        let made = match made {
            Ok(made) => made,
            Err(fault) => return self.fail(fault),
        };
        if self.refused() {
            return self.fail(Fault::Fenced);
        }
        if let (Some(book), None) = (made, self.state.progress.book) {
            self.store(book);
            let begin = book.position.next.map(|b| if b == ABSENT { 0 } else { b });
            self.state.begin.get_or_insert(begin);
        }
        self.me().listed = None;
        self.me().highest = 0;
        if self.keep() {
            self.known();
        } else {
            self.lost();
        }
        "load: claims created"
    }

    /// The claims are known: compare them with what was accepted and with the lake.
    fn known(&mut self) {
        self.reach_book();
        let (book, accepted) = (self.book(), self.me().cursor.take());
        self.me().unannounced = accepted.is_none() && book.position.seq == 0;
        if accepted.is_some_and(|a| a.seq > book.position.seq) {
            return self.lost();
        }
        self.look_for_newest(Look::Load);
    }

    fn look_for_newest(&mut self, look: Look) {
        let skips = self.rules.is(M::NewestNotSeen) || self.rules.is(M::LostWindowNotSeen);
        let newest = if skips { 0 } else { self.book().newest };
        self.me().listed = Some(newest);
        self.me().missing = 0;
        self.newest_on(look);
    }

    fn newest_on(&mut self, look: Look) {
        let (left, book) = (self.me().listed.unwrap_or(0), self.book());
        if left != 0 {
            return self.then(Step::NewestMarker(look));
        }
        self.me().listed = None;
        if self.me().missing != 0 {
            return self.refuse_lost_claims();
        }
        self.me().seen = !self.rules.is(M::NewestNotSeen) && book.newest & (1 << book.position.seq) != 0;
        self.look(look);
    }

    /// Which windows are lost decides what is advised, and so what is read.
    pub fn refuse_lost_claims(&mut self) {
        let book = self.book();
        let lost = std::mem::take(&mut self.me().missing);
        if book.busy() || lost & (1 << book.position.seq) == 0 {
            self.then(Step::LostListed);
        } else {
            self.me().pc = Pc::LostListed;
        }
    }

    pub fn looked_claimed(&mut self, look: Look) {
        if look == Look::Publish {
            let newest = self.book().newest;
            self.me().before = newest;
            self.me().pc = Pc::Published;
        } else {
            self.then(Step::OlderListed);
        }
    }

    fn unknown(&mut self) -> u8 {
        let (book, listed) = (self.book(), self.me().listed.unwrap_or(0));
        let beyond = (book.position.seq + 1..WINDOWS as u8).filter(|n| listed & (1 << n) != 0);
        beyond.filter(|n| !book.knows(*n as usize)).map(|n| 1 << n).sum()
    }

    fn compare_older(&mut self, again: bool) {
        let (unknown, next) = (self.unknown(), self.book().frontier().seq + 1);
        if unknown & 1u8.checked_shl(next.into()).unwrap_or(0) != 0 {
            return self.then(Step::OlderMarker { again });
        }
        self.compared_older(again, unknown != 0);
    }

    fn compared_older(&mut self, again: bool, unknown: bool) {
        match (unknown, again) {
            (false, _) => self.then(Step::TaskPlanRead),
            (true, false) => self.then(Step::OlderReadAgain),
            (true, true) => self.lost(),
        }
    }

    // 2 plan

    fn plan_own(&mut self) {
        self.me().own = None;
        let by = self.task as u8;
        if self.book().own(by).is_some() {
            return self.then(Step::OwnCompared);
        }
        let pending = self.book().pending;
        self.me().asked = Some(pending);
        self.ask();
    }

    fn take(&mut self, plan: Plan) {
        self.me().plan = Some(plan);
        self.me().asked = None;
        self.then(Step::TaskPlanStored);
    }

    fn asked(&mut self) -> Option<Claim> {
        self.me().asked.and_then(|claims| claims.into_iter().flatten().next())
    }

    fn ask(&mut self) {
        if self.asked().is_some() {
            return self.then(Step::ClaimantAsked);
        }
        self.me().asked = None;
        self.reach_book();
        self.then(Step::PlanCreated);
    }

    fn ask_next(&mut self) {
        if let Some(claim) = self.asked() {
            let claims = self.me().asked.as_mut().expect("it is one of them");
            claims[claim.plan.seq as usize] = None;
        }
        self.ask();
    }

    fn adopt_claim(&mut self) -> &'static str {
        let claim = self.asked().expect("one is asked for");
        if self.refused() {
            return self.fail(Fault::Fenced);
        }
        let Some(mut book) = self.changing() else {
            return self.fail(Fault::SinkHistoryLost);
        };
        let seq = claim.plan.seq as usize;
        let holder = book.pending[seq].map(|c| c.by);
        if holder != Some(claim.by) {
            self.keep();
            if holder == Some(self.task as u8) {
                // An earlier try of the same task was faster.
                self.take(claim.plan);
                return "plan: claim adopted";
            }
            // Another task was faster: the next claim, without a point between.
            self.ask_next();
            return self.act();
        }
        let mut plan = claim.plan;
        if self.rules.is(M::AdoptedAnew) {
            for (end, log) in plan.end.iter_mut().zip(&self.state.logs) {
                *end = if *end == ABSENT { ABSENT } else { (*end).max(log.stable) };
            }
        }
        book.pending[seq] = Some(Claim { plan: claim.plan, by: self.task as u8 });
        self.store(book);
        self.take(plan);
        "plan: claim adopted"
    }

    fn claim(&mut self) -> &'static str {
        let plan = self.me().own.take().expect("it was planned");
        if self.refused() {
            return self.fail(Fault::Fenced);
        }
        let Some(mut book) = self.changing() else {
            return self.fail(Fault::SinkHistoryLost);
        };
        let behind = book.frontier();
        if plan.seq == behind.seq + 1 && plan.bases() == behind.next {
            book.pending[plan.seq as usize] = Some(Claim { plan, by: self.task as u8 });
            self.store(book);
        } else {
            self.me().book = Some(book);
        }
        let mine = Claim { plan, by: self.task as u8 };
        if self.book().pending[plan.seq as usize] == Some(mine) {
            self.take(plan);
        } else {
            self.then(Step::PlanCreated);
        }
        "plan: plan claimed"
    }

    // 6 advance

    fn complete(&mut self, plan: Plan, before: u8) -> Result<(), Fault> {
        let folds_over = self.rules.is(M::PassesClaims);
        let mut book = self.changing().ok_or(Fault::SinkHistoryLost)?;
        if !book.complete(plan, before, folds_over) {
            return Err(Fault::MarkerConflict);
        }
        self.store(book);
        Ok(())
    }
}
