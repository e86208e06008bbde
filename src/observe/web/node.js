// SPDX-License-Identifier: Apache-2.0
// Shows each state that the service sends. Keeps the history of the last minutes itself.

const $ = (id) => document.getElementById(id);
const STATES = ["running", "turn", "waiting", "paused", "idle", "stalled"];
const TONES = {running: "--good", turn: "--accent", waiting: "--wait", paused: "--off",
               idle: "--muted", stalled: "--bad"};
const EVENT_TONES = {"joined": "--good", "left": "--muted", "reclaimed": "--wait",
                     "refused": "--bad", "turn began": "--accent", "turn ended": "--accent",
                     "turns off": "--bad", "left devices": "--off",
                     "returned to devices": "--good"};
const OF_LOOK = {joined: 1, left: 1};  // no marks in the timelines

let token = decodeURIComponent(location.hash.slice(1));
let state = null;
let held = false;
let opened = null;      // the label of the client shown in detail
let regions = null;     // its arenas and windows, once they have arrived
const history = [];     // {t, devices: {uuid: values}, clients: {label: values}}
const lanes = new Map();  // label -> {samples, ended}
const hues = new Map();   // label -> number of its colour

const seconds_now = () => performance.now() / 1000;
const hue = (label) => {
  if (!hues.has(label)) hues.set(label, hues.size % 8);
  return "--c" + hues.get(label);
};

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "style") made.style.cssText = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// Updates the children of `parent` by key, in the order of `items`. Children that stay keep their
// focus.
function keep(parent, items, key_of, make, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, i) => {
    const key = key_of(item);
    let child = before.get(key);
    if (!child) {
      child = make(item);
      child.dataset.key = key;
    }
    before.delete(key);
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] || null);
    if (update) update(child, item);
  });
  for (const child of before.values()) child.remove();
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A client's memory on one device, in disjoint parts.
function parts_of(holding, is_paused) {
  const physical = holding.physical_bytes;
  if (physical === undefined) {
    return {used: holding.leased_bytes || 0, cached: 0, leased: 0, spilled: 0};
  }
  const cached = Math.min(holding.cached_bytes, physical);
  const away = is_paused ? Math.max(0, holding.live_bytes - physical) : 0;
  return {used: physical - cached, cached,
          leased: Math.max(0, (holding.leased_bytes || 0) - physical),
          spilled: Math.max(holding.spilled_bytes, away)};
}

function holding_on(client, uuid) {
  return client.holdings.find((one) => one.device === uuid);
}

function sum_of(client) {
  const sum = {used: 0, cached: 0, leased: 0, spilled: 0, lease: 0, hot: 0};
  for (const holding of client.holdings) {
    if (holding.device === "host") continue;
    const parts = parts_of(holding, client.state === "paused");
    for (const key of Object.keys(parts)) sum[key] += parts[key];
    sum.lease += holding.leased_bytes || 0;
    sum.hot += holding.spilled_hot_bytes || 0;
  }
  return sum;
}

function remember() {
  const t = seconds_now();
  const sample = {t, devices: {}, clients: {}};
  for (const device of state.devices) sample.devices[device.uuid] = {foreign: device.foreign_bytes || 0};
  const living = new Set();
  for (const client of state.clients) {
    living.add(client.label);
    for (const holding of client.holdings) {
      const values = sample.devices[holding.device];
      if (!values || holding.device === "host") continue;
      const parts = parts_of(holding, client.state === "paused");
      values["used " + client.label] = parts.used;
      values.cached = (values.cached || 0) + parts.cached;
    }
    sample.clients[client.label] = sum_of(client);
    const lane = lanes.get(client.label) || {samples: []};
    lane.ended = null;
    const last = lane.samples[lane.samples.length - 1];
    if (!last || last.state !== client.state) lane.samples.push({t, state: client.state});
    lanes.set(client.label, lane);
  }
  history.push(sample);
  fit_span(t - history[0].t);
  while (history.length > 1 && history[1].t < t - LONGEST_SPAN_S) history.shift();
  for (const [label, lane] of lanes) {
    if (!living.has(label) && !lane.ended) lane.ended = t;
    if (lane.ended && lane.ended < t - LONGEST_SPAN_S) lanes.delete(label);
    while (lane.samples.length > 1 && lane.samples[1].t < t - LONGEST_SPAN_S) lane.samples.shift();
  }
}

function device_name(uuid) {
  if (uuid === "host") return "the host";
  const device = state.devices.find((one) => one.uuid === uuid);
  return device ? "GPU " + device.index : "all GPUs";
}

function sentence(event) {
  const where = event.device ? " of " + device_name(event.device) : "";
  const who = event.client || "a client";
  const took = event.took_us ? " in " + time_text(event.took_us) : "";
  const why = {cache: "from its cache", cold: "that it had not used", pause: "by a pause"};
  switch (event.kind) {
    case "joined": return [who + " joined", event.outcome ? event.outcome + ": " + event.cause : ""];
    case "left": return [who + " left", ""];
    case "reclaimed": return [
      who + (event.outcome ? " gave " : " is asked for ") +
        bytes_text(event.outcome ? event.bytes : event.asked_bytes) + where +
        (event.other ? " to " + event.other : ""),
      (why[event.cause] || event.cause) +
        (event.outcome ? ", " + event.outcome + took : ", in progress") +
        (event.outcome && event.bytes < event.asked_bytes ? " (" + bytes_text(event.asked_bytes) + " asked)" : "") +
        (event.other ? "" : ", beyond its limit or for processes that are no clients")];
    case "refused": return [who + " was refused " + bytes_text(event.asked_bytes) + where,
      event.cause.replaceAll("_", " ") + (event.took_us ? ", after " + time_text(event.took_us) : "")];
    case "turn began": return [who + " has its turn", "for up to " + time_text(event.took_us)];
    case "turn ended": return [who + "\u2019s turn ended", "after " + time_text(event.took_us)];
    case "turns off": return ["No turns" + where + " for " + time_text(event.took_us),
                              event.client + ": " + event.cause];
    case "left devices": return event.outcome === "done"
      ? [who + " left its devices" + took, bytes_text(event.bytes) + " of contexts and modules"]
      : [who + " stays on its devices", event.cause];
    case "returned to devices": return event.outcome === "done"
      ? [who + " is back on its devices" + took, ""]
      : [who + " cannot return to its devices yet", event.cause];
  }
  return [event.kind, ""];
}

function ago_text(us) {
  return us < 1e6 ? "now" : time_text(Math.floor(us / 1e6) * 1e6).replace(".0", "") + " ago";
}

function show_totals() {
  const sums = {used: 0, spilled: 0, hot: 0};
  for (const client of state.clients) {
    const sum = sum_of(client);
    for (const key of Object.keys(sums)) sums[key] += sum[key];
  }
  const gpus = state.devices.filter((one) => !one.host);
  const waiting = state.clients.filter((one) =>
    one.holdings.some((holding) => holding.waited_for_bytes > 0)).length;
  const capacity = gpus.reduce((all, one) => all + one.capacity_bytes, 0);
  const hidden = state.hidden_clients ? "+" + state.hidden_clients + " of others" : "";
  const rows = [
    ["Clients", String(state.clients.length), hidden],
    ["Memory in use", bytes_text(sums.used), capacity ? "of " + bytes_text(capacity) : ""],
    ["On the host", bytes_text(sums.spilled), sums.hot ? bytes_text(sums.hot) + " in use" : "", sums.hot > 0],
  ];
  if (state.service) rows.push(["Waiting for memory", String(waiting), "", waiting > 0]);
  keep($("totals"), rows, (row) => row[0],
    (row) => element("div", {}, element("dt", {}, row[0]),
      element("dd", {}, element("span"), " ", element("small"))),
    (node, row) => {
      put(node.querySelector("span"), row[1]);
      put(node.querySelector("small"), row[2]);
      node.classList.toggle("alarm", Boolean(row[3]));
    });
}

function segments_of(device) {
  const segments = [];
  for (const client of state.clients) {
    const holding = holding_on(client, device.uuid);
    if (!holding) continue;
    const parts = parts_of(holding, false);
    for (const kind of ["used", "cached", "leased"]) {
      if (parts[kind] > 0) segments.push({kind, client: client.label, bytes: parts[kind]});
    }
  }
  if (device.foreign_bytes) segments.push({kind: "foreign", client: "", bytes: device.foreign_bytes});
  return segments;
}

const KINDS = {used: "in use", cached: "cached", leased: "leased, not used", foreign: "other processes",
               spilled: "on the host"};

function segment_button(segment) {
  const button = element("button", {type: "button", class: segment.kind}, element("span"));
  button.addEventListener("click", () => { if (segment.client) open_detail(segment.client); });
  return button;
}

function update_segment(button, segment, capacity) {
  const share = capacity ? 100 * segment.bytes / capacity : 0;
  button.style.width = share + "%";
  if (segment.client) button.style.setProperty("--color", "var(" + hue(segment.client) + ")");
  const name = segment.client || "other processes";
  const text = (segment.client ? name + ", " : "") + KINDS[segment.kind] + ": " + bytes_text(segment.bytes);
  button.title = text;
  button.setAttribute("aria-label", text);
  const shows_name = ["used", "foreign", "spilled"].includes(segment.kind);
  put(button.firstChild, shows_name ? name + " \u00b7 " + bytes_text(segment.bytes) : "");
}

function make_device(device) {
  const canvas = element("canvas", {role: "img"});
  canvas.addEventListener("pointermove", (event) => point_at(event, canvas, device.uuid));
  canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  return element("article", {class: "card device"},
    element("div", {class: "device-head"}, element("h2"), element("span", {class: "muted"})),
    element("div", {class: "bar"}), element("div", {class: "bar away"}),
    element("div", {class: "caption"}), canvas);
}

function update_device(card, device) {
  const segments = segments_of(device);
  const used = segments.reduce((all, one) => all + one.bytes, 0);
  const free = Math.max(0, device.capacity_bytes - used);
  put(card.querySelector("h2"), "GPU " + device.index);
  put(card.querySelector(".device-head span"),
    bytes_text(free) + " free of " + bytes_text(device.capacity_bytes));
  const whole = Math.max(device.capacity_bytes, used);
  keep(card.querySelector(".bar"), segments, (one) => one.client + " " + one.kind, segment_button,
    (button, one) => update_segment(button, one, whole));
  const away = [];
  for (const client of state.clients) {
    const holding = holding_on(client, device.uuid);
    const spilled = holding ? parts_of(holding, client.state === "paused").spilled : 0;
    if (spilled > 0) away.push({kind: "spilled", client: client.label, bytes: spilled});
  }
  const bar = card.querySelector(".away");
  bar.hidden = away.length === 0;
  bar.style.display = away.length ? "" : "none";
  const most_away = Math.max(whole, away.reduce((all, one) => all + one.bytes, 0));
  keep(bar, away, (one) => one.client, segment_button,
    (button, one) => update_segment(button, one, most_away));
  const sums = {};
  for (const one of [...segments, ...away]) sums[one.kind] = (sums[one.kind] || 0) + one.bytes;
  const caption = Object.entries(sums).map(([kind, bytes]) => ({kind, bytes}));
  keep(card.querySelector(".caption"), caption, (one) => one.kind,
    (one) => element("span", {}, element("i", {class: "swatch " + one.kind,
      style: "--color: var(" + (one.kind === "foreign" ? "--foreign" : "--muted") + ")" +
        (one.kind === "leased" ? ";opacity:.25" : "") +
        (one.kind === "spilled" ? ";height:5px;vertical-align:2px" : "")}), element("span")),
    (node, one) => put(node.lastChild, KINDS[one.kind] + " " + bytes_text(one.bytes)));
  draw_device(card, device);
}

function layers_of(uuid) {
  const labels = new Set();
  for (const sample of history) {
    for (const key of Object.keys(sample.devices[uuid] || {})) {
      if (key.startsWith("used ")) labels.add(key.slice(5));
    }
  }
  const layers = [...labels].map((label) => ({key: "used " + label, colour: colour(hue(label)), label}));
  layers.push({key: "cached", colour: colour("--muted"), faint: true, label: "cached"});
  layers.push({key: "foreign", colour: colour("--foreign"), label: "other processes"});
  return layers;
}

function marks_for(uuid) {
  const now = seconds_now();
  return state.events.filter((one) => !OF_LOOK[one.kind] && (!one.device || one.device === uuid))
    .map((one) => ({t: now - one.ago_us / 1e6, colour: colour(EVENT_TONES[one.kind])}));
}

function draw_device(card, device) {
  const canvas = card.querySelector("canvas");
  const samples = history.map((one) => ({t: one.t, values: one.devices[device.uuid] || {}}));
  canvas.setAttribute("aria-label", "Memory of GPU " + device.index + " by client, over time");
  canvas.plot = draw_stack(canvas, samples, layers_of(device.uuid), device.capacity_bytes,
                           marks_for(device.uuid), seconds_now());
}

function point_at(event, canvas, uuid) {
  const tip = $("tip");
  const box = canvas.plot;
  if (!box) return;
  const share = (event.offsetX - box.left) / (box.right - box.left);
  const sample = share >= 0 && share <= 1 ? sample_at(history, share, seconds_now()) : null;
  tip.hidden = !sample;
  if (!sample) return;
  const values = sample.devices[uuid] || {};
  const lines = [time_text(Math.max(0, seconds_now() - sample.t) * 1e6) + " ago"];
  for (const layer of layers_of(uuid)) {
    if (values[layer.key]) lines.push(layer.label + ": " + bytes_text(values[layer.key]));
  }
  tip.textContent = lines.join("\n");
  const right = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
  tip.style.left = Math.max(8, right) + "px";
  tip.style.top = Math.max(8, event.clientY - tip.offsetHeight - 10) + "px";
}

function state_chip() {
  return element("span", {class: "state"});
}
function update_state(chip, client) {
  const silent = !client.answers && client.mode;
  const away = client.off_devices ? ", off the card" : "";
  put(chip, client.state + away + (silent ? ", silent" : ""));
  chip.style.setProperty("--tone", "var(" + (TONES[client.state] || "--muted") + ")");
}

function terms_of(client) {
  const words = [];
  for (const holding of client.holdings) {
    if (holding.device === "host" || holding.leased_bytes === undefined) continue;
    if (holding.guarantee_bytes) words.push("\u2265 " + bytes_text(holding.guarantee_bytes));
    if (holding.limit_bytes !== null) words.push("\u2264 " + bytes_text(holding.limit_bytes));
    break;
  }
  if (client.priority) words.push("priority " + client.priority);
  if (client.weight !== 1) words.push("weight " + client.weight);
  return words.join(", ") || "\u2013";
}

function show_clients() {
  const rows = [...state.clients].sort((a, b) => {
    const difference = sum_of(b).used + sum_of(b).spilled - sum_of(a).used - sum_of(a).spilled;
    return difference || a.label.localeCompare(b.label);
  });
  keep(document.querySelector("#clients tbody"), rows, (one) => one.label,
    (one) => element("tr", {},
      element("td", {}, element("i", {class: "swatch", style: "--color: var(" + hue(one.label) + ")"}),
        element("button", {type: "button", onclick: () => open_detail(one.label)}, one.label)),
      element("td", {}, state_chip()),
      ...[0, 1, 2].map(() => element("td", {class: "number"})),
      element("td", {class: "number lease"}), element("td", {class: "lease muted"})),
    (row, one) => {
      const sum = sum_of(one);
      const cells = row.children;
      update_state(cells[1].firstChild, one);
      put(cells[2], bytes_text(sum.used));
      put(cells[3], bytes_text(sum.cached));
      put(cells[4], sum.spilled ? bytes_text(sum.spilled) : "\u2013");
      put(cells[5], state.service && one.tally !== null ? bytes_text(sum.lease) : "\u2013");
      put(cells[6], terms_of(one));
    });
}

function show_lanes() {
  const box = $("lanes");
  if (!box.firstChild) box.append(element("canvas", {role: "img", "aria-label":
    "State of each client over time"}));
  const tones = {};
  for (const one of STATES) tones[one] = colour(TONES[one]);
  const rows = [...lanes].map(([name, lane]) => ({name, ...lane}))
    .sort((a, b) => Boolean(a.ended) - Boolean(b.ended)).slice(0, 40);
  draw_lanes(box.firstChild, rows, tones, seconds_now());
  const seen = STATES.filter((one) => rows.some((lane) => lane.samples.some((s) => s.state === one)));
  keep($("lanes-legend"), seen, (one) => one, (one) => element("span", {},
    element("i", {class: "swatch", style: "--color: var(" + TONES[one] + ")"}), one));
}

function latest_first(events) {
  return [...events].sort((a, b) => a.ago_us - b.ago_us || b.number - a.number);
}

function make_event(event) {
  return element("li", {}, element("time"), element("i", {class: "mark",
    style: "--tone: var(" + EVENT_TONES[event.kind] + ")", "aria-hidden": "true"}),
    element("span", {}, element("span"), " ", element("small")));
}
function update_event(item, event) {
  const [what, why] = sentence(event);
  put(item.firstChild, ago_text(event.ago_us));
  put(item.lastChild.firstChild, what + (event.times > 1 ? " (" + event.times + "\u00d7)" : ""));
  put(item.lastChild.lastChild, why);
}

function show_events() {
  $("events-card").hidden = !state.service;
  keep($("events"), latest_first(state.events), (one) => String(one.number), make_event, update_event);
}

function facts_of(client) {
  const sum = sum_of(client);
  const totals = {moves: 0, moved: 0, refusals: 0, live: 0, placed: 0};
  for (const one of client.holdings) {
    totals.moves += one.moves || 0;
    totals.moved += one.moved_bytes || 0;
    totals.refusals += one.refusals || 0;
    totals.live += one.live_bytes || 0;
    totals.placed += (one.placed_in_bytes || 0) + (one.placed_out_bytes || 0);
  }
  const facts = [
    ["Program", (client.program || "?") + (client.arguments ? " " + client.arguments : "")],
    ["Process", client.process || "in another namespace"], ["User", client.user],
    ["Version", client.version ? client.version + " (" + client.mode + ")" : "\u2013"],
    ["Requested", bytes_text(totals.live)], ["In use", bytes_text(sum.used)],
    ["Cached", bytes_text(sum.cached)], ["On the host", bytes_text(sum.spilled)],
    ["Compaction", totals.moves + " moves, " + bytes_text(totals.moved)],
    ["Moved by use", bytes_text(totals.placed)], ["Refused", totals.refusals + " allocations"]];
  for (const [name, key] of [["Paused", "pauses"], ["Resumed", "resumes"]]) {
    const one = client[key];
    if (one && one.count) {
      facts.push([name, one.count + " \u00d7, " + time_text(one.sum_us / one.count) + " each, " +
        bytes_text(one.bytes) + " in all"]);
    }
  }
  if (client.turns !== undefined) facts.push(["Turns", client.turns + (client.turns ? ", " + time_text(client.turns_us) : "")]);
  if (client.waits && client.waits.count) {
    facts.push(["Waited for memory", client.waits.count + " \u00d7, " + time_text(client.waits.sum_us)]);
  }
  if (client.time && client.time.held_us + client.time.waited_us > 0) {
    facts.push(["GPU time", time_text(client.time.held_us) + " held, " +
      time_text(client.time.waited_us) + " waited for"]);
  }
  if (client.group) facts.push(["Group", client.group]);
  for (const one of client.holdings) {
    if (one.leased_bytes === undefined) continue;
    const limit = one.limit_bytes === null ? "no limit" : "at most " + bytes_text(one.limit_bytes);
    facts.push(["Lease of " + device_name(one.device), bytes_text(one.leased_bytes) + ", " +
      bytes_text(one.guarantee_bytes) + " guaranteed, " + limit]);
    if (one.waited_for_bytes) {
      facts.push(["Waits for", bytes_text(one.waited_for_bytes) + " of " +
        (one.waits_for || "its turn") + ", " + time_text(one.waits_us)]);
    }
  }
  return facts;
}

// Fetches one client's regions at a time: all clients' every second would be too much load for the
// service.
async function fetch_regions() {
  const label = opened;
  const answer = await fetch("client?label=" + encodeURIComponent(label),
    {headers: token ? {Authorization: "Bearer " + token} : {}}).catch(() => null);
  const next = answer && answer.ok ? await answer.json() : {regions: [], regions_left_out: 0};
  if (opened !== label) return;
  regions = next;
  if (!held) show_regions($("detail-body").querySelector(".regions"));
}

function make_region() {
  return element("li", {}, element("div", {}, element("span"), " ", element("small")),
    element("div", {class: "region", role: "img"}, element("i", {class: "used"}),
      element("i", {class: "cached"})));
}

// A region's width is its size relative to the largest region.
function update_region(item, region) {
  const free = Math.max(0, region.held_bytes - region.used_bytes - region.cached_bytes);
  const widest = Math.max(1, ...regions.regions.map((one) => one.held_bytes));
  const text = bytes_text(region.held_bytes) + ": " + bytes_text(region.used_bytes) + " in use, " +
    bytes_text(region.cached_bytes) + " cached, " + bytes_text(free) + " free" +
    (region.spilled_bytes ? "; " + bytes_text(region.spilled_bytes) + " on the host" : "") +
    "; " + region.blocks + (region.blocks === 1 ? " block" : " blocks");
  const [title, bar] = item.children;
  put(title.firstChild, region.what + (state.devices.filter((one) => !one.host).length > 1 ? ", " + device_name(region.device) : ""));
  put(title.lastChild, text);
  bar.setAttribute("aria-label", region.what + ", " + text);
  bar.style.width = 100 * region.held_bytes / widest + "%";
  bar.style.setProperty("--color", "var(" + hue(opened) + ")");
  const share = (bytes) => 100 * bytes / Math.max(1, region.held_bytes) + "%";
  bar.children[0].style.width = share(region.used_bytes);
  bar.children[1].style.width = share(region.cached_bytes);
}

function show_regions(list) {
  const rows = regions ? regions.regions : [];
  keep(list, rows.map((one, i) => ({...one, i})), (one) => String(one.i), make_region, update_region);
  list.dataset.empty = regions ? "This process does not publish what its memory is made of." : "";
  list.dataset.more = regions && regions.regions_left_out ? "and " + regions.regions_left_out + " smaller ones" : "";
}

function open_detail(label) {
  opened = label;
  regions = null;
  $("detail-body").replaceChildren(element("dl", {class: "facts"}),
    element("h3", {}, "Arenas and windows"), element("ul", {class: "regions"}),
    element("h3", {}, "Memory over time"), element("canvas", {role: "img", "aria-label":
      "Memory of this client over time"}),
    element("div", {class: "caption"}), element("h3", {}, "Its events"), element("ol", {class: "events"}));
  show_detail();
  if (!$("detail").open) $("detail").showModal();
  show_detail();  // now that it has a width
}

function show_detail() {
  if (!opened) return;
  const client = state.clients.find((one) => one.label === opened);
  put($("detail-title"), opened + (client ? "" : " has left"));
  if (!client) return;
  const [facts, , region_list, , canvas, caption, , events] = $("detail-body").children;
  show_regions(region_list);
  fetch_regions();
  keep(facts, facts_of(client), (one) => one[0],
    (one) => element("div", {class: /^(Lease|Waits)/.test(one[0]) ? "wide" : null},
      element("dt", {}, one[0]), element("dd")),
    (node, one) => put(node.lastChild, String(one[1])));
  const layers = [{key: "used", colour: colour(hue(opened))}, {key: "cached", colour: colour("--muted"), faint: true},
                  {key: "spilled", colour: colour("--wait"), line: true}];
  const samples = history.filter((one) => one.clients[opened])
    .map((one) => ({t: one.t, values: one.clients[opened]}));
  draw_stack(canvas, samples, layers, 0, [], seconds_now());
  keep(caption, layers, (one) => one.key, (one) => element("span", {}, element("i", {class: "swatch",
    style: "--color:" + one.colour + (one.faint ? ";opacity:.38" : "")}), KINDS[one.key]));
  keep(events, latest_first(state.events.filter((one) => one.client === opened || one.other === opened)),
    (one) => String(one.number), make_event, update_event);
}

function show() {
  const is_empty = state.clients.length === 0 && lanes.size === 0;
  $("nobody").hidden = !is_empty;
  document.querySelector(".columns").hidden = is_empty && !state.events.length;
  put($("source"), state.service ? "cuvmmd, up " + time_text(state.up_us)
                                 : "what processes publish; no cuvmmd");
  document.body.classList.toggle("alone", !state.service);
  show_totals();
  keep($("devices"), state.devices.filter((one) => !one.host), (one) => one.uuid, make_device, update_device);
  show_clients();
  show_lanes();
  show_events();
  show_detail();
}

function link(up, text) {
  $("link").className = "link " + (up ? "up" : "down");
  put($("link-text"), text);
}

function take(next) {
  if (next.problem) return link(false, next.problem);
  state = next;
  remember();
  link(true, held ? "held" : "live");
  if (!held) show();
}

async function ask_for_token() {
  link(false, "not allowed");
  const answer = await fetch("state", {headers: token ? {Authorization: "Bearer " + token} : {}});
  if (answer.status !== 401) return void setTimeout(connect, 2000);
  put($("refused"), (await answer.text()).trim());
  $("ask").hidden = false;
  $("token").focus();
}

function connect() {
  const events = new EventSource("events" + (token ? "?token=" + encodeURIComponent(token) : ""));
  events.onmessage = (message) => {
    $("ask").hidden = true;
    take(JSON.parse(message.data));
  };
  events.onerror = () => {
    link(false, "no connection");
    if (events.readyState === EventSource.CLOSED) ask_for_token().catch(() => setTimeout(connect, 2000));
  };
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  $("ask").hidden = true;
  connect();
});
$("hold").addEventListener("click", () => {
  held = !held;
  $("hold").setAttribute("aria-pressed", String(held));
  link(true, held ? "held" : "live");
  if (!held && state) show();
});
$("close").addEventListener("click", () => $("detail").close());
$("detail").addEventListener("close", () => { opened = null; });
$("detail").addEventListener("click", (event) => { if (event.target === $("detail")) $("detail").close(); });
window.addEventListener("resize", () => { if (state) show(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (state) show(); });
connect();
