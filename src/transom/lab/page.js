// Draws the plots of a session when it is opened. The data stands in the page: see page.py for its shape.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  // Okabe and Ito's palette, made to be told apart by colour-blind eyes. Without colour, the marks tell windows apart and
  // the dashes costs; a sawtooth in dashes cannot be read.
  const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C8C8C", "#B8A800"];
  const DASHES = ["solid", "6px,2px", "2px,2px", "8px,2px,2px,2px", "12px,3px", "4px,4px"];
  const SYMBOLS = ["diamond", "circle", "square", "triangle-up", "cross", "x"];
  const SEEN = { visible: "#0072B2", recallable: "#E69F00", lost: "#D55E00" };
  const arms = data.arms;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const shade = (ink) => (dark.matches && ink === "#0072B2" ? "#3A9BDC" : ink); // too dim on a dark ground
  const colour = (arm) => shade(COLOURS[arms.indexOf(arm) % COLOURS.length]);
  const dash = (arm) => DASHES[arms.indexOf(arm) % DASHES.length];
  // Plotly reads a little markup in names and hovers; words of a transcript must not become any.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");

  function layout(title, x, y) {
    const ink = dark.matches ? "#e6e9ef" : "#1c2330";
    const grid = dark.matches ? "#3a4352" : "#d8dde6";
    const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: grid, automargin: true };
    return {
      title: { text: title, x: 0.02, xanchor: "left", font: { size: 14 } },
      height: 380, margin: { l: 60, r: 20, t: 44, b: 50 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, size: 12 }, hoverlabel: { namelength: -1 }, showlegend: true,
      legend: { orientation: "h", yref: "container", y: 0.01, yanchor: "bottom", x: 0, xanchor: "left", traceorder: "normal" },
      xaxis: { ...axis, title: { text: x, standoff: 8 } },
      yaxis: { ...axis, title: { text: y, standoff: 8 }, rangemode: "tozero" },
    };
  }

  function draw(into, traces, shape) {
    const place = document.createElement("div");
    place.className = "plot";
    into.append(place);
    Plotly.newPlot(place, traces, shape, { responsive: true, displaylogo: false, displayModeBar: false });
  }

  function windows(runs) {
    const traces = [];
    for (const run of runs) {
      traces.push({
        type: "scatter", mode: "lines", name: plain(run.arm), legendgroup: run.arm, x: run.steps, y: run.tokens,
        line: { color: colour(run.arm), width: 1.5 },
        hovertemplate: "step %{x}: %{y:,} tokens<extra>" + plain(run.arm) + "</extra>",
      });
      if (run.boundaries.length === 0) continue;
      traces.push({
        type: "scatter", mode: "markers", legendgroup: run.arm, showlegend: false, x: run.boundaries.map((b) => b[0]),
        y: run.boundaries.map((b) => b[1]), text: run.boundaries.map((b) => plain(b[2])),
        marker: { color: colour(run.arm), size: 7, symbol: SYMBOLS[arms.indexOf(run.arm) % SYMBOLS.length] },
        hovertemplate: "boundary at step %{x}: %{text}<extra>" + plain(run.arm) + "</extra>",
      });
    }
    const steps = Math.max(1, ...runs.map((run) => run.steps[run.steps.length - 1] ?? 1));
    traces.push({
      type: "scatter", mode: "lines", name: "context limit", x: [1, steps], y: [data.limit, data.limit], hoverinfo: "skip",
      line: { color: "#8C8C8C", width: 1, dash: "dash" },
    });
    return traces;
  }

  // An arm that never governs grows far beyond the limit; drawn to scale it would flatten all others to one line.
  function windowLayout(runs) {
    const peaks = runs.map((run) => run.tokens.reduce((most, n) => Math.max(most, n), 0));
    const above = runs.filter((_, n) => peaks[n] > 2 * data.limit);
    const isCut = data.limit > 0 && above.length > 0 && above.length < runs.length;
    const cut = isCut ? ` (cut above: ${above.map((run) => plain(run.arm)).join(", ")})` : "";
    const shape = layout("Window size" + cut, "step (request)", "prompt, tokens");
    if (isCut) shape.yaxis.range = [0, 2 * data.limit];
    return shape;
  }

  function costs(runs) {
    return runs.filter((run) => run.cost.length > 0).map((run) => ({
      type: "scatter", mode: "lines", name: plain(run.arm), x: run.steps, y: run.cost,
      line: { color: colour(run.arm), dash: dash(run.arm), width: 1.6 },
      hovertemplate: "step %{x}: $%{y:.4f}<extra>" + plain(run.arm) + "</extra>",
    }));
  }

  function counts(runs, field) {
    const names = [...new Set(runs.flatMap((run) => Object.keys(run[field])))].sort();
    return names.map((name, n) => ({
      type: "bar", name: plain(name), x: runs.map((run) => plain(run.arm)), y: runs.map((run) => run[field][name] ?? 0),
      marker: { color: shade(COLOURS[n % COLOURS.length]), pattern: { shape: ["", "/", "x", "."][Math.floor(n / 8) % 4] } },
    }));
  }

  function recall(runs) {
    return Object.keys(SEEN).map((kind) => ({
      type: "bar", name: kind, x: runs.map((run) => plain(run.arm)),
      y: runs.map((run) => (run.handles.n ? (100 * run.handles[kind]) / run.handles.n : 0)),
      customdata: runs.map((run) => [run.handles[kind], run.handles.n]), marker: { color: shade(SEEN[kind]) },
      hovertemplate: "%{customdata[0]} of %{customdata[1]} uses<extra>" + kind + "</extra>",
    }));
  }

  function bars(into, runs) {
    const stacked = { barmode: "stack" };
    draw(into, counts(runs, "cause"), { ...layout("Boundaries by cause", "arm", "boundaries"), ...stacked });
    draw(into, counts(runs, "misses"), { ...layout("Cache misses by reason", "arm", "misses"), ...stacked });
    const shares = { ...layout("Handles used later", "arm", "share of uses, %"), ...stacked };
    shares.yaxis.range = [0, 100];
    draw(into, recall(runs), shares);
  }

  function open(section) {
    const runs = data.sessions[Number(section.dataset.session)];
    const [lines, small] = section.querySelectorAll(".plots");
    lines.replaceChildren();
    small.replaceChildren();
    draw(lines, windows(runs), windowLayout(runs));
    draw(lines, costs(runs), layout("Cost so far", "step (request)", "cost, US dollars"));
    bars(small, runs);
  }

  function all() {
    const summary = document.getElementById("summary");
    if (summary) {
      summary.replaceChildren();
      bars(summary, data.totals);
    }
    document.querySelectorAll("details[open]").forEach(open);
  }

  document.querySelectorAll("details").forEach((section) => {
    section.addEventListener("toggle", () => {
      if (section.open && !section.querySelector(".plot")) open(section);
    });
  });
  dark.addEventListener("change", all);
  all();
})();
