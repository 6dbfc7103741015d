// Line charts by uPlot, in this page's colours, each with its figures as a table for those who cannot see it.

import { fill, make, scrollable } from "./dom.js";
import { clock } from "./format.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const charts = new Set();

/** Seconds between two labels of an axis of time. */
export const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400];

dark.addEventListener("change", () => charts.forEach((chart) => chart.rebuild()));

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** A range of an axis around values of any size and sign. */
export const around = (plot, low, high) => {
  const space = 0.08 * (high - low || Math.abs(high) || 1);
  return [low - space, high + space];
};

const font = () => `12px ${getComputedStyle(document.body).fontFamily}`;

/** An axis with this page's looks. */
export function axis(options) {
  const grid = { stroke: colour("line"), width: 1 };
  return { stroke: colour("muted"), font: font(), grid, ticks: { show: false }, gap: 6, ...options };
}

const tableLabel = (label) => `${label} as a table`;

/** What all charts have in common: a place, its width, and being drawn anew when the colours change. */
export class Chart {
  constructor(place, label, height) {
    this.plotPlace = make("div", { class: "plot", role: "img", "aria-label": label });
    this.none = make("p", { class: "none" }, "Nothing has been reported yet.");
    this.alternative = scrollable(tableLabel(label));
    this.details = make("details", {}, make("summary", {}, "As a table"), this.alternative.box);
    place.classList.add("chart");
    place.append(this.none, this.plotPlace, this.details);
    this.label = label;
    this.height = height;
    this.plot = null;
    this.shown = null;
    this.details.addEventListener("toggle", () => this.fillTable());
    new ResizeObserver(() => this.resize()).observe(this.plotPlace);
    charts.add(this);
  }

  resize() {
    const width = this.plotPlace.clientWidth;
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: this.plot.height });
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    if (this.shown) this.show(this.shown);
  }

  /** Show there is nothing to show, or there is. */
  vacant(isVacant) {
    this.none.hidden = !isVacant;
    this.plotPlace.hidden = this.details.hidden = isVacant;
  }

  create(options, data) {
    const width = this.plotPlace.clientWidth || 300;
    this.plot = new uPlot({ width, height: this.height, ...options }, data, this.plotPlace);
  }

  fillTable() {}
}

/**
 * Curves over the time of a run.
 * `lines`: {name, colour, dash, points, format}; data: [seconds, values of the first line, …].
 */
export class LineChart extends Chart {
  constructor(place, label, { format, height = 190, range, columns = null }) {
    super(place, label, height);
    this.format = format;
    this.range = range;
    this.columns = columns;
  }

  /** Show something else from now on; see `constructor`. */
  describe({ label, format, range }) {
    Object.assign(this, { label, format, range });
    for (const part of [this.alternative.box, this.alternative.table]) part.setAttribute("aria-label", tableLabel(label));
  }

  show(content) {
    const { lines, data, summary } = content;
    const names = lines.map((line) => line.name).join("\n");
    this.shown = content;
    this.vacant(!data[0].length);
    if (!data[0].length) return;
    this.plotPlace.setAttribute("aria-label", `${this.label}: ${summary}`);
    if (this.plot && this.names === names) this.plot.setData(data);
    else {
      this.plot?.destroy();
      this.names = names;
      this.create(this.options(lines), data);
    }
    this.fillTable();
  }

  options(lines) {
    const newest = (values) => values.findLast((value) => value !== null && value !== undefined);
    return {
      scales: { x: { time: false }, y: { range: this.range || ((plot, low, high) => [0, (high || 1) * 1.08]) } },
      axes: [
        axis({ values: (plot, splits) => splits.map(clock), space: 64, size: 28, incrs: STEPS }),
        axis({ values: (plot, splits) => splits.map(this.format), size: 70, space: 34 }),
      ],
      cursor: { points: { size: 7 }, drag: { x: false, y: false } },
      series: [
        { label: "after", value: (plot, value) => clock(value ?? plot.data[0].at(-1)) },
        ...lines.map((line) => ({
          label: line.name,
          stroke: colour(line.colour),
          width: 2,
          dash: line.dash,
          spanGaps: true,
          points: { show: Boolean(line.points), size: 5 },
          value: (plot, value, index) => this.format(value ?? newest(plot.data[index])),
        })),
      ],
    };
  }

  fillTable() {
    if (!this.details.open || !this.shown) return;
    const { lines, data } = this.shown;
    const rows = data[0].map((_, index) => data.map((values) => values[index])).reverse().slice(0, 200);
    fill(this.alternative.table, [
      ["after", true, (row) => clock(row[0])],
      ...lines.map((line, index) => [line.name, true, (row) => this.format(row[index + 1])]),
    ], rows.filter((row) => row.slice(1).some((value) => value !== null && value !== undefined)));
  }
}

