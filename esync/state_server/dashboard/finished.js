// A comparison of the trainings that have ended: a table, and the accuracy (or another metric) over time of those that
// are chosen. A chart has one metric: trainings that have another one cannot be chosen beside them.

import { ask, ofJob } from "./api.js";
import { LineChart, around } from "./charts.js";
import { byId, list, make, text } from "./dom.js";
import { bytes, clock, metricOf, moment, number, percent } from "./format.js";

const SHOWN = 50;
const CHOSEN = 3; // at first
const MAX_CHOSEN = 5; // what can be told apart
const LINES = [["compute"], ["wait", [8, 4]], ["exchange", [2, 3]], ["other", [12, 4, 2, 4]], ["muted"]];
const COLUMNS = [
  ["compare", ""], ["job", ""], ["workers", "number"], ["rounds", "number"], ["time", "number"],
  ["samples/s", "number"], ["computing", "number"], ["waiting", "number"], ["traffic", "number"], ["best", "number"],
];

/** The best value of a training's metric, with its name. */
function best(run) {
  const metric = metricOf(run);
  return run.best_accuracy === null ? metric.format(null) : `${metric.name} ${metric.format(run.best_accuracy)}`;
}

export class FinishedView {
  constructor() {
    this.chart = new LineChart(byId("comparison"), "Test accuracy of the chosen trainings", { height: 220 });
    this.chosen = null;
    this.curves = new Map(); // of runs that have ended: they never change
    const head = make("tr", {}, ...COLUMNS.map(([title, kind]) => make("th", { scope: "col", class: kind || null }, title)));
    byId("runs").append(make("thead", {}, head), make("tbody"));
  }

  async update() {
    const { runs } = await ask("runs", { limit: SHOWN });
    this.runs = runs.filter((run) => run.ended !== null && run.rounds);
    byId("finished").hidden = !this.runs.length;
    if (!this.runs.length) return;
    this.chosen ??= this.runs.filter((run) => run.metric === this.runs[0].metric).slice(0, CHOSEN).map((run) => run.id);
    list(byId("runs").tBodies[0], this.runs, (run) => run.id, (run) => this.createRow(run), (row, run) => this.updateRow(row, run));
    await this.showChart();
  }

  createRow(run) {
    const box = make("input", { type: "checkbox", "aria-label": `compare ${run.job} of ${moment(run.started)}` });
    box.addEventListener("change", () => this.toggle(run.id, box.checked));
    const cells = COLUMNS.map(([, kind]) => make("td", { class: kind || null }));
    cells[0].append(box);
    cells[1].append(make("b", {}, run.job), make("small", {}, `${moment(run.started)}${run.reason ? `, ${run.reason}` : ""}`));
    return make("tr", {}, ...cells);
  }

  updateRow(row, run) {
    const cells = [...row.cells];
    const active = run.compute + run.wait + run.exchange;
    cells[0].firstChild.checked = this.chosen.includes(run.id);
    cells[0].firstChild.disabled = !this.chosen.includes(run.id) && (this.chosen.length >= MAX_CHOSEN || !this.fits(run));
    cells[0].firstChild.title = this.fits(run) ? "" : `has another metric, ${run.metric}, than the chosen ones`;
    const values = [
      number(run.num_workers), number(run.rounds), clock(run.seconds), number(run.seconds ? run.samples / run.seconds : null),
      percent(active ? run.compute / active : null), percent(active ? run.wait / active : null),
      bytes(run.bytes_sent + run.bytes_received), best(run),
    ];
    values.forEach((value, index) => text(cells[index + 2], value));
  }

  /** Whether a training has the metric of those that are chosen. */
  fits(run) {
    return this.runs.every((other) => !this.chosen.includes(other.id) || other.metric === run.metric);
  }

  async toggle(id, chosen) {
    this.chosen = chosen ? [...this.chosen, id] : this.chosen.filter((other) => other !== id);
    [...byId("runs").tBodies[0].rows].forEach((row, index) => this.updateRow(row, this.runs[index]));
    await this.showChart().catch(() => {}); // the next update tries again
  }

  async showChart() {
    const chosen = this.chosen.map((id) => this.runs.find((run) => run.id === id)).filter(Boolean);
    for (const run of chosen) {
      if (!this.curves.has(run.id)) this.curves.set(run.id, (await ask(ofJob(run.job, "curves"), { run: run.id })).accuracy);
    }
    const shown = chosen.filter((run) => this.curves.get(run.id).length);
    const times = [...new Set(shown.flatMap((run) => this.curves.get(run.id).map((point) => point.at)))].sort((one, other) => one - other);
    const values = shown.map((run) => {
      const at = new Map(this.curves.get(run.id).map((point) => [point.at, point.accuracy]));
      return times.map((time) => at.get(time));
    });
    const metric = metricOf(chosen[0] ?? {});
    this.chart.describe({ label: `${metric.title} of the chosen trainings`, format: metric.format, range: metric.isAccuracy ? undefined : around });
    this.chart.show({
      lines: shown.map((run, index) => ({
        name: `${run.job} ${moment(run.started)}`, colour: LINES[index % MAX_CHOSEN][0], dash: LINES[index % MAX_CHOSEN][1],
      })),
      data: [times, ...values],
      summary: shown.map((run) => `${run.job} of ${moment(run.started)}: ${best(run)}`).join("; "),
    });
  }
}
