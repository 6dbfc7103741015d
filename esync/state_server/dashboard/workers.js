// One job in words and numbers: its tiles, who is the slowest and what that costs, and the table of workers.

import { byId, list, make, text } from "./dom.js";
import { ago, clock, metricOf, moment, number, percent, seconds } from "./format.js";

const ROWS = 100; // at most: the slowest ones, where there are more
const COLUMNS = [
  ["worker", ""],
  ["state", "state"],
  ["samples/s", "number"],
  ["an iteration", "number"],
  ["this round", "number"],
  ["computing, waiting, exchanging", "shares"],
  ["heard", "number"],
];

export function showJob(job) {
  text(byId("job-name"), job.name);
  const state = byId("job-state");
  text(state, job.state === "ended" && job.reason ? `ended: ${job.reason}` : job.state);
  state.className = `pill ${job.state}`;
  const lasted = (job.ended ?? job.now) - job.started;
  const parts = [`${job.num_workers} worker${job.num_workers === 1 ? "" : "s"}`, `since ${moment(job.started)}`];
  parts.push(`${job.ended ? "took" : "running for"} ${clock(lasted)}`);
  if (job.epsilon && job.workers.some((worker) => worker.capability)) parts.push(`ε ${seconds(job.epsilon)}`);
  text(byId("job-facts"), parts.join(" · "));
  showTiles(job);
  showParts(job.totals);
  showVerdict(job);
  showWorkers(job);
}

function showTiles(job) {
  const totals = job.totals ?? {};
  const metric = metricOf(totals);
  const unit = job.workers.some((worker) => (worker.last_report?.run_round ?? null) !== null) ? "exchange" : "round";
  const tiles = [
    ["round", number(job.round), "", ""],
    ["throughput", number(totals.throughput), "samples/s", totals.speed_limit ? `of ${number(totals.speed_limit)} if nobody waited` : ""],
    ["efficiency", percent(totals.efficiency), "", "of the sum of the workers' speeds"],
    ["lost to waiting", number(totals.lost_waiting), "samples/s", lostElsewhere(totals)],
    [metric.label, metric.format(totals.accuracy), "", totals.accuracy_round ? `of the weights of ${unit} ${totals.accuracy_round}` : ""],
  ];
  list(
    byId("tiles"),
    tiles,
    ([name]) => name,
    ([name]) => make("div", {}, make("dt", {}, name), make("dd", {}, make("span"), " ", make("small")), make("dd", { class: "note" })),
    (tile, [, value, unit, note]) => {
      text(tile.querySelector("span"), value);
      text(tile.querySelector("small"), value === "–" ? "" : unit);
      text(tile.querySelector(".note"), note);
    },
  );
}

/** Further results of the last evaluation, such as the recall of each class. */
function showParts(totals) {
  const parts = Object.entries(totals?.parts ?? {});
  byId("parts-card").hidden = !parts.length;
  list(
    byId("parts"),
    parts,
    ([name]) => name,
    ([name]) => make("li", {}, make("span", {}, name), make("b")),
    (item, [name, value]) => {
      text(item.lastChild, `${Number(value.toPrecision(3))}`);
      item.classList.toggle("none", name.startsWith("recall/") && value === 0);
    },
  );
}

const lostElsewhere = (totals) => (totals.lost_exchanging ? `and ${number(totals.lost_exchanging)} to exchanging` : "");

function showVerdict(job) {
  const slowest = job.workers.find((worker) => worker.rank === job.slowest);
  const { totals } = job;
  if (!slowest) return text(byId("verdict"), "");
  const fastest = job.workers.reduce((best, worker) => (worker.seconds_per_iteration && worker.seconds_per_iteration < best.seconds_per_iteration ? worker : best), slowest);
  const factor = slowest.seconds_per_iteration / fastest.seconds_per_iteration;
  let words = `The slowest is worker ${slowest.rank}${place(slowest)}: ${seconds(slowest.seconds_per_iteration)} an iteration`;
  words += factor > 1.05 ? `, ${number(factor)} times as long as worker ${fastest.rank}.` : ", hardly more than the others.";
  if (totals?.efficiency) {
    const share = totals.speed_limit ? totals.lost_waiting / totals.speed_limit : 0;
    words += ` Waiting costs the job ${number(totals.lost_waiting)} of ${number(totals.speed_limit)} samples/s (${percent(share)}).`;
  }
  return text(byId("verdict"), words);
}

const place = ({ last_report: report }) => (report ? ` (${report.device} on ${report.host})` : "");

function showWorkers(job) {
  const table = byId("workers");
  if (!table.tHead) {
    const head = make("tr", { role: "row" }, ...COLUMNS.map(([title, kind]) => make("th", { scope: "col", role: "columnheader", class: kind || null }, title)));
    table.append(make("thead", { role: "rowgroup" }, head), make("tbody", { role: "rowgroup" }));
  }
  const sorted = job.workers.length > ROWS
    ? [...job.workers].sort((one, other) => other.seconds_per_iteration - one.seconds_per_iteration).slice(0, ROWS)
    : job.workers;
  const more = byId("workers-more");
  more.hidden = sorted === job.workers;
  text(more, `The ${ROWS} slowest of ${job.workers.length} workers.`);
  list(table.tBodies[0], sorted, (worker) => worker.rank, createRow, (row, worker) => updateRow(row, worker, job));
}

function createRow() {
  const bar = make("div", { class: "bar", role: "img" }, ...["compute", "wait", "exchange"].map((part) => make("i", { class: part })));
  const cells = COLUMNS.map(([title, kind], index) => make("td", { role: index ? "cell" : "rowheader", class: kind || null, "data-label": index > 1 ? title : null }));
  cells[0].append(make("b"), make("span", { class: "tag", hidden: "" }, "slowest"), make("small"));
  cells[1].append(make("span", { class: "pill" }));
  cells[5].append(make("div", { class: "share" }, make("span"), bar));
  return make("tr", { role: "row" }, ...cells);
}

function updateRow(row, worker, job) {
  const [name, state, speed, iteration, done, shares, heard] = row.cells;
  const report = worker.last_report;
  const isSlowest = worker.rank === job.slowest;
  row.classList.toggle("slowest", isSlowest);
  text(name.querySelector("b"), `worker ${worker.rank}`);
  name.querySelector(".tag").hidden = !isSlowest;
  text(name.querySelector("small"), report ? `${report.device} on ${report.host}` : "");
  text(state.firstChild, worker.state);
  state.firstChild.className = `pill ${worker.state}`;
  text(speed, number(worker.speed || null));
  text(iteration, seconds(worker.seconds_per_iteration));
  text(done, worker.capability ? number(worker.local_iterations) : "–"); // only questions tell
  showShares(shares.firstChild, report);
  text(heard, worker.heard === null ? "–" : ago(job.now - worker.heard));
}

function showShares(place, report) {
  const share = (part) => (report && report.seconds ? Math.min(report[part] / report.seconds, 1) : 0);
  const [computing, waiting, exchanging] = ["compute", "wait", "exchange"].map(share);
  text(place.firstChild, report ? percent(computing) : "–");
  const bar = place.lastChild;
  bar.setAttribute("aria-label", report ? `computing ${percent(computing)}, waiting ${percent(waiting)}, exchanging ${percent(exchanging)}` : "unknown");
  [computing, waiting, exchanging].forEach((value, index) => {
    bar.children[index].style.width = `${(100 * value).toFixed(1)}%`;
  });
}
