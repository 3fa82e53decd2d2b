// The filter field: the language of `runner ls`, with completion and the place of mistakes.
import { h, icon, replace } from "./dom.js";
import { get } from "./api.js";

const starts = [
  ["status:failed", "runs of a status"],
  ["tag:", "runs with a tag"],
  ["since:7d", "started within the last 7 days"],
  ["optimizer.lr>1e-3", "a recipe key"],
  ["best(val_loss)<2", "the best value of a metric"],
  ["sort:-best(val_loss)", "the order; - is descending"],
  ["archived:yes", "archived runs"],
  ["-tag:old", "- negates"],
];

/** {start, end, candidates}: what can replace that part of the text; the server knows the language and the words of the ledger. */
async function complete(text, cursor) {
  const bytes = new TextEncoder().encode(text), size = new TextEncoder().encode(text.slice(0, cursor)).length;
  const answer = await get("words", { text: text || " ", cursor: text ? size : 0 }).catch(() => ({ offset: 0, length: 0, candidates: [] }));
  const decode = (to) => new TextDecoder().decode(bytes.slice(0, to)).length;
  return { start: decode(answer.offset), end: decode(answer.offset + answer.length), candidates: answer.candidates };
}

/** A field that calls `apply(text)` when the user is done; `fail(error)` shows the place of a mistake, `fail(null)` removes it. */
export function filterField(text, apply) {
  const input = h("input", {
    type: "text",
    value: text,
    placeholder: "Filter runs, as in runner ls",
    "aria-label": "Filter of runs",
    autocomplete: "off",
    spellcheck: "false",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": "suggestions",
    "aria-autocomplete": "list",
  });
  const list = h("ul.suggestions", { id: "suggestions", role: "listbox", hidden: true });
  const problem = h("div.filter-error", { role: "alert", hidden: true });
  const hint = h("span.hint", { "aria-hidden": "true" }, "/");
  const clear = h("button.clear", {
    type: "button",
    "aria-label": "Remove the filter",
    hidden: !text,
    onclick: () => ((input.value = ""), done()),
  }, "✕");
  const box = h("div.filter", icon("M9 3a6 6 0 1 1 0 12A6 6 0 0 1 9 3zM13.5 13.5L17 17"), input, hint, clear, list, problem);
  let shown = [], chosen = -1, applied = text;

  const close = () => {
    list.hidden = true;
    chosen = -1;
    input.setAttribute("aria-expanded", "false");
  };
  const mark = () => {
    [...list.children].forEach((row, i) => row.setAttribute("aria-selected", String(i === chosen)));
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
    if (chosen >= 0) input.setAttribute("aria-activedescendant", `suggestion-${chosen}`);
    else input.removeAttribute("aria-activedescendant");
  };
  let part = { start: 0, end: 0, text: null }; // what the suggestions would replace, in this text
  const take = (word) => {
    const open = /[:(<>=]$/.test(word), rest = input.value.slice(part.end).trimStart();
    input.value = input.value.slice(0, part.start) + word + (open ? "" : " ") + rest;
    input.selectionStart = input.selectionEnd = part.start + word.length + (open ? 0 : 1);
    input.focus();
    suggest();
  };
  let asked = 0;
  async function suggest() {
    const mine = ++asked, text = input.value, before = text.slice(0, input.selectionStart);
    const found = before.trim() && !/\s$/.test(before)
      ? await complete(text, input.selectionStart)
      : { start: before.length, end: before.length, candidates: starts.map(([word, about]) => ({ text: word, about })) };
    if (mine !== asked || document.activeElement !== input) return;
    part = { ...found, text };
    shown = found.candidates.filter((one) => one.text !== text.slice(found.start, found.end)).slice(0, 60);
    chosen = -1;
    replace(
      list,
      shown.map((one, i) =>
        h(
          "li",
          {
            role: "option",
            id: `suggestion-${i}`,
            "aria-selected": "false",
            onpointerdown: (event) => (event.preventDefault(), take(one.text)),
          },
          h("code", one.text),
          h("span", one.about),
        )
      ),
    );
    list.hidden = shown.length === 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
  }
  function done() {
    close();
    clear.hidden = !input.value;
    const value = input.value.trim();
    if (value === applied) return;
    applied = value;
    apply(value);
  }
  input.addEventListener("input", () => {
    problem.hidden = true;
    hint.hidden = true;
    clear.hidden = !input.value;
    chosen = -1; // the suggestions on the screen are for the text before
    mark();
    suggest();
  });
  input.addEventListener("focus", () => ((hint.hidden = true), problem.hidden && suggest()));
  input.addEventListener("blur", () => ((hint.hidden = Boolean(input.value)), close(), done()));
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden || part.text !== input.value) return suggest();
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : -1) + shown.length + 1) % (shown.length + 1);
      if (chosen === shown.length) chosen = -1;
      mark();
    } else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0 && part.text === input.value) {
      event.preventDefault();
      take(shown[chosen].text);
    } else if (event.key === "Enter") {
      done();
    } else if (event.key === "Escape") {
      if (list.hidden) input.blur();
      else close();
    }
  });
  return {
    box,
    focus: () => (input.focus(), input.select()),
    set(value) {
      input.value = applied = value;
      clear.hidden = !value;
      hint.hidden = Boolean(value);
    },
    fail(error) {
      problem.hidden = !error;
      input.setAttribute("aria-invalid", String(Boolean(error)));
      if (!error) return;
      const place = error.answer?.offset;
      const bytes = new TextEncoder().encode(applied), decode = (from, to) => new TextDecoder().decode(bytes.slice(from, to));
      const end = place + Math.max(1, error.answer?.length ?? 1);
      replace(
        problem,
        place === undefined ? null : h("pre", decode(0, place), h("mark", decode(place, end) || " "), decode(end)),
        h("div", error.message),
      );
    },
  };
}
