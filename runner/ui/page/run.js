// The view Run: what happened in this run?
import { h, s, $, replace, statusMark, empty, command, debounce, toast } from "./dom.js";
import { get, getText } from "./api.js";
import { onChange } from "./stream.js";
import { address, change, go, parameter, place } from "./state.js";
import { ago, bytes, count, duration, integer, number, plain, quantity, toNumber, when } from "./format.js";
import { curveControls, curveGroup } from "./compare.js";
import { notesEditor, runButtons, tagEditor } from "./drawer.js";
import { diffTab } from "./diff.js";
import { logsTab } from "./logs.js";
import { systemTab } from "./system.js";

const tabs = [["", "Curves"], ["recipe", "Recipe"], ["logs", "Logs"], ["system", "System"], ["code", "Code"], ["diff", "Diff"], ["events", "Events"]];

function headline(run) {
  const measured = run.measured ?? {}, last = (name) => run.metrics[name]?.last, total = run.config?.train?.max_steps;
  const seconds = run.attempts.reduce((sum, attempt) => sum + ((attempt.ended ?? run.ended ?? run.now) - attempt.started), 0);
  const rate = measured.tokens_per_s ?? last("tokens_per_s") ?? last("samples_per_s");
  const memory = measured.memory_bytes_per_rank ?? run.metrics.memory_bytes?.max;
  const item = (name, value, unit) => (value === undefined || value === null || value === "" ? null : h("div", h("dt", name), h("dd", value, unit ? h("small", ` ${unit}`) : null)));
  return h("dl.headline",
    item("Steps", integer(run.steps), total ? `of ${integer(total)}` : ""),
    item("Loss", run.final_loss === null ? "" : number(run.final_loss)),
    run.metric !== "loss" && run.metric_value !== null ? item(run.metric, number(run.metric_value)) : null,
    run.best_checkpoint ? item("Best checkpoint", number(run.best_checkpoint.value), `at step ${integer(run.best_checkpoint.step)}`) : null,
    item("Speed", rate ? count(rate) : "", `${last("samples_per_s") && !last("tokens_per_s") ? "samples" : "tokens"}/s`),
    item("Memory", memory ? bytes(memory) : "", "per rank"),
    item("Took", duration(seconds)),
    item("Strategy", run.strategy, run.world_size > 1 ? `on ${run.world_size} ranks` : ""));
}

/** Attempts as bars over time, with checkpoints, validations and events. It is drawn again when its width changes. */
function timeline(run) {
  const svg = s("svg", { class: "timeline", role: "img", "aria-label": "Timeline of attempts, checkpoints and events" });
  const from = run.started, to = Math.max(run.ended ?? run.now, from + 1);
  const bad = new Set(["failed", "nonfinite", "spike", "loss_spike", "stall", "restart", "skipped", "alert"]);
  const draw = () => {
    const width = Math.max(200, svg.clientWidth);
    const x = (time) => 6 + ((Math.min(to, Math.max(from, time)) - from) / (to - from)) * (width - 12);
    const item = (tag, attributes, text) => s(tag, attributes, s("title", {}, text));
    const end = (attempt) => attempt.ended ?? run.ended ?? run.now;
    const parts = run.attempts.map((attempt) => item("rect", { class: "attempt", x: x(attempt.started), y: 12, width: Math.max(2, x(end(attempt)) - x(attempt.started)), height: 20, rx: 3 }, `attempt ${attempt.number}: ${attempt.reason ?? ""}, ${attempt.strategy} on ${attempt.world_size} ranks, ${attempt.host}, ${duration(end(attempt) - attempt.started)}`));
    for (const checkpoint of run.checkpoints) parts.push(item("line", { class: "tick", x1: x(checkpoint.time), x2: x(checkpoint.time), y1: 8, y2: 36 }, `checkpoint of step ${integer(checkpoint.step)}, ${bytes(checkpoint.bytes)}${checkpoint.exists ? "" : ", deleted"}`));
    for (const event of run.events) {
      if (event.event === "ready" || event.event === "memory") continue;
      const text = `${event.event}: ${event.message ?? (event.step !== undefined ? `step ${integer(event.step)}` : "")}, ${when(event.time)}`;
      parts.push(bad.has(event.event) ? item("path", { class: "bad", d: `M${x(event.time)} 45l5 9h-10z` }, text) : item("circle", { class: event.event === "validation" ? "validation" : "other", cx: x(event.time), cy: 50, r: 3.5 }, text));
    }
    svg.replaceChildren(s("line", { class: "axis", x1: 6, x2: width - 6, y1: 62, y2: 62 }), ...parts);
  };
  new ResizeObserver(draw).observe(svg);
  const counts = [`${run.attempts.length} ${run.attempts.length === 1 ? "attempt" : "attempts"}`, `${run.checkpoints.length} checkpoints`, `${run.events.length} events`].join(", ");
  return h("div", h("div.section-head", h("h2", "Timeline"), h("span.small.muted", counts)), svg, h("div.small.muted", { style: { display: "flex", justifyContent: "space-between" } }, h("span", when(from)), h("span", run.ended ? when(to) : "now")));
}

function curvesTab(box, run) {
  const group = curveGroup({ runs: run.id });
  const names = Object.keys(run.metrics), usual = ["loss", "val_loss", "lr", "grad_norm", "tokens_per_s", "samples_per_s", "memory_bytes", "step_seconds"];
  const ordered = [...usual.filter((name) => names.includes(name)), ...names.filter((name) => !usual.includes(name) && !["tokens", "samples", "seconds", "epoch"].includes(name))];
  const search = h("input", { type: "search", placeholder: "Find a metric", "aria-label": "Find a metric" });
  const grid = h("div.charts");
  const draw = () => {
    const text = search.value.toLowerCase(), wanted = ordered.filter((name) => name.toLowerCase().includes(text)).slice(0, 24);
    for (const chart of [...group.charts]) if (!wanted.includes(chart.metric)) chart.dispose();
    const have = new Map([...group.charts].map((chart) => [chart.metric, chart]));
    replace(grid, wanted.map((name) => (have.get(name) ?? group.add(name)).box));
    for (const chart of group.charts) if (!chart.head) chart.load();
  };
  search.addEventListener("input", debounce(draw, 150));
  replace(box, h("div.form", curveControls(group, () => group.refresh(), names), h("span.spacer"), ordered.length > 6 ? search : null), grid, h("div.section", timeline(run)), h("div.section", h("div.columns-2", h("div", h("h2", "Notes"), notesEditor(run) ?? h("p.muted", "no notes")), h("div", h("h2", "About"), h("dl.facts.small", about(run).flatMap(([name, value]) => [h("dt", name), h("dd", value)]))))));
  if (ordered.length) draw();
  else replace(grid, h("p.muted", "This run has no metrics yet."));
  return { refresh: () => group.refresh(), dispose: () => group.dispose() };
}

function about(run) {
  const link = (edge) => h("a", { href: address("run", edge.id) }, `${edge.name} (${edge.kind})`);
  const git = run.git;
  return [
    ["Started", when(run.started)], ["Ended", run.ended ? when(run.ended) : ""], ["Host", run.host?.hostname], ["Devices", run.host?.cuda?.length ? `${run.host.cuda.length} × ${run.host.cuda[0].name}` : run.host?.cpu],
    ["Data", run.data_summary], ["Code", git ? `${(git.commit ?? "no commit").slice(0, 12)}${git.branch ? ` on ${git.branch}` : ""}${git.dirty ? ", changed" : ""}` : ""],
    ["Sweep", run.sweep ? h("a", { href: address("sweep", run.sweep.id) }, `trial ${run.sweep.trial} of ${run.sweep.name}`) : ""],
    ["Model of", run.parents?.length ? run.parents.map(link) : ""], ["Used by", run.children?.length ? run.children.map(link) : ""],
    ["Folder", `${run.run_dir}${run.run_dir_exists ? "" : " (deleted)"}`], ["Command", h("code", run.argv.join(" "))], ["Build", run.build_id],
  ].filter(([, value]) => value);
}

/** TOML with colours, a line at a time. */
function toml(text) {
  return text.split("\n").flatMap((line) => {
    if (/^\s*#/.test(line)) return [h("span.comment", line), "\n"];
    if (/^\s*\[/.test(line)) return [h("span.section-name", line), "\n"];
    const match = /^(\s*[^=]+?)(\s*=\s*)([^#]*)(#.*)?$/.exec(line);
    return match ? [h("span.key", match[1]), match[2], h("span.value", match[3]), match[4] ? h("span.comment", match[4]) : null, "\n"] : [line, "\n"];
  });
}

function recipeTab(box, run) {
  const rows = [];
  const flat = (value, key) => {
    if (value !== null && typeof value === "object" && !Array.isArray(value)) for (const [name, part] of Object.entries(value)) flat(part, key ? `${key}.${name}` : name);
    else rows.push([key, value, run.origins?.[key] ?? ""]);
  };
  flat(run.config ?? {}, "");
  const search = h("input", { type: "search", placeholder: "Find a key", "aria-label": "Find a key" }), own = h("input", { type: "checkbox" });
  const body = h("tbody");
  const draw = () => {
    const text = search.value.toLowerCase();
    replace(body, rows.filter(([key, value, origin]) => (!own.checked || origin !== "default") && `${key} ${plain(value)}`.toLowerCase().includes(text)).map(([key, value, origin]) => h("tr", h("td.mono", key), h("td.mono", { title: plain(value) }, plain(value)), h("td.small.muted", { title: origin }, origin.replace(/^.*\/(?=[^/]*\.toml)/, "")))));
  };
  search.addEventListener("input", draw);
  own.addEventListener("change", draw);
  draw();
  replace(box, h("div.form", search, h("label.field", own, "without defaults"), h("span.spacer"), command(`runner rerun ${run.id}`)), h("div.columns-2", h("div.scroll-x", h("table.dense", h("thead", h("tr", h("th", "Key"), h("th", "Value"), h("th", "Origin"))), body)), h("div", h("h2", { style: { marginBottom: "8px" } }, "As written"), h("pre.source", { tabIndex: 0, "aria-label": "The recipe" }, toml(run.recipe ?? "")))));
  return {};
}

function codeTab(box, run) {
  const git = run.git, patch = h("div", h("p.muted", "…"));
  replace(box, h("dl.facts", [["Commit", git?.commit ?? "none"], ["Branch", git?.branch ?? ""], ["Changes", git?.dirty ? "yes, the working tree had changes that were not committed" : "none"], ["Build", run.build_id], ["Command", h("code", run.argv.join(" "))], ["Folder", run.working_directory]].filter(([, value]) => value).flatMap(([name, value]) => [h("dt", name), h("dd", value)])), h("div.section", h("h2", "Patch"), patch));
  if (!run.patch_bytes) replace(patch, h("p.muted", git ? "The code of this run was committed." : "The code of this run was not in a git repository."));
  else getText(`runs/${run.id}/patch`).then((text) => replace(patch, h("pre.source", { tabIndex: 0, "aria-label": "Patch" }, text.split("\n").flatMap((line) => [h(line.startsWith("+") ? "span.add" : line.startsWith("-") ? "span.cut" : line.startsWith("@@") ? "span.section-name" : "span", line), "\n"]))), (error) => replace(patch, h("p.muted", error.message)));
  return {};
}

function eventsTab(box, run) {
  const text = (event) => event.message ?? event.text ?? Object.entries(event).filter(([key, value]) => !["time", "event", "rank"].includes(key) && typeof value !== "object").map(([key, value]) => `${key} ${plain(value)}`).join(", ");
  const list = [...run.events.map((event) => [event.time, event.event, event.rank, text(event)]), ...run.checkpoints.map((one) => [one.time, "checkpoint", one.rank, `${one.path}, ${bytes(one.bytes)}${one.exists ? "" : ", deleted"}`]), ...(run.changes ?? []).map((one) => [one.time, `changed ${one.what}`, null, `${one.who}: ${plain(one.before)} → ${plain(one.after)}`])].sort((a, b) => b[0] - a[0]);
  if (!list.length) replace(box, empty("No events"));
  else replace(box, h("div.scroll-x", h("table.dense", h("thead", h("tr", h("th", "Time"), h("th", "Event"), h("th.num", "Rank"), h("th", ""))), h("tbody", list.slice(0, 1000).map(([time, kind, rank, what]) => h("tr", h("td.num", { style: { textAlign: "left" } }, when(time)), h("td", kind), h("td.num", plain(rank ?? "")), h("td", { title: what, style: { maxWidth: "720px" } }, what)))))));
  return {};
}

export async function showRun(view) {
  const { id } = place();
  if (!id) {
    const { runs } = await get("runs", { limit: 1, sparkline: "no" });
    if (runs.length) return void go(address("run", runs[0].id));
    return replace(view, h("div.head", h("h1", "Run")), empty("No runs yet", null, command("runner run recipes/llm_fsdp.toml")));
  }
  let run = await get(`runs/${encodeURIComponent(id)}`), part = null;
  document.title = `${run.name} · runner`;
  const top = h("div"), box = h("div"), tab = parameter("tab");
  const drawTop = () => replace(top,
    h("div.head", statusMark(run.status), h("h1", run.name), h("span.faint.mono", run.id), h("span.spacer"), h("div.buttons", h("a.button.plain", { href: address("plan", run.id) }, "Plan"), h("a.button.plain", { href: address("compare", "", { runs: run.id }) }, "Compare"), runButtons(run, reload))),
    run.why ? h("p.problem", { style: { padding: "0 0 8px" } }, run.message || run.why) : null, tagEditor(run, reload), headline(run));
  async function reload() {
    try {
      run = await get(`runs/${run.id}`);
      drawTop();
    } catch (error) {
      toast(error.message, "error");
    }
  }
  const bar = h("nav.tabs", { "aria-label": "Parts of the run" }, tabs.map(([key, text]) => h("a", { href: address("run", run.id, { tab: key }), "aria-current": key === tab ? "page" : null }, text)));
  drawTop();
  replace(view, top, bar, box);
  bar.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  part = { recipe: recipeTab, logs: logsTab, system: systemTab, code: codeTab, diff: diffTab, events: eventsTab }[tab]?.(box, run) ?? curvesTab(box, run);
  const later = debounce(() => {
    reload();
    part?.refresh?.();
  }, 800);
  const stop = onChange((changes) => {
    if (changes.reload || changes.runs.some((one) => one.id === run.id)) later();
  });
  return {
    dispose() {
      stop();
      later.cancel();
      part?.dispose?.();
    },
  };
}
