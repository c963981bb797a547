// The controls of the page. All numbers are in the page, as compressed JSON; nothing is fetched.
// Without this script the tables below stay as they are.
(async () => {
  "use strict";
  const packed = atob(document.getElementById("x-data").textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = await new Response(unpacked).json();
  const $ = (id) => document.getElementById(`x-${id}`);
  const state = {
    metric: data.metrics.findIndex((m) => m.name === data.chosen),
    view: "all", model: "", filter: "", hidden: new Set(), sort: 0, down: null, a: "", b: "",
    intervals: false,
  };

  const element = (name, attributes, ...inside) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...inside.filter((part) => part !== null));
    return made;
  };
  const drawn = (name, attributes, ...inside) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    made.append(...inside);
    return made;
  };
  const fill = (id, ...inside) => $(id).replaceChildren(...inside);

  const metric = () => data.metrics[state.metric];
  const value = (cell) => (Array.isArray(cell) ? cell[0] : cell);
  const ends = (cell) => (Array.isArray(cell) && cell[1] !== null ? [cell[1], cell[2]] : null);
  const written = (x, m = metric()) => {
    if (x === null || x === undefined) return "–";
    if (m.unit === "%") return (100 * x).toFixed(1);
    if (m.unit === "images" || m.unit === "MiB") return Math.round(x).toLocaleString("en");
    return m.unit === "" ? x.toFixed(3) : Number(x.toPrecision(3)).toString();
  };
  const interval = (cell, m) => {
    const found = ends(cell);
    return found ? `${written(found[0], m)} – ${written(found[1], m)}` : "";
  };
  const RANK = { name: "rank", heading: "Mean rank", unit: "rank", lower: true };

  // The columns of the table: each has a title and a cell for every method.
  function columns() {
    const m = metric(), values = data.values[m.name];
    if (state.view !== "all") {
      const at = Number(state.view), setting = data.settings[at];
      const titles = setting.domains.length > 1 ? [`${m.fold} of all`, ...setting.domains] : [m.fold];
      return titles.map((title, n) => ({
        title, metric: m, cells: values[at].map((row) => (row ? row[n] : null)),
      }));
    }
    const made = [];
    if (m.name === data.chosen && !state.model) {
      made.push({ title: "mean rank", metric: RANK, cells: data.ranks });
    }
    data.settings.forEach((setting, at) => {
      if (state.model && setting.model !== state.model) return;
      const title = state.model ? setting.stream : `${setting.stream} · ${setting.model}`;
      made.push({ title, metric: m, at, cells: values[at].map((row) => (row ? row[0] : null)) });
    });
    return made;
  }

  function methods(sorted) {
    const wanted = state.filter.toLowerCase();
    const found = data.methods.map((method, place) => ({ ...method, place })).filter(
      (method) => !state.hidden.has(method.name)
        && `${method.name} ${method.title}`.toLowerCase().includes(wanted));
    const down = state.down === null ? !sorted.metric.lower : state.down;
    return found.sort((one, two) => {
      if (state.sort < 0) return (down ? -1 : 1) * two.title.localeCompare(one.title) * -1;
      const [x, y] = [one, two].map((method) => value(sorted.cells[method.place]));
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      return down ? y - x : x - y;
    });
  }

  function show() {
    const shown = columns();
    if (state.sort >= shown.length) state.sort = 0;
    const sorted = shown[Math.max(state.sort, 0)], rows = methods(sorted);
    table(shown, rows, sorted);
    dots(sorted, rows);
    scatter(rows);
    curves(rows);
    difference(shown);
    const setting = state.view === "all" ? null : data.settings[Number(state.view)];
    fill("said", `${rows.length} of ${data.methods.length} methods. ${metric().heading}; `
      + `${metric().lower ? "less" : "more"} is better. ${setting ? setting.about : ""}`);
  }

  function heading(title, number, shown) {
    const here = state.sort === number;
    const lower = number < 0 ? true : shown[number].metric.lower;
    const down = state.down === null ? !lower : state.down;
    const sign = here ? (down ? " ▼" : " ▲") : "";
    const press = () => {
      state.down = here ? !down : null;
      state.sort = number;
      show();
      $("table").querySelectorAll("thead button")[number + 1].focus();
    };
    return element("th", { scope: "col", class: number < 0 ? "name" : "number",
      "aria-sort": here ? (down ? "descending" : "ascending") : null },
    element("button", { type: "button", onclick: press }, title + sign));
  }

  function table(shown, rows) {
    const best = shown.map((column) => {
      const known = rows.map((row) => value(column.cells[row.place])).filter((x) => x !== null && x !== undefined);
      return column.metric.lower ? Math.min(...known) : Math.max(...known);
    });
    const head = element("tr", {}, heading("method", -1, shown),
      ...shown.map((column, n) => heading(column.title, n, shown)));
    const body = rows.map((row) => element("tr", {},
      element("th", { scope: "row", class: "name" },
        element("i", { style: `background:${row.colour}` }), row.title),
      ...shown.map((column, n) => {
        const cell = column.cells[row.place], text = written(value(cell), column.metric);
        const between = interval(cell, column.metric);
        const about = `${row.title}, ${column.title}: ${text}`
          + (between ? `, 95 % interval ${between}` : "");
        return element("td", { class: "number", title: about, onclick: () => fill("said", about) },
          element("span", { class: value(cell) === best[n] ? "best" : null }, text),
          state.intervals && between ? element("small", {}, between) : null);
      })));
    fill("table", element("caption", {}, `${metric().heading}. Click a heading to sort, or a number to see its interval.`),
      element("thead", {}, head), element("tbody", {}, ...body));
  }

  const WIDE = 720, LEFT = 150, RIGHT = 24;
  function axis(low, high, x, bottom, m) {
    const made = [];
    for (let n = 0; n <= 4; n += 1) {
      const at = low + ((high - low) * n) / 4;
      made.push(drawn("line", { x1: x(at), x2: x(at), y1: 8, y2: bottom, class: "grid" }));
      const text = drawn("text", { x: x(at), y: bottom + 16, "text-anchor": "middle" });
      text.textContent = written(at, m);
      made.push(text);
    }
    return made;
  }
  function mark(svg, row, about, ...inside) {
    const told = () => fill("said", about);
    const group = drawn("g", { tabindex: 0, role: "img", "aria-label": about }, ...inside);
    const title = drawn("title");
    title.textContent = about;
    group.append(title);
    for (const event of ["focus", "click", "pointerenter"]) group.addEventListener(event, told);
    svg.append(group);
  }
  function range(values) {
    let low = Math.min(...values), high = Math.max(...values);
    if (low === high) [low, high] = [low - 0.5, high + 0.5];
    const room = 0.04 * (high - low);
    return [low - room < 0 && low >= 0 ? 0 : low - room, high + room];
  }
  function picture(height, label) {
    return drawn("svg", { viewBox: `0 0 ${WIDE} ${height}`, role: "group", "aria-label": label });
  }

  function dots(column, rows) {
    const known = rows.filter((row) => typeof value(column.cells[row.place]) === "number");
    if (!known.length) return fill("dots");
    const all = known.flatMap((row) => [value(column.cells[row.place]), ...(ends(column.cells[row.place]) || [])]);
    const [low, high] = range(all), bottom = known.length * 20 + 12;
    const x = (at) => LEFT + ((at - low) / (high - low)) * (WIDE - LEFT - RIGHT);
    const svg = picture(bottom + 24, `${column.title} of each method`);
    svg.append(...axis(low, high, x, bottom, column.metric));
    known.forEach((row, n) => {
      const cell = column.cells[row.place], y = 20 + n * 20, found = ends(cell);
      const name = drawn("text", { x: LEFT - 10, y: y + 4, "text-anchor": "end" });
      name.textContent = row.title;
      const parts = [name, drawn("circle", { cx: x(value(cell)), cy: y, r: 5, fill: row.colour })];
      if (found) parts.push(drawn("line", { x1: x(found[0]), x2: x(found[1]), y1: y, y2: y, class: "reach" }));
      const between = interval(cell, column.metric);
      mark(svg, row, `${row.title}: ${written(value(cell), column.metric)}${between ? `, 95 % interval ${between}` : ""}`, ...parts);
    });
    fill("dots", element("h3", {}, column.title), svg);
    return null;
  }

  // Means over the settings that are shown, against the mean time, with the frontier.
  function scatter(rows) {
    const times = data.values.time;
    const at = state.view === "all"
      ? data.settings.map((_, n) => n).filter((n) => !state.model || data.settings[n].model === state.model)
      : [Number(state.view)];
    const mean = (values, place) => {
      const found = at.map((n) => (values[n][place] ? value(values[n][place][0]) : null));
      return found.some((v) => v === null) ? null : found.reduce((a, b) => a + b, 0) / found.length;
    };
    const points = !times || metric().name === "time" ? [] : rows.map((row) => (
      { row, x: mean(times, row.place), y: mean(data.values[metric().name], row.place) }
    )).filter((point) => point.x > 0 && point.y !== null);
    if (points.length < 2) return fill("cost");
    const [left, right] = range(points.map((point) => Math.log10(point.x)));
    const [low, high] = range(points.map((point) => point.y));
    const bottom = 300, x = (v) => 60 + ((Math.log10(v) - left) / (right - left)) * (WIDE - 160);
    const y = (v) => bottom - ((v - low) / (high - low)) * (bottom - 20);
    const svg = picture(bottom + 44, `${metric().heading} against time`);
    svg.setAttribute("overflow", "visible");
    for (let n = 0; n <= 4; n += 1) {
      const v = low + ((high - low) * n) / 4;
      svg.append(drawn("line", { x1: 60, x2: WIDE - 100, y1: y(v), y2: y(v), class: "grid" }));
      const text = drawn("text", { x: 52, y: y(v) + 4, "text-anchor": "end" });
      text.textContent = written(v);
      svg.append(text);
    }
    for (const tick of [0.01, 0.1, 1, 10, 100, 1000]) {
      if (Math.log10(tick) < left || Math.log10(tick) > right) continue;
      const text = drawn("text", { x: x(tick), y: bottom + 18, "text-anchor": "middle" });
      text.textContent = tick;
      svg.append(text);
    }
    const under = drawn("text", { x: 60, y: bottom + 38 });
    under.textContent = "milliseconds per image";
    svg.append(under);
    const better = (a, b) => (metric().lower ? a < b : a > b);
    const edge = [];
    for (const point of [...points].sort((a, b) => a.x - b.x || (better(a.y, b.y) ? -1 : 1))) {
      if (!edge.length || better(point.y, edge[edge.length - 1].y)) edge.push(point);
    }
    const path = edge.map((point, n) => (n ? `H${x(point.x)}V${y(point.y)}` : `M${x(point.x)},${y(point.y)}`));
    svg.append(drawn("path", { d: path.join(""), class: "frontier" }));
    const taken = [];  // names that would cover each other move up
    for (const point of [...edge, ...points.filter((one) => !edge.includes(one))]) {
      const on = edge.includes(point), left = x(point.x) + 7, right = left + 7 * point.row.title.length;
      let base = y(point.y) - 4;
      while (taken.some(([l, r, b]) => left < r && l < right && Math.abs(base - b) < 13)) base -= 1;
      taken.push([left, right, base]);
      const name = drawn("text", { x: left, y: base, class: on ? "best" : "" });
      name.textContent = point.row.title;
      mark(svg, point.row, `${point.row.title}: ${written(point.y)}, ${Number(point.x.toPrecision(3))} ms per image${on ? ", on the frontier" : ""}`,
        drawn("circle", { cx: x(point.x), cy: y(point.y), r: on ? 6 : 4, fill: point.row.colour }), name);
    }
    fill("cost", element("h3", {}, `${metric().heading} against cost`), svg,
      element("p", { class: "caption" }, "The line is the frontier: no other method is both better and quicker."));
    return null;
  }

  function curves(rows) {
    if (state.view === "all") return fill("along");
    const lines = data.curves[Number(state.view)];
    const known = rows.filter((row) => lines[row.place]);
    if (!known.length) return fill("along");
    const most = Math.max(...known.flatMap((row) => lines[row.place][0]));
    const [low, high] = range(known.flatMap((row) => lines[row.place][1]));
    const bottom = 260, x = (v) => 60 + (v / most) * (WIDE - 80);
    const y = (v) => bottom - ((v - low) / (high - low)) * (bottom - 20);
    const svg = picture(bottom + 40, "Accuracy along the stream");
    for (let n = 0; n <= 4; n += 1) {
      const v = low + ((high - low) * n) / 4;
      svg.append(drawn("line", { x1: 60, x2: WIDE - 20, y1: y(v), y2: y(v), class: "grid" }));
      const text = drawn("text", { x: 52, y: y(v) + 4, "text-anchor": "end" });
      text.textContent = (100 * v).toFixed(0);
      svg.append(text);
    }
    const under = drawn("text", { x: 60, y: bottom + 26 });
    under.textContent = `images seen, up to ${Math.round(most).toLocaleString("en")}; accuracy in %`;
    svg.append(under);
    for (const row of known) {
      const [xs, ys] = lines[row.place];
      const d = xs.map((v, n) => `${n ? "L" : "M"}${x(v).toFixed(1)},${y(ys[n]).toFixed(1)}`).join("");
      const last = 100 * ys[ys.length - 1];
      mark(svg, row, `${row.title}: ${(100 * ys[0]).toFixed(1)} % at the beginning, ${last.toFixed(1)} % at the end`,
        drawn("path", { d, class: "curve", stroke: row.colour }));
    }
    fill("along", element("h3", {}, "Accuracy along the stream"), svg);
    return null;
  }

  function difference(shown) {
    const [a, b] = [state.a, state.b].map((name) => data.methods.findIndex((m) => m.name === name));
    if (a < 0 || b < 0) return fill("difference");
    const rows = shown.map((column) => {
      const [x, y] = [a, b].map((place) => value(column.cells[place]));
      const known = typeof x === "number" && typeof y === "number";
      const gap = known ? y - x : null;
      const sign = gap > 0 ? "+" : gap < 0 ? "−" : "";
      const good = known && gap !== 0 && (gap > 0) !== column.metric.lower;
      return element("tr", {}, element("th", { scope: "row", class: "name" }, column.title),
        ...[x, y].map((v) => element("td", { class: "number" }, written(v, column.metric))),
        element("td", { class: `number${good ? " best" : ""}` },
          known ? sign + written(Math.abs(gap), column.metric) : "–"));
    });
    const titles = [a, b].map((place) => data.methods[place].title);
    fill("difference", element("h3", {}, `${titles[1]} against ${titles[0]}`),
      element("div", { class: "box", tabindex: 0, role: "region", "aria-label": "Difference of two methods" },
        element("table", {}, element("caption", {}, `${metric().heading}; bold where ${titles[1]} is better. tapr compare says how sure a difference is.`),
          element("thead", {}, element("tr", {}, element("th", { scope: "col", class: "name" }, "on"),
            ...titles.map((title) => element("th", { scope: "col", class: "number" }, title)),
            element("th", { scope: "col", class: "number" }, "difference"))),
          element("tbody", {}, ...rows))));
    return null;
  }

  function csv() {
    const quoted = (text) => (/[",\n]/.test(text) ? `"${String(text).replaceAll('"', '""')}"` : text);
    const shown = columns(), rows = methods(shown[Math.max(state.sort, 0)]);
    const lines = [["method", "on", "metric", "value", "low", "high"]];
    for (const row of rows) {
      for (const column of shown) {
        const cell = column.cells[row.place], found = ends(cell) || ["", ""];
        if (typeof value(cell) === "number") lines.push([row.name, column.title, column.metric.name, value(cell), ...found]);
      }
    }
    const text = lines.map((line) => line.map(quoted).join(",")).join("\n");
    const link = element("a", { href: URL.createObjectURL(new Blob([`${text}\n`], { type: "text/csv" })), download: `tapr-${metric().name}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  const option = (value_, text) => element("option", { value: value_ }, text);
  const listen = (id, event, change) => $(id).addEventListener(event, () => { change($(id)); show(); });
  fill("metric", ...data.metrics.map((m, n) => option(n, m.heading)));
  $("metric").value = state.metric;
  const models = [...new Set(data.settings.map((setting) => setting.model))];
  fill("model", option("", "all models"), ...models.map((model) => option(model, model)));
  fill("view", option("all", "all streams"), ...models.map((model) => element("optgroup", { label: model },
    ...data.settings.map((setting, n) => (setting.model === model ? option(n, setting.stream) : null)).filter(Boolean))));
  for (const id of ["a", "b"]) fill(id, option("", "–"), ...data.methods.map((m) => option(m.name, m.title)));
  fill("methods", ...data.methods.map((m) => element("label", {}, element("input", { type: "checkbox", checked: true,
    onchange: (event) => { state.hidden[event.target.checked ? "delete" : "add"](m.name); show(); } }), m.title)));
  listen("metric", "change", (box) => { state.metric = Number(box.value); state.down = null; });
  listen("model", "change", (box) => { state.model = box.value; state.sort = 0; state.down = null; });
  listen("view", "change", (box) => { state.view = box.value; state.sort = 0; state.down = null; });
  listen("filter", "input", (box) => { state.filter = box.value; });
  listen("intervals", "change", (box) => { state.intervals = box.checked; });
  listen("a", "change", (box) => { state.a = box.value; });
  listen("b", "change", (box) => { state.b = box.value; });
  $("csv").addEventListener("click", csv);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("explore").hidden = false;
  show();
})();
