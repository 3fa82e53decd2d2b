// The view Sweep: what should I try next?
import { command, empty, h, paced, replace, statusMark } from "./dom.js";
import { get } from "./api.js";
import { onChange } from "./stream.js";
import { address, go, parameter, place } from "./state.js";
import { ago, duration, integer, number, plain, toNumber, unitOf } from "./format.js";
import { across, axis, colour, grid, linear, upward } from "./echarts.js";
import { exportBars } from "./bars.js";
import { plainChart, showReadout } from "./charts.js";

const valueText = (value) => plain(typeof value === "number" ? Number(value.toPrecision(4)) : value);

async function showList(view) {
  const { sweeps } = await get("sweeps");
  if (!sweeps.length) {
    return replace(
      view,
      h("div.head", h("h1", "Sweeps")),
      empty("No sweeps yet", "A sweep tries many values of a recipe's keys.", command("runner sweep run recipes/sweeps/lr.toml")),
    );
  }
  replace(
    view,
    h("div.head", h("h1", "Sweeps ", h("span.faint.num", integer(sweeps.length)))),
    h(
      "div.scroll-x",
      h(
        "table",
        h(
          "thead",
          h(
            "tr",
            ["Sweep", "Method", "Metric"].map((title) => h("th", title)),
            ["Trials", "Failed", "Started", "Took"].map((title) => h("th.num", title)),
          ),
        ),
        h(
          "tbody",
          sweeps.map((sweep) =>
            h(
              "tr",
              { style: { cursor: "pointer" }, onclick: () => go(address("sweep", sweep.id)) },
              h(
                "td",
                h(
                  "div.run-name",
                  statusMark(sweep.status),
                  h(
                    "div",
                    h("b", h("a", { href: address("sweep", sweep.id), style: { color: "inherit" } }, sweep.name)),
                    h("div.small", h("span", sweep.id.slice(-4))),
                  ),
                ),
              ),
              h("td", sweep.method),
              h("td", `${sweep.goal === "max" ? "greatest" : "least"} ${sweep.metric}`),
              h(
                "td.num",
                `${integer(Object.values(sweep.counts).reduce((a, b) => a + b, 0))}${sweep.budget ? ` of ${integer(sweep.budget)}` : ""}`,
              ),
              h("td.num", integer(sweep.counts.failed ?? 0)),
              h("td.num", ago(sweep.started)),
              h("td.num", duration(sweep.seconds)),
            )
          ),
        ),
      ),
    ),
  );
}

/** The trials' objectives as the palette: the best ones strong, the others faint. */
function parallel(sweep, trials, names) {
  const done = trials.filter((trial) => Number.isFinite(toNumber(trial.value))), values = done.map((trial) => toNumber(trial.value));
  if (done.length < 2 || !names.length) return null;
  const low = Math.min(...values), high = Math.max(...values);
  const isNumber = (name) =>
    sweep.scales?.[name] !== "category" &&
    done.every((trial) => trial.parameters[name] === undefined || typeof trial.parameters[name] === "number");
  const axes = names.map((name, dim) => {
    const list = done.map((trial) => trial.parameters[name]).filter((value) => value !== undefined);
    if (!isNumber(name)) {
      const choices = list.every((value) => typeof value === "number") ? [...new Set(list)].sort((a, b) => a - b) : [...new Set(list)];
      return { dim, name, type: "category", data: [...new Set([...(list.length < done.length ? ["—"] : []), ...choices.map(plain)])] };
    }
    // The sweep's own scale; of a sweep in Lua, what the values look like.
    const positive = Math.min(...list) > 0,
      log = sweep.scales?.[name] ? sweep.scales[name] === "log" : Math.max(...list) / Math.min(...list) > 50;
    return { dim, name, type: positive && log ? "log" : "value", scale: true };
  });
  axes.push({ dim: names.length, name: sweep.metric, type: "value", scale: true, inverse: sweep.goal !== "max" });
  const part = (value) => (high > low ? (sweep.goal === "max" ? (value - low) / (high - low) : (high - value) / (high - low)) : 1);
  const option = (style) => ({
    parallel: {
      left: innerWidth < 640 ? 28 : 56,
      right: innerWidth < 640 ? 44 : 72,
      top: 40,
      bottom: 24,
      parallelAxisDefault: {
        nameLocation: "start",
        nameGap: 14,
        nameTextStyle: { color: style.strong, ...style.font, fontSize: 12, width: 150, overflow: "truncate" },
        axisLine: { lineStyle: { color: style.axis, width: 1 } },
        axisTick: { show: false },
        splitLine: { show: false },
        // The background keeps the lines behind it from striking the text through.
        axisLabel: { color: style.text, ...style.font, formatter: valueText, backgroundColor: style.back, padding: [1, 2], margin: 6 },
        areaSelectStyle: { width: 16, borderWidth: 1, borderColor: colour("accent"), color: colour("accent"), opacity: 0.18 },
      },
    },
    parallelAxis: axes.map((one) => ({
      ...one,
      name: innerWidth < 640 ? one.name.replace(/^.*\./, "") : one.name,
      nameLocation: one.inverse ? "start" : "end",
    })),
    series: {
      type: "parallel",
      smooth: 0.15,
      silent: false,
      inactiveOpacity: 0.03,
      activeOpacity: 1,
      lineStyle: { width: 1.5 },
      data: [...done].sort((a, b) => part(toNumber(a.value)) - part(toNumber(b.value))).map((trial) => {
        const good = part(toNumber(trial.value));
        return {
          value: [
            ...names.map((
              name,
            ) => (trial.parameters[name] === undefined ? "—" : isNumber(name) ? trial.parameters[name] : plain(trial.parameters[name]))),
            toNumber(trial.value),
          ],
          name: String(trial.trial),
          lineStyle: { color: good > 0.9 ? colour("c1") : colour("c0"), opacity: 0.3 + 0.6 * good ** 2, width: good > 0.9 ? 2.2 : 1.3 },
        };
      }),
    },
  });
  return plainChart({
    title: "Parallel coordinates",
    unit: "drag along an axis to choose trials",
    className: "wide.tall",
    label: `Parallel coordinates of ${done.length} trials over ${names.join(", ")}`,
    option,
    table: () => [
      ["trial", ...names, sweep.metric],
      ...done.map((trial) => [trial.trial, ...names.map((name) => plain(trial.parameters[name] ?? "")), trial.value]),
    ],
  });
}

function bestSoFar(sweep, trials) {
  const done = trials.filter((trial) => Number.isFinite(toNumber(trial.value))).sort((a, b) => (a.ended ?? a.trial) - (b.ended ?? b.trial));
  if (!done.length) return null;
  // By the numbers that trials have everywhere, if they finished in that order.
  const inOrder = done.every((trial, i) => i === 0 || trial.trial > done[i - 1].trial), name = inOrder ? "trial" : "trials finished";
  const places = done.map((trial, i) => (inOrder ? trial.trial : i + 1));
  let best = null;
  const line = done.map((trial, i) => {
    const value = toNumber(trial.value);
    best = best === null ? value : sweep.goal === "max" ? Math.max(best, value) : Math.min(best, value);
    return [places[i], best];
  });
  const values = line.map(([, value]) => value).concat(done.map((trial) => toNumber(trial.value))).sort((a, b) => a - b),
    cut = values[Math.floor(values.length * 0.95)];
  return plainChart({
    title: "Best so far",
    label: `Best ${sweep.metric} after each trial; now ${number(best)}`,
    onpoint: (event, x) => {
      const at = places.reduce((near, place, i) => (Math.abs(place - x) < Math.abs(places[near] - x) ? i : near), 0), trial = done[at];
      showReadout(event, `trial ${trial.trial}`, [{ colour: colour("c0"), text: sweep.metric, value: number(trial.value) }, {
        colour: colour("c1"),
        text: "best so far",
        value: number(line[at][1]),
      }, ...Object.entries(trial.parameters).map(([name, value]) => ({ colour: "transparent", text: name, value: valueText(value) }))]);
    },
    option: (style) => ({
      grid: grid(true),
      xAxis: axis("value", style, {
        min: places[0],
        max: Math.max(places[0] + 1, places.at(-1)),
        minInterval: 1,
        ...across(name, style, integer),
      }),
      yAxis: upward(linear([values.filter((value) => sweep.goal === "max" || value <= cut)], unitOf(sweep.metric)), style),
      series: [{
        type: "scatter",
        data: done.map((trial, i) => [places[i], toNumber(trial.value)]),
        symbolSize: 6,
        itemStyle: { color: colour("c0"), opacity: 0.45 },
      }, { type: "line", step: "end", data: line, showSymbol: false, lineStyle: { width: 2, color: colour("c1") } }],
    }),
    table: () => [["trial", sweep.metric, "best"], ...done.map((trial, i) => [trial.trial, trial.value, line[i][1]])],
  });
}

function importance(sweep) {
  const list = Object.entries(sweep.importance ?? {}).sort((a, b) => b[1] - a[1]);
  return h(
    "div",
    h(
      "div.section-head",
      h("h2", "Importance"),
      h("span.spacer"),
      list.length
        ? exportBars(
          "Importance",
          list.map(([name, share]) => ({ name, parts: [{ name: "share of the variance", value: share, colour: "accent" }] })),
          "share",
        )
        : null,
    ),
    list.length
      ? [
        h(
          "div.share",
          list.flatMap((
            [name, share],
          ) => [h("span.mono", name), h("i", { vars: { "--part": Math.max(0, share) } }), h("span.num", `${Math.round(100 * share)} %`)]),
        ),
        h("p.small.muted", { style: { marginTop: "8px" } }, `share of the variance of ${sweep.metric} that each key explains by itself`),
      ]
      : h("p.muted", "Needs at least 8 finished trials."),
  );
}

function trialTable(sweep, names) {
  let order = { key: "value", down: sweep.goal === "max" };
  const table = h("table.dense");
  const columns = [
    { key: "trial", title: "Trial", number: true },
    { key: "status", title: "" },
    { key: "value", title: sweep.metric, number: true },
    ...names.map((name) => ({ key: name, title: name, number: true, parameter: true })),
    { key: "step", title: "Step", number: true },
    { key: "run", title: "Run" },
  ];
  const of = (
    trial,
    column,
  ) => (column.parameter ? trial.parameters[column.key] : column.key === "value" ? toNumber(trial.value) : trial[column.key]);
  const draw = () => {
    const column = columns.find((one) => one.key === order.key);
    const rows = [...sweep.trials].sort((a, b) => {
      const [x, y] = [of(a, column), of(b, column)];
      if (x === undefined || x === null || Number.isNaN(x)) return 1;
      if (y === undefined || y === null || Number.isNaN(y)) return -1;
      return (x < y ? -1 : x > y ? 1 : 0) * (order.down ? -1 : 1);
    });
    replace(
      table,
      h(
        "thead",
        h(
          "tr",
          columns.map((one) =>
            h(
              `th${one.number ? ".num" : ""}`,
              { scope: "col", "aria-sort": one.key === order.key ? (order.down ? "descending" : "ascending") : null },
              h(
                "button",
                {
                  type: "button",
                  onclick: () => {
                    order = { key: one.key, down: order.key === one.key ? !order.down : false };
                    draw();
                  },
                },
                one.title || "Status",
                one.key === order.key ? (order.down ? " ↓" : " ↑") : "",
              ),
            )
          ),
        ),
      ),
      h(
        "tbody",
        rows.slice(0, 1000).map((trial) =>
          h(
            "tr",
            columns.map((one) => {
              if (one.key === "status") return h("td", statusMark(trial.status === "waiting" ? "pruned" : trial.status));
              if (one.key === "run") {
                return h(
                  "td",
                  trial.run ? h("a", { href: address("run", trial.run) }, trial.run.slice(-4)) : "",
                  trial.reason ? h("span.small.muted", ` ${trial.reason}`) : null,
                );
              }
              return h(
                `td.num${sweep.best?.trial === trial.trial && one.key === "value" ? ".best" : ""}`,
                of(trial, one) === undefined || of(trial, one) === null ? "" : (one.key === "value" ? number : valueText)(of(trial, one)),
              );
            }),
          )
        ),
      ),
    );
  };
  draw();
  return h("div.scroll-x", table);
}

export async function showSweep(view) {
  const { id } = place();
  if (!id) {
    await showList(view);
    return { dispose: onChange((changes) => changes.sweeps && place().view === "sweep" && !place().id && showList(view)) };
  }
  let charts = [];
  async function draw() {
    const sweep = await get(`sweeps/${encodeURIComponent(id)}`), scroller = view.parentElement, top = scroller?.scrollTop ?? 0;
    if (view.isConnected) document.title = `${sweep.name} · runner`;
    const names = [...new Set(sweep.trials.flatMap((trial) => Object.keys(trial.parameters)))];
    if (sweep.importance) names.sort((a, b) => (sweep.importance[b] ?? 0) - (sweep.importance[a] ?? 0));
    const counts = {};
    for (const trial of sweep.trials) counts[trial.status] = (counts[trial.status] ?? 0) + 1;
    const runs = sweep.trials.map((trial) => trial.run).filter(Boolean);
    charts.forEach((chart) => chart.dispose());
    charts = [parallel(sweep, sweep.trials, names.slice(0, 8)), bestSoFar(sweep, sweep.trials)].filter(Boolean);
    const item = (
      name,
      value,
      unit,
    ) => (value === "" || value === undefined ? null : h("div", h("dt", name), h("dd", value, unit ? h("small", ` ${unit}`) : null)));
    replace(
      view,
      h(
        "div.head",
        statusMark(sweep.status),
        h("h1", sweep.name),
        h("span.faint.mono", sweep.id),
        h("span.spacer"),
        h(
          "div.buttons",
          h("a.button.plain", { href: address("compare", "", { filter: `sweep:${sweep.id}` }) }, "Curves of the trials"),
          h("a.button.plain", { href: address("sweep") }, "All sweeps"),
        ),
      ),
      sweep.message ? h("p.muted", sweep.message) : null,
      h(
        "dl.headline",
        item(`Best ${sweep.metric}`, sweep.best ? number(sweep.best.value) : "", sweep.best ? `trial ${sweep.best.trial}` : ""),
        item("Trials", integer(sweep.trials.length), sweep.budget ? `of ${integer(sweep.budget)}` : ""),
        item("Finished", integer(counts.finished ?? 0)),
        item("Pruned", counts.pruned ? integer(counts.pruned) : ""),
        item("Failed", counts.failed ? integer(counts.failed) : ""),
        item("Method", sweep.method),
        item("Took", duration(sweep.seconds)),
      ),
      sweep.best
        ? h(
          "div.section",
          { style: { marginTop: 0, marginBottom: "24px" } },
          h(
            "p",
            { style: { marginBottom: "8px" } },
            h("span.muted", "The best: "),
            Object.entries(sweep.best.parameters).map((
              [name, value],
              i,
            ) => [i ? ", " : "", h("span.mono", `${name} = ${valueText(value)}`)]),
          ),
          sweep.best.command ? command(sweep.best.command) : null,
        )
        : null,
      charts[0] ? h("div.charts", charts[0].box) : null,
      h("div.columns-2.section", charts[1]?.box ?? h("p.muted", "No trial has finished yet."), importance(sweep)),
      h("div.section", h("h2", "Trials"), trialTable(sweep, names)),
    );
    if (scroller) scroller.scrollTop = top;
  }
  await draw();
  const later = paced(() => draw().catch(() => {}), 2000);
  const stop = onChange((changes) => (changes.reload || changes.sweeps) && later());
  return {
    dispose() {
      stop();
      later.cancel();
      charts.forEach((chart) => chart.dispose());
    },
  };
}
