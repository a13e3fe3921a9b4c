//! Mistakes that can be planted, to see that the check finds them.

macro_rules! mistakes {
    ($($name:ident: $text:literal),* $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mistake { $($name),* }

        impl Mistake {
            pub const ALL: &'static [Mistake] = &[$(Mistake::$name),*];

            pub fn name(self) -> &'static str {
                match self { $(Mistake::$name => stringify!($name)),* }
            }

            /// Whether only runs with claims can make it.
            pub fn of_claims(self) -> bool {
                self as u8 >= Mistake::ClaimsOverwritten as u8
            }

            pub fn text(self) -> &'static str {
                match self { $(Mistake::$name => $text),* }
            }
        }
    };
}

mistakes! {
    MarkerNotChecked: "the lake is not asked whether the window is written, and publishing overwrites",
    PublishOverwrites: "publishing replaces a window that another try has published",
    PublishedInTwoSteps: "records are visible before the marker that tells of them",
    OwnPlanKept: "who loses the race to publish goes on with the ends of its own plan",
    AdvancesBeforePublishing: "the cursor moves as soon as the records are written",
    CursorRewinds: "the cursor is set to the window's end, whatever it says",
    EndInMemory: "a window ends at the end in the broker's memory",
    HoleNotSeen: "without a cursor nobody looks for windows behind a missing one",
    LostWindowNotSeen: "nobody looks whether the lake has the window of the position",
    WrittenAgain: "a window that counts as published and has no marker is written again",
    NotAskedAgain: "nobody asks again before publishing whether others were faster",
    RetentionNotSeen: "what retention took is not missed",
    JoinsAtItsEnd: "a partition that joins is read from its end of that moment",
    CapForgotten: "a window that was cut counts as the whole",
    AnyPlanUsed: "a stored plan is used wherever it begins",
    AdvancesToTheEnd: "the cursor is set to the end of the log instead of the window's end",
    EmittedBeforePublishing: "the commit event is visible before the window is",
    JoinedForgotten: "the position behind a window lacks the partitions that joined in it",
    StopsEarly: "a read ends before the window does, as if nothing more were there",
    AgedWindowMissed: "a run refuses where a window before its position was removed by age",
    ClaimsOverwritten: "claims are stored over those that others have made since they were read",
    DeadClaimCounts: "the claim of a task that has ended counts as published",
    AdoptedAnew: "a claim of another task is read up to the end of the log",
    PassesClaims: "the position passes claims that are not published yet",
    NewestNotSeen: "with claims, only the window of the position is looked for",
    HoleNotClaimed: "where claims are lost, what lies between windows of the lake is left out",
}
