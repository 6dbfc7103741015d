
// --- the report's charts, drawn as SVG: sharp on paper, in the colours of the style sheet ------------------------

const figures = JSON.parse(byId("figures").textContent);
const PAPER = 680; // width of a chart in print, in pixels
const NAME = "http://www.w3.org/2000/svg";
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800];
const PARTS = [["compute", 1], ["wait", 0.36], ["exchange", 1]];
const LANE = 26;
const ROWS = 300; // of a table beside a chart

const FORMATS = {
  share: percent,
  accuracy: (value) => (value === null ? "–" : value.toFixed(3)),
  metric: (value) => (value === null ? "–" : String(Number(value.toPrecision(4)))),
  number: (value) => (value === null ? "–" : Math.abs(value) < 1e4 ? String(Number(value.toPrecision(4))) : number(value)),
  rate: (value) => (value === null ? "–" : `${bytes(value)}/s`),
};

function shape(tag, attributes = {}, ...children) {
  const element = document.createElementNS(NAME, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Round steps of an axis from low to high, at most `most` of them. */
function ticks(low, high, most) {
  const raw = (high - low) / Math.max(1, most) || 1;
  const size = 10 ** Math.floor(Math.log10(raw));
  return multiples(low, high, size * ([1, 2, 5, 10].find((factor) => factor * size >= raw * 0.999) ?? 10));
}

function timeTicks(low, high, most) {
  const raw = (high - low) / Math.max(1, most);
  if (raw < 1) return ticks(low, high, most);
  return multiples(low, high, TIMES.find((step) => step >= raw) ?? Math.ceil(raw / 604800) * 604800);
}

function multiples(low, high, step) {
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + 1e-9 * step; index += 1) found.push(index * step);
  return found;
}

const precise = (value) => (value < 10 && !Number.isInteger(value) ? `${Number(value.toFixed(2))} s` : clock(value));

/** The index of the element of an ascending list that is nearest to a value. */
function nearest(list, value) {
  let [low, high] = [0, list.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle;
    else high = middle;
  }
  return Math.abs(list[low] - value) <= Math.abs(list[high] - value) ? low : high;
}

/** A place for a drawing, which is drawn anew when its width changes. */
class Drawing {
  constructor(place, content) {
    this.place = place;
    this.content = content;
    this.width = 0;
    place.querySelector(".none").remove();
    this.svg = shape("svg", { class: "plot", role: "img", tabindex: "0" });
    place.querySelector("figcaption").after(this.svg);
    this.table = scrollable(`${content.title} as a table`);
    this.details = make("details", {}, make("summary", {}, "As a table"), this.table.box);
    this.details.addEventListener("toggle", () => this.details.open && this.fillTable());
    place.append(this.details);
    new ResizeObserver(() => this.fit(this.place.clientWidth)).observe(place);
    this.svg.addEventListener("pointermove", (event) => this.point(this.toX(event), this.toY(event)));
    this.svg.addEventListener("pointerdown", (event) => this.point(this.toX(event), this.toY(event)));
    this.svg.addEventListener("pointerleave", () => this.point(null, null));
    this.svg.addEventListener("blur", () => this.point(null, null));
    this.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) event.preventDefault();
      if (step) this.step(step);
    });
  }

  fit(width) {
    if (!width || width === this.width) return;
    this.width = width;
    this.draw();
  }

  /** Begin a drawing of this height: axes, grid; the functions that map values to places. */
  frame(height, [left, right], [bottom, top], margin) {
    const { width } = this;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren();
    this.height = height;
    this.area = { left: margin.left, right: width - margin.right, top: margin.top, bottom: height - margin.bottom };
    const { area } = this;
    this.x = (value) => area.left + ((value - left) / (right - left || 1)) * (area.right - area.left);
    this.y = (value) => area.bottom - ((value - bottom) / (top - bottom || 1)) * (area.bottom - area.top);
    this.valueAt = (x) => left + ((x - area.left) / (area.right - area.left)) * (right - left);
  }

  xAxis(places, words) {
    const { area } = this;
    places.forEach((place) => {
      const x = this.x(place);
      const anchor = x > area.right - 18 ? "end" : x < area.left + 12 ? "start" : "middle";
      this.svg.append(
        shape("line", { class: "grid", x1: x, x2: x, y1: area.top, y2: area.bottom }),
        shape("text", { x, y: area.bottom + 17, "text-anchor": anchor }, words(place)),
      );
    });
  }

  toX(event) {
    const box = this.svg.getBoundingClientRect();
    return ((event.clientX - box.left) / box.width) * this.width;
  }

  toY(event) {
    const box = this.svg.getBoundingClientRect();
    return ((event.clientY - box.top) / box.height) * this.height;
  }
}

/** Curves with their bands; the key below shows the values at the pointer, or else the last ones. */
class LineChart extends Drawing {
  constructor(place, content) {
    super(place, content);
    this.format = FORMATS[content.form];
    this.axes = Object.keys(content.curves);
    this.axis = this.axes[0];
    this.keys = make("div", { class: "keys", role: "status" }); // told to those who go along the curve by keys
    this.svg.after(this.keys);
    if (this.axes.length > 1) this.addChoice();
  }

  get curves() {
    return this.content.curves[this.axis];
  }

  addChoice() {
    const words = { time: "over time", rounds: "over rounds" };
    const buttons = this.axes.map((axis) => make("button", { type: "button", "aria-pressed": axis === this.axis }, words[axis]));
    buttons.forEach((button, index) => button.addEventListener("click", () => {
      this.axis = this.axes[index];
      buttons.forEach((other) => other.setAttribute("aria-pressed", other === button));
      this.draw();
      if (this.details.open) this.fillTable();
    }));
    this.place.querySelector("figcaption").append(make("span", { class: "axis", role: "group", "aria-label": "Axis" }, ...buttons));
  }

  words(value) {
    return this.axis === "time" ? precise(value) : `round ${Math.round(value)}`;
  }

  draw() {
    const { content, curves } = this;
    const all = curves.flatMap((curve) => [...curve.y, ...(curve.low ?? []), ...(curve.high ?? [])]).filter((value) => value !== null);
    const right = Math.max(...curves.map((curve) => curve.x.at(-1) ?? 0), 1e-3);
    if (content.target !== null) all.push(content.target);
    let [low, high] = [Math.min(...all), Math.max(...all)];
    if (content.form !== "accuracy" && content.form !== "metric") low = Math.min(0, low);
    const space = 0.06 * (high - low || Math.abs(high) || 1);
    high += space;
    if (low !== 0) low -= space;
    if (content.form === "accuracy" || content.form === "share") [low, high] = [Math.max(0, low), Math.min(1, high)];
    const height = this.width < 420 ? 210 : 250;
    const steps = ticks(low, high, 5);
    const margin = { left: 12 + 7 * Math.max(...steps.map((step) => this.format(step).length)), right: 10, top: 8, bottom: 26 };
    this.frame(height, [this.axis === "time" ? 0 : Math.min(...curves.map((curve) => curve.x[0] ?? 0)), right], [low, high], margin);
    const { area, svg } = this;
    steps.forEach((step) => svg.append(
      shape("line", { class: "grid", x1: area.left, x2: area.right, y1: this.y(step), y2: this.y(step) }),
      shape("text", { x: area.left - 7, y: this.y(step) + 4, "text-anchor": "end" }, this.format(step)),
    ));
    const most = (area.right - area.left) / 78;
    if (this.axis === "time") this.xAxis(timeTicks(0, right, most), precise);
    else this.xAxis(ticks(0, right, most).filter((place) => Number.isInteger(place) && this.x(place) >= area.left), String);
    if (content.target !== null) {
      svg.append(shape("line", { class: "target", x1: area.left, x2: area.right, y1: this.y(content.target), y2: this.y(content.target) }));
      svg.append(shape("text", { x: area.right, y: this.y(content.target) - 4, "text-anchor": "end" }, `target ${this.format(content.target)}`));
    }
    curves.forEach((curve) => curve.low && svg.append(this.own(shape("path", { class: "band", d: this.bandPath(curve) }), curve)));
    curves.forEach((curve) => svg.append(this.own(
      shape("path", { class: "curve", d: this.linePath(curve), "stroke-dasharray": curve.dash.join(" ") }), curve,
    )));
    curves.filter((curve) => curve.x.length < 3).forEach((curve) => curve.x.forEach((x, index) => curve.y[index] === null
      || svg.append(this.own(shape("circle", { class: "dot", r: 3.5, cx: this.x(x), cy: this.y(curve.y[index]) }), curve))));
    this.cursor = shape("g");
    svg.append(this.cursor);
    const ends = curves.map((curve) => `${curve.label}: ${this.valueWords(curve, curve.x.length - 1)} at ${this.words(curve.x.at(-1) ?? 0)}`);
    svg.setAttribute("aria-label", `${content.title}. ${ends.join("; ")}`);
    this.point(null);
  }

  own(element, curve) {
    element.style.setProperty("--own", curve.color);
    return element;
  }

  linePath(curve) {
    let pen = "M";
    return curve.x.map((x, index) => {
      const y = curve.y[index];
      if (y === null) {
        pen = "M";
        return "";
      }
      const step = `${pen}${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`;
      pen = "L";
      return step;
    }).join("");
  }

  bandPath(curve) {
    const inside = curve.x.map((_, index) => index).filter((index) => curve.low[index] !== null && curve.high[index] !== null);
    const at = (values) => (index) => `${this.x(curve.x[index]).toFixed(1)} ${this.y(values[index]).toFixed(1)}`;
    return inside.length ? `M${[...inside.map(at(curve.high)), ...inside.reverse().map(at(curve.low))].join("L")}Z` : "";
  }

  valueWords(curve, index) {
    const value = curve.y[index] ?? null;
    const spread = value !== null && curve.high && curve.high[index] !== null ? ` ± ${this.format(curve.high[index] - value)}` : "";
    return `${this.format(value)}${spread}`;
  }

  step(direction) {
    const [longest] = this.curves.slice().sort((one, other) => other.x.length - one.x.length);
    const last = longest.x.length - 1;
    const next = this.at === undefined ? (direction > 0 ? 0 : last) : nearest(longest.x, this.at) + direction;
    this.point(this.x(longest.x[Math.min(Math.max(next, 0), last)]));
  }

  /** Show the values at a place; with null the last ones. */
  point(x) {
    const { area, curves } = this;
    const outside = x === null || x < area.left - 6 || x > area.right + 6;
    this.at = outside ? undefined : this.valueAt(x);
    this.cursor.replaceChildren();
    const chosen = curves.map((curve) => (outside ? curve.x.length - 1 : nearest(curve.x, this.at)));
    if (!outside) {
      const line = Math.min(Math.max(x, area.left), area.right);
      this.cursor.append(shape("line", { class: "cursor", x1: line, x2: line, y1: area.top, y2: area.bottom }));
      curves.forEach((curve, index) => {
        const value = curve.y[chosen[index]] ?? null;
        if (value !== null) this.cursor.append(this.own(shape("circle", { class: "dot", r: 4, cx: this.x(curve.x[chosen[index]]), cy: this.y(value) }), curve));
      });
    }
    this.keys.replaceChildren(...curves.map((curve, index) => {
      const line = shape("line", { x1: 1, y1: 5, x2: 25, y2: 5, "stroke-dasharray": curve.dash.join(" ") });
      const swatch = this.own(shape("svg", { class: "swatch", width: 26, height: 10, "aria-hidden": "true" }, line), curve);
      const when = curve.x.length ? ` at ${this.words(curve.x[chosen[index]])}` : "";
      return make("span", {}, swatch, `${curve.label}: `, make("b", {}, this.valueWords(curve, chosen[index])), when);
    }));
  }

  fillTable() {
    const rows = this.curves.flatMap((curve) => curve.x.map((x, index) => [curve, index, x]));
    const step = Math.ceil(rows.length / ROWS);
    fill(this.table.table, [
      ["run", false, ([curve]) => curve.label],
      [this.axis === "time" ? "after" : "round", true, ([, , x]) => (this.axis === "time" ? precise(x) : String(Math.round(x)))],
      ["value", true, ([curve, index]) => this.valueWords(curve, index)],
    ], rows.filter((_, index) => index % step === 0));
  }
}

/** One lane for each device: computing and exchanging at full height, waiting at a third of it. */
class TimelineChart extends Drawing {
  constructor(place, content) {
    super(place, content);
    const names = { compute: "computing", wait: "waiting", exchange: "transferring" };
    place.querySelector("figcaption").append(make("ul", { class: "key" }, ...PARTS.map(([name]) => make("li", { class: name }, names[name]))));
    this.readout = make("p", { class: "readout", role: "status" });
    this.svg.after(this.readout);
    const shares = content.lanes.map((lane) => `${lane.name}: ${this.sharesOf(lane)}`);
    this.svg.setAttribute("aria-label", `${content.title}. ${shares.join("; ")}`);
  }

  sharesOf({ blocks }) {
    const sum = (place) => blocks.reduce((whole, block) => whole + block[place], 0);
    const whole = blocks.reduce((total, block) => total + block[3] - block[2], 0) || 1;
    return `computing ${percent(sum(4) / whole)}, waiting ${percent(sum(5) / whole)}, transferring ${percent(sum(6) / whole)}`;
  }

  draw() {
    const { lanes, begin, end } = this.content;
    const narrow = this.width < 520;
    const lane = narrow ? LANE + 14 : LANE; // on a phone the name stands above its lane
    const longest = Math.max(...lanes.map(({ name }) => name.length));
    const left = narrow ? 2 : Math.min(14 + 6.6 * longest, 0.28 * this.width);
    this.frame(lanes.length * lane + 30, [begin, end], [0, 1], { left, right: 10, top: 4, bottom: 26 });
    const { area, svg } = this;
    this.laneHeight = lane;
    this.xAxis(timeTicks(begin, end, (area.right - area.left) / 78), precise);
    lanes.forEach(({ name, blocks }, index) => {
      const top = area.top + index * lane + (narrow ? 14 : 0);
      const room = Math.max(3, Math.floor(left / 6.6) - 1);
      const shown = narrow || name.length <= room ? name : `…${name.slice(1 - room)}`;
      svg.append(shape("text", narrow ? { x: area.left, y: top - 2 } : { x: area.left - 8, y: top + LANE / 2 + 4, "text-anchor": "end" }, shown));
      const paths = { compute: "", wait: "", exchange: "" };
      for (const [, , from, until, ...parts] of blocks) {
        const known = parts[0] + parts[1] + parts[2];
        // What is left of the round are questions, loading and the like, between the iterations: it is left blank.
        let place = Math.max(from, until - known);
        PARTS.forEach(([part, share], order) => {
          const [x, next] = [this.x(Math.max(place, begin)), this.x(Math.min(place + parts[order], end))];
          const height = (LANE - 8) * share;
          place += parts[order];
          if (parts[order] > 0 && next > x) paths[part] += `M${x.toFixed(1)} ${(top + (LANE - height) / 2).toFixed(1)}h${Math.max(next - x, 0.4).toFixed(1)}v${height.toFixed(1)}H${x.toFixed(1)}Z`;
        });
      }
      Object.entries(paths).forEach(([part, d]) => d && svg.append(shape("path", { class: part, d })));
    });
    this.cursor = shape("g");
    svg.append(this.cursor);
    this.point(null, null);
  }

  point(x, y) {
    const { area } = this;
    const { lanes } = this.content;
    this.cursor.replaceChildren();
    const index = x === null ? -1 : Math.floor((y - area.top) / this.laneHeight);
    const lane = x !== null && x >= area.left && x <= area.right ? lanes[index] : undefined;
    const time = lane && this.valueAt(x);
    const block = lane?.blocks.find(([, , from, until]) => from <= time && time <= until);
    this.chosen = lane ? { index, time } : undefined;
    if (lane) this.cursor.append(shape("line", { class: "cursor", x1: x, x2: x, y1: area.top, y2: area.bottom }));
    text(this.readout, block ? this.words(lane.name, block) : lane ? lane.name : `Point at a block for the figures of its ${this.content.unit}.`);
  }

  words(name, [first, last, from, until, ...parts]) {
    const rounds = first === last ? `${this.content.unit} ${first}` : `${this.content.unit}s ${first} to ${last}`;
    const times = ["computing", "waiting", "transferring"].map((part, index) => `${part} ${seconds(parts[index])}`);
    return [name, rounds, `${precise(from)} to ${precise(until)}`, ...times].join(" · ");
  }

  step(direction) {
    const { index, time } = this.chosen ?? { index: 0, time: this.content.begin };
    const { blocks } = this.content.lanes[index];
    if (!blocks.length) return;
    const now = nearest(blocks.map(([, , from, until]) => (from + until) / 2), time);
    const [, , from, until] = blocks[Math.min(Math.max(now + (this.chosen ? direction : 0), 0), blocks.length - 1)];
    this.point(this.x((from + until) / 2), this.area.top + (index + 0.5) * this.laneHeight);
  }

  fillTable() {
    const rows = this.content.lanes.flatMap((lane) => lane.blocks.map((block) => [lane.name, ...block]));
    fill(this.table.table, [
      ["device", false, (row) => row[0]],
      [`${this.content.unit}s`, true, (row) => (row[1] === row[2] ? String(row[1]) : `${row[1]}–${row[2]}`)],
      ["until", true, (row) => precise(row[4])],
      ["computing", true, (row) => seconds(row[5])],
      ["waiting", true, (row) => seconds(row[6])],
      ["transferring", true, (row) => seconds(row[7])],
    ], rows.slice(0, ROWS));
  }
}

const drawings = [...document.querySelectorAll("figure.chart")].map((place, index) => {
  const content = figures[index];
  return content.kind === "chart" ? new LineChart(place, content) : new TimelineChart(place, content);
});

// On paper everything is open, and charts have the width of the paper.
const folded = [...document.querySelectorAll("details.section")];
let open = [];
addEventListener("beforeprint", () => {
  open = folded.map((details) => details.open);
  folded.forEach((details) => { details.open = true; });
  drawings.forEach((drawing) => drawing.fit(drawing.place.parentElement.classList.contains("curves") && drawing.place.parentElement.children.length > 1 ? PAPER / 2 : PAPER));
});
addEventListener("afterprint", () => {
  folded.forEach((details, index) => { details.open = open[index]; });
  drawings.forEach((drawing) => drawing.fit(drawing.place.clientWidth));
});
