// The tab Diff of a run: what differs from another run in recipe, code, environment and results.
import { command, empty, h, replace } from "./dom.js";
import { get } from "./api.js";
import { address, change, parameter } from "./state.js";
import { comparedResults, resultName } from "./compare.js";
import { plain, quantity, toNumber } from "./format.js";

const parts = [["config", "Recipe"], ["code", "Code"], ["environment", "Environment"], ["results", "Results"]];

/** The run that one compares with first: the one that this one continues, or the one before it, with the same name if there is one. */
async function usual(run) {
  if (run.parents?.length) return run.parents[0].id;
  const before = async (filter) =>
    (await get("runs", { filter, limit: 200, sparkline: "no" })).runs.find((one) => one.id !== run.id && one.started <= run.started)?.id;
  const quoted = /^[\w.-]+$/.test(run.name) ? `name:${run.name}` : "";
  return (quoted && (await before(quoted))) || (await before(""));
}

function value(part, key, text) {
  if (part !== "results" || toNumber(text) === undefined) return plain(text);
  return key === "steps" ? plain(text) : quantity(key.replace(/^\w+\(|\)$/g, ""), text);
}

export function diffTab(box, run) {
  const other = h("select", { "aria-label": "Compare with" }), all = h("input", { type: "checkbox" }), result = h("div");
  async function draw() {
    const id = other.value;
    const answer = await get("compare", { runs: `${id},${run.id}`, all: all.checked ? "yes" : "" });
    if (id !== other.value) return;
    answer.results = comparedResults(answer.results, run.metric).filter(({ same }) => all.checked || !same);
    const rows = parts.flatMap(([part, title]) =>
      answer[part].length
        ? [
          h("tr", h("th", { colSpan: 3, scope: "rowgroup", style: { position: "static" } }, title)),
          ...answer[part].map(({ key, values, same }) =>
            h(
              "tr",
              h("td.mono", resultName(key)),
              values.map((one, i) =>
                h(
                  `td.mono${same ? ".muted" : part !== "config" ? "" : i ? ".after" : ".before"}`,
                  { title: plain(one) },
                  value(part, key, one),
                )
              ),
            )
          ),
        ]
        : []
    );
    const name = (
      one,
    ) => [h("a", { href: address("run", one.id), style: { color: "var(--text)" } }, one.name), h("span.faint", ` ${one.id.slice(-4)}`)];
    replace(
      result,
      rows.length
        ? h(
          "div.scroll-x",
          { tabIndex: 0, role: "region", "aria-label": "Differences" },
          h(
            "table.dense.diff",
            h(
              "thead",
              h(
                "tr",
                h("th", "Key"),
                h("th", { scope: "col" }, name(answer.runs[0])),
                h("th", { scope: "col" }, name(answer.runs[1]), h("span.faint", " this run")),
              ),
            ),
            h("tbody", rows),
          ),
        )
        : empty("The runs do not differ"),
      h("div.section", command(`runner diff ${id} ${run.id}`)),
    );
  }
  const again = () => draw().catch((error) => replace(result, h("p.problem", { role: "alert" }, error.message)));
  other.addEventListener("change", () => (change({ with: other.value }), again()));
  all.addEventListener("change", again);
  (async () => {
    const [{ runs }, first] = await Promise.all([
      get("runs", { filter: "archived:any", limit: 500, sparkline: "no" }),
      parameter("with") || usual(run),
    ]);
    const others = runs.filter((one) => one.id !== run.id);
    if (!first) return replace(box, empty("No other run", "A second run can be compared with this one."));
    replace(
      other,
      others.some((one) => one.id === first) ? null : h("option", { value: first }, first),
      others.map((one) => h("option", { value: one.id }, `${one.name} ${one.id.slice(-4)}`)),
    );
    other.value = first;
    replace(box, h("div.form", h("label.field", "With", other), h("label.field", all, "Also what is equal")), result);
    await draw();
  })().catch((error) => replace(box, h("p.problem", { role: "alert" }, error.message)));
  return {};
}
