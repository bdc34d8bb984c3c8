"use strict";
(function () {
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";

  // Everything is made with createElement and textContent: prompts and replies are untrusted text.
  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value === true) node.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
    }
    node.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
    return node;
  }
  function svg(tag, attributes) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    return node;
  }
  async function unpack(id) {
    const bytes = Uint8Array.from(atob($(id).textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // -- theme ---------------------------------------------------------------------------------------------------
  const THEMES = ["auto", "light", "dark"];
  function setTheme(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    $("theme").textContent = { auto: "Auto", light: "Light", dark: "Dark" }[theme];
    $("theme").setAttribute("aria-label", "Colours: " + theme + ". Change");
  }
  let theme = "auto";
  try { theme = localStorage.getItem("edagym-theme") || "auto"; } catch (e) { /* no storage for files */ }
  if (!THEMES.includes(theme)) theme = "auto";
  setTheme(theme);
  $("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    setTheme(theme);
    try { localStorage.setItem("edagym-theme", theme); } catch (e) { /* the choice lasts for this page only */ }
  });

  // -- list of attempts ----------------------------------------------------------------------------------------
  const COLUMNS = ["arm", "suite", "level", "task", "attempt", "seed", "strict", "paper", "ended", "error", "failed",
    "charged", "budget", "tokens", "unreadable", "score", "trace", "message", "text"];
  const PAGE = 100;
  let all = [], shown = [], arms = [], page = PAGE, sort = { key: null, up: true };
  const controls = ["search", "f-arm", "f-suite", "f-level", "f-outcome", "f-error"].map($);

  function outcome(row) {
    if (row.strict === null) return "lost";
    return row.strict ? "strict" : row.paper ? "paper" : "fail";
  }
  const WORDS = { strict: "pass", paper: "paper only", fail: "fail", lost: "no verdict" };
  const TAGS = { strict: "tag pass", paper: "tag lost", fail: "tag fail", lost: "tag lost" };

  function options(select, values, first) {
    select.replaceChildren(el("option", { value: "" }, first));
    for (const [value, text] of values) select.append(el("option", { value }, text));
  }
  const distinct = (name) => [...new Set(all.map((r) => r[name]).filter(Boolean))].sort().map((v) => [v, v]);

  function refresh() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const [arm, suite, level, result, error] = controls.slice(1).map((c) => c.value);
    shown = all.filter((r) =>
      (arm === "" || r.arm === Number(arm)) && (!suite || r.suite === suite) && (!level || r.level === level) &&
      (!result || outcome(r) === result) &&
      (!error || (error === "-" ? !r.error : error === "trace" ? r.trace : r.error === error)) &&
      words.every((w) => r.text.includes(w)));
    if (sort.key) {
      const value = (r) => sort.key === "arm" ? arms[r.arm].label : sort.key === "outcome" ? ["strict", "paper", "fail", "lost"].indexOf(outcome(r)) : r[sort.key];
      shown.sort((a, b) => {
        const x = value(a), y = value(b);
        const order = typeof x === "number" && typeof y === "number" ? x - y : String(x ?? "").localeCompare(String(y ?? ""), "en", { numeric: true });
        return (sort.up ? order : -order) || a.id - b.id;
      });
    }
    draw();
  }
  function draw() {
    const body = $("list").tBodies[0];
    body.replaceChildren(...shown.slice(0, page).map((r) => {
      const result = outcome(r);
      const open = r.trace ? () => openAttempt(r.id) : null;
      const name = r.trace ? el("button", { class: "link", type: "button", "aria-label": "Open " + r.task + ", attempt " + r.attempt + ", " + arms[r.arm].label }, r.task) : r.task;
      const why = r.error || (result === "strict" ? "" : r.failed || r.ended);
      return el("tr", { class: r.trace ? "open" : "", onclick: open },
        el("th", { scope: "row", class: "stick" }, name),
        el("td", { class: "l" }, el("span", { class: "sw c" + arms[r.arm].color % 8 }), arms[r.arm].label),
        el("td", { class: "l" }, r.suite),
        el("td", {}, String(r.attempt)),
        el("td", { class: "l" }, el("span", { class: TAGS[result] }, WORDS[result])),
        el("td", { class: "l trim", title: r.message || why }, why || "–"),
        el("td", {}, r.charged + " / " + r.budget),
        el("td", {}, r.tokens ? r.tokens.toLocaleString("en") : "–"),
        el("td", {}, r.score === null ? "–" : (100 * r.score).toFixed(1)));
    }));
    if (!shown.length) body.append(el("tr", {}, el("td", { class: "l", colspan: 9 }, "No attempt fits these filters.")));
    $("count").textContent = shown.length + " of " + all.length + " attempts";
    $("more").hidden = shown.length <= page;
  }
  controls.forEach((c) => c.addEventListener("input", () => { page = PAGE; refresh(); }));
  $("clear").addEventListener("click", () => { controls.forEach((c) => { c.value = ""; }); refresh(); $("search").focus(); });
  $("more").querySelector("button").addEventListener("click", () => { page += 4 * PAGE; draw(); });
  for (const button of document.querySelectorAll("#list button.sort")) {
    button.addEventListener("click", () => {
      const key = button.dataset.key;
      sort = { key, up: sort.key === key ? !sort.up : true };
      for (const b of document.querySelectorAll("#list button.sort")) {
        const own = b.dataset.key === key;
        b.parentElement.setAttribute("aria-sort", own ? (sort.up ? "ascending" : "descending") : "none");
      }
      refresh();
    });
  }

  // -- viewer --------------------------------------------------------------------------------------------------
  const dialog = $("viewer");
  let current = null, data = null, at = 0, box = null, chosen = null;

  async function openAttempt(id, step) {
    const row = all.find((r) => r.id === id);
    if (!row || !row.trace) return;
    current = row;
    try {
      data = await unpack("trace-" + id);
    } catch (e) {
      data = { steps: [], notes: [], texts: [], checks: [], faults: ["this trace cannot be read: " + e.message], first: {} };
    }
    const result = outcome(row);
    $("v-title").textContent = row.task;
    $("v-meta").replaceChildren(
      el("span", { class: TAGS[result] }, WORDS[result]), " ",
      [arms[row.arm].label, row.suite, "attempt " + row.attempt, "ended: " + row.ended.replace(/_/g, " "),
        row.charged + " of " + row.budget + " charged"].join(" · "));
    box = null; chosen = null;
    // The final layout is what most readers came for.
    at = step === undefined ? data.steps.length : Math.min(step, data.steps.length);
    $("v-range").max = data.steps.length;
    if (!dialog.open) dialog.showModal();
    legend();
    fixed();
    show();
    dialog.focus();
  }
  const frame = () => (at === 0 ? data.first : data.steps[at - 1]) || {};

  function go(step) {
    const next = Math.max(0, Math.min(step, data.steps.length));
    if (next === at) return;
    at = next; chosen = null;
    show();
  }
  function nextCheck(direction) {
    for (let i = at + direction; i >= 1 && i <= data.steps.length; i += direction) if (data.steps[i - 1].verdict) return go(i);
    go(direction > 0 ? data.steps.length : 0);
  }
  function neighbour(direction) {
    const list = shown.filter((r) => r.trace);
    const place = list.findIndex((r) => r.id === current.id);
    const next = list[place + direction];
    if (next) openAttempt(next.id);
  }

  function show() {
    $("v-range").value = at;
    $("v-range").setAttribute("aria-valuetext", "step " + at + " of " + data.steps.length);
    $("v-at").textContent = at + " / " + data.steps.length;
    $("v-first").disabled = $("v-prev").disabled = at === 0;
    $("v-last").disabled = $("v-next").disabled = at === data.steps.length;
    const traced = shown.filter((r) => r.trace), place = traced.findIndex((r) => r.id === current.id);
    $("v-before").disabled = place <= 0;
    $("v-after").disabled = place < 0 || place >= traced.length - 1;
    picture();
    describe();
    history.replaceState(null, "", "#attempt-" + current.id + "-" + at);
  }

  function path(polygon) {
    let d = "";
    for (const ring of polygon) {
      for (let i = 0; i < ring.length; i += 2) d += (i ? "L" : "M") + ring[i] + " " + -ring[i + 1];
      d += "Z";
    }
    return d;
  }
  function picture() {
    const stage = $("v-stage"), scene = data.scene;
    stage.replaceChildren();
    if (!scene) {
      stage.classList.toggle("chart", Boolean(data.design));
      if (data.design) stage.append(historyChart(), diff(frame().diff || "", at ? "This step changed no file." : "The design as given."));
      else stage.append(el("p", { class: "empty" }, "No picture of this attempt."));
      return;
    }
    stage.classList.remove("chart");
    const [x1, y1, x2, y2] = scene.bounds;
    box = box || [x1, -y2, x2 - x1, y2 - y1];
    const root = svg("svg", { viewBox: box.join(" "), role: "img", "aria-label": "Layout after step " + at });
    const layers = scene.layers.map((layer, i) => {
      const group = svg("g", { fill: layer.color, "fill-opacity": layer.alpha, stroke: layer.color, "fill-rule": "evenodd" });
      const known = new Set(at > 0 ? ((at === 1 ? data.first : data.steps[at - 2]).shapes || [])[i] || [] : (frame().shapes || [])[i] || []);
      for (const index of (frame().shapes || [])[i] || []) {
        const fresh = !known.has(index);
        group.append(svg("path", { d: path(scene.polygons[index]), "vector-effect": "non-scaling-stroke", "stroke-width": fresh ? 2.5 : 1, class: fresh ? "fresh" : "" }));
      }
      return [layer.name, group];
    });
    layers.filter(([name]) => scene.below.includes(name)).forEach(([, group]) => root.append(group));
    for (const region of scene.regions) root.append(svg("path", { d: path(region.rings), fill: region.color, "fill-opacity": .55, "fill-rule": "evenodd" }));
    layers.filter(([name]) => !scene.below.includes(name)).forEach(([, group]) => root.append(group));
    for (const region of scene.regions) root.append(svg("path", { d: path(region.rings), fill: "none", stroke: "currentColor", "stroke-opacity": .55, "stroke-width": 1.2, "vector-effect": "non-scaling-stroke" }));
    const perUm = 1 / scene.dbu, size = Math.max(box[2], box[3]);
    const px = Math.max(box[2] / Math.max(stage.clientWidth, 1), box[3] / Math.max(stage.clientHeight, 1));
    for (const region of scene.regions) {
      const ring = region.rings[0], xs = ring.filter((_, i) => i % 2 === 0), ys = ring.filter((_, i) => i % 2);
      const label = svg("text", { x: (Math.min(...xs) + Math.max(...xs)) / 2, y: -Math.max(...ys) - 6 * px, "font-size": 12 * px, "text-anchor": "middle", fill: "currentColor" });
      label.textContent = region.name + (region.demand === null ? "" : " (" + region.demand + " T)");
      root.append(label);
    }
    const last = at === data.steps.length ? data.checks.filter((c) => !c.passed && c.where).map((c) => [c.id, c.where]) : [];
    const marks = chosen ? [chosen] : frame().marks || last;
    for (const [name, [a, b, c, d]] of marks) {
      const least = 8 * px, w = Math.max((c - a) * perUm, least), h = Math.max((d - b) * perUm, least);
      const cx = (a + c) / 2 * perUm, cy = -(b + d) / 2 * perUm;
      const rect = svg("rect", { x: cx - w / 2, y: cy - h / 2, width: w, height: h, fill: "none", "stroke-width": 2.5, "vector-effect": "non-scaling-stroke", class: "violation" });
      rect.append(svg("title"));
      rect.firstChild.textContent = name;
      root.append(rect);
    }
    const um = size * .18 * scene.dbu, power = 10 ** Math.floor(Math.log10(um));
    const nice = [5, 2, 1].map((m) => m * power).find((v) => v <= um) || power;
    const left = box[0] + size * .02, low = box[1] + box[3] - size * .02;
    root.append(svg("line", { x1: left, x2: left + nice * perUm, y1: low, y2: low, stroke: "currentColor", "stroke-width": 2.5, "vector-effect": "non-scaling-stroke" }));
    const label = svg("text", { x: left, y: low - 6 * px, "font-size": 13 * px, fill: "currentColor" });
    label.textContent = nice >= 1 ? nice + " µm" : Math.round(nice * 1000) + " nm";
    root.append(label);
    stage.append(root, el("div", { class: "zoom" },
      el("button", { type: "button", class: "btn icon", "aria-label": "Zoom in", onclick: () => zoom(.7) }, "+"),
      el("button", { type: "button", class: "btn icon", "aria-label": "Zoom out", onclick: () => zoom(1 / .7) }, "−"),
      el("button", { type: "button", class: "btn icon", "aria-label": "Whole picture", onclick: () => { box = null; picture(); } }, "⤢")));
    drag(root);
  }
  function zoom(factor, x, y) {
    const cx = x === undefined ? box[0] + box[2] / 2 : x, cy = y === undefined ? box[1] + box[3] / 2 : y;
    box = [cx + (box[0] - cx) * factor, cy + (box[1] - cy) * factor, box[2] * factor, box[3] * factor];
    picture();
  }
  function drag(root) {
    let from = null;
    root.addEventListener("pointerdown", (e) => { from = [e.clientX, e.clientY, ...box]; root.setPointerCapture(e.pointerId); });
    root.addEventListener("pointermove", (e) => {
      if (!from) return;
      const scale = Math.max(box[2] / root.clientWidth, box[3] / root.clientHeight);
      box[0] = from[2] - (e.clientX - from[0]) * scale;
      box[1] = from[3] - (e.clientY - from[1]) * scale;
      root.setAttribute("viewBox", box.join(" "));
    });
    root.addEventListener("pointerup", () => { if (from) { from = null; picture(); } });
    root.addEventListener("pointercancel", () => { from = null; });
    root.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.metaKey) return;
      e.preventDefault();
      const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(root.getScreenCTM().inverse());
      zoom(e.deltaY > 0 ? 1.2 : 1 / 1.2, p.x, p.y);
    }, { passive: false });
  }
  function swatch(color, text) {
    const dot = el("span", { class: "sw" });
    dot.style.background = color;
    return el("span", {}, dot, text);
  }
  function legend() {
    const scene = data.scene, node = $("v-legend");
    node.replaceChildren();
    if (!scene) return;
    for (const color of new Set(scene.regions.map((r) => r.color))) node.append(swatch(color, scene.regions.find((r) => r.color === color).material));
    for (const layer of scene.layers) if (layer.used !== false) node.append(swatch(layer.color, layer.note && layer.note !== layer.name ? layer.name + " (" + layer.note + ")" : layer.name));
    const violation = swatch("", "violation");
    violation.firstChild.classList.add("mark");
    node.append(violation);
  }

  // How far each run was from the targets. Verdicts give figures of missed targets only; a met one stands at the line.
  function historyChart() {
    const stage = $("v-stage"), W = Math.max(stage.clientWidth, 280), H = Math.max(Math.round(stage.clientHeight * .46), 170), names = Object.keys(data.design.targets), colors = ["#2a5bd7", "#c4560b", "#0c8a63"];
    const runs = data.steps.map((s, i) => [s, i + 1]).filter(([s]) => s.verdict);
    const root = svg("svg", { viewBox: "0 0 " + W + " " + H, role: "img", "aria-label": "Runs against the targets" });
    const write = (x, y, text, anchor, fill) => { const t = svg("text", { x, y, "text-anchor": anchor || "start"}); if (fill) t.style.fill = fill; t.textContent = text; root.append(t); };
    const over = (name, value) => 100 * (value / data.design.targets[name] - 1);
    const series = names.map((name) => [[0, over(name, data.design.initial[name])], ...runs.map(([s, step]) => {
      const line = String(s.verdict.messages || "").split("\n").find((m) => m.startsWith(name + " at most"));
      const found = line && /found ([-+0-9.eE]+)/.exec(line);
      return [step, found ? over(name, Number(found[1])) : String(s.verdict.failed || "").includes("flow") ? null : 0];
    })]);
    const values = series.flat().map((p) => p[1]).filter((v) => v !== null && isFinite(v));
    const top = Math.max(1, ...values) * 1.12, low = Math.min(-top * .12, ...values.map((v) => v * 1.12));
    const x = (step) => 72 + (W - 96) * step / Math.max(data.steps.length, 1), y = (v) => 46 + (H - 76) * (top - v) / (top - low);
    root.append(svg("line", { x1: x(at), x2: x(at), y1: 38, y2: H - 24, class: "cursor" }));
    root.append(svg("line", { x1: 64, x2: W - 16, y1: y(0), y2: y(0), class: "target" }));
    write(58, y(0) + 4, "0 %", "end"); write(58, 50, "+" + (top / 1.12).toFixed(1) + " %", "end");
    write(72, H - 6, "start"); write(W - 16, H - 6, "step " + data.steps.length, "end");
    let place = 16;
    write(place, 20, "Over the target:"); place += 118;
    names.forEach((name, k) => {
      write(place, 20, name.replace(/_/g, " "), "start", colors[k]); place += 20 + 7.2 * name.length;
      const points = series[k].filter((p) => p[1] !== null);
      root.append(svg("polyline", { points: points.map((p) => x(p[0]) + "," + y(p[1])).join(" "), fill: "none", stroke: colors[k], "stroke-width": 1.5, "stroke-opacity": .5 }));
      for (const [step, v] of points) root.append(svg("circle", { cx: x(step), cy: y(v), r: step === at ? 6 : 4, fill: colors[k], stroke: "#fff", "stroke-width": 1.5 }));
    });
    return root;
  }
  function diff(text, empty) {
    const pre = el("pre", { class: "diff", tabindex: 0 });
    for (const line of (text || empty).split("\n")) {
      const kind = !text ? "" : line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : line.startsWith("@") ? "hunk" : "";
      pre.append(el("span", { class: kind }, line + "\n"));
    }
    return pre;
  }
  function pretty(action) {
    const short = (v) => JSON.stringify(v).replace(/,/g, ", ").replace(/":/g, '": ');
    return Object.entries(action).filter(([k]) => k !== "op").map(([k, v]) => k + ": " + (typeof v === "string" ? v : short(v))).join("\n");
  }
  function verdictBox(verdict) {
    const failed = String(verdict.failed || "").split(", ").filter(Boolean), said = String(verdict.messages || "").split("\n").filter(Boolean);
    const tag = (name, ok) => el("span", { class: ok ? "tag pass" : "tag fail" }, name + (ok ? " pass" : " fail"));
    const share = typeof verdict.share_passed === "number" && verdict.share_passed >= 0 ? " " + Math.round(100 * verdict.share_passed) + " % of checks hold" : "";
    return el("div", { class: "panel box" }, el("h3", {}, "Verdict here", tag("strict", verdict.strict > 0), tag("paper", verdict.paper > 0), el("span", { class: "hint" }, share)),
      failed.length ? el("ul", {}, ...failed.map((id, i) => el("li", {}, said.length === failed.length ? said[i] : id))) : null);
  }
  function noteBox(note) {
    if (note.kind !== "model") {
      const title = note.kind.replace(/_/g, " ");
      const extra = Object.entries(note).filter(([k, v]) => !["kind", "text", "step", "gave_up"].includes(k) && v !== null && typeof v !== "object").map(([k, v]) => k + ": " + v).join(" · ");
      const more = Object.entries(note).filter(([k, v]) => !["kind", "text"].includes(k) && v !== null && typeof v === "object");
      return el("div", { class: "panel box" }, el("h3", {}, title[0].toUpperCase() + title.slice(1), el("span", { class: "hint" }, extra)),
        note.text ? el("p", { class: "err plain" }, note.text) : null,
        more.length ? el("details", {}, el("summary", {}, "Details"), el("pre", { tabindex: 0 }, JSON.stringify(Object.fromEntries(more), null, 1))) : null);
    }
    const usage = note.usage || {}, tokens = (usage.prompt_tokens || 0) + " + " + (usage.completion_tokens || 0) + " tokens";
    const unread = note.parsed === false, gone = note.reply === null || note.reply === undefined;
    const tags = [unread ? el("span", { class: "tag fail" }, "unreadable") : null, note.retries ? el("span", { class: "tag lost" }, note.retries + " retries") : null, gone ? el("span", { class: "tag lost" }, "no reply") : null];
    let reply = note.reply;
    try { const parsed = JSON.parse(reply); if (parsed && typeof parsed === "object") reply = compact(parsed); } catch (e) { /* shown as it came */ }
    return el("div", { class: "panel box" },
      el("h3", {}, "Model call", note.role ? el("span", { class: "tag" }, note.role) : null, ...tags, el("span", { class: "hint" }, tokens)),
      note.error ? el("p", { class: "err" }, note.error) : null,
      gone ? null : el("details", { open: true }, el("summary", {}, el("b", {}, "Reply")), el("pre", { tabindex: 0, class: "reply" }, reply)),
      el("details", {}, el("summary", {}, el("b", {}, "Prompt"), " " + note.messages.length + " messages"),
        el("div", { class: "said" }, ...note.messages.flatMap(([role, index]) => [el("div", { class: "role" }, role), el("pre", { tabindex: 0, class: "prompt" }, data.texts[index] || "")]))));
  }
  function compact(value) {
    const plain = (v) => v === null || typeof v !== "object" || Array.isArray(v) && JSON.stringify(v).length < 400;
    const write = (v, pad) => {
      if (plain(v)) return JSON.stringify(v).replace(/,/g, ", ");
      const inner = pad + "  ", list = Array.isArray(v);
      const parts = list ? v.map((x) => inner + (x && JSON.stringify(x).length < 160 ? JSON.stringify(x).replace(/,/g, ", ") : write(x, inner))) : Object.entries(v).map(([k, x]) => inner + JSON.stringify(k) + ": " + write(x, inner));
      return (list ? "[" : "{") + "\n" + parts.join(",\n") + "\n" + pad + (list ? "]" : "}");
    };
    return write(value, "");
  }
  function describe() {
    const node = $("v-step"), parts = [];
    if (at === 0) {
      parts.push(el("div", { class: "panel box" }, el("h3", {}, "Start"), data.objective ? el("p", { class: "note" }, data.objective) : null,
        data.prompt ? el("details", {}, el("summary", {}, el("b", {}, "The task as a text")), el("pre", { tabindex: 0, class: "prompt" }, data.prompt)) : null));
    } else {
      const step = data.steps[at - 1], action = step.action || {};
      const group = step.group === undefined ? null : data.steps.filter((s) => s.group === step.group && s.segment === step.segment);
      const tags = [data.starts > 1 ? el("span", { class: "tag" }, "start " + (step.segment + 1) + " of " + data.starts) : null,
        group && group.length > 1 ? el("span", { class: "tag" }, "edit " + (group.indexOf(step) + 1) + " of " + group.length + " in one action") : null,
        step.edit_error ? el("span", { class: "tag fail" }, "refused") : null];
      const text = pretty(action);
      // What led to this step comes first; a list's calls stand at its first edit.
      const listed = data.notes.filter((n) => n.step + 1 - data.left_out === at || (at === data.steps.length && n.step - data.left_out >= at));
      const before = listed.filter((n) => n.step - data.left_out < at), after = listed.filter((n) => n.step - data.left_out >= at);
      parts.push(el("div", { class: "panel box" }, el("h3", {}, el("span", { class: "op" }, String(action.op || "unreadable")), ...tags),
        step.edit_error ? el("p", { class: "err" }, step.edit_error) : null, text ? el("pre", { tabindex: 0 }, text) : null));
      if (step.verdict) parts.push(verdictBox(step.verdict));
      let led = before;
      if (!before.length && group && group.length > 1) led = data.notes.filter((n) => n.step + 1 - data.left_out === data.steps.indexOf(group[0]) + 1);
      parts.push(...led.map(noteBox), ...after.map(noteBox));
    }
    node.replaceChildren(...parts);
  }
  function fixed() {
    const node = $("v-checks"), parts = [];
    for (const fault of data.faults) parts.push(el("p", { class: "notice" }, fault));
    if (data.left_out) parts.push(el("p", { class: "notice" }, "The first " + data.left_out + " steps are left out."));
    if (current.message) parts.push(el("p", { class: "notice" }, current.message));
    if (data.design) {
      const d = data.design, names = Object.keys(d.initial), metrics = d.final || {};
      const word = (v) => v === undefined || v === null ? "–" : Number(v.toPrecision(5)).toString();
      parts.push(el("div", { class: "panel box" }, el("h3", {}, "Targets"), el("div", { class: "scroll" }, el("table", { class: "checks" },
        el("thead", {}, el("tr", {}, ...["metric", "at first", "target, at most", "at last"].map((t, i) => el("th", { scope: "col", class: i ? "" : "l" }, t)))),
        el("tbody", {}, ...names.map((m) => el("tr", {}, el("th", { scope: "row" }, m.replace(/_/g, " ") + " (" + d.units[m] + ")"), el("td", {}, word(d.initial[m])), el("td", {}, word(d.targets[m])),
          el("td", {}, d.targets[m] === undefined || metrics[m] === undefined ? word(metrics[m]) : el("span", { class: metrics[m] <= d.targets[m] ? "tag pass" : "tag fail" }, word(metrics[m]))))))))));
      const runs = data.steps.map((s, i) => [s, i + 1]).filter(([s]) => s.verdict);
      if (runs.length) parts.push(el("div", { class: "panel box" }, el("h3", {}, "Runs"), el("div", { class: "scroll" }, el("table", { class: "checks" },
        el("thead", {}, el("tr", {}, ...["step", "strict", "paper", "not met"].map((t, i) => el("th", { scope: "col", class: "l" }, t)))),
        el("tbody", {}, ...runs.map(([s, i]) => el("tr", {}, el("th", { scope: "row" }, el("button", { type: "button", class: "link", onclick: () => go(i) }, String(i))),
          ...["strict", "paper"].map((c) => el("td", { class: "l" }, el("span", { class: s.verdict[c] > 0 ? "tag pass" : "tag fail" }, s.verdict[c] > 0 ? "pass" : "fail"))),
          el("td", { class: "msg" }, String(s.verdict.messages || "").split("\n").join("; ") || "–"))))))));
      parts.push(el("div", { class: "panel box" }, el("h3", {}, "All changes to the design"), diff(d.diff, "No file was changed.")));
    }
    if (data.checks.length) {
      const failed = data.checks.filter((c) => !c.passed), rest = data.checks.filter((c) => c.passed);
      const row = (c) => el("tr", {}, el("th", { scope: "row" }, String(c.id)),
        el("td", { class: "l" }, el("span", { class: c.passed ? "tag pass" : "tag fail" }, c.passed ? "holds" : "fails")),
        el("td", { class: "l" }, [c.strict ? "strict" : "paper", c.hidden ? "hidden" : ""].filter(Boolean).join(", ")),
        el("td", { class: "msg" }, String(c.message || ""), c.where && data.scene ? " " : "", c.where && data.scene ? el("button", { type: "button", class: "link", onclick: () => { chosen = [c.id, c.where]; at = data.steps.length; show(); } }, "show") : ""));
      parts.push(el("div", { class: "panel box" }, el("h3", {}, "Final verdict", el("span", { class: "hint" }, failed.length + " of " + data.checks.length + " checks fail")),
        el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Checks of the final verdict" }, el("table", { class: "checks" },
          el("thead", {}, el("tr", {}, ...["check", "result", "counts for", "what was found"].map((t) => el("th", { scope: "col", class: "l" }, t)))),
          el("tbody", {}, ...[...failed, ...rest].map(row))))));
    } else parts.push(el("div", { class: "panel box" }, el("h3", {}, "Final verdict"), el("p", { class: "note" }, "This attempt has no recorded verdict.")));
    node.replaceChildren(...parts);
  }

  $("v-first").addEventListener("click", () => go(0));
  $("v-prev").addEventListener("click", () => go(at - 1));
  $("v-next").addEventListener("click", () => go(at + 1));
  $("v-last").addEventListener("click", () => go(data.steps.length));
  $("v-check").addEventListener("click", () => nextCheck(1));
  $("v-before").addEventListener("click", () => neighbour(-1));
  $("v-after").addEventListener("click", () => neighbour(1));
  $("v-close").addEventListener("click", () => dialog.close());
  $("v-range").addEventListener("input", () => go(Number($("v-range").value)));
  dialog.addEventListener("close", () => history.replaceState(null, "", "#attempts"));
  dialog.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || ["INPUT", "SELECT", "TEXTAREA"].includes(e.target.tagName)) return;
    const step = { ArrowRight: () => go(at + 1), ArrowLeft: () => go(at - 1), Home: () => go(0), End: () => go(data.steps.length),
      c: () => nextCheck(1), C: () => nextCheck(-1), n: () => neighbour(1), p: () => neighbour(-1) }[e.key];
    if (step) { e.preventDefault(); step(); }
  });

  // -- start ---------------------------------------------------------------------------------------------------
  unpack("index").then((index) => {
    arms = index.arms;
    all = index.rows.map((values, id) => {
      const row = Object.fromEntries(COLUMNS.map((name, i) => [name, values[i]]));
      row.id = id;
      row.text = [row.task, row.text, row.failed, row.message].join(" ").toLowerCase();
      return row;
    });
    options($("f-arm"), arms.map((a, i) => [i, a.label]), "all policies");
    options($("f-suite"), distinct("suite"), "all suites");
    options($("f-level"), distinct("level"), "all levels");
    options($("f-outcome"), Object.entries(WORDS), "all outcomes");
    options($("f-error"), [["-", "no error"], ["trace", "with a trace"], ...distinct("error")], "all");
    refresh();
    document.documentElement.dataset.ready = "yes";
    const wanted = /^#attempt-(\d+)-(\d+)$/.exec(location.hash);
    if (wanted) openAttempt(Number(wanted[1]), Number(wanted[2]));
  });
})();
