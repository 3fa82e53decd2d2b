// The drawer: one run beside the table.
import { $, askText, command, copy, h, popover, replace, statusMark, toast } from "./dom.js";
import { get, mayWrite, post } from "./api.js";
import { onChange } from "./stream.js";
import { address, selection } from "./state.js";
import { ago, bytes, count, duration, integer, measuredOf, number, plain, when } from "./format.js";
import { ChartGroup } from "./chart_group.js";

let open = null;
let group = null;
let before = null;
export const drawerRun = () => open;

export function closeDrawer() {
  if (!open) return false;
  const id = open;
  open = null;
  group?.dispose();
  group = null;
  $("#drawer").hidden = true;
  document.querySelector(`tr[data-id="${CSS.escape(id)}"]`)?.classList.remove("open");
  before?.focus?.();
  return true;
}

/** Tags with a field for a new one; edits go to the server at once. */
export function tagEditor(run, changed) {
  const edit = async (change) => {
    try {
      await post(`runs/${run.id}/edit`, change);
      changed();
    } catch (error) {
      toast(error.message, "error");
    }
  };
  const tags = run.tags.map((tag) =>
    h(
      "span.tag",
      tag,
      mayWrite()
        ? h("button", { type: "button", "aria-label": `Remove the tag ${tag}`, onclick: () => edit({ remove_tags: [tag] }) }, "×")
        : null,
    )
  );
  const add = mayWrite()
    ? h("button.quiet.small", { type: "button", onclick: () => askText(add, "New tag", (tag) => edit({ add_tags: [tag] })) }, "+ Tag")
    : null;
  return h("div.chips", tags, add);
}

export function notesEditor(run, changed) {
  if (!mayWrite()) return run.notes ? h("p", { style: { whiteSpace: "pre-wrap" } }, run.notes) : null;
  const area = h("textarea.notes", { "aria-label": "Notes", placeholder: "Notes", value: run.notes ?? "" });
  area.addEventListener("change", async () => {
    try {
      await post(`runs/${run.id}/edit`, { notes: area.value });
      toast("notes saved");
      changed?.();
    } catch (error) {
      toast(error.message, "error");
    }
  });
  return area;
}

/** Archive, stop and the commands of the terminal. */
export function runButtons(run, changed) {
  const act = async (path, body, text) => {
    try {
      await post(`runs/${run.id}/${path}`, body);
      toast(text);
      changed();
    } catch (error) {
      toast(error.message, "error");
    }
  };
  const stop = h("button.plain.danger", {
    type: "button",
    onclick: () => {
      const close = popover(
        stop,
        h(
          "div.menu",
          h("p.small", { style: { padding: "4px 12px" } }, "It writes a checkpoint; runner resume continues it."),
          h("button.danger", { type: "button", onclick: () => (close(), act("stop", {}, "asked to stop")) }, "Stop this run"),
        ),
        { label: "Stop this run" },
      );
    },
  }, "Stop…");
  return [
    mayWrite() && run.status === "running" ? stop : null,
    mayWrite()
      ? h("button.plain", {
        type: "button",
        onclick: () => act("edit", { archived: !run.archived }, run.archived ? "back in the list" : "archived"),
      }, run.archived ? "Unarchive" : "Archive")
      : null,
    h("button.plain", { type: "button", onclick: () => copy(run.id, "id copied") }, "Copy id"),
  ];
}

export async function openDrawer(id) {
  if (!open) before = document.activeElement;
  document.querySelectorAll("tr.open").forEach((row) => row.classList.remove("open"));
  document.querySelector(`tr[data-id="${CSS.escape(id)}"]`)?.classList.add("open");
  open = id;
  const drawer = $("#drawer");
  drawer.hidden = false;
  group?.dispose();
  replace(drawer, h("div.skeleton", h("i"), h("i"), h("i")));
  await fill(id);
}

async function fill(id) {
  const drawer = $("#drawer");
  let run;
  try {
    run = await get(`runs/${id}`);
  } catch (error) {
    return replace(drawer, h("p.problem", error.message));
  }
  if (open !== id) return;
  const focused = drawer.contains(document.activeElement);
  group?.dispose();
  group = new ChartGroup({ runs: id });
  const metrics = ["loss", "val_loss"].filter((name) => run.metrics[name]);
  const charts = metrics.map((name) => group.add(name));
  const { rate, unit, memory } = measuredOf(run);
  const facts = [
    ["Strategy", `${run.strategy}${run.world_size > 1 ? ` on ${run.world_size} ranks` : ""}`],
    ["Why", run.why],
    ["Steps", `${integer(run.steps)}${run.config?.train?.max_steps ? ` of ${integer(run.config.train.max_steps)}` : ""}`],
    ["Loss", run.final_loss === null ? "" : number(run.final_loss)],
    [run.metric, run.metric === "loss" || run.metric_value === null ? "" : number(run.metric_value)],
    ["Speed", rate ? `${count(rate)} ${unit}` : ""],
    ["Memory", memory ? `${bytes(memory)} per rank` : ""],
    ["Learning rate", run.config?.optimizer?.lr !== undefined ? plain(run.config.optimizer.lr) : ""],
    ["Batch", run.config?.train?.global_batch_size ? integer(run.config.train.global_batch_size) : ""],
    ["Started", run.started ? `${when(run.started)}, ${ago(run.started)}` : "not known"],
    ["Took", duration(run.seconds)],
    [
      "Best checkpoint",
      run.best_checkpoint
        ? `step ${integer(run.best_checkpoint.step)}, ${run.best_checkpoint.metric} ${number(run.best_checkpoint.value)}`
        : "",
    ],
    ["Data", run.data_summary],
    ["Id", run.id],
  ].filter(([, value]) => value);
  const again = () => fill(id);
  const close = h("button.icon", { type: "button", "aria-label": "Close the details", onclick: closeDrawer }, "✕");
  const pick = h("button.plain", {
    type: "button",
    onclick: () => document.querySelector(`tr[data-id="${CSS.escape(id)}"] input`)?.click(),
  }, selection.has(id) ? "Selected" : "Select");
  replace(
    drawer,
    h("div.drawer-head", h("div", h("h1", run.name), h("div.small.muted", statusMark(run.status, true))), close),
    h("div.buttons", h("a.button.primary", { href: address("run", id) }, "Open"), pick, runButtons(run, again)),
    tagEditor(run, again),
    charts.map((chart) => chart.box),
    h("dl.facts", facts.flatMap(([name, value]) => [h("dt", name), h("dd", value)])),
    notesEditor(run),
    command(`runner show ${id}`),
  );
  if (focused || before) close.focus({ preventScroll: true });
  group.refresh();
}

onChange((changes) => {
  if (!open) return;
  const mine = changes.runs.find((run) => run.id === open);
  if (mine && mine.status === "running") group?.refresh();
  else if ((mine || changes.reload) && !$("#drawer").contains(document.activeElement?.closest("textarea, input"))) fill(open);
});
