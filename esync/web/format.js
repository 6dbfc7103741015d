// Numbers and times as people read them.

const NONE = "–";

export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1e6) return `${(value / 1e6).toFixed(2)} M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(size >= 1 ? 1 : 2);
}

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2)} ${units[unit]}`;
}

export const percent = (share) => (share === null || share === undefined ? NONE : `${(100 * share).toFixed(0)} %`);

/** What a training is evaluated by: its name, and a value as people read it. */
export function metricOf({ metric = "accuracy" }) {
  const isAccuracy = metric === "accuracy";
  const words = (value) => (isAccuracy ? `${(100 * value).toFixed(1)} %` : `${Number(value.toPrecision(4))}`);
  return {
    name: metric,
    label: isAccuracy ? "test accuracy" : metric,
    title: isAccuracy ? "Test accuracy" : metric[0].toUpperCase() + metric.slice(1),
    isAccuracy,
    format: (value) => (value === null || value === undefined ? NONE : words(value)),
  };
}

/** Seconds of something short, like an iteration. */
export function seconds(value) {
  if (!value) return NONE;
  if (value < 0.1) return `${(1000 * value).toFixed(value < 0.01 ? 1 : 0)} ms`;
  return `${value.toFixed(value < 10 ? 2 : 1)} s`;
}

/** Seconds of something long, like a training: 1:05 or 2:03:07. */
export function clock(value) {
  const whole = Math.max(0, Math.round(value));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (part) => String(part).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** How long ago, roughly. */
export function ago(value) {
  if (value < 1.5) return "now";
  if (value < 90) return `${Math.round(value)} s ago`;
  if (value < 5400) return `${Math.round(value / 60)} min ago`;
  return `${Math.round(value / 3600)} h ago`;
}

const today = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });
const other = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" });

/** A moment, given in seconds since 1970. */
export function moment(value) {
  const date = new Date(1000 * value);
  return (date.toDateString() === new Date().toDateString() ? today : other).format(date);
}
