// The view Runs: what is running, is it healthy?
import { $, askText, command, empty, h, paced, popover, replace, s, statusMark, toast } from "./dom.js";
import { get, mayWrite, post } from "./api.js";
import { onChange } from "./stream.js";
import { address, change, go, kept, parameter, selection } from "./state.js";
import { ago, bytes, count, duration, integer, number, plain, toNumber, when } from "./format.js";
import { head, virtualRows } from "./table.js";
import { drawerRun, openDrawer } from "./drawer.js";
import { columnNames, groupButton, showGroups } from "./groups.js";
import { splitColumns, termOf, withoutTerm } from "./words.js";

/** A small curve; values outside of it do not exist, because it shows the least and the greatest. */
export function sparkline(values, width = 72, height = 24) {
  if (!values || values.length < 2) return s("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const low = Math.min(...values), high = Math.max(...values);
  const half = high / 2 - low / 2 || 1; // halves: the whole may be too large for a number
  const points = values.map((value, i) =>
    `${((i / (values.length - 1)) * width).toFixed(1)} ${(height - 2 - ((value / 2 - low / 2) / half) * (height - 4)).toFixed(1)}`
  );
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    s("path", { class: "area", d: `M${points.join("L")}L${width} ${height}L0 ${height}Z` }),
    s("path", { d: `M${points.join("L")}` }),
  );
}

function progress(run) {
  // A hook may end a run before its last step: it is finished then.
  const early = run.status === "finished" && run.steps < run.max_steps;
  const done = run.status === "finished" ? 1 : run.max_steps ? Math.min(1, run.steps / run.max_steps) : 0;
  const left = run.max_steps ? `${integer(run.steps)} / ${integer(run.max_steps)}` : `${integer(run.steps)} steps`;
  const right = run.status === "running" && run.eta_s !== undefined && run.eta_s !== null
    ? `${duration(run.eta_s).split(" ")[0]} left`
    : early
    ? "ended early"
    : run.max_steps
    ? `${Math.round(done * 100)} %`
    : "";
  return h(
    `div.progress.${run.status}`,
    {
      role: "progressbar",
      "aria-valuenow": Math.round(done * 100),
      "aria-valuemin": "0",
      "aria-valuemax": "100",
      "aria-label": `${left} ${right}`,
      title: run.eta_s ? `${duration(run.eta_s)} left` : "",
    },
    h("div.small", h("span", left), h("span", right)),
    h("div.track", h("i", { vars: { "--done": done } })),
  );
}

function memory(run) {
  if (run.memory_bytes === null || run.memory_bytes === undefined) return "";
  const part = run.memory_limit ? run.memory_bytes / run.memory_limit : 0;
  return h(
    `div.gauge${part > 0.92 ? ".tight" : ""}`,
    { title: run.memory_limit ? `${bytes(run.memory_bytes)} of ${bytes(run.memory_limit)} per rank` : "" },
    h("span", bytes(run.memory_bytes)),
    part >= 0.01 ? h("div.track", h("i", { vars: { "--part": part } })) : null,
  );
}

const twoLines = (value, below) => h("div.two-lines", { title: below }, h("span", value), h("span.small.faint", below));

const standard = [
  { key: "progress", title: "Progress", sort: "steps", width: "168px", cell: progress, class: "progress-cell" },
  {
    key: "loss",
    title: "Loss",
    sort: "last(loss)",
    number: true,
    width: "124px",
    class: "loss",
    cell: (run) => h("div.spark", sparkline(run.sparkline), h("span.value", number(run.loss))),
  },
  {
    key: "metric",
    title: "Metric",
    sort: "metric",
    number: true,
    width: "88px",
    cell: (run) => (run.metric === "loss" ? "" : twoLines(number(run.metric_value), run.metric)),
  },
  {
    key: "rate",
    title: "Speed",
    number: true,
    width: "80px",
    cell: (run) => (toNumber(run.rate) === undefined ? "" : twoLines(count(run.rate), `${run.rate_unit}/s`)),
  },
  { key: "memory", title: "Memory", unit: "/ rank", number: true, width: "102px", cell: memory },
  {
    key: "strategy",
    title: "Strategy",
    sort: "strategy",
    width: "80px",
    cell: (run) => [run.strategy, run.ranks > 1 ? h("span.faint", ` × ${run.ranks}`) : null],
  },
  {
    key: "started",
    title: "Started",
    sort: "started",
    number: true,
    width: "100px",
    cell: (run) => h("span", { title: when(run.started) }, ago(run.started)),
  },
  { key: "took", title: "Took", sort: "took", number: true, width: "80px", cell: (run) => duration(run.seconds) },
];
const usual = standard.map((column) => column.key);

function shownColumns() {
  const text = parameter("columns");
  return text ? splitColumns(text) : kept.get("columns", usual);
}

function columnsOf(keys) {
  const extra = keys.filter((key) => !usual.includes(key));
  return {
    extra,
    list: [
      { key: "check", title: "", width: "32px" },
      { key: "name", title: "Run", sort: "name", width: "auto" },
      ...keys.map((key) =>
        standard.find((column) => column.key === key) ?? {
          key,
          title: key,
          sort: key,
          number: true,
          width: "130px",
          cell: (run) => {
            const value = run.cells?.[extra.indexOf(key)];
            return typeof value === "number" ? number(value) : plain(value ?? null);
          },
        }
      ),
    ],
  };
}

async function pickColumns(button, keys, apply) {
  const { metrics, keys: recipeKeys, fields } = await columnNames(), names = [...metrics, ...recipeKeys, ...fields];
  const search = h("input", { type: "search", placeholder: "Search keys and metrics", "aria-label": "Search columns" });
  const list = h("div");
  const chosen = new Set(keys);
  const line = (key, title) =>
    h(
      "label",
      h("input", {
        type: "checkbox",
        checked: chosen.has(key),
        onchange: (event) => {
          if (event.target.checked) chosen.add(key);
          else chosen.delete(key);
          apply([...chosen]);
        },
      }),
      h("span", title),
    );
  const fill = () => {
    const text = search.value.toLowerCase();
    const found = names.filter((name) => !usual.includes(name) && (chosen.has(name) || name.toLowerCase().includes(text))).slice(0, 200);
    replace(
      list,
      h("h3", "Usual"),
      standard.filter((column) => column.title.toLowerCase().includes(text)).map((column) => line(column.key, column.title)),
      h("h3", "Metrics and recipe keys"),
      found.map((name) => line(name, name)),
    );
  };
  search.addEventListener("input", fill);
  fill();
  popover(button, h("div.pick", search, list, h("button.quiet", { type: "button", onclick: () => apply([...usual]) }, "Usual columns")), {
    label: "Columns",
  });
}

export function showRuns(view, context) {
  const filter = context.filter();
  let sort = termOf(filter, "sort") ?? "-started";
  let keys = shownColumns();
  let { list: columns, extra } = columnsOf(keys);
  const title = h("h1", "Runs"), chips = h("div.chips"), tools = h("div.buttons");
  const columnsButton = h("button.plain.hide-phone", {
    type: "button",
    "aria-haspopup": "dialog",
    onclick: () => pickColumns(columnsButton, keys, setColumns),
  }, "Columns");
  const by = parameter("group");
  tools.append(by ? "" : columnsButton, groupButton(by, (name) => change({ group: name }, { quiet: false, step: true })));
  const table = h("table.runs-table", { "aria-label": "Runs" });
  const place = h("div", h("div.skeleton", { "aria-hidden": "true" }, Array.from({ length: 8 }, () => h("i"))));
  const note = h("p.muted.small", { role: "status", hidden: true });
  const bar = h("div.selection", { role: "toolbar", "aria-label": "Selected runs", hidden: true });
  replace(view, h("div.head", title, chips, h("span.spacer"), tools), note, place, bar);

  if (by) {
    const show = (answer) => {
      context.filterError(answer.error?.answer?.offset !== undefined ? answer.error : null);
      if (answer.error) replace(place, h("p.problem", { role: "alert" }, answer.error.message));
      else drawCounts(answer);
    };
    return showGroups(place, { filter: context.filter(), by, onload: show });
  }

  const select = (ids, on) => {
    for (const id of ids) {
      if (on) selection.add(id);
      else selection.delete(id);
    }
    change({ select: [...selection].join(",") });
    for (const row of table.querySelectorAll("tr[data-id]")) {
      row.setAttribute("aria-selected", String(selection.has(row.dataset.id)));
      $("input", row).checked = selection.has(row.dataset.id);
    }
    drawBar();
  };
  /** All runs from one row to another, also those that are not on the screen. */
  async function selectRange(from, to, on) {
    const [first, last] = [Math.min(from, to), Math.max(from, to)], ids = [], most = 500;
    for (let offset = first; offset <= last; offset += most) {
      const answer = await get("runs", { filter: context.filter(), offset, limit: Math.min(most, last + 1 - offset), sparkline: "no" });
      ids.push(...answer.runs.map((run) => run.id));
    }
    select(ids, on);
  }
  let anchor = null; // the row that was clicked last
  function draw(run, index) {
    const check = h("input", { type: "checkbox", checked: selection.has(run.id), "aria-label": `Select ${run.name}` });
    check.addEventListener("click", (event) => {
      event.stopPropagation();
      if (event.shiftKey && anchor !== null) selectRange(anchor, index, check.checked).catch((error) => toast(error.message, "error"));
      anchor = index;
      select([run.id], check.checked);
    });
    const row = h(`tr${drawerRun() === run.id ? ".open" : ""}`, {
      tabIndex: -1,
      data: { id: run.id },
      "aria-selected": String(selection.has(run.id)),
      onclick: (event) => {
        if (event.target.closest("a, input, button")) return;
        openDrawer(run.id);
      },
    });
    row.append(
      h("td.check", check),
      h(
        "td.name",
        h(
          "div.run-name",
          statusMark(run.status),
          h(
            "div",
            h("b", h("a", { href: address("run", run.id), style: { color: "inherit" } }, run.name)),
            h(
              "div.small",
              { title: run.why || run.id },
              h("span", run.why || run.id.slice(-4)),
              run.attempts > 1 ? h("span", `· ${run.attempts} attempts`) : null,
              run.group ? h("span", `· ${run.group}`) : null,
              run.tags.slice(0, 3).map((tag) => h("span.tag", tag)),
            ),
          ),
        ),
      ),
    );
    for (const column of columns.slice(2)) {
      row.append(h(`td${column.number ? ".num" : ""}${column.class ? `.${column.class}` : ""}`, column.cell(run)));
    }
    return row;
  }

  const rows = virtualRows({
    scroller: view.parentElement,
    columns,
    height: 44,
    draw,
    fetchRows: async (offset, limit) => {
      const answer = await get("runs", { filter: context.filter(), columns: extra.join(","), offset, limit });
      return { ...answer, rows: answer.runs, total: answer.matching };
    },
    onload(answer) {
      context.filterError(answer.error?.answer?.offset !== undefined ? answer.error : null);
      if (answer.error) {
        if (answer.error.message.startsWith("columns:")) {
          replace(
            place,
            empty(
              "These columns cannot be shown",
              answer.error.message,
              h("button.plain", { type: "button", onclick: () => setColumns([...usual]) }, "Usual columns"),
            ),
          );
        } else if (answer.error.answer?.offset === undefined) replace(place, h("p.problem", { role: "alert" }, answer.error.message));
        else if (!table.isConnected) {
          replace(place, empty("This filter has a mistake", answer.error.message, h("a", { href: address("runs") }, "Show all runs")));
        }
        return;
      }
      drawCounts(answer);
      drawNote(answer);
      if (answer.total > 0) {
        if (!table.isConnected) {
          layout();
          replace(place, table);
          rows.redraw();
        }
      } else if (context.filter()) {
        replace(place, empty("No run matches this filter", null, h("a", { href: address("runs") }, "Show all runs")));
      } else {
        replace(
          place,
          empty("No runs yet", "Start one in the terminal; it appears here while it trains.", command("runner run recipes/llm_fsdp.toml")),
        );
      }
    },
  });
  function layout() {
    replace(
      table,
      h("colgroup", columns.map((column) => h("col", { style: { width: column.width === "auto" ? "auto" : column.width } }))),
      head(columns, sort, setSort),
      rows.body,
    );
  }
  function setColumns(chosen) {
    keys = [...usual.filter((key) => chosen.includes(key)), ...chosen.filter((key) => !usual.includes(key))];
    kept.set("columns", keys);
    change({ columns: keys.join() === usual.join() ? "" : keys.join(",") });
    ({ list: columns, extra } = columnsOf(keys));
    layout();
    rows.redraw();
    rows.refresh();
  }
  function setSort(order) {
    sort = order;
    const rest = withoutTerm(context.filter(), "sort");
    context.setFilter(order === "-started" ? rest : `${rest} sort:${order}`.trim());
  }
  function drawCounts(answer) {
    replace(title, "Runs ", h("span.faint.num", integer(answer.total)));
    const order = ["running", "finished", "failed", "interrupted", "preempted", "pruned", "lost"];
    replace(
      chips,
      order.filter((status) => answer.statuses[status]).map((status) =>
        h(
          "a.chip",
          { href: address("runs", "", { filter: `${withoutTerm(context.filter(), "status")} status:${status}`.trim(), group: by }) },
          statusMark(status),
          `${integer(answer.statuses[status])} ${status}`,
        )
      ),
    );
  }
  /** Columns stay when the ledger becomes another one, so they may have names that no run here knows. */
  function drawNote(answer) {
    const unknown = answer.unknown_columns ?? [], lost = unknown.map(({ column }) => extra[answer.columns.indexOf(column)]);
    note.hidden = !unknown.length;
    replace(
      note,
      unknown.map(({ column, error }) => `The column ${column} is empty: ${error}. `),
      h(
        "button.quiet.small",
        { type: "button", onclick: () => setColumns(keys.filter((key) => !lost.includes(key))) },
        unknown.length === 1 ? "Remove it" : "Remove them",
      ),
    );
  }
  async function edit(change, text) {
    const ids = [...selection];
    try {
      for (const id of ids) await post(`runs/${id}/edit`, change);
      toast(text(ids.length));
      rows.refresh();
    } catch (error) {
      toast(error.message, "error");
    }
  }
  function drawBar() {
    bar.hidden = selection.size === 0;
    if (!selection.size) return;
    replace(
      bar,
      h("span", `${selection.size} selected`),
      h("button.primary", { type: "button", onclick: () => go(address("compare", "", { runs: [...selection].join(",") })) }, "Compare"),
      mayWrite()
        ? [
          h("button.quiet", {
            type: "button",
            onclick: (event) => askText(event.currentTarget, "New tag", (tag) => edit({ add_tags: [tag] }, (n) => `${n} tagged`)),
          }, "Tag…"),
          h("button.quiet", { type: "button", onclick: () => edit({ archived: true }, (n) => `${n} archived`) }, "Archive"),
        ]
        : null,
      h("button.quiet", { type: "button", onclick: () => select([...selection], false) }, "Clear"),
    );
  }
  drawBar();

  const later = paced(() => rows.refresh(), 400);
  const stop = onChange((changes) => {
    if (changes.reload || changes.runs.length || changes.new.length || changes.removed.length) later();
  });
  const clock = setInterval(
    () => document.visibilityState === "visible" && rows.rows().some((run) => run.status === "running") && rows.refresh(),
    5000,
  );
  return {
    dispose() {
      stop();
      clearInterval(clock);
      rows.dispose();
    },
    keys: {
      j: () => move(1),
      k: () => move(-1),
      ArrowDown: () => move(1),
      ArrowUp: () => move(-1),
      x: () => current() && select([current()], !selection.has(current())),
      Enter: () => current() && openDrawer(current()),
      c: () => selection.size && go(address("compare", "", { runs: [...selection].join(",") })),
    },
  };
  function current() {
    return document.activeElement?.closest?.("tr[data-id]")?.dataset.id;
  }
  function move(by) {
    const list = [...table.querySelectorAll("tr[data-id]")];
    if (!list.length) return;
    const at = list.findIndex((row) => row.dataset.id === current());
    const next = list[at < 0 ? 0 : Math.max(0, Math.min(list.length - 1, at + by))];
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }
}
