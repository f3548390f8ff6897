"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const NS = "http://www.w3.org/2000/svg";
  const METRICS = {
    tps: { label: "output (tokens/s, all requests together)", of: (p) => p.output_tps,
      low: (p) => p.output_tps_low, high: (p) => p.output_tps_high, show: (v) => number(v) + " tok/s" },
    gain: { label: "gain over no speculation (%)", of: (p) => 100 * p.gain,
      low: (p) => 100 * p.gain_low, high: (p) => 100 * p.gain_high,
      show: (v) => (v >= 0 ? "+" : "") + v.toFixed(1) + " %" },
    tpot: { label: "time per output token (ms)", of: (p) => 1e3 * p.tpot_s,
      low: null, high: null, show: (v) => number(v) + " ms" },
  };
  // as in the plots: line and marker alone tell series apart
  const DASHES = ["", "7 3", "7 3 2 3", "2 3", "9 2 2 2 2 2", "3 3", "11 4"];
  const MARKERS = ["circle", "square", "up", "diamond", "down"];
  data.series.forEach((s, i) => {
    s.dash = DASHES[i % DASHES.length];
    s.marker = MARKERS[i % MARKERS.length];
  });
  // the plots' hatches in a square of eight
  const HATCHES = { "///": "M-2,6l4,4M0,0l8,8M6,-2l4,4", "xxx": "M0,0l8,8M0,8l8,-8", "|||": "M4,0v8",
    "\\\\\\": "M-2,2l4,-4M0,8l8,-8M6,10l4,-4", "...": "M4,4h1", "---": "M0,4h8" };
  const state = { metric: "tps", scale: "log", shown: data.series.map(() => true), load: 0 };
  const BOX = { left: 62, right: 16, top: 12, bottom: 44, width: 960, height: 430 };

  function number(v) { return v >= 99.95 ? v.toFixed(0) : v >= 9.995 ? v.toFixed(1) : v.toFixed(2); }

  function make(name, attributes, parent) {
    const node = document.createElementNS(NS, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (parent) parent.appendChild(node);
    return node;
  }

  function text(parent, x, y, words, anchor) {
    make("text", { x: x, y: y, "text-anchor": anchor || "middle" }, parent).textContent = words;
  }

  function ticks(low, high) {
    const raw = (high - low) / 6, power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const found = [];
    for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * step; v += step) found.push(v);
    return found;
  }

  function marker(parent, kind, x, y, colour) {
    const at = { circle: () => make("circle", { cx: x, cy: y, r: 3.5 }, parent),
      square: () => make("rect", { x: x - 3.5, y: y - 3.5, width: 7, height: 7 }, parent),
      up: () => make("path", { d: `M${x - 4.5},${y + 3.5}h9l-4.5,-8z` }, parent),
      diamond: () => make("path", { d: `M${x},${y - 5}l5,5l-5,5l-5,-5z` }, parent),
      down: () => make("path", { d: `M${x - 4.5},${y - 3.5}h9l-4.5,8z` }, parent) }[kind]();
    at.setAttribute("fill", colour);
  }

  function curve() {
    const holder = document.getElementById("curve");
    holder.querySelectorAll("svg").forEach((old) => old.remove());
    const svg = make("svg", { viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img" });
    holder.insertBefore(svg, holder.firstChild);
    const metric = METRICS[state.metric], loads = data.loads;
    const visible = data.series.filter((s, i) => state.shown[i]);
    const value = (s, j, f) => f(s.points[j]);
    const all = [];
    for (const s of visible) for (let j = 0; j < loads.length; j++)
      for (const f of [metric.of, metric.low, metric.high]) if (f) all.push(value(s, j, f));
    let low = Math.min(0, ...all), high = Math.max(state.metric === "gain" ? 5 : 0, ...all) * 1.04;
    if (!(high > low)) high = low + 1;
    const place = (c) => (state.scale === "log" ? Math.log(c) : c);
    const first = place(loads[0]), last = place(loads[loads.length - 1]);
    const inner = BOX.width - BOX.left - BOX.right - 24;
    const x = (c) => BOX.left + 12 + (last > first ? (place(c) - first) / (last - first) : 0.5) * inner;
    const y = (v) => BOX.height - BOX.bottom - ((v - low) / (high - low)) * (BOX.height - BOX.top - BOX.bottom);
    for (const t of ticks(low, high)) {
      const weight = t === 0 && low < 0 ? 1.6 : 0.6;
      make("line", { x1: BOX.left, x2: BOX.width - BOX.right, y1: y(t), y2: y(t), stroke: weight > 1 ? "#000" : "#ddd", "stroke-width": weight }, svg);
      text(svg, BOX.left - 6, y(t) + 4, String(+t.toFixed(6)), "end");
    }
    let before = -1e9;
    for (const c of loads) {
      if (x(c) - before < 26) continue;
      text(svg, x(c), BOX.height - BOX.bottom + 18, String(c));
      before = x(c);
    }
    text(svg, BOX.left + inner / 2, BOX.height - 6, data.axis);
    const up = make("text", { transform: `translate(14 ${(BOX.height - BOX.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, svg);
    up.textContent = metric.label;
    data.series.forEach((s, i) => {
      if (!state.shown[i] || (state.metric === "gain" && s.role === "baseline")) return;
      const at = (f) => loads.map((c, j) => `${x(c).toFixed(1)},${y(value(s, j, f)).toFixed(1)}`);
      if (metric.low)
        make("polygon", { points: at(metric.low).concat(at(metric.high).reverse()).join(" "), fill: s.colour, opacity: 0.12 }, svg);
      make("polyline", { points: at(metric.of).join(" "), fill: "none", stroke: s.colour, "stroke-width": 2, "stroke-dasharray": s.dash }, svg);
      loads.forEach((c, j) => marker(svg, s.marker, x(c), y(value(s, j, metric.of)), s.colour));
    });
    const guide = make("line", { y1: BOX.top, y2: BOX.height - BOX.bottom, stroke: "#666", "stroke-dasharray": "3 3", visibility: "hidden" }, svg);
    const tip = document.getElementById("tip");
    svg.addEventListener("mousemove", (event) => {
      const box = svg.getBoundingClientRect();
      const here = ((event.clientX - box.left) / box.width) * BOX.width;
      let j = 0;
      loads.forEach((c, k) => { if (Math.abs(x(c) - here) < Math.abs(x(loads[j]) - here)) j = k; });
      guide.setAttribute("x1", x(loads[j]));
      guide.setAttribute("x2", x(loads[j]));
      guide.setAttribute("visibility", "visible");
      tip.replaceChildren(tipTable(j, metric, value));
      tip.hidden = false;
      const left = (x(loads[j]) / BOX.width) * box.width;
      tip.style.top = "1rem";
      tip.style.left = left > box.width / 2 ? "auto" : left + 14 + "px";
      tip.style.right = left > box.width / 2 ? box.width - left + 14 + "px" : "auto";
    });
    svg.addEventListener("mouseleave", () => { tip.hidden = true; guide.setAttribute("visibility", "hidden"); });
  }

  function tipTable(j, metric, value) {
    const table = document.createElement("table");
    const head = table.insertRow();
    head.insertCell().textContent = data.places[j];
    data.series.forEach((s, i) => {
      if (!state.shown[i]) return;
      const row = table.insertRow();
      row.insertCell().textContent = s.name;
      row.insertCell().textContent = metric.show(value(s, j, metric.of));
      const range = metric.low ? `${number2(value(s, j, metric.low))} to ${number2(value(s, j, metric.high))}` : "";
      row.insertCell().textContent = range;
    });
    return table;
  }

  function number2(v) { return Math.abs(v) >= 99.95 ? v.toFixed(0) : v.toFixed(1); }

  function rounds() {
    const holder = document.getElementById("rounds");
    holder.querySelectorAll("svg").forEach((old) => old.remove());
    const names = data.series.map((s) => s.name), parts = data.parts, rows = data.rounds[state.load];
    const height = 40 + 34 * names.length, left = 250, right = 150, width = 960;
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    holder.insertBefore(svg, holder.firstChild);
    const sums = rows.map((r) => r.reduce((a, b) => a + b, 0));
    const scale = (width - left - right) / Math.max(...sums);
    hatches(svg, parts);
    rows.forEach((row, i) => {
      let x = left;
      text(svg, left - 8, 34 * i + 26, names[i], "end");
      row.forEach((ms, k) => {
        if (ms <= 0) return;
        const bar = make("rect", { x: x, y: 34 * i + 8, width: ms * scale, height: 26, fill: `url(#part${k})`, stroke: "#000", "stroke-width": 0.5 }, svg);
        make("title", {}, bar).textContent = `${parts[k].words}: ${number(ms)} ms`;
        x += ms * scale;
      });
      const point = data.series[i].points[state.load];
      const tokens = point.accept_length * point.batch_size;
      text(svg, x + 6, 34 * i + 26, `${number(sums[i])} ms, ${number(sums[i] / tokens)} ms/token`, "start");
    });
    text(svg, left, height - 8, "one round of the batch (ms); hover over a part for its time", "start");
  }

  function hatches(svg, parts) {
    const defs = make("defs", {}, svg);
    parts.forEach((p, k) => {
      const cell = make("pattern", { id: `part${k}`, width: 8, height: 8, patternUnits: "userSpaceOnUse" }, defs);
      make("rect", { width: 8, height: 8, fill: p.colour }, cell);
      if (p.hatch) make("path", { d: HATCHES[p.hatch], stroke: "#000", "stroke-width": 0.8, fill: "none" }, cell);
    });
  }

  function choose(id, values, change) {
    const select = document.getElementById(id);
    for (const [value, words] of values) {
      const option = document.createElement("option");
      option.value = value;
      option.textContent = words;
      select.appendChild(option);
    }
    select.addEventListener("change", () => change(select.value));
  }

  const toggles = document.getElementById("toggles");
  data.series.forEach((s, i) => {
    const label = document.createElement("label"), box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => { state.shown[i] = box.checked; curve(); });
    const key = make("svg", { width: 42, height: 14 });
    make("line", { x1: 0, x2: 42, y1: 7, y2: 7, stroke: s.colour, "stroke-width": 2, "stroke-dasharray": s.dash }, key);
    marker(key, s.marker, 21, 7, s.colour);
    label.append(box, " ", key, " " + s.name);
    toggles.appendChild(label);
  });
  const key = document.getElementById("parts");
  data.parts.forEach((p) => {
    const label = document.createElement("span"), patch = make("svg", { width: 26, height: 14 });
    hatches(patch, [p]);
    patch.querySelector("pattern").id = `key-${p.id}`;
    make("rect", { width: 26, height: 14, fill: `url(#key-${p.id})`, stroke: "#000" }, patch);
    label.append(patch, " " + p.words);
    key.appendChild(label);
  });
  choose("metric", [["tps", "tokens/s"], ["gain", "gain"], ["tpot", "time per token"]], (v) => { state.metric = v; curve(); });
  choose("scale", [["log", "logarithmic"], ["linear", "linear"]], (v) => { state.scale = v; curve(); });
  choose("load", data.places.map((place, j) => [String(j), place]), (v) => { state.load = +v; rounds(); });
  state.load = Math.floor(data.loads.length / 2);
  document.getElementById("load").value = String(state.load);
  curve();
  rounds();
})();
