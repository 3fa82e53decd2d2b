// The tab System of a run: the readings of its machine while it trained.
import { empty, h, replace } from "./dom.js";
import { get } from "./api.js";
import { duration, integer, quantity, toNumber, unitOf, when } from "./format.js";
import { across, axis, colour, grid, linear, upward } from "./echarts.js";
import { plainChart, showReadout } from "./charts.js";

const titles = {
  "cpu/percent": "CPU of the machine",
  "cpu/run_percent": "CPU of the run",
  "memory/used_bytes": "Memory of the machine",
  "memory/run_bytes": "Memory of the run",
  "disk/free_bytes": "Free disk",
  "disk/run_read_bytes_per_s": "Disk reads of the run",
  "disk/run_write_bytes_per_s": "Disk writes of the run",
  "network/received_bytes_per_s": "Network received",
  "network/sent_bytes_per_s": "Network sent",
  "gpu/utilization_percent": "GPU utilization",
  "gpu/memory_used_bytes": "GPU memory",
  "gpu/power_watts": "GPU power",
  "gpu/temperature_celsius": "GPU temperature",
  "gpu/clock_mhz": "GPU clock",
  "gpu/throttled": "GPU throttled",
};

/** Series of one kind, of all GPUs: [{title, unit, members: [{name, text}]}], GPUs first. */
function kinds(names) {
  const groups = new Map();
  for (const name of names) {
    const match = /^(\w+)\/(\d+)\/(.+)$/.exec(name), kind = match ? `${match[1]}/${match[3]}` : name;
    if (!groups.has(kind)) groups.set(kind, { kind, title: titles[kind] ?? kind, unit: unitOf(kind), members: [] });
    groups.get(kind).members.push({ name, text: match ? `${match[1].toUpperCase()} ${match[2]}` : titles[kind] ?? name });
  }
  const order = Object.keys(titles), rank = (kind) => (kind.startsWith("gpu/") ? -100 : 0) + (order.indexOf(kind) + 1 || 99);
  return [...groups.values()].sort((a, b) => rank(a.kind) - rank(b.kind));
}

const inUnit = { "%": "%", W: "W", "°C": "°C", MHz: "MHz" };

// The axis is the time that the run took, without the pauses between its attempts. It is drawn as times after a midnight, because ECharts
// then labels it with round numbers.
const origin = new Date(1970, 0, 1).getTime(), toAxis = (seconds) => origin + 1000 * seconds;
const passedText = (at) => duration((at - origin) / 1000).replace(/ 0[smh]$/, "");

function option(kind, series, style) {
  const lines = [];
  kind.members.forEach(({ name, text }, i) => {
    const { seconds, value, low, high } = series[name], line = colour(`c${i % 8}`);
    const reduced = value.some((one, k) => low[k] !== one || high[k] !== one);
    // Where an element stands for several readings, the range of them is behind their mean.
    if (reduced) {
      const edge = { type: "line", stack: name, showSymbol: false, silent: true, lineStyle: { opacity: 0 } };
      lines.push({ ...edge, data: seconds.map((at, k) => [toAxis(at), toNumber(low[k])]) });
      lines.push({
        ...edge,
        areaStyle: { color: line, opacity: 0.16 },
        data: seconds.map((at, k) => [toAxis(at), toNumber(high[k]) - toNumber(low[k])]),
      });
    }
    lines.push({
      name: text,
      type: "line",
      showSymbol: seconds.length === 1,
      symbolSize: 5,
      silent: true,
      itemStyle: { color: line },
      lineStyle: { width: 1.4, color: line },
      data: seconds.map((at, k) => [toAxis(at), toNumber(value[k])]),
    });
  });
  const last = Math.max(...kind.members.map(({ name }) => series[name].seconds.at(-1)));
  const whole = kind.kind === "gpu/throttled" ? 1 : kind.unit === "%" && kind.kind !== "cpu/run_percent" ? 100 : 0;
  return {
    grid: grid(true),
    xAxis: axis("time", style, {
      min: origin,
      max: toAxis(Math.max(1, last)),
      splitNumber: 5,
      ...across("time", style, passedText),
    }),
    yAxis: upward(
      whole
        ? { min: 0, max: whole, interval: whole === 1 ? 1 : 25, text: integer }
        : linear(kind.members.flatMap(({ name }) => [series[name].low, series[name].high]), inUnit[kind.unit] ? "" : kind.unit),
      style,
    ),
    series: lines,
  };
}

/** The values of all members at the reading that is nearest to a place on the axis. */
function nearest(kind, series, at) {
  return kind.members.map(({ name, text }, i) => {
    const { time, seconds, value } = series[name];
    let best = 0;
    for (let k = 1; k < seconds.length; ++k) if (Math.abs(toAxis(seconds[k]) - at) < Math.abs(toAxis(seconds[best]) - at)) best = k;
    return { text, time: time[best], value: quantity(kind.kind, value[best]), colour: colour(`c${i % 8}`) };
  });
}

export function systemTab(box, run) {
  replace(box, h("p.muted", "…"));
  let charts = [], disposed = false, drawn = 0, series = {}, shown = "";
  async function draw() {
    drawn = Date.now();
    ({ series } = await get(`runs/${run.id}/system`));
    if (disposed) return;
    const names = Object.keys(series);
    if (names.length && names.join() === shown) return charts.forEach((chart) => chart.draw());
    shown = names.join();
    if (!names.length) {
      return replace(
        box,
        empty("No readings of the machine", "While a run trains, its CPU, memory, disk, network and GPUs are read every few seconds."),
      );
    }
    charts.forEach((chart) => chart.dispose());
    charts = kinds(names).map((kind) => {
      const last = nearest(kind, series, Number.MAX_SAFE_INTEGER).map((
        { text, value },
      ) => (kind.members.length > 1 ? `${text} ${value}` : value)).join(", ");
      return plainChart({
        title: kind.title,
        unit: inUnit[kind.unit] ?? "",
        label: `${kind.title} over time; last ${last}`,
        option: (style) => option(kind, series, style),
        table: () => [
          ["time", "series", "mean", "least", "greatest"],
          ...kind.members.flatMap(({ name, text }) =>
            series[name].time.map((time, k) => [time, text, series[name].value[k], series[name].low[k], series[name].high[k]])
          ),
        ],
        onpoint: (event, at) => {
          const values = nearest(kind, series, at);
          showReadout(event, `after ${passedText(at)}, ${when(values[0].time)}`, values);
        },
      });
    });
    replace(box, h("div.charts", charts.map((chart) => chart.box)));
  }
  draw().catch((error) => replace(box, h("p.problem", error.message)));
  return {
    // The machine is read every few seconds.
    refresh: () => Date.now() - drawn > 5000 && draw().catch(() => {}),
    dispose() {
      disposed = true;
      charts.forEach((chart) => chart.dispose());
    },
  };
}
