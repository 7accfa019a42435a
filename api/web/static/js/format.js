// Numbers, times and sizes in words.

const NONE = "–";

/** A number with as many digits as are worth reading. */
export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return value.toLocaleString("en");
  if (size < 1e-3 || size >= 1e9) return Number(value.toPrecision(digits - 1)).toExponential().replace("e+", "e");
  return value.toLocaleString("en", { maximumSignificantDigits: digits });
}

/** A large number in short: 12.3 M. */
export function count(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const units = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]];
  const unit = units.find(([size]) => Math.abs(value) >= size);
  return unit ? `${(value / unit[0]).toLocaleString("en", { maximumSignificantDigits: 3 })} ${unit[1]}` : number(value, 3);
}

/** Bytes with a binary unit. */
export function bytes(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${size.toLocaleString("en", { maximumFractionDigits: size < 10 && unit ? 2 : size < 100 && unit ? 1 : 0 })} ${units[unit]}`;
}

export function percent(share) {
  return share === null || share === undefined || !Number.isFinite(share) ? NONE : `${Math.floor(share * 100)} %`;
}

/** Seconds in words: 2 h 05 min. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  const whole = Math.max(0, Math.round(seconds));
  const two = (value) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** How long ago a time was. */
export function ago(time, now = Date.now()) {
  if (!time) return NONE;
  const seconds = (now - Date.parse(time)) / 1000;
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** A time of the server in the reader's own zone, to the second. */
export function moment(time) {
  if (!time) return NONE;
  const date = typeof time === "number" ? new Date(time * 1000) : new Date(time);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Seconds between two times; up to now without the second. */
export function between(from, to, now = Date.now()) {
  return from ? ((to ? Date.parse(to) : now) - Date.parse(from)) / 1000 : null;
}

/** A word of the API for people: `out_of_memory` → `out of memory`. */
export function words(name) {
  return String(name ?? "").replaceAll("_", " ");
}

/** A value of a config on one line. */
export function value(any) {
  return typeof any === "string" ? any : JSON.stringify(any);
}
