// Asks the state server. The token stays in this tab's session storage and travels in a header, never in an address.

const KEY = "esync-token";
const TIMEOUT = 8000; // milliseconds

export class TokenNeeded extends Error {}
export class NoAnswer extends Error {}
export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (text) => sessionStorage.setItem(KEY, text),
  forget: () => sessionStorage.removeItem(KEY),
};

/** The address of a call; options that are undefined or empty are left out. */
export function address(path, options = {}) {
  const query = new URLSearchParams(Object.entries(options).filter(([, value]) => value !== undefined && value !== ""));
  return `/api/v1/${path}${query.size ? `?${query}` : ""}`;
}

/** The JSON behind a path below /api/v1/. Throws TokenNeeded, Refused, or NoAnswer. */
export async function ask(path, options = {}) {
  return reached((await call(address(path, options))).json());
}

async function call(where) {
  const headers = { Accept: "application/json" };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  const answer = await reached(fetch(where, {
    headers,
    cache: "no-store",
    credentials: "omit", // otherwise the browser would ask for a password by itself
    signal: AbortSignal.timeout(TIMEOUT),
  }));
  if (answer.status === 401) throw new TokenNeeded();
  if (!answer.ok) {
    const content = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, content.error || `status ${answer.status}`);
  }
  return answer;
}

/** What an attempt comes to; whatever goes wrong on the way is no answer. */
async function reached(attempt) {
  try {
    return await attempt;
  } catch (error) {
    throw new NoAnswer(error.message);
  }
}

export const ofJob = (job, call = "") => `jobs/${encodeURIComponent(job)}${call && `/${call}`}`;
