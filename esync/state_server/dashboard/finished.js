// A comparison of the trainings that have ended: a table, and the accuracy over time of those that are chosen.

import { ask, ofJob } from "./api.js";
import { LineChart } from "./charts.js";
import { byId, list, make, text } from "./dom.js";
import { accuracy, bytes, clock, moment, number, percent } from "./format.js";

const SHOWN = 50;
const CHOSEN = 3; // at first
const MOST = 5; // what can be told apart
const LINES = [["compute"], ["wait", [8, 4]], ["exchange", [2, 3]], ["other", [12, 4, 2, 4]], ["muted"]];
const COLUMNS = [
  ["compare", ""], ["job", ""], ["workers", "number"], ["rounds", "number"], ["time", "number"],
  ["samples/s", "number"], ["computing", "number"], ["waiting", "number"], ["traffic", "number"], ["best accuracy", "number"],
];

export class FinishedView {
  constructor() {
    this.chart = new LineChart(byId("comparison"), "Test accuracy of the chosen trainings", { format: accuracy, height: 220 });
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
    this.chosen ??= this.runs.slice(0, CHOSEN).map((run) => run.id);
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
    cells[0].firstChild.disabled = this.chosen.length >= MOST && !this.chosen.includes(run.id);
    const values = [
      number(run.num_workers), number(run.rounds), clock(run.seconds), number(run.seconds ? run.samples / run.seconds : null),
      percent(active ? run.compute / active : null), percent(active ? run.wait / active : null),
      bytes(run.bytes_sent + run.bytes_received), accuracy(run.best_accuracy),
    ];
    values.forEach((value, index) => text(cells[index + 2], value));
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
    this.chart.show({
      lines: shown.map((run, index) => ({
        name: `${run.job} ${moment(run.started)}`, colour: LINES[index % MOST][0], dash: LINES[index % MOST][1],
      })),
      data: [times, ...values],
      summary: shown.map((run) => `${run.job} of ${moment(run.started)}: ${accuracy(run.best_accuracy)}`).join("; "),
    });
  }
}
