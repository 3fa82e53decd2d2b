// What the charts of a view share: their runs, x axis, zoom, crosshair, smoothing, groups and colours.
import { h, replace } from "./dom.js";
import { colour, mixed } from "./echarts.js";
import { CurveChart } from "./curve_chart.js";
import { hideReadout } from "./charts.js";
import { colourIndex, distinctColours } from "./state.js";

/** `source`: {runs} or {filter}; `names`: id -> text; `groups`: id -> value of the key to group by. */
export class ChartGroup {
  constructor(source) {
    Object.assign(this, {
      source,
      x: "step",
      smoothing: 0,
      logX: false,
      from: null,
      to: null,
      hidden: new Set(),
      names: new Map(),
      colours: new Map(),
      bands: false,
      charts: new Set(),
    });
    this.groupBy(null);
  }
  add(metric, options = {}) {
    const chart = new CurveChart(this, metric, options);
    this.charts.add(chart);
    return chart;
  }
  /** Asks again for the curves of the charts on the screen; the others follow when they are scrolled to. */
  refresh() {
    return Promise.all([...this.charts].map((chart) => chart.refresh()));
  }
  draw() {
    for (const chart of this.charts) chart.draw();
  }
  wholeX() {
    return ["step", "tokens", "samples"].includes(this.x);
  }
  /** `onzoom` is told the new range. */
  zoom(from, to) {
    if (from !== null) {
      const whole = this.wholeX() && Math.floor(to) > Math.ceil(from);
      [from, to] = whole ? [Math.ceil(from), Math.floor(to)] : [from, to].map((end) => Number(end.toPrecision(9)));
    }
    Object.assign(this, { from, to });
    this.onzoom?.();
    this.refresh();
  }
  point(x) {
    for (const chart of this.charts) chart.line(x);
  }
  key(id) {
    return this.groups ? (this.groups.get(id) ?? "—") : id;
  }
  colourOf(id) {
    if (!this.groups) return colour(`c${this.colours.get(id) ?? colourIndex(id)}`);
    return mixed(this.groupColour(id), colour("text"), 0.22 * (this.shades.get(id) ?? 0));
  }
  /** The runs of the view, in its order: their names and colours. */
  setRuns(runs) {
    const count = new Map();
    for (const run of runs) count.set(run.name, (count.get(run.name) ?? 0) + 1);
    this.names = new Map(runs.map((run) => [run.id, count.get(run.name) > 1 ? `${run.name} ${run.id.slice(-4)}` : run.name]));
    this.colours = distinctColours(runs.map((run) => run.id));
  }
  /** The hue tells the group, the lightness the run. */
  groupColour(id) {
    return colour(`c${Math.max(0, this.values.indexOf(this.key(id))) % 8}`);
  }
  groupBy(groups) {
    this.groups = groups;
    this.hidden.clear();
    this.values = [...new Set(groups?.values() ?? [])].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const seen = new Map();
    this.shades = new Map([...(groups ?? [])].map(([id, value]) => {
      seen.set(value, (seen.get(value) ?? -1) + 1);
      return [id, seen.get(value) % 3];
    }));
  }
  shown(id) {
    return !this.hidden.has(this.key(id));
  }
  toggle(key, solo, all) {
    if (solo) {
      const others = all.filter((one) => one !== key), isSolo = others.every((one) => this.hidden.has(one)) && !this.hidden.has(key);
      this.hidden = new Set(isSolo ? [] : others);
    } else if (!this.hidden.delete(key)) {
      this.hidden.add(key);
    }
    this.draw();
  }
  dispose() {
    for (const chart of this.charts) chart.dispose();
    hideReadout();
  }
}

const listed = 16; // names that are shown before the rest is asked for

/** The names and colours of the curves; a click hides one, a double click shows only it. */
export function legend(group, keys) {
  const box = h("div.legend", { role: "group", "aria-label": "Curves" });
  let all = false;
  const item = ({ key, text, colour: of }) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(!group.hidden.has(key)),
        title: "Click: hide or show. Double click: only this one",
        onclick: () => (group.toggle(key, false, []), draw()),
        ondblclick: () => (group.toggle(
          key,
          true,
          keys.map((one) => one.key),
        ),
          draw()),
      },
      h("span.swatch", { vars: { "--colour": of } }),
      h("span", text),
    );
  const draw = () => {
    const shown = all ? keys.slice(0, 200) : keys.slice(0, keys.length > listed + 4 ? listed : keys.length),
      more = keys.length - shown.length;
    replace(
      box,
      shown.map(item),
      more > 0 && !all
        ? h("button.quiet", { type: "button", onclick: () => ((all = true), draw()) }, `${more} more`)
        : more > 0
        ? h("span.faint.small", `and ${more} more`)
        : null,
    );
  };
  draw();
  return box;
}
