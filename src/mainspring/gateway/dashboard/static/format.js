// Numbers for people: three figures at most, a unit that fits, a thin space between.

const SPACE = "\u202f";

export function number(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${figures(value / 1e9)}${SPACE}G`;
  if (size >= 1e6) return `${figures(value / 1e6)}${SPACE}M`;
  if (size >= 1e4) return `${figures(value / 1e3)}${SPACE}k`;
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return figures(value);
}

export function figures(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  return value.toFixed(size >= 10 ? 1 : 2).replace(/\.?0+$/, "") || "0";
}

export const whole = (value) => Math.round(value).toLocaleString("en-US");

export const plural = (count, one, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`;

export function split(ms) {
  if (!Number.isFinite(ms)) return ["–", ""];
  if (ms === 0) return ["0", "ms"];
  if (ms < 1) return [figures(ms * 1e3), "µs"];
  if (ms < 1000) return [figures(ms), "ms"];
  if (ms < 120e3) return [figures(ms / 1e3), "s"];
  if (ms < 7200e3) return [figures(ms / 60e3), "min"];
  if (ms < 48 * 3600e3) return [figures(ms / 3600e3), "h"];
  return [figures(ms / 86400e3), "days"];
}

export const time = (ms) => split(ms).join(SPACE).trimEnd();

export const percent = (value) => {
  if (value === null || !Number.isFinite(value)) return "–";
  const points = value * 100;
  return `${points !== 0 && points < 9.95 ? points.toFixed(1) : Math.round(points)}${SPACE}%`;
};

export function bytes(value) {
  if (value < 1024) return `${whole(value)}${SPACE}B`;
  if (value < 1048576) return `${figures(value / 1024)}${SPACE}KiB`;
  return `${figures(value / 1048576)}${SPACE}MiB`;
}

export const words = (code) => code.replaceAll("_", " ");
