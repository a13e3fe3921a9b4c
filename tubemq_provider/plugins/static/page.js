// The page on groups. Whatever comes from the server goes into text nodes and attributes, never into
// markup; addresses are made here. Asks only where the page itself came from, and writes nothing.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const dag = new URLSearchParams(location.search).get("dag_id");
const framed = window.top !== window;
const groups = document.getElementById("groups");
const detail = document.getElementById("detail");
const notice = document.getElementById("notice");
const search = document.getElementById("search");
let chosen = null;
let listing = 0;

// Elements ------------------------------------------------------------------------------------------

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);
const number = (value) =>
  typeof value === "number" ? value.toLocaleString("en").replaceAll(",", "\u202f") : String(value);
const short = (value) =>
  typeof value === "number" && value >= 10000
    ? new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value)
    : number(value);
const moment = (text) => {
  const whole = (text || "").slice(0, 19).replace("T", " ");
  return whole.endsWith(":00") && whole.length === 19 ? whole.slice(0, 16) : whole;
};
const span = ([low, high]) => {
  const [from, to] = [moment(low), moment(high)];
  return `${from} – ${from.slice(0, 10) === to.slice(0, 10) ? to.slice(11) : to}`;
};
const bytes = (value) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
};

function table(columns, rows) {
  const cell = (tag, column, content) => el(tag, { class: column.number ? "number" : null }, content);
  return el("div", { class: "scroll", tabindex: "0" }, el("table", {},
    el("thead", {}, el("tr", {}, columns.map((column) => cell("th", column, column.name)))),
    el("tbody", {}, rows.map((row) =>
      el("tr", {}, columns.map((column) => cell("td", column, column.of(row))))))));
}

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.filter(([, value]) => value !== "" && value !== null)
    .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

// Server --------------------------------------------------------------------------------------------

async function ask(path) {
  let reply;
  try {
    reply = await fetch(path, { credentials: "same-origin", headers: { accept: "application/json" } });
  } catch {
    throw new Error("Airflow does not answer.");
  }
  if (reply.status === 401) throw new Error("You are not logged in any more: log in to Airflow again.");
  if (reply.status === 403) throw new Error("You may not read this group's asset.");
  if (reply.status === 404) throw new Error("This group is not there any more.");
  if (!reply.ok) throw new Error(`Airflow answered with status ${reply.status}.`);
  return reply.json();
}

function tell(text) {
  notice.textContent = text;
  notice.hidden = !text;
}

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Lag is asked of brokers in the background; the server says at once what it knows.
async function lag(id, still, patience = 20) {
  for (let round = 0; round < patience && still(); round += 1) {
    const found = await ask(`api/groups/${id}/lag`);
    if (found.state !== "asking") return found;
    await wait(Math.min(500 + 250 * round, 2000));
  }
  return { state: "unreachable", note: "The cluster has not answered yet.", partitions: [] };
}

// A few questions at a time, however many groups are shown.
const waiting = [];
let under = 0;
function later(work) {
  waiting.push(work);
  pump();
}
function pump() {
  while (under < 3 && waiting.length) {
    under += 1;
    waiting.shift()().catch(() => {}).finally(() => { under -= 1; pump(); });
  }
}

// Groups --------------------------------------------------------------------------------------------

function card(group) {
  const badge = el("span", { class: "number soft" }, group.trouble ? "" : "…");
  const where = group.source === "tubemq" ? group.cluster : `${group.source} ${group.cluster}`;
  const node = el("a", { class: "card", href: `#${group.id}`, "data-id": group.id },
    el("span", { class: "name" }, group.topic), badge,
    el("span", { class: "soft wide" }, `${group.group} @ ${where}`),
    group.trouble
      ? el("span", { class: "bad wide" }, group.trouble)
      : el("span", { class: "soft wide" }, progress(group)));
  if (!group.trouble) seen(node, () => later(() => showLag(group, badge, node)));
  return node;
}

function progress(group) {
  const parts = group.seq === "" ? ["windows of time, or none yet"] : [`window ${number(group.seq)}`];
  if (group.partitions) parts.push(`${number(group.partitions)} partitions`);
  if (group.claims) parts.push(`${number(group.claims)} under way`);
  if (group.updated) parts.push(moment(group.updated));
  return parts.join(" · ");
}

const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    observer.unobserve(entry.target);
    entry.target.whenSeen();
  }
});
function seen(node, work) {
  node.whenSeen = work;
  observer.observe(node);
}

// In a few words. "No lag" only where every log was looked at and none is shorter than what was read.
function verdict(found) {
  if (found.shorter) return ["bad", "log behind position"];
  if (found.away) return ["warn", found.total ? `lag ≥ ${short(found.total)}` : "lag unknown"];
  return found.total ? ["warn", `lag ${short(found.total)}`] : ["good", "no lag"];
}

// Groups without a position have no lag; they have intervals, with holes or without.
async function showHoles(group, badge) {
  const { scopes } = await ask(`api/groups/${group.id}/coverage`);
  const holes = scopes.reduce((sum, scope) => sum + scope.intervals.missing.length, 0);
  badge.className = scopes.length ? `number ${holes ? "bad" : "good"}` : "number";
  badge.textContent = !scopes.length ? "" : holes ? `${number(holes)} ${holes > 1 ? "holes" : "hole"}` : "no hole";
}

async function showLag(group, badge, node) {
  if (!group.partitions) { await showHoles(group, badge); return; }
  const found = await lag(group.id, () => node.isConnected, 6);
  badge.className = "number";
  if (found.state === "known") {
    const [kind, words] = verdict(found);
    badge.textContent = words;
    badge.classList.add(kind);
  } else {
    badge.textContent = found.state === "off" ? "" : "lag unknown";
    badge.classList.add("soft");
    badge.title = found.note;
  }
}

async function list(after = "") {
  const turn = (listing += 1);
  const query = new URLSearchParams({ after, q: search.value.trim() });
  if (dag) query.set("dag_id", dag);
  let found;
  try {
    found = await ask(`api/groups?${query}`);
  } catch (error) {
    tell(error.message);
    return;
  }
  if (turn !== listing) return;
  tell("");
  if (!after) groups.replaceChildren();
  groups.querySelector(".more")?.remove();
  groups.append(...found.groups.map(card));
  if (found.next) {
    const more = el("button", { class: "more", type: "button" }, "More groups");
    more.addEventListener("click", () => list(found.next));
    groups.append(more);
  }
  if (!groups.children.length) {
    groups.append(el("p", { class: "soft" }, search.value
      ? "No group has this in its name."
      : dag ? "No task of this Dag has an offsets asset as outlet."
        : "No task of this Airflow has read a topic yet, or you may not see its asset."));
  }
  mark();
}

function mark() {
  document.querySelector("main").classList.toggle("open", chosen !== null);
  for (const node of groups.querySelectorAll("a.card")) {
    node.classList.toggle("chosen", node.dataset.id === chosen);
  }
}

// One group -----------------------------------------------------------------------------------------

function section(title, ...children) {
  return el("section", {}, el("h3", {}, title), ...children);
}

async function open(id) {
  chosen = id;
  mark();
  detail.hidden = id === null;
  if (id === null) { detail.replaceChildren(); return; }
  detail.replaceChildren(el("p", { class: "soft" }, "…"));
  try {
    const group = await ask(`api/groups/${id}`);
    if (chosen !== id) return;
    draw(group);
  } catch (error) {
    if (chosen === id) detail.replaceChildren(head(null), el("p", { class: "notice" }, error.message));
  }
}

function head(group) {
  const close = el("button", { type: "button", "aria-label": "Close" }, "✕");
  close.addEventListener("click", () => { location.hash = ""; });
  const title = group ? el("h2", {}, group.topic) : el("h2", {}, "Group");
  return el("div", { class: "top" }, title, close);
}

function draw(group) {
  const id = String(group.id);
  const here = () => chosen === id && detail.isConnected;
  const asset = framed ? null : el("a", { href: `../assets/${id}` }, "Airflow's asset");
  const parts = ["running", "positions", "tables", "windows", "coverage"].map(() => el("div", {}));
  const order = group.partitions ? parts : [parts[0], parts[4], parts[2], parts[3], parts[1]];
  detail.replaceChildren(head(group), facts([
    ["group", group.group], ["cluster", group.cluster],
    ["kind", group.source === "tubemq" ? "" : group.source],
    ["window", group.seq === undefined ? "" : number(group.seq)],
    ["stored in", group.store || ""], ["updated", moment(group.updated)], ["by", group.by || ""],
    ["see also", asset],
  ]), ...order);
  if (group.trouble) {
    parts[0].append(el("p", { class: "notice" }, group.trouble));
    return;
  }
  drawClaims(group, parts[0]);
  drawPositions(group, null, parts[1]);
  const failing = (node) => (error) => node.append(el("p", { class: "notice" }, error.message));
  const past = () => {
    ask(`api/groups/${id}/tables`).then((found) => here() && drawTables(found, parts[2]))
      .catch(failing(parts[2]));
    ask(`api/groups/${id}/windows`).then((found) => here() && drawWindows(id, found, parts[3]))
      .catch(failing(parts[3]));
    ask(`api/groups/${id}/coverage`).then((found) => here() && drawCoverage(found, parts[4]))
      .catch(failing(parts[4]));
  };
  keepRunning(id, parts[0], here, past).catch(failing(parts[0]));
  keepLag(group, parts[1], here).catch(failing(parts[1]));
  past();
}

function drawClaims(group, node) {
  if (!group.claimed.length) return;
  node.append(section("Windows under way", table([
    { name: "window", of: (row) => row.window },
    { name: "since", of: (row) => moment(row.since) },
    { name: "", of: (row) => (row.taken ? "a run has it" : "free for the next run") },
  ], group.claimed)));
}

// Running tasks and lag are looked at again while the page is in front. When a task has ended,
// `ended` draws what it may have changed.
async function keepRunning(id, node, here, ended) {
  const place = node.appendChild(el("div", {}));
  let before = null;
  while (here()) {
    if (!document.hidden) {
      const { tasks, failed } = await ask(`api/groups/${id}/running`);
      if (!here()) return;
      const names = tasks.filter((task) => task.state === "running").map(taskName);
      if (before !== null && before.some((name) => !names.includes(name))) ended();
      before = names;
      place.replaceChildren(...(tasks.length ? [drawRunning(tasks)] : []),
        ...(failed.length ? [drawFailed(failed)] : []));
    }
    await wait(before && before.length ? 5000 : 10000);
  }
}

const taskName = (task) => `${task.dag_id} ${task.run_id} ${task.task_id} ${task.map_index}`;
const asOf = () => el("p", { class: "soft" }, `As of ${new Date().toISOString().slice(11, 19)} UTC`);

function taskLink(task) {
  const text = `${task.dag_id}.${task.task_id}`;
  if (framed) return text; // Airflow's frame may not navigate the page around it
  const path = [task.dag_id, "runs", task.run_id, "tasks", task.task_id].map(encodeURIComponent);
  const mapped = task.map_index >= 0 ? `/mapped/${task.map_index}` : "";
  return el("a", { href: `../dags/${path.join("/")}${mapped}` }, text);
}

function drawRunning(tasks) {
  return section("Running or waiting", asOf(), table([
    { name: "task", of: taskLink },
    { name: "state", of: (task) => task.state.replaceAll("_", " ") },
    { name: "", of: (task) => meter(task.progress?.read, task.progress?.entries) },
    { name: "progress", of: (task) => told(task) },
    { name: "since", of: (task) => moment(task.since) },
    { name: "window", of: (task) => task.progress?.window || "" },
    { name: "run", of: (task) => task.run_id },
  ], tasks));
}

function drawFailed(tasks) {
  return section("Failed, and not cleared", el("p", { class: "bad" },
    "A later run of a cursor takes what these left. An interval of time stays a hole until its task is cleared."),
  table([
    { name: "task", of: taskLink },
    { name: "state", of: (task) => task.state.replaceAll("_", " ") },
    { name: "since", of: (task) => moment(task.since) },
    { name: "run", of: (task) => task.run_id },
  ], tasks));
}

function told(task) {
  const now = task.progress;
  if (!now || task.state !== "running") return "";
  if (now.state === "done") return "read; it is being published";
  if (now.state === "waiting") return `no record for ${now.silent} s; see the task's log`;
  if (now.tasks) return `${number(now.done)} of ${number(now.tasks)} Spark tasks`;
  const rate = now.rate ? `, ${short(now.rate)}/s` : "";
  return `${number(now.read || 0)} of at most ${number(now.entries || 0)} records${rate}`;
}

function meter(part, whole) {
  if (typeof part !== "number" || !whole) return null;
  const width = Math.max(0, Math.min(100, (100 * part) / whole));
  return svg("svg", { class: "meter", viewBox: "0 0 100 8", preserveAspectRatio: "none", height: 8 },
    svg("rect", { width: 100, height: 8, rx: 2 }),
    svg("rect", { class: "part", width, height: 8, rx: 2 }));
}

async function keepLag(group, node, here) {
  const samples = [];
  let now = group;
  while (here()) {
    if (!document.hidden) {
      const found = await lag(group.id, here);
      if (!here()) return;
      if (found.state === "known") samples.push([Date.now(), found.total]);
      drawPositions(now, found, node, samples);
    }
    await wait(15000);
    if (here() && !document.hidden) now = await ask(`api/groups/${group.id}`).catch(() => now);
  }
}

const clock = (at) => new Date(at).toISOString().slice(11, 19);

// What stands below a chart: its first instant, what its height means, its last instant.
function axis(first, height, last) {
  return el("p", { class: "axis soft" }, el("span", {}, first), el("span", {}, height), el("span", {}, last));
}

// Lag while the page is open: nobody stores it. Alerts are made of metrics.
function lagOverTime(samples) {
  if (samples.length < 2) return null;
  const shown = samples.slice(-240);
  const [first, last] = [shown[0][0], shown[shown.length - 1][0]];
  const most = Math.max(1, ...shown.map(([, total]) => total));
  const points = shown.map(([at, total]) =>
    `${((600 * (at - first)) / Math.max(last - first, 1)).toFixed(1)},${(88 - (84 * total) / most).toFixed(1)}`);
  const minutes = Math.max(1, Math.round((last - first) / 60000));
  return el("div", {}, svg("svg", { class: "bars", viewBox: "0 0 600 90", role: "img",
    "aria-label": `Lag of the last ${minutes} minutes, at most ${most}` },
  svg("polyline", { class: "line", points: points.join(" ") })),
  axis(clock(first), `lag since this page was opened, ${minutes} min; at most ${number(most)}`, clock(last)));
}

function drawPositions(group, found, node, samples = []) {
  if (!group.positions.length && !(found && found.partitions.length)) {
    node.replaceChildren(section("Position", el("p", { class: "soft" },
      found?.note || "No cursor window was accepted yet. Windows of time have no position: see the coverage.")));
    return;
  }
  const known = found !== null && found.state === "known";
  const rows = known ? found.partitions : group.positions;
  const most = Math.max(0, ...rows.map((row) => (typeof row.lag === "number" ? row.lag : 0)));
  const columns = [
    { name: "partition", of: (row) => row.partition },
    { name: "next offset", number: true, of: (row) => number(row.next) },
  ];
  if (known) {
    columns.push(
      { name: "stable end", number: true, of: (row) => number(row.end) },
      { name: "lag", number: true, of: (row) => number(row.lag) },
      { name: "", of: (row) => meter(row.lag, most) });
  }
  const parts = [];
  if (known) {
    const away = found.away ? `; ${number(found.away)} partitions are not reachable now` : "";
    const behind = found.total ? `${number(found.total)} entries behind the stable end${away}`
      : found.away ? `No lag where it is known${away}` : "No lag";
    parts.push(el("p", { class: found.total || found.away || found.shorter ? "warn" : "good" }, behind));
    if (found.shorter) {
      parts.push(el("p", { class: "notice" }, `The logs of ${number(found.shorter)} partitions end before `
        + "the position: a broker lost records, or the topic was made anew. The next run says what to do."));
    }
  } else {
    parts.push(el("p", { class: found ? "notice" : "soft" },
      found ? `Lag unknown. ${found.note}` : "Asking the brokers for the ends …"));
  }
  const total = Math.max(group.partitions || 0, rows.length);
  if (rows.length < total) parts.push(el("p", { class: "soft" }, `${rows.length} of ${total} partitions`));
  node.replaceChildren(section("Lag by partition", ...(known ? [asOf()] : []), ...parts,
    lagOverTime(samples), table(columns, rows)));
}

// Tables of routed windows: only groups with routes have any.
function drawTables(found, node) {
  if (!found.tables.length) return;
  const failed = found.tables.filter((row) => row.failed).length;
  const note = failed ? el("p", { class: "notice" }, `${number(failed)} tables failed to take windows. `
    + "The group's next runs try again.") : null;
  node.replaceChildren(section("Tables", note, table([
    { name: "table", of: (row) => row.table },
    { name: "values", of: (row) => row.values.join(", ") + (row.of > row.values.length ? " …" : "") },
    { name: "rows", number: true, of: (row) => number(row.rows) },
    { name: "windows", number: true, of: (row) => number(row.windows) },
    { name: "failed", number: true, of: (row) => (row.failed ? el("span", { class: "bad" }, number(row.failed)) : "") },
    { name: "", of: (row) => row.reason },
    { name: "newest (UTC)", of: (row) => (row.at ? moment(row.at) : "") },
  ], found.tables), el("p", { class: "soft" }, `From the newest ${number(found.events)} events.`)));
}

function drawWindows(id, found, node) {
  const shown = found.windows.filter((row) => row.window);
  if (!shown.length && !found.next) {
    node.replaceChildren(section("Windows", el("p", { class: "soft" }, "No window was accepted yet.")));
    return;
  }
  const body = el("div", {});
  const rows = [...shown];
  const redraw = (next) => {
    const timed = rows.some((row) => row.interval);
    body.replaceChildren(table(windowColumns.filter(({ name }) => timed || name !== "interval"), rows));
    if (next === null) return;
    const more = el("button", { class: "more", type: "button" }, "Older windows");
    more.addEventListener("click", async () => {
      more.disabled = true;
      try {
        const page = await ask(`api/groups/${id}/windows?skip=${next}`);
        rows.push(...page.windows.filter((row) => row.window));
        redraw(page.next);
      } catch (error) {
        more.replaceWith(el("p", { class: "notice" }, error.message));
      }
    });
    body.append(more);
  };
  redraw(found.next);
  node.replaceChildren(section("Records per window", bars(shown), body));
}

const windowColumns = [
  { name: "accepted (UTC)", of: (row) => moment(row.at) },
  { name: "records", number: true, of: (row) => number(row.records) },
  { name: "bytes", number: true, of: (row) => bytes(row.bytes) },
  { name: "interval", of: (row) => (row.interval ? span(row.interval) : "") },
  { name: "", of: (row) => remarks(row) },
  { name: "run", of: (row) => run(row) },
  { name: "window", of: (row) => row.window },
  { name: "place", of: (row) => row.place },
];

function remarks(row) {
  const found = [];
  if (row.replayed) found.push(el("span", { class: "warn" }, "replayed "));
  if (row.missing) found.push(el("span", { class: "bad" }, "hole beside it "));
  if (row.gaps) found.push(el("span", { class: "bad" }, `${row.gaps} gaps `));
  if (row.corrupt) found.push(el("span", { class: "bad" }, `${row.corrupt} corrupt`));
  return el("span", {}, found);
}

function run(row) {
  if (!row.dag_id) return "";
  const text = `${row.dag_id} ${row.run_id}`;
  if (framed) return text;
  const path = [row.dag_id, "runs", row.run_id].map(encodeURIComponent).join("/");
  return el("a", { href: `../dags/${path}` }, text);
}

function bars(rows) {
  const drawn = [...rows].reverse();
  const most = Math.max(1, ...drawn.map((row) => row.records));
  const step = 600 / Math.max(drawn.length, 24);
  if (!drawn.length) return null;
  const ends = [drawn[0], drawn[drawn.length - 1]].map((row) => moment(row.at));
  return el("div", {}, svg("svg", { class: "bars", viewBox: "0 0 600 90", role: "img",
    "aria-label": `Records of the last ${drawn.length} windows, at most ${most}` },
    drawn.map((row, at) => {
      const height = row.records ? Math.max(2, (84 * row.records) / most) : 0;
      const box = { x: at * step, width: Math.max(1, step - 2) };
      return svg("g", {},
        svg("title", {}, `${row.window}: ${number(row.records)} records, ${moment(row.at)}`),
        svg("rect", { ...box, class: "room", y: 0, height: 90 }),
        svg("rect", { ...box, class: row.replayed ? "replayed" : null, y: 90 - height, height }));
    })), axis(ends[0], `${number(drawn.length)} windows, at most ${number(most)} records each`, ends[1]));
}

// Coverage ------------------------------------------------------------------------------------------

const SIGNS = { "#": "done", "+": "partly", "!": "twice", ".": "missing", " ": "outside" };
const WORDS = { done: "done", partly: "partly done", missing: "hole", twice: "there twice" };

function drawCoverage(found, node) {
  const parts = found.scopes.map((scope) => el("div", {}, about(scope),
    scope.days.length ? calendar(scope.days.map(([day, signs]) => [day, [...signs].map((sign) => SIGNS[sign])]))
      : calendar(levels(scope.hours)),
    scope.days.length ? legend() : null,
    findings(scope)));
  if (!parts.length) return;
  const note = `From the newest ${number(found.events)} events${found.older ? "; there are older ones" : ""}. `
    + "What a sink has is judged by: airflow tubemq windows coverage --sink …";
  node.replaceChildren(section("Coverage", ...parts, el("p", { class: "soft" }, note)));
}

function about(scope) {
  const epoch = scope.epoch ? `epoch ${scope.epoch}, ` : "";
  const replays = scope.replays ? `, ${number(scope.replays)} replayed` : "";
  const what = scope.days.length ? "hours of the windows' intervals" : "records by hour of acceptance";
  return el("p", {}, `${epoch}${number(scope.windows)} ${scope.kind} windows, `
    + `${number(scope.records)} records${replays}; ${what} (UTC)`);
}

function levels(hours) {
  const days = new Map();
  const most = Math.max(1, ...hours.map(([, records]) => records));
  for (const [hour, records] of hours) {
    const day = hour.slice(0, 10);
    if (!days.has(day)) days.set(day, new Array(24).fill(null));
    const level = records ? Math.max(1, Math.ceil((4 * records) / most)) : 0;
    days.get(day)[Number(hour.slice(11, 13))] = level ? `level${level}` : null;
  }
  return [...days];
}

function calendar(days) {
  const size = 18;
  const left = 74;
  const hours = [0, 6, 12, 18].map((hour) =>
    svg("text", { x: left + hour * size, y: 10 }, `${String(hour).padStart(2, "0")}:00`));
  const rows = days.map(([day, kinds], row) => {
    const y = 16 + row * size;
    return svg("g", {}, svg("text", { x: 0, y: y + 12 }, day), kinds.map((kind, hour) =>
      svg("rect", { class: kind, x: left + hour * size, y, width: size - 2, height: size - 2, rx: 3 },
        svg("title", {}, `${day} ${String(hour).padStart(2, "0")}:00 ${WORDS[kind] || ""}`))));
  });
  const width = left + 24 * size;
  return svg("svg", { class: "calendar", viewBox: `0 0 ${width} ${18 + days.length * size}`, width,
    role: "img", "aria-label": "Calendar of days and hours" }, hours, rows);
}

function legend() {
  return el("ul", { class: "legend" }, Object.entries(WORDS).map(([kind, word]) => el("li", {},
    svg("svg", { width: 12, height: 12, viewBox: "0 0 12 12" },
      svg("rect", { class: kind, width: 12, height: 12, rx: 3 })), word)));
}

// Partitions by range: windows of time often miss the same offsets of many.
function byRange(offsets, name) {
  const found = new Map();
  for (const part of offsets) {
    for (const range of part[name]) {
      const text = `[${range.map(number).join(", ")})`;
      if (!found.has(text)) found.set(text, []);
      found.get(text).push(part.partition);
    }
  }
  return found;
}

function findings(scope) {
  const found = [];
  const say = (kind, text) => found.push(el("li", { class: kind }, text));
  for (const hole of scope.intervals.missing) say("bad", `hole: ${span(hole)}`);
  for (const twice of scope.intervals.overlapping) say("warn", `twice: ${span(twice)}`);
  for (const [name, kind, words] of [
    ["missing", "bad", "no accepted window has"],
    ["overlapping", "warn", "in more than one window:"],
    ["lost", "bad", "lost to retention:"],
  ]) {
    for (const [range, keys] of byRange(scope.offsets, name)) {
      const more = keys.length > 8 ? ` and ${keys.length - 8} more` : "";
      const which = `${keys.length > 1 ? "partitions" : "partition"} ${keys.slice(0, 8).join(", ")}${more}`;
      say(kind, `${words} offsets ${range} of ${which}`);
    }
  }
  const again = scope.recovered
    ? el("p", { class: "soft" }, `${number(scope.recovered)} windows were published by runs that ended before `
      + "they could say so, and taken over by a later run: their offsets are missing here, and not in the sink.")
    : null;
  const cut = scope.partitions > scope.offsets.length
    ? el("p", { class: "soft" }, `Offsets of ${scope.offsets.length} of ${scope.partitions} partitions were compared.`)
    : null;
  if (!found.length) return el("div", {}, el("p", { class: "good" }, "No hole, no gap, nothing twice."), again, cut);
  const rest = found.length - 40;
  return el("div", {}, el("ul", { class: "plain" }, found.slice(0, 40),
    rest > 0 ? el("li", {}, `and ${number(rest)} more`) : null), again, cut);
}

// Start ---------------------------------------------------------------------------------------------

const asked = () => {
  const id = location.hash.slice(1);
  return /^\d{1,18}$/.test(id) ? id : null;
};
let typing = 0;
search.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => list(), 250);
});
window.addEventListener("hashchange", () => open(asked()));
if (dag) document.getElementById("title").textContent = `TubeMQ windows of ${dag}`;
list();
if (asked() !== null) open(asked());
