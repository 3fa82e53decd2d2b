// The tabs Recipe, Code and Events of a run.
import { command, empty, h, replace } from "./dom.js";
import { getText } from "./api.js";
import { bytes, plain, shellWords, when } from "./format.js";

/** TOML with colours, a line at a time. */
function toml(text) {
  return text.split("\n").flatMap((line) => {
    if (/^\s*#/.test(line)) return [h("span.comment", line), "\n"];
    if (/^\s*\[/.test(line)) return [h("span.section-name", line), "\n"];
    const match = /^(\s*[^=]+?)(\s*=\s*)([^#]*)(#.*)?$/.exec(line);
    return match
      ? [h("span.key", match[1]), match[2], h("span.value", match[3]), match[4] ? h("span.comment", match[4]) : null, "\n"]
      : [line, "\n"];
  });
}

export function recipeTab(box, run) {
  const rows = [];
  const flat = (value, key) => {
    if (value !== null && typeof value === "object" && !Array.isArray(value)) {
      for (const [name, part] of Object.entries(value)) flat(part, key ? `${key}.${name}` : name);
    } else rows.push([key, value, run.origins?.[key] ?? ""]);
  };
  flat(run.config ?? {}, "");
  const search = h("input", { type: "search", placeholder: "Find a key", "aria-label": "Find a key" }),
    own = h("input", { type: "checkbox" });
  const body = h("tbody");
  const draw = () => {
    const text = search.value.toLowerCase();
    replace(
      body,
      rows.filter(([key, value, origin]) => (!own.checked || origin !== "default") && `${key} ${plain(value)}`.toLowerCase().includes(text))
        .map(([key, value, origin]) =>
          h(
            "tr",
            h("td.mono", key),
            h("td.mono", { title: plain(value) }, plain(value)),
            h("td.small.muted", { title: origin }, origin.replace(/^.*\/(?=[^/]*\.toml)/, "")),
          )
        ),
    );
  };
  search.addEventListener("input", draw);
  own.addEventListener("change", draw);
  draw();
  if (!run.resolved) {
    replace(
      box,
      h("p.muted", `This run has no recipe: it was imported from ${run.imported_from}.`),
      rows.length ? h("div.form", search) : null,
      rows.length
        ? h("div.scroll-x", h("table.dense", h("thead", h("tr", h("th", "Key"), h("th", "Value"), h("th", "Origin"))), body))
        : null,
    );
  } else {replace(
      box,
      h("div.form", search, h("label.field", own, "Without defaults"), h("span.spacer"), command(`runner rerun ${run.id}`)),
      h(
        "div.columns-2.even",
        h("div.scroll-x", h("table.dense.keys-table", h("thead", h("tr", h("th", "Key"), h("th", "Value"), h("th", "Origin"))), body)),
        h(
          "div",
          h("h2", { style: { marginBottom: "8px" } }, "As written"),
          h("pre.source", { tabIndex: 0, "aria-label": "The recipe" }, toml(run.recipe ?? "")),
        ),
      ),
    );}
  return {};
}

export function codeTab(box, run) {
  const git = run.git, foreign = run.imported_from && !run.resolved, patch = h("div", h("p.muted", "…"));
  replace(
    box,
    h(
      "dl.facts",
      [
        ["Commit", git?.commit ?? (foreign ? "not known" : "none")],
        ["Branch", git?.branch ?? ""],
        ["Changes", git?.dirty ? "yes, the working tree had changes that were not committed" : foreign ? "not known" : "none"],
        ["Build", run.build_id],
        ["Command", run.argv.length ? h("code", shellWords(run.argv)) : ""],
        ["Folder", run.working_directory],
      ].filter(([, value]) => value).flatMap(([name, value]) => [h("dt", name), h("dd", value)]),
    ),
    h("div.section", h("h2", "Patch"), patch),
  );
  if (!run.patch_bytes) {
    replace(
      patch,
      h(
        "p.muted",
        foreign
          ? `Not known: this run was imported from ${run.imported_from}.`
          : git
          ? "The code of this run was committed."
          : "The code of this run was not in a git repository.",
      ),
    );
  } else {getText(`runs/${run.id}/patch`).then((text) =>
      replace(
        patch,
        h(
          "pre.source",
          { tabIndex: 0, "aria-label": "Patch" },
          text.split("\n").flatMap((line) => [
            h(
              line.startsWith("+") ? "span.add" : line.startsWith("-") ? "span.cut" : line.startsWith("@@") ? "span.section-name" : "span",
              line,
            ),
            "\n",
          ]),
        ),
      ), (error) => replace(patch, h("p.muted", error.message)));}
  return {};
}

export function eventsTab(box, run) {
  let drawn = -1;
  function draw() {
    const list = [
      ...run.events.flatMap((event, i) => (event.event === "sample" ? [] : [[event.time, event.event, event.rank, run.event_texts[i]]])),
      ...run.checkpoints.map((
        one,
      ) => [one.time, "checkpoint", one.rank, `${one.path}, ${bytes(one.bytes)}${one.exists ? "" : ", deleted"}`]),
      ...(run.changes ?? []).map((
        one,
      ) => [one.time, `changed ${one.what}`, null, `${one.who}: ${plain(one.before)} → ${plain(one.after)}`]),
    ].sort((a, b) => b[0] - a[0]);
    if (!list.length) replace(box, empty("No events"));
    else {replace(
        box,
        h(
          "div.scroll-x",
          h(
            "table.dense",
            h("thead", h("tr", h("th", "Time"), h("th", "Event"), h("th.num", "Rank"), h("th", ""))),
            h(
              "tbody",
              list.slice(0, 1000).map(([time, kind, rank, what]) =>
                h(
                  "tr",
                  h("td.num", { style: { textAlign: "left" } }, when(time)),
                  h("td", kind),
                  h("td.num", plain(rank ?? "")),
                  h("td.whole", what),
                )
              ),
            ),
          ),
        ),
      );}
    drawn = list.length;
  }
  draw();
  return {
    refresh(newest) {
      run = newest;
      if (run.events.length + run.checkpoints.length + (run.changes?.length ?? 0) !== drawn) draw();
    },
  };
}
