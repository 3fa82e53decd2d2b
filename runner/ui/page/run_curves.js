// The tab Curves of a run: its metrics, a timeline of what happened, notes and facts.
import { debounce, h, replace, s } from "./dom.js";
import { address } from "./state.js";
import { bytes, duration, integer, shellWords, when } from "./format.js";
import { curveControls, curveGroup } from "./compare.js";
import { notesEditor } from "./drawer.js";

/** Attempts as bars over time, with checkpoints, validations and events. It is drawn again when its width changes. */
function timeline(run) {
  const svg = s("svg", { class: "timeline", role: "img", "aria-label": "Timeline of attempts, checkpoints and events" });
  if (!run.started) return h("div.small.muted", "The source of this run does not say when it started.");
  const from = run.started, to = Math.max(run.ended ?? run.now, from + 1);
  const bad = new Set(run.trouble);
  const draw = () => {
    const width = Math.max(200, svg.clientWidth);
    const x = (time) => 6 + ((Math.min(to, Math.max(from, time)) - from) / (to - from)) * (width - 12);
    const item = (tag, attributes, text) => s(tag, attributes, s("title", {}, text));
    const end = (attempt) => attempt.ended ?? run.ended ?? run.now;
    const parts = run.attempts.map((attempt) =>
      item(
        "rect",
        { class: "attempt", x: x(attempt.started), y: 12, width: Math.max(2, x(end(attempt)) - x(attempt.started)), height: 20, rx: 3 },
        `attempt ${attempt.number}: ${attempt.reason ?? ""}, ${attempt.strategy} on ${attempt.world_size} ranks, ${attempt.host}, ${
          duration(end(attempt) - attempt.started)
        }`,
      )
    );
    for (const checkpoint of run.checkpoints) {
      parts.push(
        item(
          "line",
          { class: "tick", x1: x(checkpoint.time), x2: x(checkpoint.time), y1: 8, y2: 36 },
          `checkpoint of step ${integer(checkpoint.step)}, ${bytes(checkpoint.bytes)}${checkpoint.exists ? "" : ", deleted"}`,
        ),
      );
    }
    for (const event of run.events) {
      if (event.event === "ready" || event.event === "memory") continue;
      const text = `${event.event}: ${event.message ?? (event.step !== undefined ? `step ${integer(event.step)}` : "")}, ${
        when(event.time)
      }`;
      parts.push(
        bad.has(event.event)
          ? item("path", { class: "bad", d: `M${x(event.time)} 45l5 9h-10z` }, text)
          : item("circle", { class: event.event === "validation" ? "validation" : "other", cx: x(event.time), cy: 50, r: 3.5 }, text),
      );
    }
    svg.replaceChildren(s("line", { class: "axis", x1: 6, x2: width - 6, y1: 62, y2: 62 }), ...parts);
  };
  new ResizeObserver(draw).observe(svg);
  const counts = [
    `${run.attempts.length} ${run.attempts.length === 1 ? "attempt" : "attempts"}`,
    `${run.checkpoints.length} checkpoints`,
    `${run.events.length} events`,
  ].join(", ");
  return h(
    "div",
    h("div.section-head", h("h2", "Timeline"), h("span.small.muted", counts)),
    svg,
    h(
      "div.small.muted",
      { style: { display: "flex", justifyContent: "space-between" } },
      h("span", when(from)),
      h("span", run.ended ? when(to) : "now"),
    ),
  );
}

export function curvesTab(box, run) {
  const group = curveGroup({ runs: run.id });
  const usual = ["loss", "val_loss", "lr", "grad_norm", "tokens_per_s", "samples_per_s", "memory_bytes", "step_seconds"],
    axes = ["tokens", "samples", "seconds", "epoch"];
  const search = h("input", { type: "search", placeholder: "Find a metric", "aria-label": "Find a metric" });
  const grid = h("div.charts"), controls = h("div.form"), times = h("div.section");
  let ordered = null;
  function draw() {
    const text = search.value.toLowerCase(), wanted = ordered.filter((name) => name.toLowerCase().includes(text)).slice(0, 24);
    for (const chart of [...group.charts]) if (!wanted.includes(chart.metric)) chart.dispose();
    const have = new Map([...group.charts].map((chart) => [chart.metric, chart]));
    replace(
      grid,
      wanted.length
        ? wanted.map((name) => (have.get(name) ?? group.add(name)).box)
        : h("p.muted", ordered.length ? "No metric has such a name." : "This run has no metrics yet."),
    );
    for (const chart of group.charts) if (!chart.head) chart.load();
  }
  /** Metrics that were not there before, because the run has just begun, get charts. */
  function fill() {
    const names = Object.keys(run.metrics),
      now = [...usual.filter((name) => names.includes(name)), ...names.filter((name) => !usual.includes(name) && !axes.includes(name))];
    if (now.join() === ordered?.join()) return;
    ordered = now;
    replace(controls, curveControls(group, () => group.refresh(), names), h("span.spacer"), ordered.length > 6 ? search : null);
    draw();
  }
  search.addEventListener("input", debounce(draw, 150));
  replace(times, timeline(run));
  replace(
    box,
    controls,
    grid,
    times,
    h(
      "div.section",
      h(
        "div.columns-2",
        h("div", h("h2", "Notes"), notesEditor(run) ?? h("p.muted", "No notes")),
        h("div", h("h2", "About"), h("dl.facts.small", about(run).flatMap(([name, value]) => [h("dt", name), h("dd", value)]))),
      ),
    ),
  );
  fill();
  return {
    refresh(newest) {
      run = newest;
      replace(times, timeline(run));
      fill();
      group.refresh();
    },
    dispose: () => group.dispose(),
  };
}

// What a link between two runs means for the one that reads the other's model or recipe, and for the other.
const links = {
  rerun: ["Rerun of", "Reruns"],
  continued: ["Continued from", "Continued by"],
  "fine-tuned": ["Fine-tuned from", "Fine-tuned by"],
  evaluated: ["Evaluation of", "Evaluations"],
  predicted: ["Predictions of", "Predictions"],
  embedded: ["Embeddings of", "Embeddings"],
};

/** [[what the link means, links]]: those of one kind together. */
function related(edges, side) {
  const kinds = new Map();
  for (const edge of edges ?? []) {
    const name = links[edge.kind]?.[side] ?? `${edge.kind} ${side ? "by" : "from"}`;
    kinds.set(name, [...(kinds.get(name) ?? []), edge]);
  }
  return [...kinds].map((
    [name, list],
  ) => [
    name,
    list.map((edge, i) => [i ? ", " : "", h("a", { href: address("run", edge.id), title: edge.id }, `${edge.name} ${edge.id.slice(-4)}`)]),
  ]);
}

function deviceNames(host) {
  const devices = host?.devices ?? host?.cuda ?? [];
  return devices.length ? `${devices.length} × ${devices[0].name}` : host?.cpu;
}

function about(run) {
  const git = run.git;
  return [
    ["Started", when(run.started)],
    ["Ended", run.ended ? when(run.ended) : ""],
    ["Host", run.host?.hostname],
    ["Devices", deviceNames(run.host)],
    ["Data", run.data_summary],
    [
      "Code",
      git ? `${(git.commit ?? "no commit").slice(0, 12)}${git.branch ? ` on ${git.branch}` : ""}${git.dirty ? ", changed" : ""}` : "",
    ],
    ["Sweep", run.sweep ? h("a", { href: address("sweep", run.sweep.id) }, `trial ${run.sweep.trial} of ${run.sweep.name}`) : ""],
    ...related(run.parents, 0),
    ...related(run.children, 1),
    [
      "Folder",
      run.run_dir_exists
        ? run.run_dir
        : run.imported_from
        ? `none here: imported from ${run.imported_from}`
        : `${run.run_dir} (moved or deleted)`,
    ],
    ["Command", run.argv.length ? h("code", shellWords(run.argv)) : ""],
    ["Build", run.build_id],
  ].filter(([, value]) => value);
}
