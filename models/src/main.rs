//! `window-model`: check the protocol, find planted mistakes, and compare traces with the real run.

mod claims;
mod cursor;
mod mistakes;
mod reduction;
mod state;
mod time;
mod traces;
mod world;

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Instant;

use stateright::{Checker, Model, Representative};

use crate::mistakes::Mistake;
use crate::state::State;
use crate::world::{Bounds, Protocol, FAULTS};

const USAGE: &str = "window-model check NAME | check-at-most STATES NAME | mistakes DIRECTORY | accept < TRACES | compare-reduced | list";

/// A set of bounds with a name.
struct Size {
    name: &'static str,
    bounds: Bounds,
    /// Whether tasks are taken as alike, which needs a search in depth.
    alike: bool,
}

fn kinds(names: &[&str]) -> u16 {
    names.iter().map(|name| 1 << FAULTS.iter().position(|f| f == name).expect("a fault")).sum()
}

const BASE: Bounds = Bounds {
    tasks: 2,
    tries: 1,
    records: 2,
    partitions: (1, 1),
    faults: 1,
    kinds: 0xff,
    fenced: true,
    caps: false,
    serial: false,
    sleeper: false,
    claims: false,
    reduced: false,
};

const WHOLE: Bounds = Bounds { tasks: 3, tries: 2, records: 4, faults: 3, partitions: (1, 2), ..BASE };

const REDUCED: Bounds = Bounds { serial: true, reduced: true, ..BASE };

const WHOLE_REDUCED: Bounds = Bounds { serial: true, reduced: true, ..WHOLE };

const CLAIMS: Bounds = Bounds { claims: true, ..BASE };

fn sizes() -> Vec<Size> {
    let metadata = kinds(&["wipe", "purge", "restore"]);
    let lake = kinds(&["lose newest", "lose oldest", "lose some"]);
    let brokers = kinds(&["crash", "retain"]);
    let aged = kinds(&["lose oldest"]);
    let size = |name, alike, bounds| Size { name, bounds, alike };
    vec![
        size("two", false, Bounds { records: 2, faults: 1, caps: true, ..BASE }),
        size("metadata", true, Bounds { records: 2, faults: 2, kinds: metadata, ..BASE }),
        size("lake", true, Bounds { records: 2, faults: 2, kinds: lake | metadata, ..BASE }),
        size("brokers", true, Bounds { records: 3, faults: 2, kinds: brokers, ..BASE }),
        size("partitions", true, Bounds { records: 2, faults: 1, partitions: (1, 2), kinds: brokers, ..BASE }),
        size("tries", true, Bounds { tasks: 2, tries: 2, records: 2, faults: 0, caps: false, fenced: false, ..BASE }),
        size("three", true, Bounds { tasks: 3, tries: 1, records: 2, faults: 0, caps: true, ..BASE }),
        size("serial", true, Bounds { tasks: 3, faults: 2, records: 3, serial: true, ..BASE }),
        // Its first task is unlike the others.
        size("sleeper", false, Bounds { tasks: 3, serial: true, sleeper: true, kinds: aged, ..BASE }),
        size("faults", true, Bounds { faults: 3, ..BASE }),
        // The bounds of the whole, where each task begins after the ones before it are dead.
        size("whole", true, Bounds { serial: true, ..WHOLE }),
        size("whole-claims", true, Bounds { serial: true, claims: true, ..WHOLE }),
        size("serial-reduced", true, Bounds { tasks: 3, faults: 2, records: 3, ..REDUCED }),
        size("whole-two-reduced", true, Bounds { faults: 2, ..WHOLE_REDUCED }),
        size("whole-reduced", true, WHOLE_REDUCED),
        size("whole-claims-reduced", true, Bounds { claims: true, ..WHOLE_REDUCED }),
        size("claims", true, Bounds { records: 2, faults: 0, tries: 2, ..CLAIMS }),
        size("claims-faults", true, Bounds { records: 2, faults: 1, ..CLAIMS }),
        size("claims-three", true, Bounds { tasks: 3, records: 2, faults: 0, ..CLAIMS }),
        size("wide", true, Bounds { tasks: 3, faults: 1, ..BASE }),
        size("long", true, Bounds { caps: true, ..WHOLE }),
    ]
}

/// Check the protocol as shipped within the bounds of `name`; whether all promises hold. Stop after
/// about `most` states, if that is given, and say so.
fn check(name: &str, most: Option<usize>) -> bool {
    if let Some(fine) = check_time(name, most) {
        return fine;
    }
    let Some(size) = sizes().into_iter().find(|s| s.name == name) else {
        eprintln!("no such size: {name}");
        return false;
    };
    let began = Instant::now();
    let model = Protocol { bounds: size.bounds, mistake: None };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut builder = model.clone().checker().threads(threads);
    if let Some(most) = most {
        builder = builder.target_state_count(most);
    }
    let (states, all, path) = if size.alike {
        let same = if size.bounds.reduced { State::canonical } else { State::representative };
        let done = builder.symmetry_fn(same).spawn_dfs().join();
        (done.unique_state_count(), done.state_count(), done.discovery("guarantees"))
    } else {
        let done = builder.spawn_bfs().join();
        (done.unique_state_count(), done.state_count(), done.discovery("guarantees"))
    };
    let took = began.elapsed().as_secs_f64();
    match path {
        None if cut(most, all) => {
            println!("{name}: {states} states in {took:.1} s, every promise holds in what was searched")
        }
        None => println!("{name}: {states} states in {took:.1} s, every promise holds"),
        Some(path) => {
            println!("{name}: {states} states in {took:.1} s, a promise does not hold");
            print!("{}", traces::told(&model, &path.into_actions()));
            return false;
        }
    }
    true
}

/// Whether a search ended before it had seen everything: `seen` counts states as often as they were
/// come to.
fn cut(most: Option<usize>, seen: usize) -> bool {
    most.is_some_and(|most| seen >= most)
}

/// Windows of time within bounds, by name.
fn sizes_of_time() -> Vec<(&'static str, time::Bounds)> {
    let base = TIME;
    let whole = time::Bounds { tasks: 3, tries: 2, hours: 3, records: 4, partitions: (1, 2), faults: 3, ..base };
    vec![
        ("time", base),
        ("time-partitions", time::Bounds { faults: 0, partitions: (1, 2), ..base }),
        ("time-three", time::Bounds { tasks: 3, hours: 3, records: 1, ..base }),
        ("time-tries", time::Bounds { tries: 2, faults: 0, ..base }),
        ("time-serial-reduced", time::Bounds { tasks: 3, hours: 3, faults: 2, serial: true, reduced: true, ..base }),
        ("time-serial", time::Bounds { tasks: 3, hours: 3, faults: 2, serial: true, ..base }),
        ("whole-time", time::Bounds { serial: true, ..whole }),
        ("whole-time-reduced", time::Bounds { serial: true, reduced: true, ..whole }),
    ]
}

const TIME: time::Bounds = time::Bounds {
    tasks: 2,
    tries: 1,
    hours: 2,
    records: 2,
    partitions: (1, 1),
    faults: 1,
    only_boundaries: false,
    serial: false,
    reduced: false,
};

/// Check windows of time within the bounds of `name`; None if there are no such bounds.
fn check_time(name: &str, most: Option<usize>) -> Option<bool> {
    let (_, bounds) = sizes_of_time().into_iter().find(|(n, _)| *n == name)?;
    let began = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let model = time::TimeProtocol { bounds, mistake: None };
    let mut builder = model.clone().checker().threads(threads);
    if let Some(most) = most {
        builder = builder.target_state_count(most);
    }
    if bounds.reduced {
        builder = builder.symmetry();
    }
    let done = builder.spawn_dfs().join();
    let (states, took) = (done.unique_state_count(), began.elapsed().as_secs_f64());
    let Some(path) = done.discovery("guarantees") else {
        let part = if cut(most, done.state_count()) { " in what was searched" } else { "" };
        println!("{name}: {states} states in {took:.1} s, every promise holds{part}");
        return Some(true);
    };
    println!("{name}: {states} states in {took:.1} s, a promise does not hold");
    let state = path.last_state().clone();
    for action in path.into_actions() {
        println!("  {action:?}");
    }
    println!("  -> {}", model.problem(&state).unwrap_or("?"));
    Some(false)
}

/// Find every mistake that is planted in windows of time.
fn find_mistakes_of_time() -> bool {
    let mut all = true;
    for (mistake, name, text) in time::Mistake::ALL {
        let began = Instant::now();
        let mut found = None;
        for bounds in searches_of_time() {
            let model = time::TimeProtocol { bounds, mistake: Some(*mistake) };
            let done = model.clone().checker().target_state_count(3_000_000).spawn_bfs().join();
            if let Some(path) = done.discovery("guarantees") {
                let problem = model.problem(path.last_state()).unwrap_or("?");
                found = Some((path.into_actions().len(), done.unique_state_count(), problem));
                break;
            }
        }
        let took = began.elapsed().as_secs_f64();
        match found {
            Some((actions, states, problem)) => {
                println!("{name} ({text}): {actions} actions, {states} states, {took:.1} s: {problem}");
            }
            None => {
                println!("{name} ({text}): not found, {took:.1} s");
                all = false;
            }
        }
    }
    all
}

/// In which bounds a mistake of windows of time is looked for: small ones first.
fn searches_of_time() -> [time::Bounds; 3] {
    [
        time::Bounds { faults: 0, hours: 3, ..TIME },
        time::Bounds { only_boundaries: true, ..TIME },
        time::Bounds { faults: 0, hours: 3, partitions: (1, 2), ..TIME },
    ]
}

/// In which bounds a mistake is looked for: small ones first.
fn searches(mistake: Mistake) -> Vec<Bounds> {
    if mistake.of_claims() {
        return searches_of_claims();
    }
    if mistake == Mistake::AgedWindowMissed {
        return vec![Bounds { serial: true, kinds: kinds(&["lose oldest"]), ..BASE }];
    }
    let metadata = kinds(&["wipe", "purge", "restore"]);
    let lake = kinds(&["lose newest", "lose oldest", "lose some"]);
    let brokers = kinds(&["crash", "retain"]);
    vec![
        Bounds { faults: 0, caps: true, ..BASE },
        Bounds { faults: 1, kinds: brokers, partitions: (1, 2), ..BASE },
        Bounds { tries: 2, faults: 2, serial: true, kinds: kinds(&["lose oldest", "wipe"]), ..BASE },
        Bounds { tasks: 3, records: 3, serial: true, kinds: lake, ..BASE },
        Bounds { faults: 2, serial: true, kinds: lake | metadata, ..BASE },
        Bounds { tasks: 3, serial: true, sleeper: true, kinds: kinds(&["lose oldest"]), ..BASE },
        Bounds { tasks: 3, faults: 3, records: 3, serial: true, kinds: lake | metadata | brokers, ..BASE },
        Bounds { faults: 1, caps: true, ..BASE },
        Bounds { faults: 1, kinds: lake, ..BASE },
        Bounds { faults: 2, kinds: lake | metadata, ..BASE },
        Bounds { tries: 2, faults: 0, caps: true, fenced: false, ..BASE },
    ]
}

fn searches_of_claims() -> Vec<Bounds> {
    let lake = kinds(&["lose newest"]);
    vec![
        Bounds { faults: 0, caps: true, ..CLAIMS },
        Bounds { faults: 1, kinds: kinds(&["wipe"]), serial: true, ..CLAIMS },
        Bounds { faults: 1, kinds: lake, records: 3, ..CLAIMS },
    ]
}

/// Find every planted mistake; write its shortest trace into `directory`. One thread, so that the
/// search is in breadth to the letter and gives the same trace each time.
fn find_mistakes(directory: &str, only: Option<&str>) -> bool {
    let mut all = true;
    for mistake in Mistake::ALL.iter().filter(|m| only.map_or(true, |o| o == m.name())) {
        let began = Instant::now();
        let mut found = None;
        let mut states = 0;
        for bounds in searches(*mistake) {
            let model = Protocol { bounds, mistake: Some(*mistake) };
            let builder = model.clone().checker().target_state_count(2_000_000);
            let done = builder.spawn_bfs().join();
            states += done.unique_state_count();
            if let Some(path) = done.discovery("guarantees") {
                found = Some((model, path.into_actions()));
                break;
            }
        }
        let took = began.elapsed().as_secs_f64();
        let Some((model, actions)) = found else {
            println!("{}: not found in {states} states, {took:.1} s", mistake.name());
            all = false;
            continue;
        };
        let trace = traces::trace(&model, &actions);
        println!(
            "{}: {} actions, {states} states, {took:.1} s: {}",
            mistake.name(),
            actions.len(),
            trace["broken"].as_str().unwrap_or("?"),
        );
        let path = format!("{directory}/{}.json", mistake.name());
        let text = traces::pretty(&trace);
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("{path}: {error}");
            return false;
        }
    }
    all
}

/// Whether the reduced search finds every mistake that the whole search finds in the same bounds,
/// where no two tries live at once.
fn compare_reduced() -> bool {
    let mut all = true;
    for mistake in Mistake::ALL {
        for (number, bounds) in searches(*mistake).into_iter().enumerate() {
            let bounds = Bounds { serial: true, sleeper: false, ..bounds };
            let found = [false, true].map(|reduced| {
                let model = Protocol { bounds: Bounds { reduced, ..bounds }, mistake: Some(*mistake) };
                let same = if reduced { State::canonical } else { State::representative };
                let done = model.checker().target_state_count(2_000_000).symmetry_fn(same).spawn_dfs().join();
                (done.discovery("guarantees").is_some(), done.unique_state_count())
            });
            if found[0].0 {
                println!(
                    "{}, bounds {number}: found in {} states, in {} reduced",
                    mistake.name(),
                    found[0].1,
                    found[1].1
                );
            }
            if found[0].0 && !found[1].0 {
                println!("{}, bounds {number}: not found in the reduced search", mistake.name());
                all = false;
            }
        }
    }
    all & compare_reduced_of_time()
}

/// The same for windows of time.
fn compare_reduced_of_time() -> bool {
    let mut all = true;
    for (mistake, name, _) in time::Mistake::ALL {
        for (number, bounds) in searches_of_time().into_iter().enumerate() {
            let found = [false, true].map(|reduced| {
                let bounds = time::Bounds { serial: true, reduced, ..bounds };
                let model = time::TimeProtocol { bounds, mistake: Some(*mistake) };
                let done = model.checker().target_state_count(2_000_000).symmetry().spawn_dfs().join();
                (done.discovery("guarantees").is_some(), done.unique_state_count())
            });
            if found[0].0 {
                println!("{name}, bounds {number}: found in {} states, in {} reduced", found[0].1, found[1].1);
            }
            if found[0].0 && !found[1].0 {
                println!("{name}, bounds {number}: not found in the reduced search");
                all = false;
            }
        }
    }
    all
}

/// Read a trace a line and say of each whether the model takes the same steps.
fn accept() -> bool {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = match line {
            Ok(text) if text.trim().is_empty() => continue,
            Ok(text) => traces::accept(&text),
            Err(error) => Err(error.to_string()),
        };
        let said = match answer {
            Ok(()) => "accepted".to_string(),
            Err(why) => format!("rejected: {why}"),
        };
        if writeln!(out, "{said}").is_err() {
            return false;
        }
    }
    true
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let fine = match words[..] {
        ["check", ref names @ ..] if !names.is_empty() => names.iter().map(|n| check(n, None)).fold(true, |a, b| a & b),
        ["check-at-most", most, name] => check(name, Some(most.parse().expect("a number"))),
        ["mistakes", directory] => find_mistakes(directory, None) & find_mistakes_of_time(),
        ["mistakes-of-time"] => find_mistakes_of_time(),
        ["mistakes", directory, name] => find_mistakes(directory, Some(name)),
        ["compare-reduced"] => compare_reduced(),
        ["accept"] => accept(),
        ["list"] => {
            for mistake in Mistake::ALL {
                println!("{}: {}", mistake.name(), mistake.text());
            }
            true
        }
        _ => {
            eprintln!("{USAGE}");
            false
        }
    };
    if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
