// Numbers, times and spans as people read them. Everything here is pure.

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en-GB", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const UNKNOWN = "–";

export function count(value) {
  return value === null || value === undefined ? UNKNOWN : whole.format(value);
}

export function rate(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return value > 0 && value < 10 ? fine.format(value) : whole.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  let size = value, unit = 0;
  while (size >= 1024 && unit < 5) { size /= 1024; unit += 1; }
  return `${unit ? fine.format(size) : whole.format(size)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

export function percent(share) {
  return share === null || share === undefined || share < 0 ? UNKNOWN : `${Math.round(share * 100)} %`;
}

export function millis(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return `${value > 0 && value < 10 ? fine.format(value) : whole.format(value)} ms`;
}

// A span in its two largest units: "3 d 4 h", "12 min 5 s", "0.4 s".
export function span(ms) {
  if (ms === null || ms === undefined) return UNKNOWN;
  const seconds = Math.max(ms, 0) / 1000;
  if (seconds < 10) return `${fine.format(seconds)} s`;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  const [name, size] = units[first];
  const large = Math.floor(seconds / size);
  if (first === units.length - 1) return `${large} s`;
  const [nextName, nextSize] = units[first + 1];
  const small = Math.floor((seconds % size) / nextSize);
  return small ? `${large} ${name} ${small} ${nextName}` : `${large} ${name}`;
}

// A short span to a tenth, a longer one as above: for steps that are compared.
export function offset(ms) {
  return ms < 100000 ? `${fine.format(Math.max(ms, 0) / 1000)} s` : span(ms);
}

const two = (number) => String(number).padStart(2, "0");

export function clock(ms, withMillis = false) {
  if (!ms) return UNKNOWN;
  const time = new Date(ms);
  const text = `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
  return withMillis ? `${text}.${String(time.getMilliseconds()).padStart(3, "0")}` : text;
}

export function date(ms) {
  if (!ms) return UNKNOWN;
  const time = new Date(ms);
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
}

// A time of day, with the date unless it is today's.
export function when(ms, now = Date.now()) {
  if (!ms) return UNKNOWN;
  return date(ms) === date(now) ? clock(ms) : `${date(ms)} ${clock(ms)}`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
