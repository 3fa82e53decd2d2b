// ECharts with the page's colours and font.
import { h } from "./dom.js";
import { withTries } from "./tries.js";
import { duration, integer, number } from "./format.js";

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

/** [size, name] of the unit in which an axis writes values of up to `most`. */
function unitOfAxis(unit, most) {
  if (unit.startsWith("bytes")) {
    const power = Math.min(5, Math.max(0, Math.floor(Math.log2(most || 1) / 10)));
    return [1024 ** power, ` ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][power]}${unit === "bytes" ? "" : "/s"}`];
  }
  const of = (list, otherwise) => list.find(([size, , least = size]) => most >= least) ?? otherwise;
  if (unit === "seconds") {
    return of([[86400, " d", 172800], [3600, " h", 7200], [60, " min", 120], [1, " s"], [1e-3, " ms"]], [1e-6, " µs"]);
  }
  const power = Math.floor(Math.log10(most || 1));
  if (most >= 1e15 || power < -3) return [10 ** power, `e${power}`];
  const plain = unit !== "per second" && most < 1e4;
  return plain ? [1, ""] : of([[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]], [1, ""]);
}

const spanOf = (lists) => {
  let low = Infinity, high = -Infinity;
  for (const list of lists) {
    for (const value of list) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return [low, high];
};

/**
 * A linear axis over all values of `lists`: its ends and distance are round numbers of the unit that it writes, so that texts are short
 * and all of one style. `ends`: [low, high] that are given, which need not be round.
 */
export function linear(lists, unit, ends = null) {
  let [low, high] = ends ?? spanOf(lists);
  const tiny = Math.abs(low) < 1e-290 && Math.abs(high) < 1e-290 && low !== high;
  if (!(high >= low) || !Number.isFinite(high - low) || tiny) return { text: (value) => number(value, 3) };
  if (high - low <= 1e-9 * Math.abs(high)) [low, high] = high ? [Math.min(0.9 * low, 1.1 * low), Math.max(0.9 * high, 1.1 * high)] : [0, 1];
  const [size, name] = unitOfAxis(unit, Math.max(Math.abs(low), Math.abs(high))),
    power = 10 ** Math.floor(Math.log10((high - low) / 6 / size));
  const parts = (step) => Math.ceil(high / size / step - 1e-9) - Math.floor(low / size / step + 1e-9);
  const step = power * [1, 2, 5, 10, 20].find((one) => parts(one * power) <= 6);
  const places = Math.min(12, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
  const text = (value) => {
    const shown = (value / size).toFixed(places);
    return Number(shown) === 0 ? "0" : shown.replace("-", "−") + name;
  };
  if (ends) return { min: low, max: high, text };
  const interval = step * size, round = (value) => Number((value * step).toPrecision(12)) * size;
  return { min: round(Math.floor(low / interval + 1e-9)), max: round(Math.ceil(high / interval - 1e-9)), interval, text };
}

/** The text of a single place on an axis of any scale. */
export const placeText = (unit) => (value) => {
  if (unit === "seconds") return value < 60 ? linear([[0, value]], unit).text(value) : duration(value).replace(/ 0[smh]$/, "");
  if (unit === "" && value < 1e6 && Number.isInteger(value)) return integer(value);
  const [size, name] = unitOfAxis(unit, Math.abs(value));
  return value === 0 ? "0" : `${Number((value / size).toPrecision(3))}${name}`.replace("-", "−").replace("e−", "e-");
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

/** Where a chart draws, with room for the texts of its axes and for the name of the horizontal one. */
export const grid = (named) => ({ left: 4, right: 14, top: 10, bottom: named ? 18 : 4, containLabel: true });

/** A horizontal axis with its name below its texts. The first and the last value have a text. */
export const across = (name, style, text) => ({
  name,
  nameLocation: "middle",
  nameGap: 22,
  splitLine: { show: false },
  axisLabel: {
    color: style.text,
    ...style.font,
    hideOverlap: true,
    showMinLabel: true,
    showMaxLabel: true,
    alignMinLabel: "left",
    alignMaxLabel: "right",
    formatter: text,
  },
});

/** A vertical axis; `scale` is what linear() says. */
export function upward({ text, ...ends }, style) {
  return axis("value", style, {
    scale: true,
    ...ends,
    splitNumber: 4,
    axisLine: { show: false },
    axisLabel: { color: style.text, ...style.font, formatter: text },
  });
}
