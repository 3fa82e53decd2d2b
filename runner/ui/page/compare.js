// The view Compare: which run is best, and what made it so?
import { debounce, empty, h, paced, popover, replace, statusMark } from "./dom.js";
import { get } from "./api.js";
import { onChange } from "./stream.js";
import { address, change, parameter, selection } from "./state.js";
import { better, integer, plain, quantity, toNumber } from "./format.js";
import { ChartGroup, legend } from "./chart_group.js";
import { saveTable } from "./exports.js";
import { quotedName } from "./words.js";

const compared = 12; // columns of the table; more do not fit on a screen

/** Controls of curves that several views use; `apply` is called after each change of the group. */
export function curveControls(group, apply, metrics = []) {
  const axes = ["step", ...["tokens", "samples", "seconds", "epoch"].filter((name) => metrics.includes(name))];
  if (!axes.includes(group.x)) axes.push(group.x);
  const x = h("select", {
    "aria-label": "x axis",
    onchange: () => {
      group.x = x.value;
      change({ x: x.value === "step" ? "" : x.value });
      group.zoom(null, null);
    },
  }, axes.map((name) => h("option", { value: name, selected: name === group.x }, { seconds: "time", step: "step" }[name] ?? name)));
  const logX = h("button.plain", {
    type: "button",
    "aria-pressed": String(group.logX),
    title: "Logarithmic x axis",
    onclick: () => {
      group.logX = !group.logX;
      logX.setAttribute("aria-pressed", String(group.logX));
      change({ logx: group.logX });
      group.draw();
    },
  }, "Log x");
  const value = h(
    "span.small",
    { style: { width: "28px", fontVariantNumeric: "tabular-nums" } },
    group.smoothing ? group.smoothing.toFixed(2) : "off",
  );
  const later = debounce(apply, 120);
  const slider = h("input", {
    type: "range",
    min: "0",
    max: "0.99",
    step: "0.01",
    value: String(group.smoothing),
    "aria-label": "Smoothing",
    oninput: () => {
      group.smoothing = Number(slider.value);
      value.textContent = group.smoothing ? group.smoothing.toFixed(2) : "off";
      change({ smoothing: group.smoothing || "" });
      later();
    },
  });
  const whole = h("button.plain", { type: "button", onclick: () => group.zoom(null, null) }, "Whole range");
  group.onzoom = () => {
    whole.hidden = group.from === null;
    change({ from: group.from, to: group.to });
  };
  whole.hidden = group.from === null;
  return [h("label.field", h("span.hide-narrow", "X axis"), x), logX, h("label.field", "Smoothing", slider, value), whole];
}

export function curveGroup(source) {
  const group = new ChartGroup(source);
  group.x = parameter("x", "step");
  group.smoothing = Number(parameter("smoothing")) || 0;
  group.logX = parameter("logx") === "1";
  const [from, to] = ["from", "to"].map((name) => parseFloat(parameter(name)));
  if (from < to) Object.assign(group, { from, to });
  return group;
}

const preferred = ["loss", "val_loss"];
function startingMetrics(list) {
  const names = list.map((metric) => metric.name), chosen = preferred.filter((name) => names.includes(name));
  for (const name of ["accuracy", "val_accuracy", "grad_norm", "tokens_per_s"]) {
    if (names.includes(name) && chosen.length < 4) chosen.push(name);
  }
  return chosen.length ? chosen : names.slice(0, 2);
}

/**
 * The results that people compare, the monitored metric `first`: of each metric the last value, and the best one if one end is better. Not
 * those that only count what was done.
 */
export function comparedResults(results, first) {
  const rank = ({ key }) => {
    if (key === "status" || key === "steps") return key === "status" ? 0 : 1;
    if (key.endsWith(`(${first})`)) return 2;
    return /\(val_|\(loss|accuracy/.test(key) ? 3 : key.includes("(") ? 4 : 5;
  };
  return results.filter(({ key }) =>
    !/\((lr|epoch|tokens|samples|seconds|data_wait_share|step_seconds|memory_bytes)\)/.test(key) &&
    (!key.startsWith("max(") || better(key) > 0) && (!key.startsWith("min(") || better(key) < 0)
  ).sort((a, b) => rank(a) - rank(b));
}
export const resultName = (key) => key.replace(/^(min|max)\(/, "best(");

/** The table of what differs: results first, then keys; the best value of each result is marked if one end is better. */
function differences(answer, group) {
  const runs = answer.runs;
  const rows = [];
  const section = (title, list, draw) =>
    list.length &&
    rows.push(h("tr", h("th", { colSpan: runs.length + 1, scope: "rowgroup", style: { position: "static" } }, title)), ...list.map(draw));
  section("Results", comparedResults(answer.results, runs[0].metric), (row) => {
    const values = row.values.map(toNumber), finite = values.filter((value) => Number.isFinite(value));
    const best = finite.length > 1 && Math.min(...finite) < Math.max(...finite) && better(row.key)
      ? (better(row.key) > 0 ? Math.max(...finite) : Math.min(...finite))
      : null;
    return h(
      "tr",
      h("td", resultName(row.key)),
      row.values.map((value, i) =>
        h(
          `td.num${best !== null && values[i] === best ? ".best" : ""}`,
          row.key === "status"
            ? statusMark(value, true)
            : values[i] === undefined
            ? plain(value)
            : row.key === "steps"
            ? integer(value)
            : quantity(row.key.replace(/^\w+\(|\)$/g, ""), value),
        )
      ),
    );
  });
  const keys = (title, list) =>
    section(
      title,
      list,
      (row) =>
        h(
          "tr",
          h("td.mono", row.key),
          row.values.map((value) => h("td.num.mono", { title: plain(value) }, value?.length === 0 ? "—" : plain(value))),
        ),
    );
  keys("Recipe", answer.config);
  keys("Code", answer.code);
  keys("Environment", answer.environment);
  if (!answer.config.length && runs.length > 1) {
    rows.push(h("tr", h("td.muted", { colSpan: runs.length + 1 }, "The recipes do not differ.")));
  }
  return h(
    "div.scroll-x",
    { tabIndex: 0, role: "region", "aria-label": "What differs between the runs" },
    h(
      "table.dense.sticky-first",
      h(
        "thead",
        h(
          "tr",
          h("th", ""),
          runs.map((run) =>
            h(
              "th.num",
              { scope: "col" },
              h(
                "a",
                { href: address("run", run.id), style: { color: "var(--text)" } },
                h("span.swatch", { vars: { "--colour": group.colourOf(run.id) } }),
                ` ${run.name} `,
                h("span.faint", run.id.slice(-4)),
              ),
            )
          ),
        ),
      ),
      h("tbody", rows),
    ),
  );
}

export async function showCompare(view, context) {
  const ids = parameter("runs") || (parameter("filter") ? "" : [...selection].join(","));
  const newest = !ids && !parameter("filter"); // nothing was chosen
  const source = ids ? { runs: ids } : { filter: parameter("filter") || "limit:8" };
  const group = curveGroup(source);
  const title = h("h1", "Compare"), charts = h("div.charts"), legendBox = h("div"), table = h("div.section"), note = h("div");
  const controls = h("div.buttons");
  replace(view, h("div.head", title, h("span.spacer"), controls), note, legendBox, charts, table);
  let available = [], runs = [], metrics = parameter("metrics") ? parameter("metrics").split(",") : [];
  const drawCharts = () => {
    for (const chart of [...group.charts]) if (!metrics.includes(chart.metric)) (chart.box.remove(), chart.dispose());
    const have = new Map([...group.charts].map((chart) => [chart.metric, chart]));
    replace(charts, metrics.map((name) => (have.get(name) ?? group.add(name)).box));
    for (const chart of group.charts) if (!chart.head && !chart.loading) chart.load();
  };
  drawCharts(); // of the metrics in the address, while the others are asked for
  try {
    const [list, all] = await Promise.all([
      ids
        ? get("runs", { filter: "archived:any", runs: ids, limit: 500, sparkline: "no" })
        : get("runs", { filter: source.filter, limit: 500, sparkline: "no" }),
      get("metrics", source),
    ]);
    runs = list.runs;
    available = all.metrics;
    group.expected = ids ? ids.split(",").length : list.matching;
    if (!runs.length) {
      return group.dispose(),
        replace(
          view,
          h("div.head", h("h1", "Compare")),
          empty("No runs to compare", "Select runs in the table, or type a filter above.", h("a", { href: address("runs") }, "All runs")),
        );
    }
    replace(title, "Compare ", newest ? "the newest " : "", h("span.faint.num", integer(group.expected)), " runs");
    if (newest) {
      replace(
        note,
        h(
          "p.muted",
          { style: { marginBottom: "12px" } },
          "Select others in the ",
          h("a", { href: address("runs") }, "table of runs"),
          ", or type a filter above.",
        ),
      );
    }
    context.filterError(null);
  } catch (error) {
    if (error.answer?.offset !== undefined) context.filterError(error);
    else replace(note, h("p.problem", { role: "alert" }, error.message));
    return { dispose: () => group.dispose() };
  }
  group.setRuns(runs);
  if (!metrics.length) metrics = startingMetrics(available);
  group.bands = parameter("bands") === "1" || (parameter("bands") === "" && runs.length > 60);

  const drawLegend = () => {
    if (group.groups) {
      const first = new Map(runs.map((run) => [group.key(run.id), run.id]).reverse());
      replace(legendBox, legend(group, group.values.map((key) => ({ key, text: key, colour: group.groupColour(first.get(key)) }))));
    } else {
      replace(
        legendBox,
        legend(group, runs.map((run) => ({ key: run.id, text: group.names.get(run.id), colour: group.colourOf(run.id) }))),
      );
    }
  };
  const metricsButton = h("button.plain", {
    type: "button",
    "aria-haspopup": "dialog",
    onclick: () =>
      popover(
        metricsButton,
        h(
          "div.pick",
          available.map((metric) =>
            h(
              "label",
              h("input", {
                type: "checkbox",
                checked: metrics.includes(metric.name),
                onchange: (event) => {
                  metrics = event.target.checked ? [...metrics, metric.name] : metrics.filter((name) => name !== metric.name);
                  change({ metrics: metrics.join(",") });
                  drawCharts();
                },
              }),
              h("span", metric.name),
              metric.runs < runs.length ? h("span.faint.small", `${metric.runs} runs`) : null,
            )
          ),
        ),
        { label: "Metrics" },
      ),
  }, "Metrics");
  const bands = h("button.plain", {
    type: "button",
    "aria-pressed": String(group.bands),
    title: "Median, and the range from the 10th to the 90th percentile",
    onclick: () => {
      group.bands = !group.bands;
      bands.setAttribute("aria-pressed", String(group.bands));
      change({ bands: group.bands ? "1" : "0" });
      group.draw();
    },
  }, "Bands");
  const grouping = h("select", {
    "aria-label": "Group by",
    onchange: () => {
      change({ group: grouping.value });
      regroup();
    },
  }, h("option", { value: "" }, "No group"));
  async function regroup() {
    const key = parameter("group"), values = new Map();
    for (let offset = 0; key && offset < Math.min(group.expected, 2000); offset += 500) {
      const answer = await get("runs", {
        filter: ids ? "archived:any" : source.filter,
        runs: ids,
        columns: key,
        offset,
        limit: 500,
        sparkline: "no",
      });
      for (const run of answer.runs) values.set(run.id, plain(run.cells[0]));
      if (ids) break;
    }
    group.groupBy(key ? values : null);
    drawLegend();
    drawTable();
    group.draw();
  }
  replace(
    controls,
    curveControls(group, () => group.refresh(), available.map((metric) => metric.name)),
    h("label.field", h("span.hide-narrow", "Group"), grouping),
    bands,
    metricsButton,
  );
  drawLegend();
  drawCharts();

  const shown = runs.slice(0, compared);
  let answer = null; // what differs
  const fillTable = async () => {
    answer = await get("compare", { runs: shown.map((run) => run.id).join(",") });
    drawTable();
    const keys = [...new Set(["name", "strategy", "tag", ...answer.config.map((row) => quotedName(row.key)).filter(Boolean)])];
    replace(
      grouping,
      h("option", { value: "" }, "No group"),
      keys.map((key) => h("option", { value: key, selected: key === parameter("group") }, key)),
    );
  };
  /** The heads have the colours of the curves. */
  function drawTable() {
    if (!answer) return;
    const rows = () => [
      ["key", ...answer.runs.map((run) => run.id)],
      ...["results", "config", "code", "environment"].flatMap((part) =>
        answer[part].map((row) => [row.key, ...row.values.map((value) => (value === null ? "" : plain(value)))])
      ),
    ];
    const save = h("button.quiet.small", { type: "button", onclick: () => saveTable("differences", rows()) }, "Save as CSV");
    replace(
      table,
      h(
        "div.section-head",
        h("h2", "What differs"),
        runs.length > compared ? h("span.muted.small", `the first ${compared} of ${integer(group.expected)} runs`) : null,
        h("span.spacer"),
        save,
      ),
      differences(answer, group),
    );
  }
  fillTable().catch((error) => replace(table, h("p.problem", error.message)));
  if (parameter("group")) regroup();

  const later = paced(() => group.refresh(), 1500);
  const stop = onChange((changes) => {
    const mine = new Set(runs.map((run) => run.id));
    if (changes.reload || changes.runs.some((run) => mine.has(run.id))) later();
  });
  return {
    dispose() {
      stop();
      later.cancel();
      group.dispose();
    },
  };
}
