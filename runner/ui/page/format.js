// Numbers, times and sizes as people write them.

const digits = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** The API writes NaN and infinities, which JSON lacks, as texts. */
export function toNumber(value) {
  if (typeof value === "number") return value;
  if (value === "NaN") return NaN;
  if (value === "Infinity") return Infinity;
  if (value === "-Infinity") return -Infinity;
  return undefined;
}

export const integer = (value) => (value === null || value === undefined ? "" : digits.format(value));

/** So many digits, without the trailing zeros of small numbers; whole numbers are complete. */
export function number(value, significant = 4) {
  value = toNumber(value);
  if (value === undefined) return "";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (Number.isSafeInteger(value)) return minus(size >= 1e4 ? digits.format(value) : String(value));
  const rounded = Number(value.toPrecision(significant));
  if (size >= 1e6 || size < 1e-3) return minus(rounded.toExponential());
  return minus(size >= 0.1 ? value.toPrecision(significant) : String(rounded));
}

const minus = (text) => text.replace("-", "−").replace("e−", "e-").replace("e+", "e");

/** A name of the program as a label: "data_wait" is "Data wait". */
export const label = (name) => name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");

/** "12.3 k", "4.56 M". */
export function count(value) {
  value = toNumber(value);
  if (value === undefined || !Number.isFinite(value)) return value === undefined ? "" : "NaN";
  if (Math.abs(value) >= 1e15) return number(value, 3);
  for (const [size, unit] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
    if (Math.abs(value) >= size) return (value / size).toPrecision(3) + unit;
  }
  return Number.isInteger(value) ? String(value) : value.toPrecision(3);
}

/** "46.1 MiB". */
export function bytes(value) {
  value = toNumber(value);
  if (value === undefined || !Number.isFinite(value)) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    ++unit;
  }
  return `${unit === 0 ? value : value.toPrecision(value >= 1000 ? 4 : 3)} ${units[unit]}`;
}

/** "1d 2h", "3m 20s", "0.42 s". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${(seconds * 1e6).toPrecision(3)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toPrecision(3)} ms`;
  if (seconds < 10) return `${seconds.toPrecision(2)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds),
    [d, hours, m, rest] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60];
  if (d) return `${d}d ${hours}h`;
  return hours ? `${hours}h ${m}m` : `${m}m ${rest}s`;
}

export function ago(time, now = Date.now() / 1000) {
  if (!time) return ""; // an imported run whose source does not say it
  const seconds = Math.max(0, now - time);
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 30 * 86400) return `${Math.floor(seconds / 86400)} d ago`;
  return new Date(time * 1000).toISOString().slice(0, 10);
}

export function when(time) {
  if (!time) return "";
  const date = new Date(time * 1000), two = (n) => String(n).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${
    two(date.getSeconds())
  }`;
}

/** What a metric's values are, judged by its name. */
export function unitOf(name) {
  if (/bytes_per_s$/.test(name)) return "bytes per second";
  if (/bytes/.test(name)) return "bytes";
  if (/per_s$/.test(name)) return "per second";
  if (/(^|_)seconds$|_s$/.test(name)) return "seconds";
  if (/percent$/.test(name)) return "%";
  if (/watts$/.test(name)) return "W";
  if (/celsius$/.test(name)) return "°C";
  if (/mhz$/.test(name)) return "MHz";
  if (/share$|utilisation$/.test(name)) return "share";
  return "";
}

export function quantity(name, value) {
  value = toNumber(value);
  if (value === undefined) return "";
  if (!Number.isFinite(value)) return number(value);
  const unit = unitOf(name);
  if (unit === "bytes") return bytes(value);
  if (unit === "bytes per second") return `${bytes(value)}/s`;
  if (unit === "seconds") return duration(value);
  if (unit === "per second") return count(value);
  return ["%", "W", "°C", "MHz"].includes(unit) ? `${number(value, 3)} ${unit}` : number(value);
}

function exact(value) {
  const size = Math.abs(value);
  return Number.isFinite(value) ? minus(size >= 1e6 || size < 1e-3 ? value.toExponential() : String(value)) : number(value);
}

/** A value of a recipe, with all its digits. */
export function plain(value) {
  if (value === null || value === undefined) return "—";
  if (typeof value === "number") return Number.isSafeInteger(value) ? minus(String(value)) : exact(value);
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}

/** A command that can be pasted into a shell. */
export const shellWords = (words) =>
  words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");

/** Of a whole record of a run: what was measured of it, or the last points while it trains; {rate, unit, memory}. */
export function measuredOf({ measured, metrics }) {
  const rate = (name) => toNumber(measured?.[name] ?? metrics[name]?.last), tokens = rate("tokens_per_s");
  return {
    rate: tokens ?? rate("samples_per_s"),
    unit: tokens === undefined ? "samples/s" : "tokens/s",
    memory: toNumber(measured?.memory_bytes_per_rank ?? metrics.memory_bytes?.max),
  };
}

/** 1: greater is better; -1: less is; 0: neither, as of a norm or a learning rate. Judged by the name. */
export function better(name) {
  if (/acc|f1|auc|bleu|rouge|reward|score|precision|recall|per_s|r2|mfu/.test(name)) return 1;
  return /loss|error|perplexity|nll|mae|mse|seconds|_s\)?$|bytes/.test(name) ? -1 : 0;
}
