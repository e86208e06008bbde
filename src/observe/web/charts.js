// SPDX-License-Identifier: Apache-2.0
// Draws timelines on a canvas: stacked memory, and lanes of states. Colours come from the style
// sheet.

// The time span of a timeline: the known past, rounded up.
const LONGEST_SPAN_S = 300;
let span_s = 60;
function fit_span(known_s) {
  span_s = [60, 120, 300].find((one) => known_s <= one) || LONGEST_SPAN_S;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Clears the canvas and sizes it in device pixels. Returns its size in CSS pixels.
function prepare(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.style.height = height + "px";
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  return {pen, width, height};
}

// The next round number of bytes.
function nice_bytes(bytes) {
  const unit = Math.pow(1024, Math.max(0, Math.floor(Math.log(Math.max(bytes, 1)) / Math.log(1024))));
  for (const step of [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]) {
    if (step * unit >= bytes) return step * unit;
  }
  return bytes;
}

function draw_time_axis(pen, left, right, y) {
  pen.fillStyle = colour("--muted");
  pen.textBaseline = "top";
  const room = right - left;
  const steps = room > 340 ? 4 : 2;
  for (let i = 0; i <= steps; ++i) {
    const ago = span_s * (1 - i / steps);
    pen.textAlign = i === 0 ? "left" : i === steps ? "right" : "center";
    const text = span_s === 60 ? ago + " s" : ago / 60 + " min";
    pen.fillText(i === steps ? "now" : "\u2212" + text, left + room * i / steps, y);
  }
}

// `samples`: {t, values}, values by layer; `layers`: {key, colour, faint, line}. Lines are drawn
// over the stack. `marks`: {t, colour}.
function draw_stack(canvas, samples, layers, capacity, marks, now) {
  const {pen, width, height} = prepare(canvas, 132);
  const box = {left: 58, right: width - 2, top: 8, bottom: height - 26};
  let most = capacity;
  if (!capacity) {
    most = 1;
    for (const one of samples) {
      let sum = 0;
      for (const layer of layers) if (!layer.line) sum += one.values[layer.key] || 0;
      most = Math.max(most, sum);
    }
    most = nice_bytes(most);
  }
  const x_of = (t) => box.right - (now - t) / span_s * (box.right - box.left);
  const y_of = (bytes) => box.bottom - Math.min(bytes / most, 1) * (box.bottom - box.top);

  pen.strokeStyle = colour("--line");
  pen.fillStyle = colour("--muted");
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const share of [0, 0.5, 1]) {
    const y = Math.round(y_of(most * share)) + 0.5;
    pen.beginPath();
    pen.moveTo(box.left, y);
    pen.lineTo(box.right, y);
    pen.stroke();
    pen.fillText(bytes_text(most * share), box.left - 7, y);
  }

  pen.save();
  pen.beginPath();
  pen.rect(box.left, 0, box.right - box.left, height);
  pen.clip();
  // A sample is valid until the next one.
  const path = (value_of) => {
    samples.forEach((one, i) => {
      const x = x_of(one.t), y = y_of(value_of(one));
      if (i === 0) pen.moveTo(x, y); else { pen.lineTo(x, y_of(value_of(samples[i - 1]))); pen.lineTo(x, y); }
    });
    if (samples.length) pen.lineTo(x_of(now), y_of(value_of(samples[samples.length - 1])));
  };
  const below = new Map(samples.map((one) => [one, 0]));
  for (const layer of layers) {
    if (layer.line || !samples.length) continue;
    const floor = new Map(below);
    for (const one of samples) below.set(one, below.get(one) + (one.values[layer.key] || 0));
    pen.beginPath();
    path((one) => below.get(one));
    for (let i = samples.length - 1; i >= 0; --i) {
      const y = y_of(floor.get(samples[i]));
      pen.lineTo(i === samples.length - 1 ? x_of(now) : x_of(samples[i + 1].t), y);
      pen.lineTo(x_of(samples[i].t), y);
    }
    pen.closePath();
    pen.globalAlpha = layer.faint ? 0.38 : 0.88;
    pen.fillStyle = layer.colour;
    pen.fill();
    pen.globalAlpha = 1;
  }
  for (const layer of layers) {
    if (!layer.line) continue;
    pen.beginPath();
    path((one) => one.values[layer.key] || 0);
    pen.strokeStyle = layer.colour;
    pen.lineWidth = 1.6;
    pen.setLineDash([4, 3]);
    pen.stroke();
    pen.setLineDash([]);
    pen.lineWidth = 1;
  }
  for (const mark of marks) {
    const x = x_of(mark.t);
    pen.fillStyle = mark.colour;
    pen.beginPath();
    pen.moveTo(x, box.bottom + 1);
    pen.lineTo(x - 4, box.bottom + 8);
    pen.lineTo(x + 4, box.bottom + 8);
    pen.fill();
  }
  pen.restore();
  draw_time_axis(pen, box.left, box.right, box.bottom + 11);
  return box;
}

// `lanes`: {name, samples: [{t, state}]}; `tones`: colour by state.
function draw_lanes(canvas, lanes, tones, now) {
  const row = 24;
  const {pen, width, height} = prepare(canvas, Math.max(1, lanes.length) * row + 20);
  const left = Math.min(120, width * 0.28), right = width - 2;
  const x_of = (t) => Math.max(left, right - (now - t) / span_s * (right - left));
  lanes.forEach((lane, i) => {
    const y = i * row;
    pen.fillStyle = colour("--text");
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.save();
    pen.beginPath();
    pen.rect(0, y, left - 8, row);
    pen.clip();
    pen.font = "12.5px system-ui, sans-serif";
    pen.fillText(lane.name, 0, y + row / 2);
    pen.restore();
    pen.fillStyle = colour("--free");
    pen.fillRect(left, y + 4, right - left, row - 8);
    lane.samples.forEach((one, j) => {
      const next = j + 1 < lane.samples.length ? lane.samples[j + 1].t : lane.ended || now;
      if (next < now - span_s) return;
      pen.fillStyle = tones[one.state] || colour("--muted");
      pen.globalAlpha = one.state === "idle" ? 0.3 : 0.9;
      pen.fillRect(x_of(one.t), y + 4, Math.max(1, x_of(next) - x_of(one.t)), row - 8);
      pen.globalAlpha = 1;
    });
  });
  draw_time_axis(pen, left, right, height - 15);
}

// The sample at a position of a timeline.
function sample_at(samples, share, now) {
  const t = now - (1 - share) * span_s;
  let found = null;
  for (const one of samples) if (one.t <= t) found = one;
  return found;
}

function bytes_text(bytes) {
  if (bytes === null || bytes === undefined) return "\u2013";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) { bytes /= 1024; ++unit; }
  const digits = bytes >= 100 || unit === 0 || Number.isInteger(bytes) ? 0 : bytes >= 10 ? 1 : 2;
  return bytes.toFixed(digits) + "\u00a0" + units[unit];
}

function time_text(us) {
  if (us >= 3.6e9) return Math.floor(us / 3.6e9) + "\u00a0h " + Math.floor(us % 3.6e9 / 6e7) + "\u00a0min";
  if (us >= 6e7) return Math.floor(us / 6e7) + "\u00a0min " + Math.floor(us % 6e7 / 1e6) + "\u00a0s";
  if (us >= 1e7) return Math.round(us / 1e6) + "\u00a0s";
  if (us >= 1e6) return (us / 1e6).toFixed(1) + "\u00a0s";
  return us >= 1e4 ? Math.round(us / 1e3) + "\u00a0ms" : (us / 1e3).toFixed(1) + "\u00a0ms";
}
