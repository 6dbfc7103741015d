// The last rounds, one lane per worker: computing at full height, waiting at a third of it, exchanging in its colour.

import { axis, Chart, colour, STEPS } from "./charts.js";
import { fill, make } from "./dom.js";
import { moment, number, seconds } from "./format.js";

const LANES = 40; // at most
const LANE_HEIGHT = 26;
const ROUNDS = 12; // of the slowest worker
const LATE = 0.6; // seconds that a report may have been on its way
const TEXT_LANES = 8; // lanes in the text in place of the drawing; its table has all
const PARTS = [["compute", 1], ["wait", 0.36], ["exchange", 1]];

/** The rounds of one worker as blocks {begin, end, parts, report}, in the order of time. */
export function blocks(reports) {
  let before = null;
  return reports.map((report) => {
    const gap = before === null ? Infinity : Math.abs(report.finished - report.seconds - before);
    const begin = gap < Math.max(LATE, 0.1 * report.seconds) ? before : report.finished - report.seconds;
    before = report.finished;
    return { begin, end: report.finished, report };
  });
}

export class Timeline extends Chart {
  constructor(place) {
    super(place, "Last rounds of each worker", 120);
    this.readout = make("p", { class: "readout" });
    this.plotPlace.after(this.readout);
    this.lanes = [];
  }

  /** `job`: the job as the server shows it; `reports`: rank → its last rounds. */
  show(content) {
    this.shown = content;
    const { job, reports } = content;
    const ranks = [...reports.keys()].sort((one, other) => one - other);
    const chosen = ranks.length > LANES ? [...ranks.slice(0, LANES - 5), ...ranks.slice(-5)] : ranks;
    const states = new Map(job.workers.map((worker) => [worker.rank, worker.state]));
    this.lanes = chosen.map((rank) => ({ rank, state: states.get(rank), blocks: blocks(reports.get(rank)) }));
    this.vacant(!this.lanes.length);
    this.readout.hidden = !this.lanes.length;
    if (!this.lanes.length) return;
    const newest = this.lanes.map((lane) => lane.blocks.at(-1));
    const longest = Math.max(...newest.map((block) => block.report.seconds));
    const end = job.state === "running" ? job.now : Math.max(...newest.map((block) => block.end));
    const span = Math.min(Math.max(ROUNDS * longest, 4), 3600);
    this.window = [end - span, end];
    this.plotPlace.setAttribute("aria-label", `${this.label}. ${this.summary()}`);
    const height = this.lanes.length * LANE_HEIGHT + 34;
    if (!this.plot || this.ranks !== chosen.join()) {
      this.plot?.destroy();
      this.ranks = chosen.join();
      this.height = height;
      this.create(this.options(), [this.window, [0, 0]]);
    } else {
      this.plot.setData([this.window, [0, 0]]);
    }
    this.describeCursor();
    this.fillTable();
  }

  options() {
    const names = this.lanes.map((lane) => `${lane.rank}`);
    return {
      legend: { show: false },
      padding: [4, 4, 0, 0],
      scales: { x: { time: true, range: () => this.window }, y: { range: [0, names.length] } },
      series: [{}, { show: false }],
      axes: [
        axis({ space: 76, size: 28, incrs: STEPS, values: (plot, splits) => splits.map((split) => moment(split)) }),
        axis({
          grid: { show: false }, size: 34, filter: (plot, splits) => splits,
          splits: () => names.map((_, index) => index + 0.5),
          values: () => names.slice().reverse(),
        }),
      ],
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      hooks: { draw: [(plot) => this.draw(plot)], setCursor: [() => this.describeCursor()] },
    };
  }

  draw(plot) {
    const { ctx, bbox } = plot;
    const colours = Object.fromEntries(PARTS.map(([name]) => [name, colour(name)]));
    const ground = colour("card");
    const lane = bbox.height / this.lanes.length;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const box = (name, from, until, top, share, opacity = 1) => {
      const left = plot.valToPos(from, "x", true);
      const right = plot.valToPos(until, "x", true);
      const height = (lane - 8 * ratio) * share;
      ctx.globalAlpha = opacity;
      ctx.fillStyle = colours[name];
      ctx.fillRect(left, top + (lane - height) / 2, Math.max(right - left, 0.5), height);
    };
    this.lanes.forEach(({ state, blocks: rounds }, index) => {
      const top = bbox.top + index * lane;
      for (const { begin, end, report } of rounds) {
        if (end < this.window[0]) continue;
        const known = report.compute + report.wait + report.exchange;
        const whole = end - begin;
        const scale = known > whole ? whole / known : 1;
        // What is left of the round are questions and the like, between the iterations.
        const computed = begin + whole - scale * (report.wait + report.exchange);
        const waited = computed + scale * report.wait;
        box("compute", begin, computed, top, 1);
        if (report.wait > 0) box("wait", computed, waited, top, 0.36);
        box("exchange", waited, end, top, 1);
        ctx.fillStyle = ground;
        ctx.fillRect(plot.valToPos(begin, "x", true), top, ratio, lane);
      }
      const last = rounds.at(-1).end;
      const now = { computing: "compute", waiting: "wait", exchanging: "exchange" }[state];
      if (now && this.window[1] > last) box(now, last, this.window[1], top, now === "wait" ? 0.36 : 1, 0.35);
    });
    ctx.restore();
  }

  /** Tell in words what is under the cursor. */
  describeCursor() {
    const { left, top } = this.plot?.cursor ?? {};
    let words = "";
    if (left >= 0 && top >= 0) {
      const time = this.plot.posToVal(left, "x");
      const lane = this.lanes[Math.floor(top / (this.plot.over.clientHeight / this.lanes.length))];
      const block = lane?.blocks.find(({ begin, end }) => begin <= time && time <= end);
      if (lane) words = block ? this.words(block.report) : `worker ${lane.rank}, the round under way`;
    }
    this.readout.textContent = words || (this.plotPlace.matches(":hover") ? "" : "Pale: the round under way. Point at a round for its figures.");
  }

  /** The newest round of each lane in words. */
  summary() {
    const texts = this.lanes.slice(0, TEXT_LANES).map((lane) => this.words(lane.blocks.at(-1).report));
    const rest = this.lanes.length - texts.length;
    return [...texts, ...(rest ? [`${rest} more in the table`] : [])].join("; ");
  }

  words(report) {
    const number = report.run_round === null ? `round ${report.round}` : `exchange ${report.round}, round ${report.run_round} of the run`;
    const parts = [`worker ${report.rank}`, number, `${report.local_iterations} local iterations`];
    return [...parts, ...PARTS.map(([name]) => `${name} ${seconds(report[name])}`)].join(" · ");
  }

  fillTable() {
    if (!this.details.open || !this.shown) return;
    const rows = this.lanes.flatMap((lane) => lane.blocks.map((block) => block.report));
    rows.sort((one, other) => other.round - one.round || one.rank - other.rank);
    fill(this.alternative.table, [
      [rows.some((row) => row.run_round !== null) ? "exchange" : "round", true, (row) => String(row.round)],
      ["worker", true, (row) => String(row.rank)],
      ["local iterations", true, (row) => String(row.local_iterations)],
      ["computing", true, (row) => seconds(row.compute)],
      ["waiting", true, (row) => seconds(row.wait)],
      ["exchanging", true, (row) => seconds(row.exchange)],
      ["samples/s", true, (row) => number(row.samples / row.seconds)],
    ], rows.slice(0, 200));
  }
}
