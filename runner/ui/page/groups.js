// Runs in groups: one row for each value of a field, recipe key or metric, in the place of the table of runs.
import { empty, h, paced, popover, replace, statusMark } from "./dom.js";
import { get } from "./api.js";
import { onChange } from "./stream.js";
import { address } from "./state.js";
import { ago, duration, integer, number, plain, when } from "./format.js";
import { quotedName } from "./words.js";

/** The names that a column or a group may have: metrics of the ledger, keys of recipes, fields of runs. */
export async function columnNames() {
  const words = await get("words");
  const quoted = (list) => list.map(quotedName).filter(Boolean);
  return {
    metrics: quoted(words.metrics).flatMap((name) => [`last(${name})`, `best(${name})`]),
    keys: quoted(words.keys),
    fields: words.fields.map((field) => field.name),
  };
}

/** A button that opens the list of names; `apply(name)` gets the chosen one, "" to see single runs again. */
export function groupButton(by, apply) {
  const text = by ? `Grouped by ${by}` : "Group";
  const button = h("button.plain.hide-phone", { type: "button", "aria-haspopup": "dialog", onclick: open }, text);
  async function open() {
    const { fields, keys } = await columnNames(), names = [...fields, ...keys];
    const search = h("input", { type: "search", placeholder: "Search fields and keys", "aria-label": "Search names" });
    const list = h("div");
    const choice = (name, text) => h("button.quiet", { type: "button", onclick: () => (close(), apply(name)) }, text);
    const fill = () => {
      const text = search.value.toLowerCase();
      const found = names.filter((name) => name.toLowerCase().includes(text)).slice(0, 200);
      replace(list, by && !text ? choice("", "Single runs") : null, found.map((name) => choice(name, name)));
    };
    search.addEventListener("input", fill);
    fill();
    const close = popover(button, h("div.pick", search, list), { label: "Group by" });
  }
  return button;
}

const columns = [
  { title: "Runs", number: true, cell: (group) => integer(group.runs) },
  {
    title: "Status",
    cell: (group) =>
      Object.entries(group.statuses).map(([status, runs]) => h("span.chip", { title: status }, statusMark(status), integer(runs))),
  },
  { title: "Loss", number: true, cell: (group) => spread(group.loss) },
  { title: "Metric", number: true, cell: (group) => [spread(group.metric_value), h("span.small.faint", ` ${group.metric}`)] },
  { title: "Newest", number: true, cell: (group) => h("span", { title: when(group.newest) }, ago(group.newest)) },
  { title: "Took", number: true, cell: (group) => h("span", { title: "the sum of all runs" }, duration(group.seconds)) },
];

/** The mean of the runs that have a value; the title says from where to where they are. */
function spread(values) {
  if (!values) return "";
  const range = `${number(values.least)} to ${number(values.greatest)} in ${integer(values.runs)} runs`;
  return h("span", { title: values.runs > 1 ? range : "one run" }, values.runs > 1 ? "mean " : "", number(values.mean));
}

/** Draws the groups into `place`, and again when runs change. `onload(answer)` gets each answer of the server, or {error}. */
export function showGroups(place, { filter, by, onload }) {
  const head = (column) => h(`th${column.number ? ".num" : ""}`, { scope: "col" }, column.title);
  const row = (group) => {
    const name = group.value === null ? h("span.faint", "no value") : plain(group.value);
    return h(
      "tr",
      h("td", group.filter === null ? name : h("a", { href: address("runs", "", { filter: group.filter }) }, name)),
      columns.map((column) => h(`td${column.number ? ".num" : ""}`, column.cell(group))),
    );
  };
  async function draw() {
    try {
      const answer = await get("groups", { filter, by });
      onload(answer);
      if (!answer.groups.length) return void replace(place, empty("No run matches this filter"));
      replace(
        place,
        h(
          "table.groups-table",
          { "aria-label": `Runs grouped by ${by}` },
          h("thead", h("tr", [{ title: by }, ...columns].map(head))),
          h("tbody", answer.groups.map(row)),
        ),
        answer.left_out ? h("p.muted.small", `${integer(answer.left_out)} more values are not shown.`) : null,
      );
    } catch (error) {
      onload({ error });
    }
  }
  const stop = onChange(paced(draw, 1000));
  draw();
  return { dispose: stop };
}
