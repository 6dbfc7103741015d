// What the database tells of the chosen job: its last rounds, its curves, its events.

import { ask, ofJob } from "./api.js";
import { LineChart, around } from "./charts.js";
import { byId, list, make, text } from "./dom.js";
import { bytes, clock, metricOf, moment, number } from "./format.js";
import { Timeline } from "./timeline.js";

const KEPT = 300; // rounds of a worker
const EVENTS = 200;
const PAGE = 1000;

const shares = (plot, low, high) => [Math.min(low, 0.95) < 0.1 ? 0 : Math.floor(10 * low - 0.5) / 10, Math.min(1, Math.ceil(10 * high + 0.2) / 10)];
const rate = (value) => `${bytes(value)}/s`;

export class HistoryView {
  constructor() {
    this.timeline = new Timeline(byId("timeline"));
    this.accuracy = new LineChart(byId("accuracy"), "Test accuracy", {});
    this.throughput = new LineChart(byId("throughput"), "Throughput in samples per second", { format: number });
    this.traffic = new LineChart(byId("traffic"), "Traffic of all workers", { format: rate });
    this.logged = new Map(); // what programs log: name → its card and chart
    this.choose(null);
  }

  /** Show this run from now on. */
  choose(job) {
    this.run = job?.id;
    this.name = job?.name;
    this.rounds = new Map();
    this.events = [];
    this.afterRound = this.afterEvent = 0;
    this.timeline.vacant(true);
    for (const chart of [this.accuracy, this.throughput, this.traffic]) chart.vacant(true);
    this.showLogged({});
    byId("events").replaceChildren();
  }

  /** Ask for what is new. `job`: as the server shows it now. */
  async update(job) {
    if (job.id !== this.run) this.choose(job);
    const run = this.run;
    const options = this.afterRound ? { after: this.afterRound, limit: PAGE } : { newest: PAGE };
    const [rounds, events, curves] = await Promise.all([
      ask(ofJob(this.name, "rounds"), { run, ...options }),
      ask(ofJob(this.name, "events"), { run, after: this.afterEvent, limit: PAGE }),
      ask(ofJob(this.name, "curves"), { run }),
    ]);
    if (run !== this.run) return; // another one was chosen meanwhile
    this.takeRounds(rounds);
    this.takeEvents(events);
    this.timeline.show({ job, reports: this.rounds });
    this.showCurves(curves, job);
  }

  takeRounds({ rounds, next }) {
    this.afterRound = next;
    for (const report of rounds) {
      if (!this.rounds.has(report.rank)) this.rounds.set(report.rank, []);
      const kept = this.rounds.get(report.rank);
      kept.push(report);
      if (kept.length > KEPT) kept.shift();
    }
  }

  takeEvents({ events, next }) {
    const isFirst = !this.afterEvent;
    this.afterEvent = next;
    if (!events.length) return;
    // For screen readers: what happens from now on, and the newest alone where there is much.
    text(byId("news"), isFirst ? "" : `${this.name}: ${eventWords(events.at(-1))}`);
    this.events = [...this.events, ...events].slice(-EVENTS);
    const newestFirst = this.events.slice().reverse();
    list(
      byId("events"), newestFirst, (event) => event.id,
      (event) => make("li", {}, make("time", { datetime: new Date(1000 * event.at).toISOString() }, moment(event.at)), make("span", {}, eventWords(event))),
      () => {},
    );
  }

  showCurves(curves, job) {
    const { at, samples, bytes_sent: sent, bytes_received: received } = curves;
    const limit = job.totals?.speed_limit;
    this.throughput.show({
      lines: [{ name: "samples/s", colour: "compute" }, { name: "if nobody waited", colour: "muted", dash: [4, 4] }],
      data: [at, samples, at.map(() => limit ?? null)],
      summary: `${number(samples.at(-1))} samples per second after ${clock(at.at(-1) ?? 0)}`,
    });
    this.traffic.show({
      lines: [{ name: "sent", colour: "compute" }, { name: "received", colour: "wait", dash: [8, 4] }],
      data: [at, sent, received],
      summary: `${rate(sent.at(-1))} sent, ${rate(received.at(-1))} received`,
    });
    this.showLogged(curves.logged);
    const metric = metricOf(curves);
    text(byId("accuracy-title"), metric.title);
    this.accuracy.describe({ label: metric.title, format: metric.format, range: metric.isAccuracy ? shares : around });
    this.accuracy.show({
      lines: [{ name: metric.name, colour: "exchange", points: curves.accuracy.length < 60 }],
      data: [curves.accuracy.map((point) => point.at), curves.accuracy.map((point) => point.accuracy)],
      summary: `${metric.format(curves.accuracy.at(-1)?.accuracy)} after ${clock(curves.accuracy.at(-1)?.at ?? 0)}`,
    });
  }

  showLogged(logged) {
    const curves = new Map(Object.entries(logged));
    for (const name of curves.keys()) if (!this.logged.has(name)) this.logged.set(name, loggedChart(name));
    for (const [name, { card, chart }] of this.logged) {
      const points = curves.get(name) ?? [];
      card.hidden = !points.length;
      if (!points.length) continue;
      chart.show({
        lines: [{ name, colour: "exchange", points: points.length < 60 }],
        data: [points.map((point) => point.at), points.map((point) => point.value)],
        summary: `${chart.format(points.at(-1).value)} after ${clock(points.at(-1).at)}`,
      });
    }
  }
}

/** The card and the chart of a number that programs log. */
function loggedChart(name) {
  const place = make("div");
  const card = make("section", { class: "card", "aria-label": name }, make("h2", {}, name), place);
  byId("logged").append(card);
  return { card, chart: new LineChart(place, name, { format: metricOf({ metric: name }).format, range: around }) };
}

function eventWords({ kind, rank, round, text: words }) {
  if (kind === "slowest") return `worker ${rank} is the slowest from round ${round} on: ${words}`;
  if (kind === "begin") return `begun with ${words}`;
  if (kind === "end") return `ended: ${words}`;
  return [rank === null ? "" : `worker ${rank}`, round === null ? "" : `round ${round}`, words].filter(Boolean).join(", ");
}

