// The view Plan: was the plan right?
import { exportBars } from "./bars.js";
import { command, empty, h, replace } from "./dom.js";
import { get } from "./api.js";
import { onChange } from "./stream.js";
import { address, change, go, parameter, place } from "./state.js";
import { bytes, count, duration, integer, label, toNumber } from "./format.js";
import { fileButton } from "./run_output.js";

function stack(parts, whole, limit) {
  return h(
    "div.track",
    h(
      "div.stack",
      parts.map(({ name, value, colour }) =>
        h("i", { vars: { "--part": value / whole, "--colour": `var(--${colour})` }, title: `${name}: ${bytes(value)}` })
      ),
    ),
    limit && limit <= whole ? h("span.limit", { vars: { "--at": limit / whole }, title: `limit: ${bytes(limit)}` }) : null,
  );
}

/** A title, and the button that saves the bars below it. */
function heading(title, rows, unit) {
  return h("div.section-head", h("h2", title), h("span.spacer"), rows ? exportBars(title, rows, unit) : null);
}

function memorySection(answer) {
  const { plan, predicted, measured, host, devices } = answer;
  const parts = Object.entries(plan?.memory_parts ?? {}).filter(([, value]) => value > 0).map(([name, value], i) => ({
    name: label(name),
    value,
    colour: `c${i % 8}`,
  }));
  const total = parts.reduce((sum, part) => sum + part.value, 0) || predicted?.memory_bytes_per_rank;
  const peaks = measured?.peak_memory_bytes_per_rank ?? [],
    most = peaks.length ? Math.max(...peaks) : measured?.memory_bytes_per_rank ?? toNumber(answer.metrics.memory_bytes?.max);
  const limit = host?.devices
    ? host.devices[0]?.memory_bytes
    : devices?.accelerator === "cuda"
    ? host?.cuda?.[0]?.memory_bytes
    : host?.memory_bytes
    ? host.memory_bytes / Math.max(1, answer.world_size)
    : null;
  if (!total && !most) return [heading("Memory per rank"), h("p.muted", "This run has no prediction of memory, and none was measured.")];
  const predictedParts = parts.length ? parts : total ? [{ name: "Memory", value: total, colour: "c0" }] : [],
    measuredParts = most ? [{ name: "Peak", value: most, colour: "muted" }] : [];
  const whole = Math.max(total ?? 0, most ?? 0, limit && limit < 4 * Math.max(total ?? 0, most ?? 0) ? limit : 0) * 1.02;
  const off = total && most ? (most - total) / total : null;
  return [
    heading("Memory per rank", [{ name: "Predicted", parts: predictedParts }, { name: "Measured", parts: measuredParts }], "bytes"),
    h(
      "div.bars",
      { role: "img", "aria-label": `Memory per rank: predicted ${bytes(total)}, measured ${most ? bytes(most) : "not yet"}` },
      h("span", "Predicted"),
      stack(predictedParts, whole, limit),
      h("span.num", bytes(total)),
      h("span", "Measured"),
      most ? stack(measuredParts, whole, limit) : h("span.muted", answer.status === "running" ? "not yet" : "not measured"),
      h(
        "span.num",
        most ? bytes(most) : "",
        off !== null
          ? h(
            "span.small",
            { style: { color: Math.abs(off) > 0.15 ? "var(--warn)" : "var(--muted)" } },
            ` ${off >= 0 ? "+" : "−"}${Math.abs(off * 100).toFixed(1)} %`,
          )
          : null,
      ),
    ),
    h(
      "div.parts",
      parts.map((part) =>
        h("span", h("span.swatch", { vars: { "--colour": `var(--${part.colour})` } }), part.name, h("b", bytes(part.value)))
      ),
      limit ? h("span.muted", `Limit ${bytes(limit)} per rank`) : null,
    ),
  ];
}

function timeSection(answer) {
  const { plan, measured, profile, metrics } = answer;
  const predicted = plan?.step_seconds,
    real = measured?.step_seconds ?? toNumber(metrics.step_seconds?.last),
    error = plan?.step_seconds_error;
  const phases = profile?.phases && typeof profile.phases === "object"
    ? Object.entries(profile.phases).filter(([, value]) => typeof value === "number" && value > 0).map(([name, value], i) => ({
      name: label(name),
      value,
      colour: `c${i % 8}`,
    }))
    : [];
  if (!predicted && !real) {
    return [
      heading("Time of a step"),
      h("p.muted", "No time of a step was predicted or measured: a machine is measured once with runner doctor --calibrate."),
    ];
  }
  const sum = phases.reduce((all, phase) => all + phase.value, 0), scale = real && sum ? real / sum : 1;
  const whole = Math.max(predicted ?? 0, real ?? 0, sum * scale) * 1.05;
  const predictedParts = predicted ? [{ name: "Step", value: predicted, colour: "c0" }] : [];
  const measuredParts = phases.length && real
    ? phases.map((phase) => ({ ...phase, value: phase.value * scale }))
    : real
    ? [{ name: "Step", value: real, colour: "muted" }]
    : [];
  const bar = (parts) =>
    h(
      "div.track",
      h(
        "div.stack",
        parts.map(({ name, value, colour }) =>
          h("i", { vars: { "--part": value / whole, "--colour": `var(--${colour})` }, title: `${name}: ${duration(value)}` })
        ),
      ),
    );
  return [
    heading("Time of a step", [{ name: "Predicted", parts: predictedParts }, { name: "Measured", parts: measuredParts }], "seconds"),
    h(
      "div.bars",
      { role: "img", "aria-label": `Time of a step: predicted ${duration(predicted)}, measured ${duration(real)}` },
      h("span", "Predicted"),
      predicted ? bar(predictedParts) : h("span.muted", "not predicted"),
      h("span.num", predicted ? duration(predicted) : "", error ? h("span.small.muted", ` ± ${(100 * error).toFixed(0)} %`) : null),
      h("span", "Measured"),
      real ? bar(measuredParts) : h("span.muted", "not yet"),
      h(
        "span.num",
        real ? duration(real) : "",
        predicted && real
          ? h("span.small.muted", ` ${real >= predicted ? "+" : "−"}${Math.abs(100 * (real / predicted - 1)).toFixed(1)} %`)
          : null,
      ),
    ),
    phases.length
      ? h(
        "div.parts",
        phases.map((phase) =>
          h(
            "span",
            h("span.swatch", { vars: { "--colour": `var(--${phase.colour})` } }),
            phase.name,
            h("b", `${((100 * phase.value) / sum).toFixed(0)} %`),
          )
        ),
      )
      : null,
  ];
}

/** A table whose first column has names and whose others have figures; null without rows. */
function figures(titles, rows) {
  if (!rows?.length) return null;
  return h(
    "div.scroll-x",
    h(
      "table.dense",
      h("thead", h("tr", titles.map((title, i) => h(i ? "th.num" : "th", title)))),
      h("tbody", rows.map((row) => h("tr", row.map((cell, i) => h(i ? "td.num" : "td.mono", cell))))),
    ),
  );
}

/** What the profiler measured of each block and each collective in a mean step, and outside of steps. */
function profileTables({ id, profile, traces }) {
  const time = (seconds) => (seconds ? duration(seconds) : ""),
    share = (seconds) => `${((100 * seconds) / profile.step_seconds).toFixed(1)} %`;
  const tables = [
    figures(
      ["Block", "Forward", "Backward", "Share of the step"],
      profile?.blocks?.map(({ name, forward_seconds: forward, backward_seconds: backward }) => [
        name,
        time(forward),
        time(backward),
        share((forward ?? 0) + (backward ?? 0)),
      ]),
    ),
    figures(
      ["Collective", "Bytes of a step", "Time", "Share of the step"],
      profile?.collectives?.map((
        one,
      ) => [`${one.name} ${one.of}`, one.bytes ? bytes(one.bytes) : "", time(one.seconds), share(one.seconds)]),
    ),
    figures(
      ["Outside of steps", "Times", "Total"],
      Object.entries(profile?.outside ?? {}).map(([name, { times, seconds }]) => [name, integer(times), duration(seconds)]),
    ),
  ].filter(Boolean);
  if (!tables.length && !traces.length) return null;
  return h(
    "div.section",
    h("h2", "Profile"),
    tables,
    traces.length ? h("p.small.muted", "Traces, for ui.perfetto.dev: ", traces.map((trace) => [fileButton(id, trace), " "])) : null,
  );
}

/** The blocks of each rank of a pipeline. */
function pipelineTable({ pipeline }) {
  if (!pipeline?.ranks?.length) return null;
  return h(
    "div.section",
    h("h2", "Pipeline"),
    h(
      "p.muted.small",
      `${pipeline.schedule}, ${pipeline.micro_batches} micro-batches a step; ranks wait in ${
        (100 * pipeline.wait_share).toFixed(0)
      } % of it`,
    ),
    figures(
      ["Blocks", "Rank", "Work", "Memory"],
      pipeline.ranks.map((one, rank) => [one.blocks, String(rank), `${(100 * one.work_share).toFixed(0)} %`, bytes(one.memory_bytes)]),
    ),
  );
}

function traffic(plan) {
  if (!plan?.traffic?.length) return null;
  const rows = plan.traffic.map((one) => [one.collective, bytes(one.payload_bytes), bytes(one.wire_bytes)]);
  return h("div.section", h("h2", "Traffic of a step"), figures(["Collective", "Payload", "Sent per rank"], rows));
}

/** `here`: for this machine. */
function candidates(answer, here) {
  const all = [...answer.candidates].sort((a, b) => (b.verdict === "chosen") - (a.verdict === "chosen") || b.fits - a.fits);
  const context = all.find((one) => one.memory_parts)?.memory_parts.context;
  return [
    answer.shortfall ? h("p.problem", answer.shortfall) : h(
      "p.muted",
      { style: { marginBottom: "8px" } },
      `On ${answer.devices}: `,
      h("b", { style: { color: "var(--text)" } }, all[0]?.label ?? ""),
      all[0]?.reason ? `, because ${all[0].reason}` : "",
    ),
    h(
      "div.scroll-x",
      h(
        "table.dense",
        h(
          "thead",
          h(
            "tr",
            h("th", "Strategy"),
            h("th.num", "Memory ", h("span.unit", "per rank")),
            h("th.num", "Step"),
            h("th.num", "Speed ", h("span.unit", all.some((one) => one.samples_per_s) ? "samples/s" : "tokens/s")),
            h("th", "Verdict"),
          ),
        ),
        h(
          "tbody",
          all.map((one) =>
            h(
              `tr${one.verdict === "chosen" ? ".chosen" : ""}`,
              h("td", one.label ?? one.strategy, one.recipes_own ? h("span.tag", { style: { marginLeft: "8px" } }, "the recipe's") : null),
              h("td.num", one.memory_bytes_per_rank ? bytes(one.memory_bytes_per_rank) : ""),
              h("td.num", one.step_seconds ? duration(one.step_seconds) : ""),
              h("td.num", one.tokens_per_s || one.samples_per_s ? count(one.tokens_per_s ?? one.samples_per_s) : ""),
              h(
                "td",
                { title: one.reason, style: { maxWidth: "420px" } },
                one.verdict === "chosen"
                  ? h("b", "chosen")
                  : one.fits
                  ? one.reason
                  : h("span", { style: { color: "var(--failed)" } }, one.reason),
              ),
            )
          ),
        ),
      ),
    ),
    h(
      "p.small.muted",
      context
        ? `Memory is the peak of a rank, including ${
          bytes(context)
        } of context: what the libraries take before the model is there. The bars above are without it. `
        : "",
      here
        ? "Times follow from all that is known of this machine now; the prediction above is from what was known when the run began."
        : "",
    ),
  ];
}

export async function showPlan(view) {
  const { id } = place();
  if (!id) {
    const { runs } = await get("runs", { limit: 1, sparkline: "no" });
    if (runs.length) return void go(address("plan", runs[0].id), { instead: true });
    return replace(
      view,
      h("div.head", h("h1", "Plan")),
      empty("No runs yet", "A plan can be made before a run:", command("runner recommend recipes/llm_fsdp.toml")),
    );
  }
  const [answer, { runs }, { devices }] = await Promise.all([
    get(`runs/${encodeURIComponent(id)}/plan`),
    get("runs", { limit: 200, sparkline: "no" }),
    get("devices"),
  ]);
  if (view.isConnected) document.title = `Plan of ${answer.name} · runner`;
  const chooser = h(
    "select",
    { "aria-label": "Run", onchange: () => go(address("plan", chooser.value)) },
    runs.some((run) => run.id === answer.id) ? null : h("option", { value: answer.id }, answer.name),
    runs.map((run) => h("option", { value: run.id, selected: run.id === answer.id }, `${run.name} ${run.id.slice(-4)}`)),
  );
  const plan = answer.plan ?? {};
  const kind = h(
    "select",
    { "aria-label": "Device kind" },
    h("option", { value: "" }, "This machine"),
    devices.map((name) => h("option", { value: name, selected: name === parameter("device") }, name)),
  );
  const amount = h("input", {
      type: "number",
      min: 1,
      max: 64,
      value: parameter("devices", String(answer.world_size)),
      "aria-label": "Devices of a node",
    }),
    nodes = h("input", { type: "number", min: 1, max: 4096, value: parameter("nodes", "1"), "aria-label": "Nodes" });
  const result = h("div", h("p.muted", "Recommend lists the strategies for this recipe, with their memory and time."));
  const button = h("button.primary", { type: "submit" }, "Recommend");
  async function ask() {
    button.disabled = true;
    replace(result, h("p.muted", "Planning…"));
    change({ device: kind.value, devices: amount.value, nodes: nodes.value === "1" ? "" : nodes.value });
    try {
      replace(
        result,
        candidates(
          await get(`runs/${answer.id}/recommend`, { device_kind: kind.value, devices: amount.value, num_nodes: nodes.value }),
          !kind.value,
        ),
      );
    } catch (error) {
      replace(result, h("p.problem", { style: { whiteSpace: "pre-wrap" } }, error.message));
    } finally {
      button.disabled = false;
    }
  }
  replace(
    view,
    h("div.head", h("h1", "Plan"), chooser, h("span.spacer"), h("a", { href: address("run", answer.id) }, "Open the run")),
    h(
      "p",
      h("b", `${plan.strategy ?? ""}${answer.world_size > 1 ? ` on ${answer.world_size} ranks` : ""}`),
      plan.reason ? h("span.muted", `: ${plan.reason}`) : null,
    ),
    plan.parameters
      ? h(
        "p.muted.small",
        `${count(plan.parameters)} parameters, ${plan.precision}, micro-batch ${plan.micro_batch_size}${
          plan.accumulation > 1 ? ` × ${plan.accumulation} accumulated` : ""
        }`,
      )
      : null,
    h("div.section", memorySection(answer)),
    h("div.section", timeSection(answer)),
    pipelineTable(plan),
    traffic(plan),
    profileTables(answer),
    h(
      "div.section",
      h("h2", "What if"),
      h(
        "form.form",
        { onsubmit: (event) => (event.preventDefault(), ask()) },
        h("label.field", "On", kind),
        h("label.field", "Devices", amount),
        h("label.field", "Nodes", nodes),
        button,
      ),
      result,
    ),
  );
  if (parameter("device")) ask();
  // What was measured is known when the run has ended.
  return {
    dispose: onChange((changes) =>
      changes.runs.some((run) => run.id === answer.id && run.status !== answer.status) && go(location.pathname + location.search)
    ),
  };
}
