# SPDX-License-Identifier: Apache-2.0
"""PNG and SVG plots by matplotlib: one column per trace, one row per kind of panel."""

import logging
import warnings

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator

from . import data, style

DPI = 100
WIDTH = {1: 12, 2: 16}  # inches; 1200 pixels and more
MAP, TIMELINE, FRAGMENTATION, LANES, HISTOGRAMS = range(5)
HEIGHTS = {MAP: 4.0, TIMELINE: 2.6, FRAGMENTATION: 1.7, LANES: 1.2, HISTOGRAMS: 2.0}
LETTERS = {True: 60, False: 36}  # of a trace's name: what fits above it alone, and in a column
LEGEND = 26  # points; above the timeline
SETTINGS = {"font.size": 10.5, "axes.titlesize": 11, "axes.labelsize": 10,
            "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none",
            "text.parse_math": False, "axes.edgecolor": style.FAINT, "text.color": style.TEXT}


def draw(pictures, path):
    # The remarks are about letters that no font has, and names too long for their place.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with warnings.catch_warnings(), plt.rc_context(SETTINGS):
        warnings.simplefilter("ignore")
        draw_rows(pictures, rows_of(pictures), path)


def rows_of(pictures):
    has_map = any(picture.has_map for picture in pictures)
    needed = {MAP: has_map, TIMELINE: any(picture.has_timeline for picture in pictures),
              FRAGMENTATION: any(picture.has_shares for picture in pictures),
              LANES: any(picture.lanes for picture in pictures), HISTOGRAMS: has_map}
    return [row for row in needed if needed[row]]


def new_figure(pictures, heights):
    figure = plt.figure(figsize=(WIDTH.get(len(pictures), 8 * len(pictures)),
                                 sum(heights) + 1.6), dpi=DPI, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08, hspace=0.02, wspace=0.03)
    notes = [f"{data.shortened(picture.label, 40)}: {picture.note}" for picture in pictures
             if picture.note]
    if notes:
        figure.supxlabel("\n".join(notes), fontsize=9, color=style.FAINT)
    return figure


def draw_rows(pictures, rows, path):
    bound = data.memory_bound(pictures)
    for picture in pictures:
        picture.memory_unit = data.unit_for(bound, data.SIZE_UNITS)[1]
        picture.is_alone = len(pictures) == 1
    heights = [HEIGHTS[row] for row in rows]
    if LANES in rows:
        most = max(len(picture.lanes) for picture in pictures)
        heights[rows.index(LANES)] += 0.28 * (most - 1)
    figure = new_figure(pictures, heights)
    grid = figure.add_gridspec(len(rows), len(pictures), height_ratios=heights)
    last_of_time = max(row for row, kind in enumerate(rows) if kind != HISTOGRAMS)
    shared = {}
    for column, picture in enumerate(pictures):
        for row, kind in enumerate(rows):
            place = grid[row, column]
            if kind == HISTOGRAMS:
                histograms(figure, place, picture)
                continue
            axes = figure.add_subplot(place, sharey=shared.get(kind)
                                      if kind in (TIMELINE, FRAGMENTATION) else None)
            shared.setdefault(kind, axes)
            PANELS[kind](axes, picture)
            if row == 0:
                title(axes, picture, above=LEGEND if kind in (MAP, TIMELINE) else 0)
            if row == last_of_time:
                name_time_axis(axes, picture)
    if TIMELINE in rows:
        axes = shared[TIMELINE]
        axes.set_ylim(0, 1.12 * bound)
        # All pictures share this axis, and therefore its unit.
        set_ticks_in_unit(axes.yaxis, data.unit_for(bound, data.SIZE_UNITS)[0])
    figure.savefig(path)
    plt.close(figure)


def set_time_axis(axes, picture):
    scale = data.unit_for(picture.duration_ns, data.TIME_UNITS)[0]
    axes.set_xlim(0, picture.duration_ns)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    set_ticks_in_unit(axes.xaxis, scale)


def name_time_axis(axes, picture):
    unit = data.unit_for(picture.duration_ns, data.TIME_UNITS)[1]
    start = "memory was first taken" if picture.has_memory else "work began"
    axes.set_xlabel(f"time since {start} ({unit})")


def set_ticks_in_unit(axis, scale):
    """Places ticks at round numbers of the unit rather than of bytes or nanoseconds."""
    low, high = axis.get_view_interval()
    step = nice_step((high - low) / scale / 6) * scale
    axis.set_major_locator(plt.MultipleLocator(step))
    axis.set_major_formatter(FuncFormatter(lambda value, _: data.number(round(value / scale, 6))))


def nice_step(rough):
    magnitude = 10.0 ** np.floor(np.log10(max(rough, 1e-12)))
    return next(step * magnitude for step in (1, 2, 5, 10) if step * magnitude >= rough * 0.999)


def address_map(axes, picture):
    if not picture.has_map:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no addresses to show", transform=axes.transAxes, ha="center",
                  color=style.FAINT)
        return
    used = np.array([list(row) for row in picture.cells("used")]) / 255
    mapped = np.maximum(np.array([list(row) for row in picture.cells("mapped")]) / 255, used)
    colours = [np.array(style.rgb(colour)) / 255
               for colour in (style.UNMAPPED, style.CACHED, style.USED)]
    shares = (1 - mapped, mapped - used, used)
    image = sum(share[..., None] * colour for share, colour in zip(shares, colours))
    axes.imshow(np.clip(image, 0, 1), origin="lower", aspect="auto", interpolation="nearest",
                extent=(0, picture.duration_ns, 0, max(1, picture.address_bytes)))
    if 1 < len(picture.address_parts) <= 32:
        for part in picture.address_parts[1:]:
            axes.axhline(part["offset"], color="white", linewidth=0.8)
    mark_refusals(axes, picture, at=0.97, named=True)
    scale, unit = data.unit_for(picture.address_bytes, data.SIZE_UNITS)
    set_ticks_in_unit(axes.yaxis, scale)
    axes.set_ylabel(f"addresses ever used,\ngaps left out ({unit})")
    set_time_axis(axes, picture)
    meanings = [Patch(facecolor=style.USED, label="used")]
    if picture.has_backing:
        meanings += [Patch(facecolor=style.CACHED, label="cached (mapped, not used)"),
                     Patch(facecolor=style.UNMAPPED, edgecolor=style.FAINT, label="unmapped")]
    axes.legend(handles=meanings, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3,
                frameon=False, fontsize=9.5, handlelength=1.2, columnspacing=1.2)


def title(axes, picture, above):
    """Writes the title and the subtitle, so many points above the axes."""
    axes.set_title(f"{picture.title(LETTERS[picture.is_alone])}\n", loc="left",
                   fontweight="bold", fontsize=13, pad=6 + above)
    axes.annotate(picture.subtitle(), (0, 1.02), xycoords="axes fraction", xytext=(0, above),
                  textcoords="offset points", color=style.FAINT, fontsize=10.5, va="bottom")


def mark_refusals(axes, picture, at, named=False):
    times = [refusal["time_ns"] - picture.begin_ns for refusal in picture.refusals]
    if not times:
        return
    axes.plot(times, [at] * len(times), "x", color=style.REFUSED, markersize=9,
              markeredgewidth=2.5, transform=axes.get_xaxis_transform(), clip_on=False, zorder=5,
              label="allocation refused")
    if not named:
        return
    largest = max(picture.refusals, key=lambda refusal: refusal["asked_bytes"])
    when = largest["time_ns"] - picture.begin_ns
    left_half = when < picture.duration_ns / 2
    axes.annotate(f"{data.size(largest['asked_bytes'])} refused", (when, at - 0.01),
                  xycoords=axes.get_xaxis_transform(),
                  xytext=(10 if left_half else -10, -6), textcoords="offset points",
                  ha="left" if left_half else "right", va="top", color=style.REFUSED,
                  fontweight="bold", zorder=6,
                  bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 2})


def timeline(axes, picture):
    times = picture.times(range(picture.columns))
    requested = np.array(picture.requested_bytes, dtype=float)
    mapped = np.array(picture.mapped_bytes, dtype=float)
    physical = np.array(picture.physical_bytes, dtype=float)
    shown_together = {}  # a line's label -> the area below it
    if picture.has_backing:
        shown_together[picture.backing_name] = axes.fill_between(
            times, physical, color=style.CACHED, alpha=0.45, linewidth=0, step="post")
    axes.fill_between(times, requested, color=style.USED, alpha=0.75, linewidth=0, step="post",
                      label="requested")
    if picture.has_backing:
        axes.plot(times, physical, color=style.PHYSICAL, linewidth=1.4, drawstyle="steps-post",
                  label=picture.backing_name)
        axes.plot(times, mapped, color=style.WASTE, linewidth=1.3, linestyle=(0, (4, 2)),
                  drawstyle="steps-post", label="mapped")
    if picture.spilled_peak_bytes:
        # The outline keeps the line visible where it crosses requested memory.
        axes.plot(times, picture.spilled_bytes, color=style.SPILLED, linewidth=1.8,
                  drawstyle="steps-post", label="spilled",
                  path_effects=[withStroke(linewidth=4, foreground="white")])
    limit = picture.limit()
    if limit:
        steps = picture.limit_steps()
        steps.append((picture.duration_ns, steps[-1][1]))
        axes.plot(*zip(*steps), color=style.LIMIT, linewidth=1.8, linestyle=":",
                  drawstyle="steps-post", label=limit[1])
    mark_refusals(axes, picture, at=0.04)
    axes.set_ylabel(f"memory ({picture.memory_unit})")
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    set_time_axis(axes, picture)
    lines, names = axes.get_legend_handles_labels()
    handles = [(shown_together[name], line) if name in shown_together else line
               for line, name in zip(lines, names)]
    axes.legend(handles, names, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=6,
                frameon=False, fontsize=9.5, handlelength=2.0, columnspacing=1.2)


def fragmentation(axes, picture):
    times = picture.times(picture.sample_columns)
    if picture.fragmentation:  # a log does not contain the memory's size
        axes.plot(times, np.array(picture.fragmentation) * 100, color=style.REFUSED,
                  linewidth=1.8, label="free memory scattered between live blocks")
    axes.plot(times, np.array(picture.rounding_waste) * 100, color=style.WASTE, linewidth=1.4,
              linestyle=(0, (4, 2)), label="granted beyond the request")
    axes.set_ylim(-3, 106)
    axes.set_ylabel("share (%)")
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.7)
    set_time_axis(axes, picture)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.24), ncols=2, frameon=False,
                fontsize=9.5, borderaxespad=0)


def lanes(axes, picture):
    """Draws one row per client or stream, higher where it started more operations."""
    axes.set_ylabel("clients" if picture.lanes_are_clients else "streams")
    axes.set_yticks(range(len(picture.lanes)),
                    [data.shortened(lane["name"], 24) for lane in picture.lanes], fontsize=9)
    for row, lane in enumerate(picture.lanes):
        counts = np.array(lane["operations"], dtype=float)
        heights = 0.8 * np.sqrt(counts / max(counts.max(), 1))
        step = picture.duration_ns / len(counts)
        axes.bar(np.arange(len(counts)) * step, heights, width=step, bottom=row - heights / 2,
                 align="edge", color=style.LANES[row % len(style.LANES)], linewidth=0)
    axes.set_ylim(max(len(picture.lanes), 1) - 0.5, -0.5)
    set_time_axis(axes, picture)
    axes.set_title("operations started", loc="right", fontsize=10, color=style.FAINT)


def histograms(figure, place, picture):
    sizes, lives = place.subgridspec(1, 2).subplots()
    most_names = 4 if picture.is_alone else 3
    histogram(sizes, picture.sizes, data.size, most_names, style.USED, picture.lasting_sizes)
    sizes.set_title("blocks by size", loc="left")
    histogram(lives, picture.lifetimes_us, data.microseconds, most_names, style.WASTE)
    lives.set_title("blocks by lifetime", loc="left")


def histogram(axes, counts, unit, most_names, colour, lasting=None):
    first, last, names = data.buckets(counts, unit)
    if not names:
        axes.set_xticks([])
        axes.set_yticks([])
        return
    places = np.arange(last - first)
    axes.bar(places, counts[first:last], color=colour, width=0.85)
    if lasting and any(lasting[first:last]):
        axes.bar(places, lasting[first:last], color=style.CACHED, width=0.85, hatch="//",
                 edgecolor="white", linewidth=0, label="held to the end")
        axes.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1, 1),
                    borderaxespad=0, handlelength=1.2)
    step = max(1, -(-len(names) // most_names))
    axes.set_xticks(places[::step], [f"≥ {name}" for name in names[::step]], fontsize=9)
    axes.set_xlim(-0.6, max(len(names), 4) - 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


PANELS = {MAP: address_map, TIMELINE: timeline, FRAGMENTATION: fragmentation, LANES: lanes}
