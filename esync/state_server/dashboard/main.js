// The page: which job is shown, when the server is asked, and what is said when it does not answer.

import { ask, NoAnswer, ofJob, Refused, token, TokenNeeded } from "./api.js";
import { byId, list, make, text } from "./dom.js";
import { ago } from "./format.js";
import { FinishedView } from "./finished.js";
import { HistoryView } from "./history.js";
import { showJob } from "./workers.js";

const LIVE = 1000; // milliseconds between two looks at the workers
const PAST = 2000; // … at the rounds in the database; more where an answer takes long
const RUNS = 6000; // … at the finished trainings
const PATIENT = 10; // an answer may take this share of the time between two questions

const history = new HistoryView();
const finished = new FinishedView();
let job = null; // as the server showed it last
let hasHistory = false; // whether the database can be asked; when the server starts it has to be opened first
let answered = 0; // when it last did
let lostSince = 0;

// --- what is asked ----------------------------------------------------------------------------------------------

async function live() {
  const { jobs, history: isOpen } = await ask("jobs");
  if (isOpen && !hasHistory) runs.soon();
  hasHistory = isOpen;
  showJobs(jobs);
  const wanted = jobs.find((one) => one.name === chosenName()) ?? jobs.find((one) => one.state === "running") ?? jobs[0];
  byId("empty").hidden = jobs.length > 0;
  byId("job").hidden = !wanted;
  if (!wanted) {
    job = null;
    return;
  }
  const changed = job?.id !== wanted.id;
  job = await ask(ofJob(wanted.name));
  markChosen();
  showJob(job);
  if (changed) past.soon();
}

async function pastOfJob() {
  const isWritten = hasHistory && job && (job.totals || job.now - job.started > 3); // before that, the database knows nothing of it
  if (isWritten) await history.update(job);
  return Boolean(isWritten);
}

/** Does something again and again while the page is seen; never twice at the same time. */
function repeat(action, pause) {
  let timer = 0;
  let busy = false;
  async function turn() {
    clearTimeout(timer);
    if (busy || document.hidden || !byId("login").hidden) return;
    busy = true;
    const begun = performance.now();
    try {
      if ((await action()) !== false) noteAnswer();
    } catch (error) {
      noteTrouble(error);
    }
    busy = false;
    timer = setTimeout(turn, Math.max(pause, PATIENT * (performance.now() - begun)));
  }
  turn();
  return { soon: turn };
}

// --- what is said ------------------------------------------------------------------------------------------------

function noteAnswer() {
  answered = performance.now();
  lostSince = 0;
  document.body.classList.remove("stale");
  byId("trouble").hidden = true;
  byId("leave").hidden = !token.get();
  showPulse();
}

function noteTrouble(error) {
  if (error instanceof TokenNeeded) {
    if (byId("login").hidden) showLogin(token.get() ? "That is not this server's token." : "");
    return;
  }
  if (error instanceof Refused && (error.status === 404 || error.status === 503)) return; // nothing in the database yet
  if (!(error instanceof Refused || error instanceof NoAnswer)) {
    trouble(`This page has failed: ${error.message}`); // the state server has nothing to do with it
    console.error(error);
    return;
  }
  lostSince ||= performance.now();
  if (error instanceof Refused) trouble(`The state server refuses: ${error.message}`);
  else if (performance.now() - lostSince > 1500 || !answered) trouble("The state server does not answer. This page goes on asking; what it shows is of its last answer.");
  document.body.classList.toggle("stale", answered > 0);
  showPulse();
}

function trouble(words) {
  text(byId("trouble"), words);
  byId("trouble").hidden = false;
}

function showPulse() {
  const age = (performance.now() - answered) / 1000;
  pulse(lostSince ? "no answer" : answered ? "live" : "connecting", lostSince ? "lost" : answered ? "live" : "");
  text(byId("pulse-age"), lostSince && answered ? `, last ${ago(age)}` : ""); // beside what is announced: it changes all the time
}

function pulse(words, kind = "") {
  byId("pulse").parentElement.className = `pulse ${kind}`;
  text(byId("pulse"), words);
  text(byId("pulse-age"), "");
}

function showLogin(words) {
  token.forget();
  byId("login").hidden = false;
  for (const id of ["job", "empty", "finished", "leave"]) byId(id).hidden = true;
  text(byId("login-error"), words);
  pulse("token needed");
  byId("token").focus();
}

// --- which job ---------------------------------------------------------------------------------------------------

function chosenName() {
  const written = location.hash.replace(/^#(job=)?/, "");
  try {
    return decodeURIComponent(written);
  } catch { // a % that escapes nothing, typed by a person
    return written;
  }
}

function showJobs(jobs) {
  list(
    byId("jobs"), jobs, (one) => one.name,
    (one) => make("a", { href: `#job=${encodeURIComponent(one.name)}` }, one.name),
    (link, one) => link.classList.toggle("ended", one.state === "ended"),
  );
}

function markChosen() {
  for (const link of byId("jobs").children) {
    if (link.dataset.key === job?.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = job ? `${job.name}: round ${job.round} – ESync` : "ESync";
}

// --- begin --------------------------------------------------------------------------------------------------------

text(byId("command"), [
  `export ESYNC_STATE_SERVER=${location.host}`,
  "python -m esync.launch clusters/quick.yaml --mode sync",
].join("\n"));

byId("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set(byId("token").value.trim());
  byId("token").value = "";
  byId("login").hidden = true;
  pulse("connecting");
  [now, past, runs].forEach((loop) => loop.soon());
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // what stands behind the # of the address is the job
  byId("main").focus();
  byId("main").scrollIntoView();
});
byId("leave").addEventListener("click", () => showLogin(""));

const past = repeat(pastOfJob, PAST);
const now = repeat(live, LIVE);
const runs = repeat(() => hasHistory && finished.update(), RUNS);
addEventListener("hashchange", () => now.soon());
document.addEventListener("visibilitychange", () => document.hidden || [now, past, runs].forEach((loop) => loop.soon()));
