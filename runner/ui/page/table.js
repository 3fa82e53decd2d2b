// A table of any number of rows: only those on the screen exist, and their data is asked for page by page.
import { h, replace } from "./dom.js";

const page = 100;

/** Sorted by clicks on the head: "-best(x)" is descending. */
export function head(columns, sort, onsort) {
  return h(
    "thead",
    h(
      "tr",
      columns.map((column) => {
        const sorted = column.sort && sort.replace(/^-/, "") === column.sort;
        const label = [column.title, column.unit ? h("span.unit", ` ${column.unit}`) : null];
        return h(
          `th${column.number ? ".num" : ""}`,
          { scope: "col", "aria-sort": sorted ? (sort.startsWith("-") ? "descending" : "ascending") : null },
          column.sort
            ? h(
              "button",
              { type: "button", onclick: () => onsort(sorted && sort.startsWith("-") ? column.sort : `-${column.sort}`) },
              label,
              sorted ? (sort.startsWith("-") ? " ↓" : " ↑") : "",
            )
            : label,
        );
      }),
    ),
  );
}

/**
 * `fetchRows(offset, limit)` resolves to {rows, total}; `draw(row)` makes a <tr>; `scroller` is the element that scrolls.
 * Returns {body, refresh(), reset(), rows(), dispose()}.
 */
export function virtualRows({ scroller, columns, fetchRows, draw, height, onload }) {
  const body = h("tbody");
  const pages = new Map();
  let total = 0, drawn = "", version = 0, busy = 0;

  const rowHeight = () => (matchMedia("(max-width: 640px)").matches ? 96 : height);
  const row = (index) => pages.get(Math.floor(index / page))?.[index % page];

  async function load(index) {
    if (pages.has(index)) return;
    pages.set(index, []);
    const mine = version;
    ++busy;
    try {
      const answer = await fetchRows(index * page, page);
      if (mine !== version) return;
      pages.set(index, answer.rows);
      total = answer.total;
      drawn = "";
      update();
      onload?.(answer);
    } catch (error) {
      if (mine === version) pages.delete(index);
      onload?.({ error });
    } finally {
      --busy;
    }
  }

  function update() {
    const size = rowHeight(), top = body.getBoundingClientRect().top - scroller.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / size) - 8), last = Math.min(total, first + Math.ceil(scroller.clientHeight / size) + 16);
    for (let index = Math.floor(first / page); index <= Math.floor(Math.max(first, last - 1) / page); ++index) load(index);
    const key = `${first}:${last}:${total}`;
    if (key === drawn) return;
    drawn = key;
    const space = (rows) =>
      h(
        "tr.space",
        { "aria-hidden": "true", vars: {} },
        h("td", { colSpan: columns.length, style: { height: `${rows * size}px`, padding: 0, border: 0 } }),
      );
    const rows = [];
    for (let i = first; i < last; ++i) {
      const data = row(i);
      const element = data ? draw(data, i) : h("tr.loading", { style: { height: `${size}px` } }, h("td", { colSpan: columns.length }, ""));
      element.setAttribute("aria-rowindex", String(i + 2));
      rows.push(element);
    }
    const focused = document.activeElement?.closest?.("tr")?.dataset.id;
    replace(body, first > 0 ? space(first) : null, rows, last < total ? space(total - last) : null);
    if (focused) body.querySelector(`tr[data-id="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  const onscroll = () => requestAnimationFrame(update);
  scroller.addEventListener("scroll", onscroll, { passive: true });
  addEventListener("resize", onscroll);
  load(0);
  return {
    body,
    rows: () => [...pages.values()].flat(),
    redraw() {
      drawn = "";
      update();
    },
    /** Asks again for the pages on the screen; the old rows stay until the answer is there. */
    async refresh() {
      if (busy) return;
      const size = rowHeight(), top = body.getBoundingClientRect().top - scroller.getBoundingClientRect().top;
      const first = Math.floor(Math.max(0, -top / size) / page),
        last = Math.floor((Math.max(0, -top) + scroller.clientHeight) / size / page);
      const mine = version;
      ++busy;
      try {
        const wanted = [];
        for (let index = first; index <= last; ++index) if (index === 0 || index * page < total) wanted.push(index);
        const answers = await Promise.all(wanted.map((index) => fetchRows(index * page, page)));
        if (mine !== version) return;
        pages.clear();
        answers.forEach((answer, i) => pages.set(wanted[i], answer.rows));
        total = answers.at(-1)?.total ?? total;
        drawn = "";
        update();
        onload?.(answers.at(-1) ?? {});
      } catch (error) {
        onload?.({ error });
      } finally {
        --busy;
      }
    },
    dispose() {
      ++version;
      scroller.removeEventListener("scroll", onscroll);
      removeEventListener("resize", onscroll);
    },
  };
}
