# SPDX-License-Identifier: Apache-2.0
"""One document that holds all it needs, to hover over and zoom into; no network."""

import html as markup

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from . import data, style

# What is drawn, with the share of the height that it gets.
PANELS = (("addresses", 0.36), ("memory", 0.21), ("fragmentation", 0.12), ("lanes", 0.09),
          ("sizes", 0.11), ("lifetimes", 0.11))
OF_TIME = (2, 3, 4)  # the rows, beside the first, that run along the same time
SIZES, LIFETIMES = 5, 6
HEIGHT = 1400


def draw(pictures, path):
    figure = make_subplots(rows=len(PANELS), cols=len(pictures),
                           row_heights=[share for _, share in PANELS],
                           vertical_spacing=0.05, horizontal_spacing=0.07,
                           subplot_titles=[titled(kind, picture) for kind, _ in PANELS
                                           for picture in pictures])
    for column, picture in enumerate(pictures, 1):
        first = column == 1
        addresses(figure, picture, column, first)
        memory(figure, picture, column, first)
        fragmentation(figure, picture, column, first)
        lanes(figure, picture, column)
        histogram(figure, picture.sizes, data.size, SIZES, column, style.USED)
        histogram(figure, picture.lifetimes_us, data.microseconds, LIFETIMES, column, style.WASTE)
        link_time_axes(figure, column)
    # The legend has three lines above the titles, which is what it takes where it is narrow.
    figure.update_layout(template="plotly_white", height=HEIGHT, hovermode="closest",
                         font={"size": 13, "color": style.TEXT}, margin={"t": 150, "b": 50},
                         legend={"orientation": "h", "yref": "container", "y": 0.975,
                                 "yanchor": "top", "x": 0}, bargap=0.1,
                         title={"text": "cuvmm", "x": 0.01, "y": 0.993})
    figure.update_annotations(font_size=13)
    notes = "".join(f"<p>{markup.escape(picture.label)}: {markup.escape(picture.note)}</p>"
                    for picture in pictures if picture.note)
    document = figure.to_html(include_plotlyjs=True, full_html=True, include_mathjax=False,
                          config={"responsive": True, "displaylogo": False, "scrollZoom": True})
    document = document.replace("<head>", "<head><title>cuvmm: " + markup.escape(
        ", ".join(picture.label for picture in pictures)) + "</title>"
        "<link rel=\"icon\" href=\"data:,\">", 1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(document.replace("</body>", notes + "</body>", 1))


def titled(kind, picture):
    if kind == "addresses":
        return (f"<b>{markup.escape(picture.title())}</b><br>"
                f"{markup.escape(picture.subtitle())}")
    return {"memory": "memory",
            "lanes": "operations begun, by " + ("client" if picture.lanes_are_clients
                                                else "stream"),
            "fragmentation": "scattered free memory, and what was granted beyond what was asked",
            "sizes": "blocks by size asked for", "lifetimes": "blocks by lifetime"}[kind]


def time_scale(picture):
    return data.unit_for(picture.duration_ns, data.TIME_UNITS)


def link_time_axes(figure, column):
    """Who zooms into one panel sees the same time in the others."""
    first = f"x{column if column > 1 else ''}"
    for row in OF_TIME:
        figure.update_xaxes(matches=first, row=row, col=column)


def addresses(figure, picture, column, first):
    scale, unit = time_scale(picture)
    size_scale, size_unit = data.unit_for(picture.address_bytes, data.SIZE_UNITS)
    used = np.array([list(row) for row in picture.cells("used")], dtype=np.uint8)
    mapped = np.array([list(row) for row in picture.cells("mapped")], dtype=np.uint8)
    place = {"x0": 0, "dx": picture.duration_ns / picture.columns / scale, "y0": 0,
             "dy": picture.address_bytes / picture.rows / size_scale, "showscale": False,
             "zmin": 0, "zmax": 100}
    blue = ",".join(str(part) for part in style.rgb(style.USED))
    figure.add_trace(go.Heatmap(z=percent(np.maximum(mapped, used)), name="cached",
                                colorscale=[[0, style.UNMAPPED], [1, style.CACHED]],
                                hoverinfo="skip", **place), row=1, col=column)
    # As a list: plotly's packed arrays do not reach the text that is hovered over.
    figure.add_trace(go.Heatmap(z=percent(used), customdata=percent(mapped).tolist(), name="used",
                                colorscale=[[0, f"rgba({blue},0)"], [1, f"rgba({blue},1)"]],
                                hovertemplate=f"%{{x:.4~g}} {unit}, at %{{y:.4~g}} {size_unit}<br>"
                                "used %{z}%, mapped %{customdata}%<extra></extra>", **place),
                     row=1, col=column)
    for name, colour in (("used", style.USED), ("cached (mapped, not used)", style.CACHED),
                         ("unmapped", style.UNMAPPED)):
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", name=name,
                                    showlegend=first, legendgroup=name,
                                    marker={"symbol": "square", "size": 12, "color": colour,
                                            "line": {"color": style.FAINT, "width": 1}}),
                         row=1, col=column)
    figure.update_yaxes(title_text=f"addresses ever used ({size_unit})", row=1, col=column)
    refusals(figure, picture, column, first)


def percent(cells):
    return (cells.astype(np.uint16) * 100 // 255).astype(np.uint8)


def refusals(figure, picture, column, first):
    if not picture.refusals:
        return
    scale, unit = time_scale(picture)
    size_scale, _ = data.unit_for(picture.address_bytes, data.SIZE_UNITS)
    figure.add_trace(go.Scatter(
        x=[(refusal["time_ns"] - picture.begin_ns) / scale for refusal in picture.refusals],
        y=[0.97 * picture.address_bytes / size_scale] * len(picture.refusals), mode="markers",
        name="allocation refused", legendgroup="refused", showlegend=first,
        text=[data.size(refusal["asked_bytes"]) for refusal in picture.refusals],
        hovertemplate=f"%{{text}} refused at %{{x:.4~g}} {unit}<extra></extra>",
        marker={"symbol": "x", "size": 11, "color": style.REFUSED}), row=1, col=column)


def memory(figure, picture, column, first):
    scale, unit = time_scale(picture)
    times = np.array(picture.times(range(picture.columns))) / scale
    most = max(picture.physical_bytes + picture.mapped_bytes + [1])
    size_scale, size_unit = data.unit_for(most, data.SIZE_UNITS)
    lines = (("physical", picture.physical_bytes, style.PHYSICAL, "solid", "tozeroy"),
             ("requested", picture.requested_bytes, style.USED, "solid", "tozeroy"),
             ("mapped", picture.mapped_bytes, style.WASTE, "dash", None))
    for name, values, colour, dash, fill in lines:
        fill_colour = "rgba({},{},{},0.35)".format(
            *style.rgb(style.CACHED if name == "physical" else style.USED))
        figure.add_trace(go.Scatter(
            x=times, y=np.array(values, dtype=float) / size_scale, name=name, legendgroup=name,
            showlegend=first, line={"color": colour, "dash": dash, "width": 1.6, "shape": "hv"},
            fill=fill, fillcolor=fill_colour, text=[data.size(value) for value in values],
            hovertemplate=f"%{{x:.4~g}} {unit}: %{{text}}<extra>{name}</extra>"),
            row=2, col=column)
    limit = picture.limit()
    if limit:
        figure.add_trace(go.Scatter(
            x=[0, picture.duration_ns / scale], y=[limit[0] / size_scale] * 2, name=limit[1],
            legendgroup="limit", showlegend=first, mode="lines",
            line={"color": style.LIMIT, "dash": "dot", "width": 2},
            hovertemplate=f"{data.size(limit[0])}<extra>{limit[1]}</extra>"), row=2, col=column)
    top = most if not limit or limit[0] > 2.5 * most else max(most, limit[0])
    figure.update_yaxes(title_text=size_unit, range=[0, 1.1 * top / size_scale], row=2, col=column)


def fragmentation(figure, picture, column, first):
    scale, unit = time_scale(picture)
    times = np.array(picture.times(picture.sample_columns)) / scale
    for name, values, colour, dash in (
            ("scattered between live blocks", picture.fragmentation, style.REFUSED, "solid"),
            ("granted beyond what was asked", picture.rounding_waste, style.WASTE, "dash")):
        if not values:  # a log does not say of how much memory
            continue
        figure.add_trace(go.Scatter(
            x=times, y=np.array(values) * 100, name=name, legendgroup=name, showlegend=first,
            line={"color": colour, "dash": dash, "width": 1.8},
            hovertemplate=f"%{{x:.4~g}} {unit}: %{{y:.1f}}%<extra>{name}</extra>"),
            row=3, col=column)
    figure.update_yaxes(title_text="share (%)", range=[-3, 106], row=3, col=column)


def lanes(figure, picture, column):
    """A line a client, or stream: dark where it gave the device much to do."""
    scale, unit = time_scale(picture)
    counts = [lane["operations"] for lane in picture.lanes]
    samples = max(1, len(counts[0]) if counts else 1)
    figure.add_trace(go.Heatmap(
        z=[[count ** 0.5 for count in row] for row in counts], customdata=counts,
        y=[markup.escape(lane["name"]) for lane in picture.lanes], name="operations",
        x0=picture.duration_ns / samples / scale / 2, dx=picture.duration_ns / samples / scale,
        colorscale=[[0, style.UNMAPPED], [1, style.USED]], showscale=False, zmin=0, ygap=3,
        hovertemplate=f"%{{x:.4~g}} {unit}: %{{customdata}} operations<extra>%{{y}}</extra>"),
        row=4, col=column)
    figure.update_yaxes(autorange="reversed", row=4, col=column)
    figure.update_xaxes(title_text=f"time ({unit})", title_standoff=4, row=4, col=column)


def histogram(figure, counts, unit, row, column, colour):
    first, last, names = data.buckets(counts, unit)
    figure.add_trace(go.Bar(x=[f"≥ {name}" for name in names], y=counts[first:last],
                            marker_color=colour, showlegend=False,
                            hovertemplate="%{x}: %{y} blocks<extra></extra>"),
                     row=row, col=column)
    figure.update_yaxes(title_text="blocks", row=row, col=column)
