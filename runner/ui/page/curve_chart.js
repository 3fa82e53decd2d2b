// Curves of a metric: drawn, zoomed, and read with a crosshair.
import { debounce, h, toast } from "./dom.js";
import { getCurves } from "./api.js";
import { across, axis, colour, grid, linear, loadECharts, look, placeText, upward } from "./echarts.js";
import { bandOf } from "./bands.js";
import { listenToKeys, listenToPointer } from "./chart_input.js";
import { hideReadout, showReadout } from "./charts.js";
import { exportMenu } from "./exports.js";
import { integer, number, quantity, unitOf } from "./format.js";

const mostColumns = 1_000_000; // with so many, the server sends all points of the range
const alone = 40; // more curves than this are drawn as one series for each colour

/** [[x, y]] of a curve, with the values that are not finite as texts. */
function pointsOf({ x, y, nonfinite }) {
  const points = Array.from(x, (at, i) => [at, y[i]]);
  if (!nonfinite) return points;
  for (const [kind, text] of [["nan", "NaN"], ["infinity", "Infinity"], ["minus_infinity", "-Infinity"]]) {
    points.push(...nonfinite[kind].map((at) => [at, text]));
  }
  return points.sort((a, b) => a[0] - b[0]);
}

export class CurveChart {
  constructor(group, metric, { className = "", title = metric } = {}) {
    Object.assign(this, { group, metric, title, logY: false, yRange: null, head: null });
    this.canvas = h("div");
    this.cross = h("div.line");
    this.range = h("div.range");
    this.noteBox = h("div.note", { hidden: true });
    this.plot = h(
      "div.plot",
      { tabIndex: 0, role: "img", "aria-label": title },
      this.canvas,
      h("div.over", this.cross, this.range),
      this.noteBox,
    );
    this.logButton = h("button", {
      type: "button",
      "aria-pressed": "false",
      title: "Logarithmic y axis",
      onclick: () => this.setLog(!this.logY),
    }, "Log");
    const menu = h("button", {
      type: "button",
      "aria-label": `Export ${title}`,
      "aria-haspopup": "true",
      onclick: () => exportMenu(menu, title, this.plot.clientWidth, this.plot.clientHeight, () => this.option(), () => this.table()),
    }, "Export");
    const tall = h("button", {
      type: "button",
      "aria-pressed": "false",
      title: "Larger",
      "aria-label": `Larger: ${title}`,
      onclick: () => {
        const large = this.box.classList.toggle("wide");
        this.box.classList.toggle("tall", large);
        tall.setAttribute("aria-pressed", String(large));
      },
    }, "⤢");
    this.foot = h("p.chart-foot", { hidden: true });
    this.box = h(
      `div.chart${className ? `.${className}` : ""}`,
      { data: { metric } },
      h("div.chart-head", h("h3", title, unitOf(metric) ? [" ", h("span.unit", unitOf(metric))] : null), this.logButton, tall, menu),
      this.plot,
      this.foot,
    );
    this.observer = new ResizeObserver(() => this.resized());
    this.observer.observe(this.plot);
    this.onScreen = true;
    this.stale = false;
    this.seen = new IntersectionObserver(([entry]) => {
      this.onScreen = entry.isIntersecting;
      if (this.onScreen && this.stale) this.load();
    }, { rootMargin: "300px" });
    this.seen.observe(this.plot);
    this.redraw = () => this.draw();
    addEventListener("themechange", this.redraw);
    listenToPointer(this);
    listenToKeys(this);
  }
  dispose() {
    this.abort?.abort();
    this.observer.disconnect();
    this.seen.disconnect();
    removeEventListener("themechange", this.redraw);
    this.chart?.dispose();
    this.chart = null;
    this.group.charts.delete(this);
  }
  setLog(on) {
    this.logY = on;
    this.yRange = null;
    this.logButton.setAttribute("aria-pressed", String(on));
    this.draw();
  }
  note(text) {
    this.noteBox.hidden = !text;
    this.noteBox.textContent = text ?? "";
  }

  /** What the drawn curves do not show, and what the marks at the edge mean. */
  tellFoot() {
    const curves = this.visible(),
      sum = (of) => curves.reduce((all, curve) => all + (of(curve) ?? 0), 0),
      has = (kind) => curves.some((curve) => curve.nonfinite?.[kind].length);
    const count = sum((curve) => curve.nonfinite?.count), lost = sum((curve) => curve.without_x), texts = [];
    const marks = [has("nan") ? "◆ NaN" : "", has("infinity") ? "▲ ∞" : "", has("minus_infinity") ? "▼ −∞" : ""];
    const signs = marks.filter(Boolean).join(", ");
    if (count) texts.push(`${signs}: ${integer(count)} ${count === 1 ? "value is" : "values are"} not finite.`);
    if (lost) {
      texts.push(
        `${integer(lost)} ${lost === 1 ? "point is" : "points are"} left out: at ${lost === 1 ? "its step" : "their steps"}, ${
          this.group.x === "seconds" ? "the time" : `the value of ${this.group.x}`
        } is not known.`,
      );
    }
    this.foot.hidden = !texts.length;
    this.foot.textContent = texts.join(" ");
  }

  refresh() {
    if (this.onScreen) return this.load();
    this.stale = true;
  }
  async load() {
    this.stale = false;
    this.abort?.abort();
    const mine = this.abort = new AbortController();
    this.loading = true;
    this.box.classList.add("loading");
    const runs = this.group.source.runs?.split(",").length ?? this.group.expected ?? 1000;
    const width = Math.max(100, this.plot.clientWidth - 60), pixels = Math.round(Math.min(width, Math.max(100, 200_000 / runs)));
    try {
      const { x, smoothing, from, to, source } = this.group;
      this.head = await getCurves({ ...source, metric: this.metric, x, smoothing: smoothing || "", from, to, pixels }, this.abort.signal);
      this.note(this.head.curves.length ? "" : x === "step" ? "no points yet" : `no run has both ${this.metric} and ${x}`);
      await this.draw();
      this.group.onload?.(this);
    } catch (error) {
      if (error.name !== "AbortError") this.note(error.message);
    } finally {
      if (mine === this.abort) {
        this.loading = false;
        this.box.classList.remove("loading");
      }
    }
  }

  visible() {
    return (this.head?.curves ?? []).filter((curve) => this.group.shown(curve.run));
  }

  /** [{colour, width, opacity, parts: [[x, y], ...]}]: what is drawn, before it is split into series. */
  strokes() {
    const curves = this.visible(),
      smooth = this.group.smoothing > 0 && curves.every((curve) => curve.smoothX),
      many = curves.length > alone;
    const list = [];
    for (const curve of curves) {
      const colour = this.group.colourOf(curve.run);
      const raw = this.withNeighbours(curve, curve.x, curve.y, 1);
      if (smooth) {
        if (curves.length <= 200) list.push({ colour, width: 1, opacity: 0.25, ...raw });
        list.push({
          colour,
          width: many ? 1 : 1.8,
          opacity: many ? 0.6 : 1,
          ...this.withNeighbours(curve, curve.smoothX, curve.smoothY, 2),
          top: true,
        });
      } else {
        list.push({ colour, width: many ? 1 : 1.5, opacity: many ? 0.55 : 0.95, ...raw });
      }
    }
    return list;
  }

  /** The points and the nearest ones on both sides of the range, to which the line goes on. `at`: 1 raw, 2 smooth. */
  withNeighbours({ before, after }, x, y, at) {
    if (!before && !after) return { x, y };
    const list = (middle, of) => [...(before ? [before[of]] : []), ...middle, ...(after ? [after[of]] : [])];
    return { x: list(x, 0), y: list(y, at) };
  }

  /** The values of a stroke in the range, and where its line crosses the ends of the range. */
  inRange({ x, y }) {
    const [low, high] = this.head.range, list = [];
    for (let i = 0; i < x.length; ++i) {
      if (x[i] >= low && x[i] <= high) list.push(y[i]);
      for (const end of [low, high]) {
        if (i && x[i - 1] < end && x[i] > end) list.push(y[i - 1] + ((y[i] - y[i - 1]) * (end - x[i - 1])) / (x[i] - x[i - 1]));
      }
    }
    return list;
  }

  option() {
    const style = look(), { group } = this, unit = unitOf(this.metric), xUnit = unitOf(group.x);
    const positiveX = group.logX, positiveY = this.logY;
    const banded = this.banded();
    const merged = new Map();
    const strokes = this.strokes(), many = strokes.length > alone * 2;
    strokes.forEach((stroke, i) => {
      const key = many ? `${stroke.colour}/${stroke.width}/${stroke.opacity}` : String(i);
      if (!merged.has(key)) merged.set(key, { ...stroke, parts: [] });
      merged.get(key).parts.push(stroke);
    });
    const series = [...merged.values()].map(({ colour, width, opacity, parts, top }) => {
      let size = 0;
      for (const part of parts) size += 2 * (part.x.length + 1);
      const data = new Float64Array(size);
      let at = 0;
      for (const part of parts) {
        for (let i = 0; i < part.x.length; ++i) {
          data[at++] = positiveX && part.x[i] <= 0 ? NaN : part.x[i];
          data[at++] = positiveY && part.y[i] <= 0 ? NaN : part.y[i];
        }
        data[at++] = NaN;
        data[at++] = NaN;
      }
      return {
        type: "line",
        data,
        dimensions: ["x", "y"],
        showSymbol: !many && !banded && parts[0].x.length <= 24,
        symbol: "circle",
        symbolSize: 5,
        silent: true,
        animation: false,
        z: top ? 3 : 2,
        itemStyle: { color: colour },
        lineStyle: { width, color: colour, opacity: banded ? opacity * 0.25 : opacity },
      };
    });
    if (banded) series.push(...this.bandSeries());
    const marks = this.markSeries(style);
    const range = this.head?.range ?? [0, 1], low = positiveX ? (range[0] > 0 ? range[0] : 1) : range[0];
    return {
      animation: false,
      grid: grid(true),
      xAxis: axis(positiveX ? "log" : "value", style, {
        min: low,
        max: range[1] > low ? range[1] : low + 1,
        minInterval: group.wholeX() ? 1 : 0,
        ...across(group.x === "seconds" ? "time" : group.x, style, placeText(xUnit)),
      }),
      yAxis: [
        this.logY
          ? axis("log", style, {
            ...(this.yRange ? { min: this.yRange[0], max: this.yRange[1] } : {}),
            axisLine: { show: false },
            axisLabel: { color: style.text, ...style.font, formatter: placeText(unit) },
          })
          : upward(linear(this.head?.range ? strokes.map((stroke) => this.inRange(stroke)) : [], unit, this.yRange), style),
        { type: "value", min: 0, max: 1, show: false, axisLabel: { show: false } },
      ],
      series: [...series, ...marks],
    };
  }

  /** NaN and infinities: marks at the edge, because they have no place on the axis. */
  markSeries(style) {
    const nan = [], infinite = [], [low, high] = this.head?.range ?? [0, 1], middle = (low + high) / 2;
    for (const curve of this.visible()) {
      const colour = this.group.colourOf(curve.run), marks = curve.nonfinite;
      if (!marks) continue;
      const mark = (x, y, more) => ({
        value: [x, y],
        itemStyle: { color: colour },
        label: { position: x > middle ? "left" : "right" },
        ...more,
      });
      for (const x of marks.nan) nan.push(mark(x, 0.02));
      for (const x of marks.infinity) infinite.push(mark(x, 0.98));
      for (const x of marks.minus_infinity) infinite.push(mark(x, 0.02, { symbolRotate: 180 }));
    }
    const make = (data, symbol, text) => ({
      type: "scatter",
      yAxisIndex: 1,
      data,
      symbol,
      symbolSize: 9,
      silent: true,
      animation: false,
      z: 5,
      label: { show: data.length <= 3, formatter: text, color: style.text, ...style.font },
    });
    return [nan.length ? make(nan, "path://M0 0L10 10M10 0L0 10", "NaN") : null, infinite.length ? make(infinite, "triangle", "∞") : null]
      .filter(Boolean).map((one) => (one.symbol.startsWith("path") ? { ...one, symbol: "diamond" } : one));
  }

  /** What is drawn of a curve: the smooth one, if there is one. */
  points(curve) {
    return this.group.smoothing > 0 && curve.smoothX ? { x: curve.smoothX, y: curve.smoothY } : { x: curve.x, y: curve.y };
  }

  /** [{key, id, band}]: the quantiles of each group, or of all curves. `id`: one of its runs. */
  bands() {
    const groups = new Map();
    for (const curve of this.visible()) {
      const key = this.group.groups ? this.group.key(curve.run) : "all";
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(curve);
    }
    return [...groups].map(([key, curves]) => ({
      key,
      id: curves[0].run,
      band: bandOf(curves.map((curve) => this.points(curve)), this.head.range),
    }));
  }

  bandSeries() {
    const usable = ({ x }, y) => (!this.logY || y > 0) && (!this.group.logX || x > 0), series = [];
    for (const { key, id, band } of this.bands()) {
      const fill = this.group.groups ? this.group.groupColour(id) : colour("accent");
      const top = band.filter((one) => usable(one, one.high)).map((one) => [one.x, one.high]),
        bottom = band.filter((one) => usable(one, one.low)).map((one) => [one.x, one.low]);
      const middle = band.filter((one) => usable(one, one.middle)).map((one) => [one.x, one.middle]);
      if (!middle.length) continue;
      const outline = [...top, ...bottom.reverse()];
      series.push({
        type: "custom",
        name: `band ${key}`,
        data: [middle[0]],
        silent: true,
        animation: false,
        clip: true,
        z: 3,
        renderItem: (_, api) => ({
          type: "polygon",
          shape: { points: outline.map((point) => api.coord(point)) },
          style: { fill, opacity: 0.18 },
        }),
      });
      series.push({
        type: "line",
        data: middle,
        showSymbol: false,
        silent: true,
        animation: false,
        z: 4,
        lineStyle: { width: 2.2, color: fill },
      });
    }
    return series;
  }

  banded() {
    return this.group.bands && this.visible().length > 2;
  }

  async draw() {
    if (!this.head) return;
    const echarts = await loadECharts();
    if (!this.box.isConnected || this.plot.clientWidth === 0) return;
    this.chart ??= echarts.init(this.canvas);
    this.chart.setOption(this.option(), true);
    this.tellFoot();
    const curves = this.visible();
    this.plot.setAttribute(
      "aria-label",
      `${this.title} by ${this.group.x}, ${curves.length} ${curves.length === 1 ? "curve" : "curves"}. ` +
        curves.slice(0, 5).map((curve) => `${this.group.names.get(curve.run) ?? curve.name}: last ${number(curve.y[curve.y.length - 1])}`)
          .join("; "),
    );
  }
  resized = debounce(() => {
    this.chart?.resize();
    if (this.head && !this.chart) this.draw();
  }, 60);

  /** What the chart shows, as rows: all points of the curves in its range, also those without a place on the screen, or the quantiles. */
  async table() {
    if (this.banded()) {
      return [
        ["group", this.group.x, "p10", "median", "p90"],
        ...this.bands().flatMap(({ key, band }) => band.map((one) => [key, one.x, one.low, one.middle, one.high])),
      ];
    }
    const { source, x, from, to } = this.group;
    const all = await getCurves({ ...source, metric: this.metric, x, from, to, pixels: mostColumns });
    const curves = all.curves.filter((curve) => this.group.shown(curve.run)), rows = [["run", "name", x, this.metric]];
    for (const curve of curves) rows.push(...pointsOf(curve).map(([at, value]) => [curve.run, curve.name, at, value]));
    const reduced = curves.filter((curve) => curve.count + (curve.nonfinite?.count ?? 0) < curve.points).length;
    if (reduced) toast(`${reduced} of ${curves.length} curves have too many points for one file; they are reduced`);
    return rows;
  }

  toX(pixel) {
    return this.chart?.convertFromPixel({ xAxisIndex: 0 }, pixel);
  }
  line(x) {
    const pixel = x === null || !this.chart ? NaN : this.chart.convertToPixel({ xAxisIndex: 0 }, x);
    const inside = Number.isFinite(pixel) && pixel >= 0 && pixel <= this.plot.clientWidth;
    Object.assign(this.cross.style, { display: inside ? "block" : "none", left: `${pixel}px`, top: "10px", bottom: "38px" });
  }

  /** The value of each curve at the point that is nearest to x. */
  values(x) {
    const list = [], [from, to] = this.head.range ?? [0, 1], near = (to - from) / 50;
    for (const curve of this.visible()) {
      const { x: xs, y: ys } = this.points(curve);
      if (!xs.length) continue;
      let low = 0, high = xs.length - 1;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (xs[middle] <= x) low = middle;
        else high = middle;
      }
      const at = Math.abs(xs[high] - x) < Math.abs(xs[low] - x) ? high : low;
      if (x < xs[0] - near || x > xs[xs.length - 1] + near) continue;
      list.push({ curve, x: xs[at], y: ys[at] });
    }
    return list;
  }
  tell(event, x, y) {
    const values = this.values(x), shown = 12;
    if (!values.length) return hideReadout();
    values.sort((a, b) => Math.abs(a.y - y) - Math.abs(b.y - y));
    const near = values.slice(0, shown).sort((a, b) => b.y - a.y), { group } = this;
    const title = `${group.x === "seconds" ? "time" : group.x} ${
      unitOf(group.x) ? quantity(group.x, values[0].x) : group.wholeX() ? integer(Math.round(values[0].x)) : number(values[0].x)
    }`;
    showReadout(
      event,
      title,
      near.map(({ curve, y: value }) => ({
        colour: group.colourOf(curve.run),
        text: group.names.get(curve.run) ?? curve.name,
        value: quantity(this.metric, value),
      })),
      values.length > shown ? `and ${values.length - shown} more` : "",
    );
  }

  reset() {
    this.yRange = null;
    this.cursor = undefined;
    if (this.group.from !== null || this.group.to !== null) this.group.zoom(null, null);
    else this.draw();
  }
}
