// The view Run: what happened in this run?
import { command, empty, h, paced, replace, statusMark, toast } from "./dom.js";
import { get } from "./api.js";
import { onChange } from "./stream.js";
import { address, go, parameter, place } from "./state.js";
import { bytes, count, duration, integer, measuredOf, number } from "./format.js";
import { runButtons, tagEditor } from "./drawer.js";
import { curvesTab } from "./run_curves.js";
import { codeTab, eventsTab, recipeTab } from "./run_tabs.js";
import { diffTab } from "./diff.js";
import { logsTab } from "./logs.js";
import { filesTab, samplesOf, samplesTab } from "./run_output.js";
import { systemTab } from "./system.js";

const tabs = [
  ["", "Curves", curvesTab],
  ["samples", "Samples", samplesTab],
  ["recipe", "Recipe", recipeTab],
  ["logs", "Logs", logsTab],
  ["system", "System", systemTab],
  ["files", "Files", filesTab],
  ["code", "Code", codeTab],
  ["diff", "Diff", diffTab],
  ["events", "Events", eventsTab],
];

function headline(run) {
  const total = run.config?.train?.max_steps, { rate, unit, memory } = measuredOf(run);
  const item = (
    name,
    value,
    unit,
  ) => (value === undefined || value === null || value === ""
    ? null
    : h("div", h("dt", name), h("dd", value, unit ? h("small", ` ${unit}`) : null)));
  return h(
    "dl.headline",
    item("Steps", integer(run.steps), total ? `of ${integer(total)}` : ""),
    item("Loss", run.final_loss === null ? "" : number(run.final_loss)),
    run.metric !== "loss" && run.metric_value !== null ? item(run.metric, number(run.metric_value)) : null,
    run.best_checkpoint ? item("Best checkpoint", number(run.best_checkpoint.value), `at step ${integer(run.best_checkpoint.step)}`) : null,
    item("Speed", rate ? count(rate) : "", unit),
    item("Memory", memory ? bytes(memory) : "", "per rank"),
    item("Took", duration(run.seconds)),
    item("Strategy", run.strategy, run.world_size > 1 ? `on ${run.world_size} ranks` : ""),
  );
}

export async function showRun(view) {
  const { id } = place();
  if (!id) {
    const { runs } = await get("runs", { limit: 1, sparkline: "no" });
    if (runs.length) return void go(address("run", runs[0].id), { instead: true });
    return replace(view, h("div.head", h("h1", "Run")), empty("No runs yet", null, command("runner run recipes/llm_fsdp.toml")));
  }
  let run = await get(`runs/${encodeURIComponent(id)}`), part = null;
  if (view.isConnected) document.title = `${run.name} · runner`;
  const top = h("div"), box = h("div"), tab = parameter("tab");
  const drawTop = () =>
    replace(
      top,
      h(
        "div.head",
        statusMark(run.status),
        h("h1", run.name),
        h("span.faint.mono", run.id),
        h("span.spacer"),
        h(
          "div.buttons",
          h("a.button.plain", { href: address("plan", run.id) }, "Plan"),
          h("a.button.plain", { href: address("compare", "", { runs: run.id }) }, "Compare"),
          runButtons(run, reload),
        ),
      ),
      run.why
        ? h(["failed", "lost"].includes(run.status) ? "p.problem" : "p.muted", { style: { padding: "0 0 8px" } }, run.message || run.why)
        : null,
      tagEditor(run, reload),
      ["failed", "interrupted", "lost", "preempted"].includes(run.status) && run.checkpoints.some((one) => one.exists)
        ? command(`runner resume ${run.id}`)
        : null,
      headline(run),
    );
  async function reload() {
    try {
      run = await get(`runs/${run.id}`);
      drawTop();
    } catch (error) {
      toast(error.message, "error");
    }
  }
  /** After a change in the ledger. Buttons that have the focus stay, unless they are of another status now. */
  async function refresh() {
    const before = run.status;
    try {
      run = await get(`runs/${run.id}`);
    } catch {
      return; // a note says that the server is away; the next change tries again
    }
    if (before !== run.status || !top.contains(document.activeElement)) drawTop();
    drawBar();
    part.refresh?.(run);
  }
  const bar = h(
    "nav.tabs",
    { "aria-label": "Parts of the run" },
    tabs.map(([key, title]) =>
      h("a", { href: address("run", run.id, { tab: key }), data: { tab: key }, "aria-current": key === tab ? "page" : null }, title)
    ),
  );
  const drawBar = () => (bar.querySelector("[data-tab=samples]").hidden = tab !== "samples" && !samplesOf(run).length);
  drawBar();
  drawTop();
  replace(view, top, bar, box);
  bar.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  const [, , showTab] = tabs.find(([key]) => key === tab) ?? tabs[0];
  part = showTab(box, run);
  const later = paced(refresh, 1500);
  const stop = onChange((changes) => {
    if (changes.reload || changes.runs.some((one) => one.id === run.id)) later();
  });
  return {
    dispose() {
      stop();
      later.cancel();
      part.dispose?.();
    },
  };
}
