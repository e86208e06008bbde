// SPDX-License-Identifier: Apache-2.0
// A flame graph: which call stacks hold memory. Callers are above the functions that they call.
"use strict";

const FLAME_ROW = 18;

class FlamePanel extends Panel {
  constructor(number, title, flames) {
    const depths = [];
    flames.forEach((one, i) => { depths[i] = one.caller < 0 ? 0 : depths[one.caller] + 1; });
    super(number, title, 42 + FLAME_ROW * (1 + Math.max(0, ...depths)), false);
    this.frames = flames.map((one, i) => ({...one, depth: depths[i], called: []}));
    this.roots = [];
    for (const one of this.frames) (one.caller < 0 ? this.roots : this.frames[one.caller].called).push(one);
    this.spread();
    this.reset();
    const {canvas} = this;
    canvas.tabIndex = 0;
    canvas.addEventListener("pointermove", (event) => show_tip(this, event));
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    canvas.addEventListener("click", (event) => {
      const frame = this.frame_at(event.offsetX, event.offsetY);
      if (frame) this.zoom(frame.from, frame.to);
    });
    canvas.addEventListener("dblclick", () => this.reset());
    canvas.addEventListener("keydown", (event) => {
      if (event.key === "0" || event.key === "Escape") this.reset();
    });
  }
  // Each frame's part of the width, from 0 to 1: its share of the memory.
  spread() {
    this.all = Math.max(1, this.roots.reduce((sum, one) => sum + one.at_peak, 0));
    const place = (frames, from) => {
      for (const one of [...frames].sort((a, b) => b.at_peak - a.at_peak)) {
        one.from = from;
        from = one.to = from + one.at_peak / this.all;
        place(one.called, one.from);
      }
    };
    place(this.roots, 0);
  }
  zoom(from, to) {
    Object.assign(this, {from, to: Math.max(to, from + 1e-9)});
    if (this.canvas.clientWidth) this.draw();
  }
  reset() { this.zoom(0, 1); }
  y_ticks() { return []; }
  place_of(share) {
    const {left, right} = this.box;
    return left + (share - this.from) / (this.to - this.from) * (right - left);
  }
  draw_content(pen, box) {
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    for (const one of this.frames) {
      const left = Math.max(box.left, this.place_of(one.from)), right = Math.min(box.right, this.place_of(one.to));
      if (right - left < 0.5) continue;
      const top = box.top + one.depth * FLAME_ROW;
      pen.fillStyle = colour("cached");
      pen.globalAlpha = one.depth % 2 ? 0.45 : 0.6;
      pen.fillRect(left, top, right - left - 0.5, FLAME_ROW - 1);
      pen.globalAlpha = 1;
      if (right - left < 30) continue;
      pen.save();
      pen.beginPath();
      pen.rect(left, top, right - left - 3, FLAME_ROW);
      pen.clip();
      pen.fillStyle = colour("text");
      pen.fillText(one.name, left + 3, top + FLAME_ROW / 2);
      pen.restore();
    }
  }
  frame_at(x, y) {
    const {left, right, top} = this.box;
    const share = this.from + (x - left) / (right - left) * (this.to - this.from);
    const depth = Math.floor((y - top) / FLAME_ROW);
    return this.frames.find((one) => one.depth === depth && one.from <= share && share < one.to);
  }
  told(share, y, x) {
    const one = this.frame_at(x, y);
    return one ? [one.name, bytes(one.at_peak) + " at the peak", bytes(one.at_end) + " never freed",
                  bytes(one.allocated) + " allocated in all"] : [];
  }
}
