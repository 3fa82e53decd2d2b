// ECharts with the page's colours and font.
import { h } from "./dom.js";
import { withTries } from "./tries.js";
import { bytes, count, duration, short } from "./format.js";

let loading;
/** ECharts is a third of the page; it is loaded when the first chart is drawn. */
export function loadECharts() {
  loading ??= withTries(() =>
    new Promise((resolve, reject) => {
      if (window.echarts) return resolve(window.echarts);
      const script = h("script", { src: document.querySelector("script[data-echarts]").dataset.echarts });
      script.onload = () => resolve(window.echarts);
      script.onerror = () => {
        script.remove();
        reject(new Error("the chart library could not be loaded"));
      };
      document.head.append(script);
    }), () => true).catch((error) => {
      loading = undefined; // the next chart tries again
      throw error;
    });
  return loading;
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
/** A colour "#rrggbb" with a part of another one. */
export function mixed(one, other, part) {
  const channels = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)), to = channels(other);
  return `#${channels(one).map((value, i) => Math.round(value + (to[i] - value) * part).toString(16).padStart(2, "0")).join("")}`;
}

/** Writes the values of an axis. */
export const axisText = (unit) => (value) => {
  if (unit === "bytes") return bytes(value);
  if (unit === "bytes per second") return `${bytes(value)}/s`;
  if (unit === "seconds") return duration(value);
  return unit === "per second" || Math.abs(value) >= 1e4 ? count(value) : short(value);
};

/** Text, lines and grid of a chart. ECharts writes the font into an attribute of SVG, so it may have no double quotes. */
export function look() {
  return {
    text: colour("muted"),
    strong: colour("text"),
    line: colour("line"),
    axis: colour("line-strong"),
    back: colour("bg"),
    font: { fontFamily: getComputedStyle(document.body).fontFamily.replaceAll('"', "'"), fontSize: 11 },
  };
}

export function axis(type, look, extra) {
  return {
    type,
    axisLine: { show: true, lineStyle: { color: look.axis } },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: look.line } },
    minorSplitLine: { show: false },
    axisLabel: { color: look.text, ...look.font, hideOverlap: true },
    nameTextStyle: { color: look.text, ...look.font },
    ...extra,
  };
}

/** The name of a horizontal axis is at its right end, where otherwise a value would be. */
export const axisName = (name, look) => ({
  name,
  nameLocation: "end",
  nameGap: 0,
  nameTextStyle: { color: look.text, ...look.font, align: "right", verticalAlign: "top", padding: [7, 0, 0, 0] },
});

/** Ends and distance of an axis of bytes, at round numbers of KiB, MiB, GiB. */
export function binaryTicks(lists) {
  let low = Infinity, high = -Infinity;
  for (const list of lists) {
    for (const value of list) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (!(high >= low)) return {};
  const span = Math.max(high - low, high * 0.1, 4) / 4, unit = 1024 ** Math.floor(Math.log2(span) / 10);
  const interval = unit * [1, 2, 5, 10, 20, 50, 100, 200, 500, 1024].find((step) => step * unit >= span);
  return { min: Math.max(0, Math.floor(low / interval - 0.2)) * interval, max: Math.ceil(high / interval + 0.2) * interval, interval };
}
