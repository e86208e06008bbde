// SPDX-License-Identifier: Apache-2.0
// Draws the data that html.py has put into the document.
"use strict";

const pictures = JSON.parse(document.getElementById("data").textContent);
const LEFT = 62, RIGHT = 10;
const panels = [];
// The visible part of each picture, as shares of the whole: a time range, and for the map an
// address range.
const views = pictures.map(() => ({from: 0, to: 1, low: 0, high: 1}));

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

const three = (value) => value >= 100 || Number.isInteger(value) ? value.toFixed(0)
                                                                 : String(Number(value.toPrecision(3)));
function in_units(value, units) {
  if (value === 0) return "0";
  const [scale, name] = units.find(([one]) => value >= one) || units[units.length - 1];
  return three(value / scale) + " " + name;
}
const bytes = (value) => in_units(value, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"],
                                          [2 ** 10, "KiB"], [1, "B"]]);
const time = (ns) => in_units(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"], [1, "ns"]]);

// About `count` round values between two bounds.
function ticks(low, high, count, binary) {
  const rough = (high - low) / count;
  if (!(rough > 0)) return [low];
  const base = binary ? 2 : 10;
  let step = base ** Math.floor(Math.log(rough) / Math.log(base));
  for (const factor of binary ? [1, 2] : [1, 2, 5, 10]) {
    if (step * factor >= rough) { step *= factor; break; }
  }
  const all = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) all.push(at);
  return all;
}

// One canvas. All canvases over time share their visible range.
class Panel {
  constructor(number, title, height, has_time) {
    Object.assign(this, {number, title, height, has_time, picture: pictures[number], view: views[number]});
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", title);
    if (has_time) this.listen();
    panels.push(this);
  }

  get box() {
    const bottom = this.height - (this.has_time ? 20 : 34);
    return {left: LEFT, right: this.canvas.clientWidth - RIGHT, top: 8, bottom};
  }
  x_of(share) {
    const {left, right} = this.box;
    return left + (share - this.view.from) / (this.view.to - this.view.from) * (right - left);
  }
  share_of(x) {
    const {left, right} = this.box;
    return this.view.from + (x - left) / (right - left) * (this.view.to - this.view.from);
  }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    const {canvas} = this;
    canvas.style.height = this.height + "px";
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(this.height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    const box = this.box;
    this.draw_axes(pen, box);
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top - 1, box.right - box.left, box.bottom - box.top + 2);
    pen.clip();
    this.draw_content(pen, box);
    if (this.marked) {
      const [a, b] = this.marked;
      pen.fillStyle = colour("text");
      pen.globalAlpha = 0.15;
      pen.fillRect(a.x, this.zooms_addresses ? a.y : box.top, b.x - a.x,
                   this.zooms_addresses ? b.y - a.y : box.bottom - box.top);
    }
    pen.restore();
  }

  draw_axes(pen, box) {
    pen.strokeStyle = colour("line");
    pen.fillStyle = colour("faint");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const {share, text} of this.y_ticks()) {
      const y = Math.round(box.bottom - share * (box.bottom - box.top)) + 0.5;
      pen.beginPath();
      pen.moveTo(box.left - 3, y);
      pen.lineTo(box.right, y);
      pen.stroke();
      pen.fillText(text, box.left - 6, y, LEFT - 8);
    }
    if (!this.has_time) return;
    pen.textBaseline = "top";
    const all = this.picture.duration_ns;
    for (const at of ticks(this.view.from * all, this.view.to * all, (box.right - box.left) / 90)) {
      const x = this.x_of(at / all);
      pen.textAlign = x < box.left + 12 ? "left" : x > box.right - 24 ? "right" : "center";
      pen.fillText(time(at), x, box.bottom + 5);
    }
  }

  listen() {
    const {canvas} = this;
    canvas.tabIndex = 0;
    const place = (event) => ({x: event.offsetX, y: event.offsetY});
    let began = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      began = place(event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (began) {
        this.marked = [began, place(event)];
        this.draw();
      }
      show_tip(this, event);
    });
    canvas.addEventListener("pointerup", (event) => {
      const from = began, to = place(event);
      began = this.marked = null;
      if (from && Math.abs(to.x - from.x) > 5) this.zoom_to(from, to);
      else this.draw();
    });
    canvas.addEventListener("pointercancel", () => { began = this.marked = null; this.draw(); });
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    canvas.addEventListener("dblclick", () => this.reset());
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom_by(event.deltaY < 0 ? 0.8 : 1.25, this.share_of(event.offsetX));
    }, {passive: false});
    canvas.addEventListener("keydown", (event) => {
      const {from, to} = this.view, width = to - from;
      const act = {"+": () => this.zoom_by(0.8, from + width / 2), "-": () => this.zoom_by(1.25, from + width / 2),
                   "ArrowLeft": () => this.see(from - width / 10, to - width / 10),
                   "ArrowRight": () => this.see(from + width / 10, to + width / 10),
                   "0": () => this.reset(), "Escape": () => this.reset()}[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
  }

  zoom_to(a, b) {
    if (this.zooms_addresses && Math.abs(a.y - b.y) > 5) {
      const {top, bottom} = this.box, {low, high} = this.view;
      const address = (y) => low + (bottom - y) / (bottom - top) * (high - low);
      const [one, other] = [address(a.y), address(b.y)].sort((x, y) => x - y);
      this.view.low = Math.max(0, one);
      this.view.high = Math.min(1, other);
    }
    const [from, to] = [this.share_of(a.x), this.share_of(b.x)].sort((x, y) => x - y);
    this.see(from, to);
  }
  zoom_by(factor, around) {
    const {from, to} = this.view;
    this.see(around - (around - from) * factor, around + (to - around) * factor);
  }
  reset() {
    this.view.low = 0;
    this.view.high = 1;
    this.see(0, 1);
  }
  // The part cut off at one end is added at the other.
  see(from, to) {
    const width = Math.min(1, Math.max(to - from, 1e-6));
    this.view.from = Math.min(Math.max(0, from), 1 - width);
    this.view.to = this.view.from + width;
    for (const panel of panels) if (panel.number === this.number && panel.has_time) panel.draw();
  }
}

function mark_refusals(panel, pen, box) {
  const {refusals, begin_ns, duration_ns} = panel.picture;
  pen.strokeStyle = colour("refused");
  pen.lineWidth = 2.5;
  for (const one of refusals) {
    const x = panel.x_of((one.time_ns - begin_ns) / duration_ns), y = box.top + 10;
    pen.beginPath();
    pen.moveTo(x - 4, y - 4); pen.lineTo(x + 4, y + 4);
    pen.moveTo(x - 4, y + 4); pen.lineTo(x + 4, y - 4);
    pen.stroke();
  }
  pen.lineWidth = 1;
}

class AddressPanel extends Panel {
  constructor(number) {
    super(number, "addresses ever used", 420, true);
    this.zooms_addresses = true;
  }
  async load() {
    if (!this.picture.cells) return;
    const image = new Image();
    image.src = this.picture.cells;
    await image.decode();
    const sheet = document.createElement("canvas");
    sheet.width = image.width;
    sheet.height = image.height;
    const pen = sheet.getContext("2d", {willReadFrequently: true});
    pen.drawImage(image, 0, 0);
    this.cells = pen.getImageData(0, 0, image.width, image.height);
    this.sheet = sheet;
    this.paint();
  }
  // The data starts with the lowest address, but the top row is drawn first.
  paint() {
    if (!this.sheet) return;
    const {width, height, data} = this.cells;
    const hex = (name) => [1, 3, 5].map((at) => parseInt(colour(name).slice(at, at + 2), 16));
    const [back, cached, used] = [hex("unmapped"), hex("cached"), hex("used")];
    const pen = this.sheet.getContext("2d");
    const made = pen.createImageData(width, height);
    for (let row = 0; row < height; ++row) {
      for (let column = 0; column < width; ++column) {
        const from = 4 * (row * width + column), to = 4 * ((height - 1 - row) * width + column);
        const of_used = data[from] / 255, of_mapped = Math.max(data[from], data[from + 1]) / 255;
        for (let part = 0; part < 3; ++part) {
          made.data[to + part] = back[part] * (1 - of_mapped) + cached[part] * (of_mapped - of_used) +
                                 used[part] * of_used;
        }
        made.data[to + 3] = 255;
      }
    }
    pen.putImageData(made, 0, 0);
  }
  y_ticks() {
    const all = this.picture.address_bytes, {low, high} = this.view;
    return ticks(low * all, high * all, 6, true).map((at) =>
      ({share: (at / all - low) / (high - low), text: bytes(at)}));
  }
  draw_content(pen, box) {
    if (!this.sheet) return;
    const {from, to, low, high} = this.view, {width, height} = this.sheet;
    pen.imageSmoothingEnabled = to - from > 0.5 && high - low > 0.5;
    pen.drawImage(this.sheet, from * width, (1 - high) * height, (to - from) * width, (high - low) * height,
                  box.left, box.top, box.right - box.left, box.bottom - box.top);
    mark_refusals(this, pen, box);
  }
  told(share, y) {
    const {duration_ns, begin_ns, refusals, address_bytes} = this.picture;
    const near = refusals.filter((one) =>
      Math.abs(this.x_of((one.time_ns - begin_ns) / duration_ns) - this.x_of(share)) < 6);
    if (y < this.box.top + 20 && near.length) return near.map((one) => bytes(one.asked_bytes) + " refused");
    if (!this.cells) return [];
    const {low, high} = this.view, {top, bottom} = this.box, {width, height, data} = this.cells;
    const address = low + (bottom - y) / (bottom - top) * (high - low);
    const row = Math.min(height - 1, Math.floor(address * height));
    const at = 4 * (row * width + Math.min(width - 1, Math.floor(share * width)));
    const percent = (value) => Math.floor(value * 100 / 255) + "%";
    const mapped = this.picture.has_backing ? ", mapped " + percent(data[at + 1]) : "";
    return ["at " + bytes(address * address_bytes), "used " + percent(data[at]) + mapped];
  }
}

// Values over time as lines.
class LinePanel extends Panel {
  constructor(number, title, height, lines, most, text) {
    super(number, title, height, true);
    Object.assign(this, {lines, most, text});
  }
  y_ticks() {
    return ticks(0, this.most, this.height / 45, this.text === bytes)
      .map((at) => ({share: at / this.most, text: this.text(at)}));
  }
  draw_content(pen, box) {
    const y_of = (value) => box.bottom - Math.min(value / this.most, 1.02) * (box.bottom - box.top);
    for (const line of this.lines) {
      if (!line.values.length) continue;
      const trace = new Path2D();
      let y = 0;
      line.values.forEach((value, i) => {
        const x = this.x_of(line.shares[i]);
        if (i === 0) trace.moveTo(x, y_of(value));
        else { if (line.steps) trace.lineTo(x, y); trace.lineTo(x, y_of(value)); }
        y = y_of(value);
      });
      trace.lineTo(this.x_of(1), y);
      if (line.fill) {
        const area = new Path2D(trace);
        area.lineTo(this.x_of(1), box.bottom);
        area.lineTo(this.x_of(line.shares[0]), box.bottom);
        pen.globalAlpha = line.opacity;
        pen.fillStyle = colour(line.fill);
        pen.fill(area);
        pen.globalAlpha = 1;
      }
      if (line.outlined) {
        pen.strokeStyle = colour("back");
        pen.setLineDash([]);
        pen.lineWidth = 4;
        pen.stroke(trace);
      }
      pen.strokeStyle = colour(line.colour);
      pen.setLineDash(line.dash || []);
      pen.lineWidth = 1.6;
      pen.stroke(trace);
    }
    pen.setLineDash([]);
    pen.lineWidth = 1;
  }
  told(share) {
    return this.lines.filter((line) => line.values.length).map((line) => {
      let i = line.shares.findIndex((one) => one > share) - 1;
      if (i < 0) i = share < line.shares[0] ? 0 : line.values.length - 1;
      return line.name + ": " + this.text(line.values[i]);
    });
  }
}

function memory_lines(picture) {
  const shares = picture.requested.map((_, i) => i / picture.columns);
  const lines = [{name: "requested", values: picture.requested, colour: "used", fill: "used", opacity: 0.75}];
  if (picture.has_backing) {
    lines.unshift({name: picture.backing_name, values: picture.physical, colour: "physical", fill: "cached", opacity: 0.45});
    lines.push({name: "mapped", values: picture.mapped, colour: "waste", dash: [5, 3]});
  }
  if (picture.spilled.length) lines.push({name: "spilled", values: picture.spilled, colour: "spilled", outlined: true});
  const made = lines.map((line) => ({...line, shares, steps: true}));
  if (picture.limit) {
    const steps = picture.limit.steps;
    made.push({name: picture.limit.name, values: steps.map((step) => step[1]),
               shares: steps.map((step) => step[0] / picture.duration_ns), steps: true, colour: "limit", dash: [2, 3]});
  }
  return made;
}

class MemoryPanel extends LinePanel {
  constructor(number) {
    const picture = pictures[number];
    super(number, "memory", 220, memory_lines(picture), 1.1 * picture.memory_bound, bytes);
  }
  draw_content(pen, box) {
    super.draw_content(pen, box);
    if (!this.picture.has_map) mark_refusals(this, pen, box);
  }
}

// One row per client or stream: dark where it gave the device much work.
class LanePanel extends Panel {
  constructor(number, title) {
    super(number, title, 28 + 22 * Math.max(1, pictures[number].lanes.length), true);
    this.most = Math.sqrt(Math.max(1, ...this.picture.lanes.flatMap((lane) => lane.operations)));
  }
  row_of(y) {
    const {top, bottom} = this.box;
    return Math.floor((y - top) / (bottom - top) * this.picture.lanes.length);
  }
  y_ticks() {
    const {lanes} = this.picture;
    return lanes.map((lane, i) => ({share: 1 - (i + 0.5) / lanes.length, text: lane.name}));
  }
  draw_content(pen, box) {
    const {lanes} = this.picture, height = (box.bottom - box.top) / Math.max(1, lanes.length);
    lanes.forEach((lane, i) => {
      pen.globalAlpha = 1;
      pen.fillStyle = colour("unmapped");
      pen.fillRect(box.left, box.top + i * height + 1, box.right - box.left, height - 3);
      pen.fillStyle = colour("used");
      lane.operations.forEach((count, j) => {
        if (!count) return;
        const x = this.x_of(j / lane.operations.length);
        pen.globalAlpha = Math.sqrt(count) / this.most;
        pen.fillRect(x, box.top + i * height + 1, this.x_of((j + 1) / lane.operations.length) - x, height - 3);
      });
    });
    pen.globalAlpha = 1;
  }
  told(share, y) {
    const lane = this.picture.lanes[this.row_of(y)];
    if (!lane) return [];
    return [lane.name + ": " + lane.operations[Math.floor(share * lane.operations.length)] + " operations"];
  }
}

class BarPanel extends Panel {
  constructor(number, title, bars, fill) {
    super(number, title, 150, false);
    Object.assign(this, {bars, fill, most: Math.max(1, ...bars.counts)});
    this.canvas.addEventListener("pointermove", (event) => show_tip(this, event));
    this.canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  }
  y_ticks() {
    return ticks(0, this.most, 3).filter(Number.isInteger).map((at) => ({share: at / this.most, text: three(at)}));
  }
  bar_of(x) {
    const {left, right} = this.box;
    return Math.floor((x - left) / (right - left) * this.bars.counts.length);
  }
  draw_axes(pen, box) {
    super.draw_axes(pen, box);
    const width = (box.right - box.left) / Math.max(1, this.bars.names.length);
    const names = this.bars.names.map((name) => "\u2265 " + name);
    const every = Math.ceil((8 + Math.max(0, ...names.map((name) => pen.measureText(name).width))) / width);
    pen.textAlign = "center";
    pen.textBaseline = "top";
    names.forEach((name, i) => {
      if (i % every !== 0) return;
      const half = pen.measureText(name).width / 2;
      const x = Math.min(box.left + (i + 0.5) * width, this.canvas.clientWidth - half);
      pen.fillText(name, x, box.bottom + 5);
    });
  }
  draw_content(pen, box) {
    const width = (box.right - box.left) / Math.max(1, this.bars.counts.length);
    pen.fillStyle = colour(this.fill);
    this.bars.counts.forEach((count, i) => {
      const height = count / this.most * (box.bottom - box.top);
      pen.fillRect(box.left + i * width + width * 0.05, box.bottom - height, width * 0.9, height);
    });
  }
  told(share, y, x) {
    const i = this.bar_of(x);
    return this.bars.names[i] ? ["\u2265 " + this.bars.names[i] + ": " + this.bars.counts[i] + " blocks"] : [];
  }
}

const tip = document.getElementById("tip");
function show_tip(panel, event) {
  const {left, right, top, bottom} = panel.box, {offsetX: x, offsetY: y} = event;
  const is_inside = x >= left && x <= right && y >= top && y <= bottom;
  const share = panel.share_of(x);
  const lines = is_inside ? panel.told(share, y, x) : [];
  tip.hidden = !lines.length;
  if (!lines.length) return;
  if (panel.has_time) lines.unshift(time(share * panel.picture.duration_ns));
  tip.textContent = lines.join("\n");
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 6) + "px";
  tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 10) + "px";
}

function share_panel(picture, number) {
  const shares = picture.samples.map((one) => one / picture.columns);
  const percent = (value) => three(Math.round(value * 1000) / 10) + "%";
  return new LinePanel(number, "scattered free memory, and what was granted beyond the request", 130, [
    {name: "scattered between live blocks", values: picture.fragmentation, shares, colour: "refused"},
    {name: "granted beyond the request", values: picture.waste, shares, colour: "waste", dash: [5, 3]},
  ], 1.05, percent);
}

function panels_of(picture, number) {
  const made = [];
  if (picture.has_map) made.push(new AddressPanel(number));
  if (picture.has_timeline) made.push(new MemoryPanel(number));
  if (picture.has_shares) made.push(share_panel(picture, number));
  if (picture.lanes.length) {
    made.push(new LanePanel(number, "operations started, by " + (picture.lanes_are_clients ? "client" : "stream")));
  }
  if (picture.has_map) {
    made.push(new BarPanel(number, "blocks by size", picture.sizes, "used"),
              new BarPanel(number, "blocks by lifetime", picture.lifetimes, "waste"));
  }
  if (picture.flames.some((one) => one.at_peak > 0)) {
    made.push(new FlamePanel(number, "memory at the peak by call stack (click to zoom)", picture.flames));
  }
  return made;
}

function text_of(tag, text, name) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

// Names only what one of the pictures shows.
function show_legend() {
  const any = (key) => pictures.some((one) => one[key]), names = [];
  if (any("has_map")) names.push(["used", "used", "used"]);
  if (any("has_map") && any("has_backing")) {
    names.push(["cached", "cached (mapped, not used)", "cached"], ["unmapped", "unmapped", "unmapped"]);
  }
  if (any("has_timeline")) names.push(["used", "requested", "used"]);
  const backings = pictures.filter((one) => one.has_backing).map((one) => one.backing_name);
  if (backings.length) {
    names.push(["physical", [...new Set(backings)].join(" / "), "physical"], ["waste", "mapped", "dashed"]);
  }
  if (pictures.some((one) => one.spilled.length)) names.push(["spilled", "spilled", "line"]);
  const limits = pictures.filter((one) => one.has_timeline && one.limit).map((one) => one.limit.name);
  if (limits.length) names.push(["limit", [...new Set(limits)].join(" / "), "dashed"]);
  if (any("has_shares")) {
    names.push(["refused", "scattered between live blocks", "line"], ["waste", "granted beyond the request", "dashed"]);
  }
  if (pictures.some((one) => one.refusals.length)) names.push(["refused", "\u00d7 allocation refused", "refused"]);
  for (const [variable, name, kind] of names) {
    const entry = text_of("span", name), mark = document.createElement("i");
    mark.style.setProperty("--colour", "var(--" + variable + ")");
    if (["dashed", "line", "physical"].includes(kind)) mark.className = kind;
    entry.prepend(mark);
    document.getElementById("legend").append(entry);
  }
}

async function begin() {
  show_legend();
  pictures.forEach((picture, number) => {
    const section = document.createElement("section");
    section.append(text_of("h2", picture.title), text_of("p", picture.subtitle, "faint"));
    for (const panel of panels_of(picture, number)) section.append(text_of("h3", panel.title), panel.canvas);
    if (picture.note) section.append(text_of("p", picture.note, "faint"));
    document.getElementById("pictures").append(section);
  });
  const draw_all = () => panels.forEach((panel) => panel.draw());
  await Promise.all(panels.filter((one) => one.load).map((one) => one.load()));
  draw_all();
  addEventListener("resize", draw_all);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const panel of panels) if (panel.paint) panel.paint();
    draw_all();
  });
  document.documentElement.dataset.state = "drawn";
}
