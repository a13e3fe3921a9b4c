//! Traces as JSON: what happened, and what stores and lake had after it.

use serde_json::{json, Map, Value};

use crate::claims::{Book, NOBODY};
use crate::mistakes::Mistake;
use crate::state::*;
use crate::world::{Action, Bounds, Protocol};

fn offsets(next: Next) -> Value {
    let known = next.iter().enumerate().filter(|(_, o)| **o != ABSENT);
    Value::Object(known.map(|(p, o)| (p.to_string(), json!(o))).collect())
}

fn position(found: Option<Position>) -> Value {
    found.map_or(Value::Null, |p| json!({"seq": p.seq, "next": offsets(p.next)}))
}

fn plan(found: &Plan) -> Value {
    json!({"seq": found.seq, "start": offsets(found.start), "end": offsets(found.end)})
}

fn plans(found: &[Option<Plan>]) -> Value {
    let there = found.iter().enumerate().filter_map(|(n, p)| p.as_ref().map(|p| (n.to_string(), plan(p))));
    Value::Object(there.collect())
}

/// What everybody can see: stores and lake.
pub fn seen(state: &State) -> Value {
    let mut lake = Map::new();
    for window in state.lake.iter().flatten() {
        let mut value = plan(&window.plan);
        value["records"] = (0..16).filter(|n| window.records & (1 << n) != 0).collect();
        lake.insert(window.plan.seq.to_string(), value);
    }
    let mut all = json!({
        "cursor": position(state.progress.cursor),
        "event": position(state.progress.event),
        "plans": plans(&state.progress.plans),
        "task_plans": plans(&state.progress.task_plans),
        "lake": lake,
    });
    if let Some(book) = state.progress.book {
        all["claims"] = claims(&book);
    }
    all
}

fn claims(book: &Book) -> Value {
    let mut pending = Map::new();
    for claim in book.pending.iter().flatten() {
        let mut value = plan(&claim.plan);
        value["by"] = if claim.by == NOBODY { json!(null) } else { json!(claim.by) };
        pending.insert(claim.plan.seq.to_string(), value);
    }
    let newest: Vec<u8> = (0..8).filter(|n| book.newest & (1 << n) != 0).collect();
    json!({"pending": pending, "done": plans(&book.done), "newest": newest})
}

fn action(found: &Action) -> Value {
    match *found {
        Action::Step { task, zombie } => json!({"do": "step", "task": task, "zombie": zombie}),
        Action::Start { task, capped } => json!({"do": "start", "task": task, "capped": capped}),
        Action::Retry { task, capped } => json!({"do": "retry", "task": task, "capped": capped}),
        Action::Append { partition, synced } => {
            json!({"do": "append", "partition": partition, "synced": synced})
        }
        Action::GiveUp { task } => json!({"do": "give up", "task": task}),
        Action::AddPartition => json!({"do": "add partition"}),
        Action::Stop => json!({"do": "stop"}),
        Action::Wipe => json!({"do": "wipe"}),
        Action::Purge => json!({"do": "purge"}),
        Action::LoseNewest => json!({"do": "lose newest"}),
        Action::LoseOldest => json!({"do": "lose oldest"}),
        Action::LoseSome { seq } => json!({"do": "lose some", "seq": seq}),
        Action::Backup => json!({"do": "backup"}),
        Action::Restore => json!({"do": "restore"}),
        Action::Crash => json!({"do": "crash"}),
        Action::Retain { partition } => json!({"do": "retain", "partition": partition}),
    }
}

fn read(value: &Value) -> Option<Action> {
    let number = |name: &str| value[name].as_u64().map(|n| n as u8);
    let flag = |name: &str| value[name].as_bool();
    Some(match value["do"].as_str()? {
        "step" => Action::Step { task: number("task")?, zombie: flag("zombie")? },
        "start" => Action::Start { task: number("task")?, capped: flag("capped")? },
        "retry" => Action::Retry { task: number("task")?, capped: flag("capped")? },
        "append" => Action::Append { partition: number("partition")?, synced: flag("synced")? },
        "give up" => Action::GiveUp { task: number("task")? },
        "add partition" => Action::AddPartition,
        "wipe" => Action::Wipe,
        "purge" => Action::Purge,
        "lose newest" => Action::LoseNewest,
        "lose oldest" => Action::LoseOldest,
        "lose some" => Action::LoseSome { seq: number("seq")? },
        "backup" => Action::Backup,
        "restore" => Action::Restore,
        "crash" => Action::Crash,
        "retain" => Action::Retain { partition: number("partition")? },
        _ => return None,
    })
}

/// The trace of `actions`: each with its step point and what is there after it.
pub fn trace(model: &Protocol, actions: &[Action]) -> Value {
    let mut state = model.initial();
    let mut told = Vec::new();
    for taken in actions {
        let point = model.apply(&mut state, *taken);
        let mut value = action(taken);
        if let Some(point) = point {
            value["point"] = json!(point);
        }
        value["after"] = seen(&state);
        told.push(value);
    }
    let broken = model.problem(&state);
    if broken == Some("a group comes to its end") {
        told.push(json!({"do": "alone", "after": seen(&model.left_alone(&state))}));
    }
    let mut trace = json!({
        "mistake": model.mistake.map(Mistake::name),
        "text": model.mistake.map(Mistake::text),
        "broken": broken,
        "fenced": model.bounds.fenced,
        "partitions": model.bounds.partitions.0,
        "actions": told,
    });
    if model.bounds.claims {
        trace["claims"] = json!(true);
    }
    trace
}

/// A trace for readers: a line for each action.
pub fn pretty(trace: &Value) -> String {
    let mut text = String::from("{\n");
    let members = trace.as_object().expect("an object");
    for (name, value) in members.iter().filter(|(name, _)| *name != "actions") {
        text += &format!("  {}: {value},\n", json!(name));
    }
    let lines: Vec<String> = trace["actions"].as_array().expect("a list").iter().map(|a| format!("    {a}")).collect();
    text + "  \"actions\": [\n" + &lines.join(",\n") + "\n  ]\n}\n"
}

/// A trace as lines of text, without what is there after each action.
pub fn told(model: &Protocol, actions: &[Action]) -> String {
    let trace = trace(model, actions);
    let mut text = String::new();
    for value in trace["actions"].as_array().expect("a list") {
        let mut line = value.clone();
        line.as_object_mut().expect("an object").remove("after");
        text += &format!("  {line}\n");
    }
    text + &format!(
        "  -> {}\n  {}\n",
        trace["broken"],
        trace["actions"].as_array().and_then(|a| a.last()).map_or(&Value::Null, |v| &v["after"])
    )
}

/// What a recorded trace says is there. Behind each action it writes the parts that have changed, null
/// for one that is gone.
#[derive(Default)]
pub struct Recorded(Map<String, Value>);

impl Recorded {
    /// Take the changes behind an action; whether there are any.
    pub fn take(&mut self, changes: &Value) -> bool {
        let changes = changes.as_object();
        for (name, part) in changes.into_iter().flatten() {
            if part.is_null() {
                self.0.remove(name);
            } else {
                self.0.insert(name.clone(), part.clone());
            }
        }
        changes.is_some_and(|found| !found.is_empty())
    }

    /// Whether it is the same as what the model has.
    pub fn is(&self, seen: &Value) -> bool {
        seen.as_object().is_some_and(|parts| parts.iter().filter(|(_, part)| !part.is_null()).eq(self.0.iter()))
    }

    pub fn text(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }
}

/// Whether the protocol as shipped takes the steps of a recorded trace, with the same outcome.
pub fn accept(text: &str) -> Result<(), String> {
    let trace: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if trace["time"] == json!(true) {
        return crate::time::accept(&trace);
    }
    let bounds = Bounds {
        tasks: TASKS as u8,
        tries: u8::MAX,
        records: RECORDS as u8,
        partitions: (trace["partitions"].as_u64().unwrap_or(1) as u8, PARTITIONS as u8),
        faults: u8::MAX,
        kinds: u16::MAX,
        fenced: trace["fenced"].as_bool().unwrap_or(true),
        caps: true,
        serial: false,
        sleeper: false,
        claims: trace["claims"].as_bool().unwrap_or(false),
        reduced: false,
    };
    let model = Protocol { bounds, mistake: None };
    let mut state = model.initial();
    let mut recorded = Recorded::default();
    for (number, value) in trace["actions"].as_array().ok_or("no actions")?.iter().enumerate() {
        let refuse = |why: String| Err(format!("action {number}, {}: {why}", value["do"]));
        let Some(taken) = read(value) else {
            return refuse("it is none of the model".into());
        };
        if !possible(&model, &state, taken) {
            return refuse("the model cannot do it here".into());
        }
        let before = (state.progress, state.lake);
        let point = model.apply(&mut state, taken);
        if let Some(point) = point.filter(|p| value["point"] != json!(p)) {
            return refuse(format!("the model comes to {point:?}, the run to {}", value["point"]));
        }
        let changed = recorded.take(&value["after"]) || number == 0 || before != (state.progress, state.lake);
        if changed && !recorded.is(&seen(&state)) {
            return refuse(format!("the model has {}, the run {}", seen(&state), recorded.text()));
        }
        if let Some(broken) = model.problem(&state) {
            return refuse(format!("{broken:?} does not hold"));
        }
    }
    Ok(())
}

fn possible(model: &Protocol, state: &State, taken: Action) -> bool {
    let mut actions = Vec::new();
    stateright::Model::actions(model, state, &mut actions);
    actions.contains(&taken)
}
