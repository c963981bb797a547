"use strict";
const $ = (id) => document.getElementById(id);
const percent = (value) => (value == null ? "–" : (100 * value).toFixed(1) + " %");
const number = (value) => (value == null ? "–" : Number(value).toLocaleString("en", { maximumFractionDigits: 1 }));
const milliseconds = (value) => (value == null ? "–" : number(1000 * value) + " ms");
const bytes = (value) => (value < 1e6 ? number(value / 1e3) + " kB" : number(value / 1e6) + " MB");
let chosen = null; // the stream that is shown in detail
let reading = null; // aborts the present connection

function make(tag, text, kind) {
  const element = document.createElement(tag);
  if (text != null) element.textContent = text;
  if (kind) element.className = kind;
  return element;
}

function headers() {
  const token = sessionStorage.getItem("token");
  return token ? { Authorization: "Bearer " + token } : {};
}

function showNumbers(server) {
  const late = server.images.late || 0;
  const pairs = [
    ["images per second", number(server.images_per_second)], ["latency p50", milliseconds(server.p50)],
    ["latency p95", milliseconds(server.p95)], ["images waiting", number(server.queue)],
    ["streams", number(server.streams)], ["streams not ok", number(server.unhealthy)],
    ["streams in memory", number(server.in_memory)], ["state in memory", bytes(server.state_bytes)],
    ["images predicted late", number(late)], ["steps refused", number(server.refused)],
  ];
  $("numbers").replaceChildren(...pairs.map(([name, value]) => {
    const pair = make("div");
    pair.append(make("dt", name), make("dd", value));
    return pair;
  }));
}

function showStreams(streams, shown) {
  const focused = document.activeElement && document.activeElement.dataset.stream;
  $("streams").replaceChildren(...streams.map((stream) => {
    const row = make("tr", null, stream.stream === shown ? "chosen" : "");
    const choose = make("button", stream.stream);
    choose.dataset.stream = stream.stream;
    choose.addEventListener("click", () => { chosen = stream.stream; connect(); });
    const first = make("td");
    first.append(choose);
    const health = stream.health.verdict + (stream.frozen ? ", frozen" : "");
    row.append(first, make("td", health, stream.health.verdict), make("td", number(stream.images)),
      make("td", percent(stream.confidence)), make("td", percent(stream.agreement)),
      make("td", stream.in_memory ? bytes(stream.bytes) : "on disk"));
    if (focused === stream.stream) setTimeout(() => choose.focus(), 0);
    return row;
  }));
}

function bars(rows, most, label) {
  return rows.map(([name, value]) => {
    const bar = make("div", null, "bar");
    const meter = make("meter");
    meter.max = most || 1;
    meter.value = value;
    meter.setAttribute("aria-label", label + " " + name);
    bar.append(make("span", name), meter, make("span", value < 10 ? Number(value.toFixed(3)) : number(value)));
    return bar;
  });
}

function line(points, kind) {
  const drawn = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const step = 300 / Math.max(points.length - 1, 1);
  drawn.setAttribute("points", points.map((value, at) => [at * step, value])
    .filter(([, value]) => value != null).map(([x, value]) => `${x.toFixed(1)},${(115 - 110 * value).toFixed(1)}`).join(" "));
  drawn.setAttribute("class", kind);
  return drawn;
}

function showDetail(detail) {
  $("one").hidden = !detail;
  if (!detail) return;
  $("h-one").textContent = "Stream " + detail.stream;
  const why = detail.health.reason ? ": " + detail.health.reason : "";
  $("verdict").textContent = detail.health.verdict + why + (detail.frozen ? " (frozen)" : "");
  $("verdict").className = detail.health.verdict;
  const classes = detail.classes.map((each) => [each.name, each.images]);
  $("classes").replaceChildren(...bars(classes, Math.max(...classes.map((each) => each[1]), 1), "images of"));
  $("curve").replaceChildren(line(detail.curve.map((p) => p[0]), "line-a"), line(detail.curve.map((p) => p[1]), "line-b"));
  const shift = detail.shift.map((value, at) => [String(at + 1), value]);
  $("shift").replaceChildren(...(shift.length ? bars(shift, Math.max(...detail.shift), "nats at layer")
    : [make("p", "not known: the model has no batch-norm layers, or every answer was late")]));
  $("acts").replaceChildren(...(detail.acts.length ? detail.acts.map((act) => make("li",
    new Date(1000 * act.time).toLocaleTimeString() + "  " + act.what + (act.why ? ": " + act.why : "")))
    : [make("li", "nothing yet")]));
  $("pictures").replaceChildren(...(detail.pictures.length ? detail.pictures.map((each) => {
    const box = make("div");
    const image = make("img");
    image.src = "data:image/png;base64," + each.png;
    image.alt = "image predicted as " + each.after;
    box.append(image, make("span", each.before === each.after ? each.after : each.before + " → " + each.after));
    return box;
  }) : [make("p", "no images yet, or they are switched off with --no-pictures")]));
}

function show(content) {
  const detail = content.detail;
  showNumbers(content.server);
  showStreams(content.streams, detail && detail.stream);
  showDetail(detail);
  $("link").textContent = "live, " + new Date(1000 * content.time).toLocaleTimeString();
}

async function read(signal) {
  const served = await fetch("/v1/server", { headers: headers(), signal });
  if (served.status === 401 || served.status === 403) return false;
  const about = await served.json();
  $("served").textContent = `${about.model} with ${about.method}`;
  const query = chosen ? "?stream=" + encodeURIComponent(chosen) : "";
  const answer = await fetch("/v1/events" + query, { headers: headers(), signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return true;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    parts.filter((part) => part.startsWith("data: ")).forEach((part) => show(JSON.parse(part.slice(6))));
  }
}

async function connect() {
  if (reading) reading.abort();
  const mine = (reading = new AbortController());
  try {
    const allowed = await read(mine.signal);
    if (!allowed) {
      $("ask").hidden = false;
      $("link").textContent = "a token is needed";
      return;
    }
  } catch (error) {
    if (mine.signal.aborted) return;
  }
  $("link").textContent = "not connected, trying again";
  setTimeout(() => { if (reading === mine) connect(); }, 2000);
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token").value);
  $("token").value = "";
  $("ask").hidden = true;
  connect();
});
connect();
